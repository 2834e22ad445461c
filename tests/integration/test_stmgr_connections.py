"""Stream Managers and instances among processes that come, go, come twice, or are not there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, plan_pb2, stmgr_pb2
from heronpy.rpc import channel
from heronpy.runtime import PARENT_ENV, Launch, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.stmgr import Stmgr
from heronpy.testing import eventually
from heronpy.tmaster import TopologyMaster

KEYS = {"heron.metrics.export.interval.ms": 500}
WORD_1, WORD_2 = "container_1_word_1", "container_2_word_2"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path, KEYS)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        yield sm


class Call:
    """A client's end of a stream of a Stream Manager."""

    def __init__(self, link: grpc.aio.Channel, launch: Launch, method: str, name: str) -> None:
        self.call: Any = link.stream_stream(f"/heronpy.Stmgr/{method}")(metadata=launch.security(name).metadata)

    async def send(self, frame: stmgr_pb2.Frame) -> None:
        await self.call.write(frame.SerializeToString())

    async def next(self, field: str, within_s: float = 120.0) -> stmgr_pb2.Frame:
        """The next frame that has this field."""
        async with asyncio.timeout(within_s):
            while True:
                data = await self.call.read()
                assert data is not grpc.aio.EOF, "the stream has ended"
                frame = stmgr_pb2.Frame.FromString(data)
                if getattr(frame, field) and (field != "plan" or frame.HasField("plan")):
                    return frame

    async def ended(self, within_s: float = 120.0) -> grpc.StatusCode:
        """How the stream ended."""
        async with asyncio.timeout(within_s):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
            return await self.call.code()  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def to_stmgr(launch: Launch, container: int, name: str) -> AsyncIterator[Call]:
    """An instance's stream."""
    async with channel(f"unix:{launch.socket_dir(container) / 'stmgr.sock'}", launch.security(name)) as link:
        yield Call(link, launch, "Attach", name)


@contextlib.asynccontextmanager
async def to_peer(launch: Launch, state: StateManager, stmgr: str, name: str) -> AsyncIterator[Call]:
    """A peer's stream to the Stream Manager `stmgr`."""
    value = await asyncio.to_thread(state.get, Kind.PPLANS, launch.topology)
    assert value is not None
    plan = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value))
    location = next(s for s in plan.stmgrs if s.id == stmgr)
    async with channel(
        f"{location.host}:{location.port}", launch.security(name), container_identity(location.container)
    ) as link:
        yield Call(link, launch, "Peer", name)


@contextlib.asynccontextmanager
async def two_stmgrs(launch: Launch, state: StateManager) -> AsyncIterator[tuple[Stmgr, Stmgr]]:
    """A Topology Master and two Stream Managers that are connected."""
    await asyncio.to_thread(submit, state, 1, 2)
    async with (
        running(TopologyMaster(launch)),
        running(Stmgr(launch, 1)) as one,
        running(Stmgr(launch, 2)) as two,
    ):
        await eventually(lambda: connected(one, two))
        yield one, two


def connected(one: Stmgr, two: Stmgr) -> None:
    assert "stmgr-2" in one.core.connected
    assert "stmgr-1" in two.core.connected


def data(task: int, body: bytes = b"body") -> stmgr_pb2.Frame:
    return stmgr_pb2.Frame(batches=[stmgr_pb2.Batch(dest_task=task, count=1, body=body)])


def culprit(stmgr: str, name: str) -> stmgr_pb2.Frame:
    return stmgr_pb2.Frame(start_backpressure=[stmgr_pb2.StartBackpressure(stmgr=stmgr, culprit=name)])


async def test_an_instance_that_attaches_twice_is_served_once_by_its_newer_stream(
    launch: Launch, state: StateManager
) -> None:
    async with (
        two_stmgrs(launch, state) as (one, _),
        to_stmgr(launch, 1, WORD_1) as old,
        to_stmgr(launch, 2, WORD_2) as sender,
    ):
        await old.next("plan")
        await sender.send(data(1, b"first"))
        assert (await old.next("batches")).batches[0].body == b"first"
        async with to_stmgr(launch, 1, WORD_1) as new:
            await new.next("plan")
            await old.ended()
            for number in range(100):
                await sender.send(data(1, b"%d" % number))
            got: list[int] = []
            while len(got) < 100:
                got += [int(batch.body) for batch in (await new.next("batches")).batches]
            assert got == list(range(100))
            assert one.core.attached == [WORD_1]

        def gone() -> None:
            assert not one.core.attached

        await eventually(gone)


