"""A process goes on while the world fails it, and ends when one of its own tasks has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import launch_in, submit

from heronpy.instance.process import Instance
from heronpy.metricsmgr.parts import MetricsManager
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel
from heronpy.runtime import Launch, Service, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.stmgr import Stmgr
from heronpy.testing import eventually
from heronpy.tmaster import TopologyMaster


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


async def test_a_log_level_that_cannot_be_written_does_not_end_the_topology_master(
    launch: Launch, state: StateManager
) -> None:
    await asyncio.to_thread(submit, state, 1)
    async with running(TopologyMaster(launch)):
        found = await asyncio.to_thread(state.get, Kind.TMASTERS, launch.topology)
        assert found is not None
        master = state_pb2.TmasterLocation.FromString(found)
        folder = Path(launch.statemgr.root, Kind.LOGLEVELS.value)
        async with channel(f"{master.host}:{master.port}", launch.security("heron"), container_identity(0)) as link:
            stub = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated
            who = launch.security("heron").metadata
            request = tmaster_pb2.LogLevelRequest(target="tmaster", level="DEBUG")
            await asyncio.to_thread(folder.rename, folder.with_name("away"))
            await asyncio.to_thread(folder.write_text, "not a directory")
            with pytest.raises(grpc.aio.AioRpcError, match="the log level was not changed") as refused:
                await stub.SetLogLevel(request, metadata=who, timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            await asyncio.to_thread(folder.unlink)
            await asyncio.to_thread(folder.with_name("away").rename, folder)
            levels = await stub.SetLogLevel(request, metadata=who, timeout=60)
            assert [level.level for level in levels.levels] == ["DEBUG"]


ESSENTIAL: list[tuple[str, Callable[[Launch], Service], set[str]]] = [
    (
        "tmaster",
        TopologyMaster,
        {"_follow", "_watch_time", "Reporter.run", "LogLevelKeeper.run"},
    ),
    ("stmgr", lambda launch: Stmgr(launch, 1), {"Registration.run", "Reporter.run"}),
    ("metricsmgr", lambda launch: MetricsManager(launch, 1), {"_follow_state", "_forward"}),
    ("instance", lambda launch: Instance(launch, 1, "container_1_word_1"), {"_stay_attached", "Reporter.run", "_tune"}),
]


@pytest.mark.parametrize(
    ("make", "work"), [pytest.param(make, work, id=f"{n}-{work}") for n, make, all in ESSENTIAL for work in sorted(all)]
)
async def test_a_process_ends_when_one_of_its_tasks_was_cancelled_by_something_in_its_depths(
    launch: Launch, state: StateManager, make: Callable[[Launch], Service], work: str
) -> None:
    await asyncio.to_thread(submit, state, 1)
    process = asyncio.create_task(make(launch).run())
    try:
        await eventually(lambda: _cancel(work))
        async with asyncio.timeout(120):
            with pytest.raises(ExceptionGroup, match="unhandled errors") as ended:
                await asyncio.shield(process)
        assert "has ended, and was not asked to" in str(ended.value.exceptions)
    finally:
        process.cancel()
        await asyncio.wait((process,), timeout=60)


async def test_an_instance_says_once_why_it_is_not_attached(launch: Launch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    attempts = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return channel(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.instance._instance.channel", counted)
        process = asyncio.create_task(Instance(launch, 1, "container_1_word_1").run())
        await eventually(lambda: _at_least(attempts, 4))
        process.cancel()
        await asyncio.wait((process,), timeout=60)
    assert caplog.text.count("no longer attached") == 1, caplog.text


def _at_least(found: int, wanted: int) -> None:
    assert found >= wanted


def _cancel(work: str) -> None:
    found = [task for task in asyncio.all_tasks() if _name(task).endswith(work)]
    assert found
    found[0].cancel()


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "")
