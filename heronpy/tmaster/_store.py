"""The state manager as the core's effects use it, and the copy of what it holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from heronpy.errors import AlreadyExistsError, HeronError, NotFoundError, ReadFailedError, StateError
from heronpy.files import read_owned_file, replace_file
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, records
from heronpy.tmaster._store_effects import (
    ClaimNode,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    StoreEffect,
    StoreFailed,
    WriteNode,
)

log = logging.getLogger(__name__)

COPY_BYTES_MAX = 64 << 20

Answer = NodeClaimed | NodesRead | NodeWritten | StoreFailed


def carry_out(
    state: StateManager,
    topology: str,
    effect: StoreEffect,
    gone_because: Callable[[], str] = lambda: "",
    topology_id: str = "",
) -> Answer:
    """Do what an effect asks for; takes a bounded time. For a thread: it blocks.

    Args:
        state: The state manager.
        topology: Its name there.
        effect: What is asked for.
        gone_because: Asked before a node is written again that is lost or damaged: says why it must not be, empty if it
            may.
        topology_id: Its id: a submission that was killed gets no Topology Master again.
    """
    try:
        if isinstance(effect, WriteNode) and _brings_back(effect) and (why := gone_because()):
            return StoreFailed(effect, why, time.monotonic())
        match effect:
            case ClaimNode(location):
                return NodeClaimed(effect, _claim(state, topology, location, topology_id), time.monotonic())
            case ReadNodes(kinds):
                values = {kind: state.get(kind, topology) for kind in kinds}
                return NodesRead(effect, values, time.monotonic())
            case WriteNode(kind, value, expected, of):
                done = state.set_if(kind, topology, value, expected=expected, of=of)
                return NodeWritten(effect, done, time.monotonic())
    except HeronError as e:
        return StoreFailed(effect, str(e), time.monotonic())


def _brings_back(write: WriteNode) -> bool:
    return write.expected is None or (write.of is write.kind and write.kind is not Kind.EPOCHS)


def gone_because(state: StateManager, launch: Launch, *, registered: bool, last: bytes | None = None) -> str:
    """Why a vanished node must not be written again; empty if it may be.

    A topology that is removed says so first, and a mark stays of one that was killed. Where the state manager has lost
    that, too, a Topology Master that was cut off while its topology was killed finds nothing, as if all data was lost.
    Where the topology's directory is its submitter's, that separates the two. Elsewhere a topology that has a Stream
    Manager is not dead.

    Args:
        state: The state manager.
        launch: Of the topology.
        registered: Whether a Stream Manager is registered.
        last: The topology's execution state as it was last seen.

    Raises:
        StateError: the state manager cannot be read.
    """
    if state.is_buried(launch.topology_id):
        return f"topology {launch.topology} was killed"
    value = state.get(Kind.EXECUTIONSTATE, launch.topology)
    execution = _execution(launch.topology, value, last)
    if execution.removed and execution.topology_id == launch.topology_id:
        return f"topology {launch.topology} is being removed"
    if value is not None:
        running = execution.topology_id
        return "" if running == launch.topology_id else f"topology {launch.topology} is {running} now"
    if launch.shares_files or registered:
        return ""
    return f"topology {launch.topology} is gone from the state manager, and has no Stream Manager: it may be killed"


def _execution(topology: str, value: bytes | None, last: bytes | None) -> state_pb2.ExecutionState:
    """The execution state; of a damaged one, what it was last."""
    if value is not None:
        try:
            return records.execution_state(topology, value)
        except StateError:
            if last is None:
                raise
    return records.execution_state(topology, last) if last is not None else state_pb2.ExecutionState()


def _claim(state: StateManager, topology: str, location: bytes, topology_id: str) -> bool:
    """Create the node unless it exists; whether it is ours."""
    found = state.get(Kind.TMASTERS, topology)
    if found is not None:
        return found == location
    if topology_id and state.is_buried(topology_id):
        raise StateError(f"topology {topology} was killed")
    try:
        state.create(Kind.TMASTERS, topology, location, ephemeral=True)
    except AlreadyExistsError:
        return state.get(Kind.TMASTERS, topology) == location
    return True


class NodeCopies:
    """Values of nodes as files in the topology's directory, for a Topology Master beside an empty state manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> Mapping[Kind, bytes | ReadFailedError]:
        """What was kept; the error in place of a value that may be there, and cannot be read now."""
        found: dict[Kind, bytes | ReadFailedError] = {}
        for kind in Kind:
            try:
                found[kind] = read_owned_file(self._directory / kind.value, max_bytes=COPY_BYTES_MAX)
            except NotFoundError:
                continue
            except ReadFailedError as e:
                found[kind] = e
            except HeronError as e:
                log.warning("the copy of %s is not used: %s", kind.value, e)
        return found

    def keep(self, kind: Kind, value: bytes) -> None:
        """Keep a value. A full disk costs the copy, not the Topology Master."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._directory / kind.value, value, durable=False, mode=0o600)
        except OSError as e:
            log.warning("no copy of %s is kept: %s", kind.value, e)