async def test_what_is_sent_to_an_instance_that_is_away_is_delivered_when_it_comes(
    launch: Launch, state: StateManager
) -> None:
    async with two_stmgrs(launch, state), to_stmgr(launch, 1, WORD_1) as sender:
        for number in range(50):
            await sender.send(data(2, b"%d" % number))
        got: list[int] = []
        async with to_stmgr(launch, 2, WORD_2) as late:
            while len(got) < 50:
                got += [int(batch.body) for batch in (await late.next("batches")).batches]
        assert got == list(range(50))


async def test_an_instance_that_is_not_in_the_plan_waits_for_one_that_has_it(
    launch: Launch, state: StateManager
) -> None:
    async with two_stmgrs(launch, state) as (one, _):
        async with to_stmgr(launch, 1, "container_1_word_9"), to_stmgr(launch, 1, "container_1_word_3") as early:

            def both_wait() -> None:
                assert one.waiting == ["container_1_word_3", "container_1_word_9"]

            await eventually(both_wait)
            shares = {3: checkpoint_pb2.TaskShare(index=2, tasks=3)}
            order = checkpoint_pb2.CheckpointOrder(read_ahead=checkpoint_pb2.ReadAhead(checkpoint=7, shares=shares))
            one._obey([order])  # as from the Topology Master, of an update that is being prepared
            assert [*(await early.next("orders")).orders] == [order]
            await asyncio.to_thread(repack, state, launch, 3)
            assert (await early.next("plan")).plan.version > 1

            def one_waits() -> None:
                assert (one.waiting, one.core.attached) == (["container_1_word_9"], ["container_1_word_3"])

            await eventually(one_waits)

        def gone() -> None:
            assert one.waiting == []

        await eventually(gone)


def repack(state: StateManager, launch: Launch, task: int) -> None:
    """Have one more task in container 1."""
    value = state.get(Kind.PACKINGPLANS, launch.topology)
    assert value is not None
    packing = plan_pb2.PackingPlan.FromString(value)
    packing.containers[0].instances.add(
        component="word", task_id=task, component_index=task - 1
    ).resources.SetInParent()
    state.set(Kind.PACKINGPLANS, launch.topology, packing.SerializeToString())


async def test_a_stranger_is_refused(launch: Launch, state: StateManager, tmp_path: Path) -> None:
    async with two_stmgrs(launch, state):
        stranger = launch_in(tmp_path / "elsewhere")
        async with channel(f"unix:{launch.socket_dir(1) / 'stmgr.sock'}", stranger.security(WORD_1)) as link:
            assert await Call(link, stranger, "Attach", WORD_1).ended() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_peer_that_connects_again_starts_with_a_clean_slate(launch: Launch, state: StateManager) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    async with running(TopologyMaster(launch)), running(Stmgr(launch, 2)) as two:
        async with running(Stmgr(launch, 1)) as one:  # else it would end the streams in its name at any moment
            await eventually(lambda: connected(one, two))

        def held(by: set[str]) -> None:
            assert two.core.culprits == by

        async with to_peer(launch, state, "stmgr-2", "stmgr-1") as first:
            await first.send(culprit("stmgr-1", "container_1_slow_7"))
            await eventually(lambda: held({"container_1_slow_7"}))
            # The first connection still looks alive: the peer was killed, say, and is back before that is noticed.
            async with to_peer(launch, state, "stmgr-2", "stmgr-1") as second:
                await second.send(culprit("stmgr-1", "container_1_slow_8"))
                await eventually(lambda: held({"container_1_slow_8"}))
                await first.ended()
                held({"container_1_slow_8"})

        await eventually(lambda: held(set()))
        async with running(Stmgr(launch, 1)) as one:
            await eventually(lambda: connected(one, two))
            held(set())


