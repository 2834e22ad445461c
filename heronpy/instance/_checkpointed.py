"""What an instance has more with checkpoints: the shell around the gateway's decisions, the saver and the thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

from heronpy.checkpoints import LoggedBatch, LogHeader, ObjectRef, ReadAhead, Saved
from heronpy.config import state_memory_bytes
from heronpy.errors import CheckpointError, HeronError
from heronpy.instance._alignment import CompleteSnapshot
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal, TaskCore
from heronpy.instance._gateway_checkpoints import GatewayCheckpoints
from heronpy.instance._logged import from_log
from heronpy.instance._reading_ahead import ReadingAhead
from heronpy.instance._restore import RestorableThread
from heronpy.instance._saving import Saver, SnapshotStore
from heronpy.instance._snapshots import SnapshotReports
from heronpy.instance._task_config import serializer_of
from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, stmgr_pb2

log = logging.getLogger(__name__)

TICK_S: Final = 0.1


class Restored(Protocol):
    """What a checkpoint has of one task."""

    @property
    def saved(self) -> Saved: ...

    @property
    def log(self) -> tuple[LoggedBatch, ...]: ...

    @property
    def read_bytes(self) -> int: ...


class CheckpointStore(SnapshotStore, Protocol):
    """The Checkpoint Manager, as `heronpy.ckptmgr.client.CheckpointClient` shows it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *args: object) -> None: ...

    async def restore(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        spool: Path | None = None,
        ahead: ReadAhead | None = None,
    ) -> Restored:
        """What a checkpoint has of task `index` of `tasks`.

        With `spool`, state by key is read from files there; with `ahead`, only what is newer is read, if that fits.
        """


