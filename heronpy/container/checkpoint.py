"""A checkpoint before a container ends, by a process of its own: `python -m heronpy.container.checkpoint --dir DIR …`.

For the same reason as `enroll`: the executor has no gRPC. It asks the Topology Master, and says on stderr if there is
no checkpoint. None is wanted of a topology that is paused (it is being killed, and has had its last one), or of which
something else is missing: it would only be waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc.aio

from heronpy.address import join_address
from heronpy.container._ending import ending
from heronpy.errors import StateError, UnavailableError
from heronpy.proto import tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel
from heronpy.runtime import Launch, die_with_parent
from heronpy.security import container_identity
from heronpy.statemgr import Kind, open_statemgr, records

CALL_TIMEOUT_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.container.checkpoint")
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--wait", type=float, required=True, help="seconds in which there must be a checkpoint")
    args = parser.parse_args()
    die_with_parent()
    launch = Launch.load(args.dir)
    with ending(f"container {args.container} of {launch.topology}") as say:
        if (checkpoint := asyncio.run(_taken(launch, args.container, args.wait))) is not None:
            say(f"ends, and checkpoint {checkpoint} has what was done until now")


async def _taken(launch: Launch, container: int, wait_s: float) -> int | None:
    """The checkpoint; None: none is wanted.

    Raises:
        StateError: there was none in time.
        UnavailableError: the Topology Master does not answer.
    """
    with contextlib.closing(open_statemgr(launch.statemgr, parents=False)) as state:
        master = records.tmaster_location(launch.topology, state.get(Kind.TMASTERS, launch.topology))
    if master is None:
        return None
    security = launch.security(f"executor-{container}")
    async with channel(join_address(master.host, master.port), security, container_identity(0)) as link:
        stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated without types
        status, wanted = tmaster_pb2.TopologyRequest(), tmaster_pb2.CheckpointRequest(timeout_ms=int(wait_s * 1000))
        try:
            found = await stub.GetStatus(status, metadata=security.metadata, timeout=CALL_TIMEOUT_S)
            if found.state != "RUNNING" or not found.ready:
                return None
            reply = await stub.TakeCheckpoint(wanted, metadata=security.metadata, timeout=wait_s + CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as e:
            why = f"it ends without a checkpoint: {e.details() or e.code().name}"
            raise (StateError if e.code() is grpc.StatusCode.FAILED_PRECONDITION else UnavailableError)(why) from e
    return int(reply.checkpoint)


if __name__ == "__main__":
    main()