async def test_batches_for_nobody_and_garbage_end_at_most_their_own_stream(launch: Launch, state: StateManager) -> None:
    async with two_stmgrs(launch, state), to_stmgr(launch, 2, WORD_2) as receiver:
        async with to_stmgr(launch, 1, WORD_1) as sender:
            await sender.send(data(999))
            await sender.call.write(b"\xff\xff\xff\xff")
            await sender.ended()
        async with to_stmgr(launch, 1, WORD_1) as sender:
            await sender.send(data(2))
            assert (await receiver.next("batches")).batches[0].body == b"body"


async def test_streams_that_are_cut_at_any_moment_end_nothing_else(launch: Launch, state: StateManager) -> None:
    async with two_stmgrs(launch, state) as (one, two), to_stmgr(launch, 2, WORD_2) as receiver:
        await receiver.next("plan")
        for number in range(60):
            async with to_stmgr(launch, 1, WORD_1) as sender:
                await sender.send(data(2, b"x" * 100_000))
                await asyncio.sleep(number * 0.0003)  # the cut comes at another moment each time
                sender.call.cancel()
            async with to_peer(launch, state, "stmgr-2", "stmgr-1") as peer:
                await peer.send(data(2, b"y" * 100_000))
                await asyncio.sleep(number * 0.0003)

        await eventually(lambda: connected(one, two))
        async with to_stmgr(launch, 1, WORD_1) as sender:
            await sender.send(data(2, b"last"))
            while (await receiver.next("batches")).batches[-1].body != b"last":
                pass


def instance(launch: Launch, container: int, name: str) -> subprocess.Popen[bytes]:
    arguments = ["--dir", str(launch.dir), "--container", str(container), "--instance", name]
    return subprocess.Popen(
        [sys.executable, "-m", "heronpy.instance", *arguments],
        env={**os.environ, PARENT_ENV: str(os.getpid()), "HERON_TOPOLOGY_ID": launch.topology_id},
        stdin=subprocess.DEVNULL,
    )


async def ends_in_order(launch: Launch, process: Any, pid: int, log: str, words: str) -> None:
    """SIGTERM when the log has these words; the process ends with exit code 0."""
    path = launch.log_dir(1) / log

    def ready() -> None:
        assert path.exists()
        assert words in path.read_text()

    await eventually(ready)
    os.kill(pid, signal.SIGTERM)
    assert await asyncio.to_thread(process, 120) == 0


async def test_a_stream_manager_ends_in_order_without_a_topology_master(launch: Launch, state: StateManager) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    with EngineProcess("stmgr", launch, 1) as stmgr:
        await ends_in_order(launch, stmgr._popen.wait, stmgr.pid, "stmgr-1.log", "listens for peers")


async def test_a_stream_manager_ends_in_order_with_a_plan_a_peer_and_an_instance(
    launch: Launch, state: StateManager
) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    async with running(TopologyMaster(launch)), running(Stmgr(launch, 2)):
        with EngineProcess("stmgr", launch, 1) as stmgr:
            log = launch.log_dir(1) / "stmgr-1.log"
            await eventually(lambda: _contains(log, "plan 1"))
            async with to_stmgr(launch, 1, WORD_1) as attached:
                await attached.next("plan")
                await ends_in_order(launch, stmgr._popen.wait, stmgr.pid, "stmgr-1.log", "connected to stmgr-2")
                assert await attached.ended() is not grpc.StatusCode.OK
            assert "Traceback" not in log.read_text()


async def test_an_instance_ends_in_order_without_a_stream_manager(launch: Launch, state: StateManager) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    process = instance(launch, 1, WORD_1)
    try:
        await ends_in_order(launch, process.wait, process.pid, f"{WORD_1}.log", "no longer attached")
    finally:
        process.kill()
        process.wait()


async def test_an_instance_ends_in_order_while_its_stream_manager_has_no_plan(
    launch: Launch, state: StateManager
) -> None:
    await asyncio.to_thread(submit, state, 1, 2)
    process = None
    async with running(Stmgr(launch, 1)):
        try:
            process = instance(launch, 1, WORD_1)
            await eventually(lambda: _contains(launch.log_dir(1) / f"{WORD_1}.log", "no Metrics Manager"))
            await ends_in_order(launch, process.wait, process.pid, f"{WORD_1}.log", "")
        finally:
            if process is not None:
                process.kill()
                process.wait()


def _contains(path: Path, words: str) -> None:
    assert path.exists()
    assert words in path.read_text()
