"""A task with checkpoints: its thread, its gateway and a storage, with the Stream Manager played by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from heronpy.api.serializer import MsgpackSerializer
from heronpy.checkpoints import LoggedBatch, LogRef, ObjectRef, ReadAhead, Saved, decode_log, decode_ref
from heronpy.config import InstanceConfig
from heronpy.errors import UnavailableError
from heronpy.instance.checkpoints import RESTORED, RUNNING, CheckpointedTask, TaskBatch, logged
from heronpy.instance.task import Signal, TaskCore, ThreadChannel
from heronpy.packing import RoundRobinPacking
from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.wire import CONTROL, control_batch, decode_control
from tests.unit.snapshot_kit import Stored, numbers, plan_of

COUNT = 3
"""The counting task of a plan with two spouts, 1 and 2."""


@dataclass(frozen=True)
class Found:
    saved: Saved
    log: tuple[LoggedBatch, ...]
    read_bytes: int = 0


class Store:
    """A Checkpoint Manager in memory."""

    def __init__(self, plan: PhysicalPlan, task: int) -> None:
        self.stored, self.task = Stored(plan), task
        self.logs: dict[int, LogRef] = {}
        self.in_flight: tuple[LoggedBatch, ...] = ()
        """What each restore finds in a log besides."""
        self.fails = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0
        self.ahead: list[ReadAhead | None] = []
        """What each restore was given."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        """Nothing is open."""

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        try:
            await self.gate.wait()
            data = b"".join([piece async for piece in pieces])
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            self.fails -= 1
            raise UnavailableError("the storage is away")
        self.stored.objects[name] = data

    async def restore(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        spool: Path | None = None,
        ahead: ReadAhead | None = None,
    ) -> Found:
        self.ahead.append(ahead)
        if self.fails:
            self.fails -= 1
            raise UnavailableError("the storage is away")
        log = self.in_flight
        if (ref := self.logs.get(checkpoint)) is not None:
            log = decode_log(self.stored.objects[ref.name], ref, self.stored.plan.logical.id)
        return Found(self.stored.saved(checkpoint, self.task), log)

    def commit(self, stored: checkpoint_pb2.SnapshotStored) -> None:
        for ref in map(decode_ref, stored.objects):
            if isinstance(ref, ObjectRef):
                self.stored.refs.append(ref)
            else:
                self.logs[stored.checkpoint] = ref
        self.stored.commit(stored.checkpoint)


class Run:
    """A task at work."""

    def __init__(self, plan: PhysicalPlan, task: int, reading_ahead: Any = None) -> None:
        self.plan, self.task_id = plan, task
        self.store = Store(plan, task)
        self.channel, self.signal = ThreadChannel(InstanceConfig()), Signal()
        self.ended: list[BaseException | None] = []
        self.cores: list[TaskCore] = []
        self.reported: list[str] = []
        self.sent: list[stmgr_pb2.Frame] = []
        """Frames of batches."""
        self.waiting: list[checkpoint_pb2.InstanceReport] = []
        self.task = CheckpointedTask(
            self.store,
            plan,
            task,
            channel=self.channel,
            signal=self.signal,
            make_core=self.make_core,
            ended=self.ended.append,
            report_exception=self.reported.append,
            reading_ahead=reading_ahead,
        )
        self.next = 1
        self.incarnation = 0

    def make_core(self, plan: PhysicalPlan, saved: Saved) -> TaskCore:
        core = TaskCore(
            plan=plan,
            task_id=self.task_id,
            config=InstanceConfig(),
            send=self.channel.send,
            wake=lambda: self.channel.command(lambda _task: None),
            signal=self.signal,
            saved=saved,
        )
        self.cores.append(core)
        return core

    @property
    def user(self) -> Any:
        assert self.task.thread.runner is not None
        return self.task.thread.runner.task.user_object

    async def order(self, **order: Any) -> None:
        await self.task.received(stmgr_pb2.Frame(orders=[checkpoint_pb2.CheckpointOrder(**order)]))

    async def send(self, *batches: stmgr_pb2.Batch, epoch: int = 1) -> None:
        await self.task.received(stmgr_pb2.Frame(batches=batches, epoch=epoch, number=self.next))
        self.next += 1

    async def report(self, kind: str) -> Any:
        """The next report of a kind."""
        while True:
            while self.waiting:
                report = self.waiting.pop(0)
                if report.WhichOneof("report") == kind:
                    return getattr(report, kind)
            await self.frame()

    async def frame(self) -> None:
        async with asyncio.timeout(120):
            data = await self.channel.next_frame()
        self.channel.sent(data)
        frame = stmgr_pb2.Frame.FromString(data)
        if frame.batches:
            self.sent.append(frame)
        self.waiting += frame.reports

    async def phase(self, phase: int, epoch: int) -> None:
        while True:
            status = await self.report("status")
            self.incarnation = status.incarnation
            if (status.phase, status.epoch) == (phase, epoch):
                return

    async def start(self, checkpoint: int = 0, epoch: int = 1) -> None:
        await self.order(restore=checkpoint_pb2.RestoreTasks(epoch=epoch, checkpoint=checkpoint, tasks=[self.task_id]))
        await self.phase(RESTORED, epoch)
        await self.order(resume=checkpoint_pb2.ResumeTasks(epoch=epoch, incarnations={self.task_id: self.incarnation}))
        await self.phase(RUNNING, epoch)
        self.next = 1


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that the thread does."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  # there is no event: it happens in a thread
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running(task: int, reading_ahead: Any = None, **config: str) -> AsyncIterator[Run]:
    run = Run(plan_of(spouts=2, **config), task, reading_ahead)
    run.task.thread.start()
    shell = asyncio.create_task(run.task.run())
    try:
        yield run
    finally:
        run.task.thread.stop()
        await until(lambda: run.ended)
        shell.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await shell
    assert run.ended == [None]


def batch(values: list[Any], source: int = 1) -> stmgr_pb2.Batch:
    return numbers(values, COUNT, source=source)


def marker(checkpoint: int, source: int) -> stmgr_pb2.Batch:
    return control_batch(source, COUNT, marker=checkpoint)


def markers(checkpoint: int) -> list[stmgr_pb2.Batch]:
    return [marker(checkpoint, source) for source in (1, 2)]


async def test_what_was_stored_is_restored_in_place() -> None:
    async with running(COUNT) as run:
        await run.start()
        await run.send(batch([1, 2, 2]), *markers(1), batch([3]))
        stored = await run.report("stored")
        assert (stored.task, stored.checkpoint, stored.epoch, stored.unaligned) == (COUNT, 1, 1, False)
        assert stored.state_bytes == sum(map(len, run.store.stored.objects.values()))
        run.store.commit(stored)
        await run.start(1, epoch=2)
        assert dict(run.user.counts) == {1: 1, 2: 2}
        assert len(run.cores) == 2


class HasRead:
    """What a task has read ahead, again and again."""

    ahead = ReadAhead(1, 1, 0, 1, {})

    async def finish(self, checkpoint: int, index: int, tasks: int) -> None:
        """It is complete."""

    def take(self) -> ReadAhead:
        return self.ahead


async def test_what_was_read_ahead_is_not_taken_for_the_checkpoint_that_the_topology_was_submitted_from() -> None:
    async with running(COUNT, HasRead()) as run:
        await run.start()
        await run.send(batch([1, 2, 2]), *markers(1))
        run.store.commit(await run.report("stored"))
        await run.start(1, epoch=2)
        await run.start(0, epoch=3)
        assert run.store.ahead == [None, HasRead.ahead, None]


async def test_what_was_loaded_for_another_number_of_tasks_is_not_restored() -> None:
    async with running(COUNT) as run:
        await run.start()
        await run.send(batch([1, 2, 2]), *markers(1))
        run.store.commit(await run.report("stored"))
        loaded, load = asyncio.Event(), run.store.restore

        async def slow(*args: Any, **options: Any) -> Found:
            found = await load(*args, **options)
            await loaded.wait()
            return found

        run.store.restore = slow  # type: ignore[method-assign]
        await run.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, checkpoint=1, tasks=[COUNT]))
        await asyncio.sleep(0)
        packing = RoundRobinPacking(run.plan.logical).repack(run.plan.packing, {"count": 1})
        logical = run.plan.logical.with_parallelism(packing.parallelism)
        run.store.stored.plan = PhysicalPlan(2, logical, packing, (), restore_epoch=3)
        run.task.planned(run.store.stored.plan)
        loaded.set()
        for _ in range(5):
            await asyncio.sleep(0)  # it goes on before the order of the next epoch comes
        await run.start(1, epoch=3)
        assert run.user.counts.place.tasks == 2
        assert len(run.cores) == 2


async def test_frames_are_numbered_in_each_epoch() -> None:
    async with running(COUNT) as run:
        for epoch in (1, 2):
            await run.start(epoch=epoch)
            for checkpoint in (1, 2, 3):
                await run.send(*markers(10 * epoch + checkpoint), epoch=epoch)
                await run.report("stored")
        assert [(frame.epoch, frame.number) for frame in run.sent] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
        told = [decode_control(b.body).marker for frame in run.sent for b in frame.batches if b.kind == CONTROL]
        assert told == [each for n in (11, 12, 13, 21, 22, 23) for each in (n, n)]


async def test_an_unaligned_snapshot_has_a_log_that_is_restored() -> None:
    async with running(COUNT) as run:
        await run.start()
        release, process, loop = asyncio.Event(), run.user.process, asyncio.get_running_loop()

        def slow(tup: Any) -> None:
            process(tup)
            if tup["number"] == 1:
                asyncio.run_coroutine_threadsafe(release.wait(), loop).result(300)

        run.user.process = slow
        await run.send(batch([1, 2]), batch([3], 2), marker(1, 1))
        run.task.tick(loop.time() + 60)  # as if so long had passed
        release.set()
        await run.send(batch([4], 2), marker(1, 2), batch([5], 2))
        stored = await run.report("stored")
        assert stored.unaligned
        assert len(stored.objects) == 2
        run.store.commit(stored)
        await run.start(1, epoch=2)
        await run.send(*markers(2), epoch=2)
        stored = await run.report("stored")
        run.store.commit(stored)
        await run.start(2, epoch=3)
        assert dict(run.user.counts) == {1: 1, 2: 1, 3: 1, 4: 1}


async def test_a_snapshot_that_cannot_be_stored_is_reported_and_the_next_one_has_its_changes() -> None:
    async with running(COUNT) as run:
        await run.start()
        run.store.fails = 1
        await run.send(batch([1]), *markers(1))
        failed = await run.report("failed")
        assert (failed.task, failed.checkpoint, failed.epoch) == (COUNT, 1, 1)
        assert "the storage is away" in failed.reason
        await run.order(abort=checkpoint_pb2.AbortCheckpoint(checkpoint=1, epoch=1))
        await run.send(*markers(2))
        run.store.commit(await run.report("stored"))
        await run.start(2, epoch=2)
        assert dict(run.user.counts) == {1: 1}


async def test_an_aborted_snapshot_is_stored_no_further() -> None:
    async with running(COUNT) as run:
        await run.start()
        run.store.gate.clear()
        await run.send(batch([1]), *markers(1))
        await until(lambda: run.task.unsaved_bytes())
        await run.order(abort=checkpoint_pb2.AbortCheckpoint(checkpoint=1, epoch=1))
        await until(lambda: not run.task.unsaved_bytes())
        run.store.gate.set()
        await run.send(*markers(2))
        assert (await run.report("stored")).checkpoint == 2
        assert run.store.cancelled == 1


MSGPACK = {"topology.serializer.classname": "heronpy.api.serializer.MsgpackSerializer"}


def in_flight(values: list[Any], serializer: str) -> tuple[LoggedBatch, ...]:
    pickled = batch(values)
    return (logged(TaskBatch(1, pickled.body, 0, pickled), serializer),)


async def test_batches_in_flight_are_read_by_the_serializer_that_has_written_them() -> None:
    async with running(COUNT, **MSGPACK) as run:
        run.store.in_flight = in_flight([1, 2, 2], "pickle")
        await run.start()
        await until(lambda: dict(run.user.counts) == {1: 1, 2: 2})


@pytest.mark.parametrize(
    ("serializer", "why"),
    [
        (MSGPACK["topology.serializer.classname"], "has written and cannot read: "),
        ("gone.Serializer", "has written and cannot read: NotFoundError"),
    ],
)
async def test_batches_in_flight_that_nothing_can_read_are_said_before_anything_runs(serializer: str, why: str) -> None:
    async with running(COUNT, **MSGPACK) as run:
        run.store.in_flight = in_flight([1, 2, 2], serializer)
        await run.order(restore=checkpoint_pb2.RestoreTasks(epoch=1, checkpoint=0, tasks=[COUNT]))
        damaged = await run.report("damaged")
        assert (damaged.checkpoint, damaged.epoch, damaged.unreadable) == (0, 1, True)
        assert (
            f"component 'count' had tuples of component 'numbers' in flight, which {serializer} {why}" in damaged.reason
        )
        assert damaged.reason in run.reported[0]
        run.store.in_flight = ()
        await run.start(0, epoch=2)


async def test_batches_in_flight_that_cannot_be_read_just_now_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(COUNT, **MSGPACK) as run:
        run.store.in_flight = in_flight([1, 2, 2], MSGPACK["topology.serializer.classname"])

        def away(self: MsgpackSerializer, data: bytes) -> Any:
            raise ConnectionError("the registry of schemas is away")

        with monkeypatch.context() as patched:
            patched.setattr(MsgpackSerializer, "deserialize", away)
            await run.order(restore=checkpoint_pb2.RestoreTasks(epoch=1, checkpoint=0, tasks=[COUNT]))
            await until(lambda: any("the registry of schemas is away" in each for each in run.reported))
        assert not any(report.HasField("damaged") for report in run.waiting)
        await run.order(restore=checkpoint_pb2.RestoreTasks(epoch=1, checkpoint=0, tasks=[COUNT]))
        assert (await run.report("damaged")).unreadable


async def test_a_restore_that_cannot_be_loaded_is_tried_again_when_it_is_ordered_again() -> None:
    async with running(COUNT) as run:
        run.store.fails = 1
        order = checkpoint_pb2.RestoreTasks(epoch=1, tasks=[COUNT])
        await run.order(restore=order)
        await until(lambda: run.reported)
        assert "checkpoint 0 cannot be loaded: the storage is away" in run.reported[0]
        await run.start()
        assert dict(run.user.counts) == {}


async def test_a_commit_reaches_the_task_and_is_reported() -> None:
    async with running(1) as run:
        await run.start()
        run.user.limit = 3
        await until(lambda: run.user.state.get("position", 0) == 3)
        await run.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=5, epoch=1))
        run.store.commit(await run.report("stored"))
        await run.order(commit=checkpoint_pb2.CommitCheckpoint(checkpoint=5))
        while (await run.report("status")).committed != 5:
            pass
        assert [call for call in run.user.calls if call[0] == "ack"] == [("ack", 0), ("ack", 1), ("ack", 2)]
        assert ("post_save", "5") in run.user.calls


async def test_an_error_of_user_code_is_a_rollback_and_no_end_of_the_process() -> None:
    async with running(COUNT) as run:
        await run.start()
        await run.send(batch([1, "raise", 2]))
        rollback = await run.report("rollback")
        assert (rollback.task, rollback.epoch) == (COUNT, 1)
        assert "an error of user code" in rollback.reason
        assert rollback.tuple, "it may be set aside"
        await run.start(epoch=2)
        await run.send(batch([7]), *markers(1), epoch=2)
        run.store.commit(await run.report("stored"))
        assert dict(run.user.counts) == {7: 1}


async def test_a_tuple_is_not_to_blame_for_what_is_out_of_reach() -> None:
    async with running(COUNT) as run:
        await run.start()
        await run.send(batch([1, "away", 2]))
        rollback = await run.report("rollback")
        assert "the database is out of reach" in rollback.reason
        assert not rollback.tuple, "it would be set aside"


async def test_status_is_repeated() -> None:
    async with running(COUNT) as run:
        await run.start()
        assert await run.report("status") == await run.report("status")


async def test_a_snapshot_says_which_state_another_number_of_tasks_cannot_restore() -> None:
    async with running(1) as run:
        await run.start()
        await run.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
        assert (await run.report("stored")).undivided == "", "there is no value yet"
        run.user.limit = 1
        await until(lambda: run.user.state.get("position", 0) == 1)
        await run.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=2, epoch=1))
        stored = await run.report("stored")
        assert (stored.checkpoint, stored.undivided) == (2, "the state of init_state(), for example 'position'")
