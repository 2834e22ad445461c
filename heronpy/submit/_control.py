"""Acting on a running topology: through its Topology Master, or through its scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc.aio
import heron_scheduler

from heronpy.errors import NotFoundError, UnavailableError
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.proto import plan_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc, topology_pb2
from heronpy.runtime import Launch, channel, metadata
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit._submit import LOCK, LOCK_TIMEOUT_S

CALL_TIMEOUT_S = 10.0


def activate(launch: Launch) -> str:
    """Have the spouts emit. Returns the new state, `RUNNING`.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    return str(_ask(launch, "Activate").state)


def deactivate(launch: Launch) -> str:
    """Have the spouts stop emitting. Returns the new state, `PAUSED`.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    return str(_ask(launch, "Deactivate").state)


def status(launch: Launch) -> tmaster_pb2.StatusReply:
    """What the Topology Master knows: state, Stream Managers, instances, counters and rates.

    Raises:
        UnavailableError: the Topology Master does not answer.
    """
    reply: tmaster_pb2.StatusReply = _ask(launch, "GetStatus")
    return reply


def kill(launch: Launch) -> None:
    """End a topology. On return no process, node, socket or file of it is left.

    Raises:
        StateError: the state manager cannot be written; nothing was ended.
        UnavailableError: somebody else submits or kills it right now.
    """
    with contextlib.closing(open_statemgr(launch.statemgr)) as state, state.lock(launch.topology, LOCK, LOCK_TIMEOUT_S):
        heron_scheduler.kill(launch)


def restart(launch: Launch, container: int | None = None) -> None:
    """End the processes of one container, or of all, and have them started again.

    Raises:
        NotFoundError: the topology has no such container.
        UnavailableError: the scheduler does not answer.
    """
    if container is not None:
        known = [0, *(c.id for c in plans(launch)[1].containers)]
        if container not in known:
            raise NotFoundError(
                f"topology {launch.topology} has no container {container}: it has {known[0]} to {known[-1]}"
            )
    heron_scheduler.restart(launch, container)


def plans(launch: Launch) -> tuple[LogicalPlan, PackingPlan]:
    """What was submitted, and which instances share a container.

    Raises:
        NotFoundError: the state manager does not know the topology.
        StateError: the state manager cannot be read.
    """
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        topology = state.get(Kind.TOPOLOGIES, launch.topology)
        packing = state.get(Kind.PACKINGPLANS, launch.topology)
    if topology is None or packing is None:
        raise NotFoundError(f"the state manager at {launch.statemgr.root} does not know topology {launch.topology}")
    return (
        LogicalPlan.from_proto(topology_pb2.Topology.FromString(topology)),
        PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(packing)),
    )


def _ask(launch: Launch, method: str) -> Any:
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        raw = state.get(Kind.TMASTERS, launch.topology)
    if raw is None:
        raise UnavailableError(f"the Topology Master of {launch.topology} is not up: try again, or see `heron logs`")
    location = state_pb2.TmasterLocation.FromString(raw)
    return asyncio.run(_call(launch, f"{location.host}:{location.port}", method))


async def _call(launch: Launch, target: str, method: str) -> Any:
    async with channel(target) as link:
        stub = tmaster_pb2_grpc.TmasterStub(link)  # type: ignore[no-untyped-call]  # generated
        try:
            return await getattr(stub, method)(
                tmaster_pb2.TopologyRequest(), metadata=metadata(launch.token(), "heron"), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as e:
            raise UnavailableError(
                f"the Topology Master of {launch.topology} at {target} does not answer: {e.details() or e.code().name}"
            ) from e
