"""Connections that come and go leave nothing behind in the processes that stay."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from topology_on_disk import launch_in, submit

from heronpy.proto import state_pb2, stmgr_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel
from heronpy.runtime import Launch, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.stmgr import Stmgr
from heronpy.testing import eventually
from heronpy.tmaster import TopologyMaster

CUTS = 20


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


def held() -> dict[str, int]:
    """What this process holds now."""
    return {
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        # Not those of the loop's pool: how many it has got to by now depends on how many calls were late at once.
        "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
    }


@contextlib.asynccontextmanager
async def leaving_nothing() -> AsyncIterator[None]:
    """What was held for a connection is let go with it, and not when the garbage collector comes by."""
    before = held()
    gc.disable()
    try:
        yield

        def check() -> None:
            assert {what: count for what, count in held().items() if count > before[what] + CUTS // 4} == {}

        await eventually(check)
    finally:
        gc.enable()


async def test_instances_and_peers_that_come_and_go_leave_nothing(launch: Launch, state: StateManager) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    async with running(TopologyMaster(launch)), running(Stmgr(launch, 1)) as one, running(Stmgr(launch, 2)) as two:
        await eventually(lambda: _connected(one, two))
        async with leaving_nothing():
            for number in range(CUTS):
                security = launch.security("container_1_word_1")
                async with channel(f"unix:{launch.socket_dir(1) / 'stmgr.sock'}", security) as link:
                    call: Any = link.stream_stream("/heronpy.Stmgr/Attach")(metadata=security.metadata)
                    await call.read()
                    batch = stmgr_pb2.Batch(dest_task=2, count=1, body=b"x" * 1000)
                    await call.write(stmgr_pb2.Frame(batches=[batch]).SerializeToString())
                    if number % 2:
                        call.cancel()
                one.disconnect("stmgr-2", "cut by the test")
                two.disconnect("stmgr-1", "cut by the test")
                await eventually(lambda: _connected(one, two))


async def test_stream_managers_that_come_and_go_leave_nothing_at_the_topology_master(
    launch: Launch, state: StateManager
) -> None:
    await asyncio.to_thread(submit, state, 1)
    async with running(TopologyMaster(launch)):
        found = await asyncio.to_thread(state.get, Kind.TMASTERS, launch.topology)
        assert found is not None
        master = state_pb2.TmasterLocation.FromString(found)
        async with leaving_nothing():
            for number in range(CUTS):
                security = launch.security("stmgr-1")
                async with channel(f"{master.host}:{master.port}", security, container_identity(0)) as link:
                    stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated
                    call = stub.Register(metadata=security.metadata)
                    hello = tmaster_pb2.StmgrHello()
                    hello.location.id, hello.location.container, hello.location.incarnation = "stmgr-1", 1, number + 1
                    await call.write(tmaster_pb2.StmgrMessage(hello=hello))
                    if number % 2:
                        await call.read()
                    call.cancel()


def _connected(one: Stmgr, two: Stmgr) -> None:
    assert "stmgr-2" in one.core.connected
    assert "stmgr-1" in two.core.connected
