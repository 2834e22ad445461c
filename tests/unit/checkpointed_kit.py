"""An instance with checkpoints without threads and sockets: the real gateway and the real task, each step by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.checkpoints import ObjectRef, Saved
from heronpy.config import InstanceConfig
from heronpy.instance.checkpoints import (
    CompleteSnapshot,
    GatewayCheckpoints,
    InputBatch,
    RestorableThread,
    TaskBatch,
    from_log,
    logged,
)
from heronpy.instance.task import Command, Signal, TaskCore
from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from tests.unit.snapshot_kit import Stored

INCARNATION = 77


class Queues:
    """What `ThreadChannel` does, for one thread."""

    def __init__(self) -> None:
        self.waiting: deque[stmgr_pb2.Batch | Command] = deque()
        self.sent: list[tuple[int, stmgr_pb2.Batch]] = []
        """With the epoch that each was sent in."""
        self.batches_put = self.batches_done = self.stale_until = self.epoch = 0
        self.stopping = self.out_full = False

    @property
    def stale(self) -> bool:
        return self.batches_done < self.stale_until

    def put(self, batch: stmgr_pb2.Batch) -> None:
        self.batches_put += 1
        self.waiting.append(batch)

    def command(self, command: Command) -> None:
        self.waiting.append(command)

    def number_from(self, epoch: int) -> None:
        self.epoch = epoch

    def take(self, timeout_s: float) -> stmgr_pb2.Batch | Command | None:
        return self.waiting.popleft() if self.waiting else None

    def done(self, batch: stmgr_pb2.Batch) -> None:
        self.batches_done += 1

    def wait_out_room(self, timeout_s: float) -> None:
        """Nothing: there is always room."""

    def send(self, batches: list[stmgr_pb2.Batch]) -> None:
        self.sent += [(self.epoch, batch) for batch in batches]


class ByHand:
    """One instance. `task()` is a step of its thread, `loop()` has its gateway hear what the thread said."""

    def __init__(self, plan: PhysicalPlan, task: int, stored: Stored, *, incarnation: int = INCARNATION) -> None:
        self.plan, self.task_id, self.stored = plan, task, stored
        self.queues, self.signal = Queues(), Signal()
        self.now_s = 0.0
        self.reports: list[checkpoint_pb2.InstanceReport] = []
        self.later: deque[Any] = deque()
        """What the thread said."""
        self.logs: dict[int, tuple[InputBatch, ...]] = {}
        """Of the snapshots that are stored."""
        self.complete_: dict[int, CompleteSnapshot] = {}
        self.written_: dict[int, list[Any]] = {}
        self.names: dict[int, str] = {}
        self.to_load: list[tuple[int, int]] = []
        self.loads_by_itself = True
        self.cores: list[TaskCore] = []
        self.gateway = GatewayCheckpoints(task, incarnation, self)
        self.gateway.planned(plan)
        self.thread = RestorableThread(self.make_core, self.queues, self.signal, lambda error: None, self)

    def make_core(self, plan: PhysicalPlan, saved: Saved) -> TaskCore:
        core = TaskCore(
            plan=plan,
            task_id=self.task_id,
            config=InstanceConfig(),
            send=self.queues.send,
            signal=self.signal,
            saved=saved,
            clock=lambda: int(self.now_s * 1e9) + 1_000_000_000,
        )
        self.cores.append(core)
        return core

    @property
    def user(self) -> Any:
        """The present component."""
        return self.thread.runner.task.user_object  # type: ignore[union-attr]  # it was restored

    # steps

    def received(
        self, batches: Sequence[stmgr_pb2.Batch] = (), *, epoch: int = 1, number: int = 0, **more: Any
    ) -> None:
        frame = stmgr_pb2.Frame(batches=batches, epoch=epoch, number=number, **more)
        self.gateway.received(frame, self.now_s)

    def order(self, **order: Any) -> None:
        self.received(orders=[checkpoint_pb2.CheckpointOrder(**order)])

    def task(self) -> None:
        self.thread.round()

    def loop(self) -> None:
        if self.later:
            self.later.popleft()()

    def settle(self) -> None:
        """Until nothing moves."""
        for _ in range(20):
            while self.queues.waiting or self.later:
                self.task()
                while self.later:
                    self.loop()
            self.task()

    def start(self, checkpoint: int = 0, epoch: int = 1) -> None:
        """Restore, and run."""
        self.order(restore=checkpoint_pb2.RestoreTasks(epoch=epoch, checkpoint=checkpoint, tasks=[self.task_id]))
        self.settle()
        self.order(resume=checkpoint_pb2.ResumeTasks(epoch=epoch, incarnations={self.task_id: INCARNATION}))

    def said(self, kind: str) -> list[Any]:
        """Reports of a kind, and forget all."""
        found = [getattr(report, kind) for report in self.reports if report.WhichOneof("report") == kind]
        self.reports.clear()
        return found

    # `Instructions`

    @property
    def batches_put(self) -> int:
        return self.queues.batches_put

    @property
    def batches_done(self) -> int:
        return self.queues.batches_done

    def put(self, batch: stmgr_pb2.Batch) -> None:
        self.queues.put(batch)

    def hold(self, held: bool) -> None:
        self.thread.hold(held)

    def snapshot(self, epoch: int, checkpoint: int) -> None:
        self.thread.snapshot(epoch, checkpoint)

    def snapshot_now(self, epoch: int, checkpoint: int) -> None:
        self.thread.snapshot_now(epoch, checkpoint)

    def complete(self, complete: CompleteSnapshot, aligned_us: int) -> None:
        self.complete_[complete.checkpoint] = complete
        self.join(complete.checkpoint)

    def drop(self, checkpoint: int) -> None:
        self.complete_.pop(checkpoint, None)
        self.names.pop(checkpoint, None)

    def abort(self, epoch: int, checkpoint: int, whole: bool) -> None:
        self.thread.abort(epoch, checkpoint, whole)

    def commit(self, epoch: int, checkpoint: int) -> None:
        self.thread.commit(epoch, checkpoint)

    def end_epoch(self) -> None:
        self.complete_.clear()
        self.names.clear()
        self.queues.stale_until = self.queues.batches_put
        self.thread.end_epoch()

    def restore(self, epoch: int, checkpoint: int, set_aside: Mapping[bytes, str]) -> None:
        self.set_aside = set_aside
        self.to_load.append((epoch, checkpoint))
        if self.loads_by_itself:
            self.load()

    def load(self) -> None:
        """What was to be loaded last is there."""
        epoch, checkpoint = self.to_load.pop()
        log = [from_log(logged(batch, "pickle")) for batch in self.stored_log(checkpoint)]
        self.gateway.loaded(epoch, log)
        self.thread.restore(self.plan, self.stored.saved(checkpoint, self.task_id), epoch, checkpoint, self.set_aside)

    def stored_log(self, checkpoint: int) -> tuple[InputBatch, ...]:
        return self.logs.get(checkpoint, ())

    def resume(self, epoch: int, skip: int) -> None:
        self.thread.resume(epoch, skip)

    def report(self, report: checkpoint_pb2.InstanceReport) -> None:
        self.reports.append(report)

    # `TaskReports`, and `SnapshotReports`

    unsaved_bytes = 0

    def restored(self, epoch: int) -> None:
        self.later.append(lambda: self.gateway.restored(epoch))

    def failed(self, epoch: int, reason: str, tup: bytes, lasting: bool) -> None:
        self.later.append(lambda: self.gateway.task_failed(epoch, reason, tup, lasting))

    def of_snapshots(self, epoch: int) -> Any:
        return _Snapshots(self, epoch)

    def join(self, checkpoint: int) -> None:
        """Store a snapshot if all of it is there."""
        name = self.names.get(checkpoint)
        if name is None or checkpoint not in self.complete_ or (name and name not in self.stored.objects):
            return
        complete = self.complete_.pop(checkpoint)
        assert all(isinstance(batch, TaskBatch) for batch in complete.log)
        self.logs[checkpoint] = complete.log
        found = checkpoint_pb2.SnapshotStored(checkpoint=checkpoint, unaligned=complete.unaligned)
        self.gateway.stored(self.gateway.epoch, found)


class _Snapshots:
    def __init__(self, hand: ByHand, epoch: int) -> None:
        self.hand, self.epoch = hand, epoch
        self.unsaved_bytes = 0
        self.pieces: list[bytes] = []

    def taken(self, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        self.pieces = []
        done = self.hand.queues.batches_done

        def taken() -> None:
            if self.epoch == self.hand.gateway.epoch:
                self.hand.names[checkpoint] = name
            self.hand.gateway.snapshot_taken(self.epoch, checkpoint, done, begun)
            self.hand.join(checkpoint)

        self.hand.later.append(taken)

    def written(self, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        self.pieces += pieces
        if ref is not None:
            data = b"".join(self.pieces)

            def written() -> None:
                self.hand.stored.objects[ref.name] = data
                self.hand.stored.refs = [each for each in self.hand.stored.refs if each.checkpoint_id == checkpoint]
                self.hand.stored.refs.append(ref)
                self.hand.join(checkpoint)

            self.hand.later.append(written)

    def failed(self, checkpoint: int, reason: str, *, lasting: bool = False) -> None:
        self.hand.later.append(lambda: self.hand.gateway.failed(self.epoch, checkpoint, reason, lasting))

    def committed(self, checkpoint: int) -> None:
        self.hand.later.append(lambda: self.hand.gateway.committed(checkpoint))
