"""What the nodes of a topology hold, read without trust: a node may be torn, cut off, or another program's.

Each parser takes the topology's name and the value of its node, and raises a `DamagedStateError` that names the node
if the value is damaged. Nothing else parses nodes. Who follows a node goes on with what it has: see `readable`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from heronpy.errors import DamagedStateError, StateError, TopologyError
from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan
from heronpy.proto import loglevels_pb2, plan_pb2, state_pb2, topology_pb2
from heronpy.runtime import Launch
from heronpy.statemgr._base import Kind, StateManager

log = logging.getLogger(__name__)

T = TypeVar("T")
V = TypeVar("V", bytes, bytes | None)

_DAMAGES = (DecodeError, TopologyError, ValueError, LookupError, TypeError)


def execution_state(topology: str, value: bytes) -> state_pb2.ExecutionState:
    """Of `Kind.EXECUTIONSTATE`."""
    found = _parsed(Kind.EXECUTIONSTATE, topology, state_pb2.ExecutionState.FromString, value)
    _check(bool(found.topology_id), Kind.EXECUTIONSTATE, topology, "it names no submission")
    return found


def definition(topology: str, value: bytes) -> topology_pb2.Topology:
    """Of `Kind.TOPOLOGIES`. Whether it is a valid topology is seen by who makes a logical plan of it."""
    found = _parsed(Kind.TOPOLOGIES, topology, topology_pb2.Topology.FromString, value)
    _check(bool(found.id), Kind.TOPOLOGIES, topology, "it names no submission")
    return found


def packing_plan(topology: str, value: bytes, kind: Kind = Kind.PACKINGPLANS) -> PackingPlan:
    """Of `Kind.PACKINGPLANS`, and of `Kind.NEXTPACKINGPLANS` unless that is empty."""
    found = _parsed(kind, topology, lambda raw: PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(raw)), value)
    _check(bool(found.containers), kind, topology, "it has no containers")
    return found


def next_packing_plan(topology: str, value: bytes | None) -> PackingPlan | None:
    """Of `Kind.NEXTPACKINGPLANS`; None: nothing is being prepared."""
    return packing_plan(topology, value, Kind.NEXTPACKINGPLANS) if value else None


def physical_plan(topology: str, value: bytes) -> PhysicalPlan:
    """Of `Kind.PPLANS`."""
    return _parsed(
        Kind.PPLANS, topology, lambda raw: PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(raw)), value
    )


def plans(topology: str, defined: topology_pb2.Topology, packing: bytes) -> tuple[LogicalPlan, PackingPlan]:
    """Of `Kind.PACKINGPLANS`: what the newest code in it defines, and the plan.

    Raises:
        TopologyError: that is not a valid topology.
    """
    packed = packing_plan(topology, packing)
    newest = _parsed(Kind.PACKINGPLANS, topology, lambda _: packed.definition(defined), packing)
    return LogicalPlan.from_proto(newest), packed


def tmaster_location(topology: str, value: bytes | None) -> state_pb2.TmasterLocation | None:
    """Of `Kind.TMASTERS`; None: there is no Topology Master."""
    if value is None:
        return None
    found = _parsed(Kind.TMASTERS, topology, state_pb2.TmasterLocation.FromString, value)
    _check(bool(found.host and found.port), Kind.TMASTERS, topology, "it has no address")
    return found


def scheduler_location(topology: str, value: bytes | None) -> state_pb2.SchedulerLocation | None:
    """Of `Kind.SCHEDULERS`; None: there is no service."""
    return None if value is None else _parsed(Kind.SCHEDULERS, topology, state_pb2.SchedulerLocation.FromString, value)


def log_levels(topology: str, value: bytes | None) -> loglevels_pb2.LogLevels:
    """Of `Kind.LOGLEVELS`; without a value none is changed."""
    return _parsed(Kind.LOGLEVELS, topology, loglevels_pb2.LogLevels.FromString, value or b"")


def checkpoints(topology: str, value: bytes | None) -> state_pb2.Checkpoints:
    """Of `Kind.STATEFULCHECKPOINTS`; without a value there is none."""
    return _parsed(Kind.STATEFULCHECKPOINTS, topology, state_pb2.Checkpoints.FromString, value or b"")


def epoch(topology: str, value: bytes | None) -> state_pb2.Epoch:
    """Of `Kind.EPOCHS`; without a value the first."""
    return _parsed(Kind.EPOCHS, topology, state_pb2.Epoch.FromString, value or b"")


def submission(state: StateManager, topology: str) -> str | None:
    """The id of the submission that has a topology's name; None: none has it.

    Where the execution state is damaged, the definition and the launch values say so, too.

    Raises:
        DamagedStateError: all are damaged.
        StateError: the state manager cannot be read.
    """
    value = state.get(Kind.EXECUTIONSTATE, topology)
    if value is None:
        return None
    try:
        return execution_state(topology, value).topology_id
    except DamagedStateError as damaged:
        for kind, id_of in ((Kind.TOPOLOGIES, _defined_id), (Kind.LAUNCHES, _launched_id)):
            value = state.get(kind, topology)
            with contextlib.suppress(StateError):  # that one is damaged, too
                if value is not None and (id := id_of(topology, value)):
                    log.warning("%s", damaged)
                    return id
        raise


def _defined_id(topology: str, value: bytes) -> str:
    return definition(topology, value).id


def _launched_id(topology: str, value: bytes) -> str:
    return Launch.decode(value, Path(topology)).topology_id


def readable(parse: Callable[[str, V], T], topology: str, value: V, *, before: T) -> T:
    """What a parser makes of a node; of a damaged one, which is logged, what was there before."""
    try:
        return parse(topology, value)
    except DamagedStateError as e:
        log.error("%s; what was there before stands", e)
        return before


def _parsed(kind: Kind, topology: str, parse: Callable[[bytes], T], value: bytes) -> T:
    try:
        return parse(value)
    except _DAMAGES as e:
        raise _damaged(kind, topology, str(e) or type(e).__name__) from e


def _check(sound: bool, kind: Kind, topology: str, why: str) -> None:
    if not sound:
        raise _damaged(kind, topology, why)


def _damaged(kind: Kind, topology: str, why: str) -> DamagedStateError:
    return DamagedStateError(f"node {kind.value}/{topology} of the state manager is damaged: {' '.join(why.split())}")