class CheckpointedTask:
    """One task with checkpoints, as the gateway has it. Used in the gateway's event loop."""

    def __init__(
        self,
        store: CheckpointStore,
        plan: PhysicalPlan,
        task_id: int,
        *,
        channel: ThreadChannel,
        signal: Signal,
        make_core: Callable[[PhysicalPlan, Saved], TaskCore],
        ended: Callable[[BaseException | None], None],
        report_exception: Callable[[str], None],
        masked: Callable[[str], str] = str,
        reading_ahead: ReadingAhead | None = None,
    ) -> None:
        """A task that is restored as soon as that is ordered.

        Args:
            store: Where snapshots go, and come from.
            plan: The first one.
            task_id: Of the task.
            channel: To its thread.
            signal: To its thread.
            make_core: Makes a core; called in the thread.
            ended: Called in the thread just before it exits.
            report_exception: Reports what keeps a restore from being done.
            masked: A reason without what is secret.
            reading_ahead: What the task may have read before it is restored.
        """
        self._store, self._plan, self._task_id = store, plan, task_id
        self._channel, self._report_exception, self._masked = channel, report_exception, masked
        self._component = plan.tasks[task_id][1].component
        self._loop = asyncio.get_running_loop()
        self._group: asyncio.TaskGroup | None = None
        self._ready = asyncio.Event()
        self._not_full = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self._put_bytes = 0
        """Of pieces that the task has handed over; its thread counts."""
        self._gateway = GatewayCheckpoints(task_id, time.time_ns(), self)
        self._gateway.planned(plan)
        self._reading_ahead = reading_ahead
        if reading_ahead is not None:
            reading_ahead.report = self._gateway.read_ahead
        self.thread = RestorableThread(make_core, channel, signal, ended, self)
        self._saver = Saver(
            store,
            serializer=serializer_of(plan.logical.config_of(self._component)),
            spawn=self._spawn,
            header=self._header,
            stored=self._gateway.stored,
            failed=self._gateway.failed,
        )

    async def run(self) -> None:
        """Do what time brings, until cancelled."""
        async with self._store, asyncio.TaskGroup() as self._group:
            self._ready.set()
            while True:
                self.tick(self._loop.time())
                await asyncio.sleep(TICK_S)

    # What the gateway has to say

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        self._gateway.tick(now_s)

    async def received(self, frame: stmgr_pb2.Frame) -> None:
        """Take a frame; returns when there is room for another one."""
        await self._ready.wait()
        self._gateway.received(frame, self._loop.time())
        while self._gateway.full:
            self._not_full.clear()
            await self._not_full.wait()

    def attached(self) -> None:
        """The Stream Manager is there, maybe another one."""
        self._gateway.attached()

    def detached(self) -> None:
        """The Stream Manager is gone."""
        self._gateway.detached()

    def planned(self, plan: PhysicalPlan) -> None:
        """There is a newer plan."""
        self._plan = plan
        self._gateway.planned(plan)
        self.thread.replan(plan)

    # `Instructions`, from the gateway's decisions

    @property
    def batches_put(self) -> int:
        return self._channel.batches_put

    @property
    def batches_done(self) -> int:
        return self._channel.batches_done

    def put(self, batch: stmgr_pb2.Batch) -> None:
        self._channel.put(batch)

    def hold(self, held: bool) -> None:
        self.thread.hold(held)

    def snapshot(self, epoch: int, checkpoint: int) -> None:
        self.thread.snapshot(epoch, checkpoint)

    def snapshot_now(self, epoch: int, checkpoint: int) -> None:
        self.thread.snapshot_now(epoch, checkpoint)

    def complete(self, complete: CompleteSnapshot, aligned_us: int) -> None:
        self._saver.complete(complete, aligned_us)

    def drop(self, checkpoint: int) -> None:
        self._saver.drop(checkpoint)

    def abort(self, epoch: int, checkpoint: int, whole: bool) -> None:
        self.thread.abort(epoch, checkpoint, whole)

    def commit(self, epoch: int, checkpoint: int) -> None:
        self.thread.commit(epoch, checkpoint)

    def end_epoch(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        self._saver.enter(self._gateway.epoch)
        if waiting := self._channel.enter_epoch():
            log.info("restore epoch %d: %d batches that wait are dropped", self._gateway.epoch, waiting)
        self.thread.end_epoch()
        self._not_full.set()

    def restore(self, epoch: int, checkpoint: int, set_aside: Mapping[bytes, str]) -> None:
        self._loading = self._spawn(self._load(epoch, checkpoint, set_aside))

    def resume(self, epoch: int, skip: int) -> None:
        self.thread.resume(epoch, skip)

    def report(self, report: checkpoint_pb2.InstanceReport) -> None:
        self._channel.report(stmgr_pb2.Frame(reports=[report]).SerializeToString())

    # `TaskReports`, from the task's thread

    def restored(self, epoch: int) -> None:
        self._in_loop(self._gateway.restored, epoch)

    def failed(self, epoch: int, reason: str, tup: bytes, lasting: bool) -> None:
        self._in_loop(self._gateway.task_failed, epoch, self._masked(reason), tup, lasting)

    def not_restored(self, epoch: int, checkpoint: int, reason: str, unreadable: bool) -> None:
        self._report_exception(f"checkpoint {checkpoint} cannot be restored: {self._masked(reason)}")
        damage = self._masked(reason) if unreadable else ""
        self._in_loop(lambda: self._gateway.not_loaded(epoch, checkpoint, damage, unreadable=unreadable))

    def of_snapshots(self, epoch: int) -> SnapshotReports:
        return _OfSnapshots(self, epoch)

    def unsaved_bytes(self) -> int:
        """Of pieces that wait for the Checkpoint Manager; any thread."""
        return self._put_bytes - self._saver.saved_bytes

    def taken(self, epoch: int, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        """As `SnapshotReports`."""
        self._in_loop(self._taken, epoch, checkpoint, self._channel.batches_done, begun, name, undivided, whole)

    def written(self, epoch: int, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        """As `SnapshotReports`."""
        self._put_bytes += sum(map(len, pieces))
        self._in_loop(self._saver.written, epoch, checkpoint, pieces, ref)

    def not_written(self, epoch: int, checkpoint: int, reason: str, lasting: bool) -> None:
        """As `SnapshotReports.failed`."""
        self._in_loop(self._not_written, epoch, checkpoint, self._masked(reason), lasting)

    def committed(self, checkpoint: int) -> None:
        """As `SnapshotReports`."""
        self._in_loop(self._gateway.committed, checkpoint)

    def _in_loop(self, what: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _taken(
        self, epoch: int, checkpoint: int, done: int, begun: int, name: str, undivided: str, whole: bool
    ) -> None:
        self._saver.taken(epoch, checkpoint, name, undivided, whole)
        self._gateway.snapshot_taken(epoch, checkpoint, done, begun)
        self._not_full.set()

    def _not_written(self, epoch: int, checkpoint: int, reason: str, lasting: bool) -> None:
        self._saver.drop(checkpoint)
        self._gateway.failed(epoch, checkpoint, reason, lasting)

    # Tasks of the event loop

    def _spawn(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None, "frames are taken when it runs"
        return self._group.create_task(what)

    async def _load(self, epoch: int, checkpoint: int, set_aside: Mapping[bytes, str]) -> None:
        tasks = self._plan.component_tasks[self._component]
        spool = None if state_memory_bytes(self._plan.logical.config_of(self._component)) is None else Path.cwd()
        began_s = self._loop.time()
        ahead = await self._read_ahead(checkpoint, tasks.index(self._task_id), len(tasks))
        try:
            found = await self._store.restore(
                checkpoint, self._component, tasks.index(self._task_id), len(tasks), spool=spool, ahead=ahead
            )
        except HeronError as error:
            log.error("restore epoch %d: checkpoint %d cannot be loaded: %s", epoch, checkpoint, error)
            self._report_exception(f"checkpoint {checkpoint} cannot be loaded: {error}")
            self._gateway.not_loaded(epoch, checkpoint, str(error) if isinstance(error, CheckpointError) else "")
            return
        if self._plan.component_tasks[self._component] != tasks:
            return  # what it is of is over: the order of the epoch that came with this plan is on its way
        took_s = self._loop.time() - began_s
        log.info(
            "restore epoch %d: %d bytes of checkpoint %d read in %.2f s", epoch, found.read_bytes, checkpoint, took_s
        )
        logged = [from_log(each) for each in found.log]
        self._gateway.loaded(epoch, logged)
        batches = [each.batch for each in logged]
        self.thread.restore(self._plan, found.saved, epoch, checkpoint, set_aside, batches)

    async def _read_ahead(self, checkpoint: int, index: int, tasks: int) -> ReadAhead | None:
        """What was read before a checkpoint is restored."""
        if self._reading_ahead is None:
            return None
        if not checkpoint:  # what the topology was submitted from: another one's, with numbers of its own
            self._reading_ahead.take()
            return None
        await self._reading_ahead.finish(checkpoint, index, tasks)
        return self._reading_ahead.take()

    def _header(self, epoch: int, checkpoint: int) -> LogHeader:
        tasks = self._plan.component_tasks[self._component]
        return LogHeader(
            topology_id=self._plan.logical.id,
            component=self._component,
            index=tasks.index(self._task_id),
            tasks=len(tasks),
            checkpoint_id=checkpoint,
            epoch=epoch,
        )


class _OfSnapshots:
    """What the snapshots of one epoch are reported to."""

    def __init__(self, task: CheckpointedTask, epoch: int) -> None:
        self._task, self._epoch = task, epoch

    @property
    def unsaved_bytes(self) -> int:
        return self._task.unsaved_bytes()

    def taken(self, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        self._task.taken(self._epoch, checkpoint, begun, name, undivided, whole)

    def written(self, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        self._task.written(self._epoch, checkpoint, pieces, ref)

    def failed(self, checkpoint: int, reason: str, *, lasting: bool = False) -> None:
        self._task.not_written(self._epoch, checkpoint, reason, lasting)

    def committed(self, checkpoint: int) -> None:
        self._task.committed(checkpoint)
