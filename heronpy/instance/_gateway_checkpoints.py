"""What the gateway of an instance with checkpoints decides: phases, epochs, alignment, reports. No asyncio, no threads.

    started --restore, loaded, restored--> restored --resume--> running --a restore of a newer epoch--> started …

An order to restore begins the instance's epoch: from then on batches of older ones are dropped. Those of its own, and
of newer ones, are kept until the task runs; they are few, as a Stream Manager gives batches only to restored instances.
Frames of batches are numbered: a gap is a loss, which is reported until the next restore, and no snapshot after it is.

Phase, what was lost and what became of a snapshot are levels, repeated every second; the Stream Manager may be replaced
in between, or a connection be lost with a report.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from heronpy.instance._alignment import (
    Alignment,
    CompleteSnapshot,
    Deliver,
    Effect,
    FailSnapshot,
    InputBatch,
    Snapshot,
    SnapshotNow,
)
from heronpy.plan import PhysicalPlan, feedback_edges
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.wire import CONTROL, MalformedBatch, decode_control

STATUS_EVERY_S: Final = 1.0

STARTED = checkpoint_pb2.TaskStatus.STARTED
RESTORED = checkpoint_pb2.TaskStatus.RESTORED
RUNNING = checkpoint_pb2.TaskStatus.RUNNING


@dataclass(frozen=True, slots=True)
class TaskBatch(InputBatch):
    """A batch as it came; `data` is its body."""

    batch: Any = None


class Instructions(Protocol):
    """What the gateway has others do: the task, what saves and loads, and the Stream Manager."""

    @property
    def batches_put(self) -> int:
        """How many batches the task was given."""

    @property
    def batches_done(self) -> int:
        """How many it has finished."""

    def put(self, batch: stmgr_pb2.Batch) -> None:
        """Give the task a batch."""

    def hold(self, held: bool) -> None:
        """Have a spout emit nothing new, or go on."""

    def snapshot(self, epoch: int, checkpoint: int) -> None:
        """Have a snapshot taken behind what was put before; `snapshot_taken` is the answer."""

    def snapshot_now(self, epoch: int, checkpoint: int) -> None:
        """Have a snapshot taken between two tuples; likewise."""

    def complete(self, complete: CompleteSnapshot, aligned_us: int) -> None:
        """Nothing more comes to a snapshot: once all is stored, `stored` or `failed`."""

    def drop(self, checkpoint: int) -> None:
        """Forget a snapshot."""

    def abort(self, epoch: int, checkpoint: int, whole: bool) -> None:
        """Notify the task that a checkpoint will not be committed, and if the next one must have the whole state."""

    def commit(self, epoch: int, checkpoint: int) -> None:
        """Notify the task that one is; `committed` is the answer."""

    def end_epoch(self) -> None:
        """Stop the task, and forget all snapshots."""

    def restore(self, epoch: int, checkpoint: int, set_aside: Mapping[bytes, str]) -> None:
        """Load a checkpoint and give the task its state; `loaded` and `restored`, or `not_loaded`, are the answers.

        `set_aside` says which tuples it is not to execute, and why.
        """

    def resume(self, epoch: int, skip: int) -> None:
        """Have the task run."""

    def report(self, report: checkpoint_pb2.InstanceReport) -> None:
        """Report to the Stream Manager."""


class GatewayCheckpoints:
    """The gateway's side of one task."""

    def __init__(self, task: int, incarnation: int, instructions: Instructions) -> None:
        """A process that has just started."""
        self._task, self._incarnation, self._do = task, incarnation, instructions
        self._inputs: frozenset[int] = frozenset()
        self._back: frozenset[int] = frozenset()
        self.epoch = 0
        """The one whose restore has begun here."""
        self.phase = STARTED
        self._loading = False
        self._log: Sequence[TaskBatch] = ()
        self._committed = 0
        self._read_ahead, self._read_share = 0, (0, 0)
        self._announced = 0
        """The newest commit that was reported to the task in this epoch."""
        self._missing = ""
        self._rollback: checkpoint_pb2.RollbackRequest | None = None
        self._outcome: checkpoint_pb2.InstanceReport | None = None
        """What became of the newest snapshot, until the Topology Master has decided on its checkpoint."""
        self._alignment: Alignment | None = None
        self._kept: deque[stmgr_pb2.Frame] = deque()
        """Of this epoch and newer ones, until the task runs."""
        self._next = 1
        """Number of the next frame."""
        self._delivered: deque[TaskBatch] = deque()
        """What the task was given and, as far as is known, has not finished; the first is number `_first`."""
        self._first = 0
        self._at_once = 0
        """The checkpoint of a `SnapshotNow` that is not answered."""
        self._since_s: tuple[int, float] = (0, 0.0)
        """The checkpoint whose first marker came last, and when."""
        self._status_at_s = 0.0
        self._now_s = 0.0

    @property
    def full(self) -> bool:
        """Whether nothing more is to be read until the task has answered."""
        return self._alignment is not None and self._alignment.full

    def planned(self, plan: PhysicalPlan) -> None:
        """A plan is in force."""
        component = plan.tasks[self._task][1].component
        back = feedback_edges(plan.logical)
        sources = {decl.component for decl in plan.logical.components[component].inputs}
        self._inputs = frozenset(task for name in sources for task in plan.component_tasks[name])
        self._back = frozenset(
            task for name in sources if (name, component) in back for task in plan.component_tasks[name]
        )

    def attached(self) -> None:
        """There is a Stream Manager, maybe another one than before."""
        self._say()

    def detached(self) -> None:
        """The Stream Manager is gone, and with it what it has said."""
        self._do.hold(False)

    def received(self, frame: stmgr_pb2.Frame, now_s: float) -> None:
        """A frame has come."""
        self._now_s = now_s
        for order in frame.orders:
            self._obey(order)
        if frame.HasField("hold"):
            self._do.hold(frame.hold)
        if not frame.batches or frame.epoch < self.epoch:
            return
        if frame.epoch == self.epoch and self.phase == RUNNING:
            self._take(frame)
        else:
            self._kept.append(frame)

    def tick(self, now_s: float) -> None:
        """Check what is due; to be called several times a second."""
        self._now_s = now_s
        alignment = self._alignment
        if alignment is not None and alignment.due_s is not None and alignment.due_s <= now_s:
            self._carry_out(alignment.time_passed(now_s))
        if now_s >= self._status_at_s:
            self._say()

    # What the task, and what saves and loads, have to say

    def loaded(self, epoch: int, log: Sequence[TaskBatch]) -> None:
        """State is there, and on its way to the task; the log is to be executed first."""
        if epoch == self.epoch:
            self._log = log

    def not_loaded(self, epoch: int, checkpoint: int, damage: str, *, unreadable: bool = False) -> None:
        """State cannot be had now. The order will come again.

        Args:
            epoch: In which it was to be restored.
            checkpoint: Of which it is.
            damage: Why it never can; empty: it is not known.
            unreadable: It is the log that cannot be deserialized.
        """
        if epoch == self.epoch:
            self._loading = False
            if damage:
                damaged = checkpoint_pb2.CheckpointDamaged(
                    task=self._task, epoch=epoch, checkpoint=checkpoint, reason=damage, unreadable=unreadable
                )
                self._do.report(checkpoint_pb2.InstanceReport(damaged=damaged))

    def restored(self, epoch: int) -> None:
        """The task has its state."""
        if epoch == self.epoch and self.phase == STARTED:
            self.phase, self._loading = RESTORED, False
            self._say()

    def task_failed(self, epoch: int, reason: str, tup: bytes, lasting: bool = False) -> None:
        """The task runs no more. The arguments are as in `TaskReports.failed`."""
        if epoch == self.epoch and self._rollback is None:
            self._rollback = checkpoint_pb2.RollbackRequest(
                task=self._task, epoch=epoch, reason=reason or "unknown", tuple=tup, lasting=lasting
            )
            self._say()

    def snapshot_taken(self, epoch: int, checkpoint: int, done: int, begun: int) -> None:
        """A snapshot was taken.

        Args:
            epoch: In which epoch.
            checkpoint: Of which checkpoint.
            done: How many batches the task had finished.
            begun: How many tuples of the next one were executed; 0: it was not in hand.
        """
        if epoch != self.epoch or checkpoint != self._at_once or self._alignment is None:
            return
        self._at_once = 0
        self._carry_out(self._alignment.snapshot_taken(checkpoint, self._unexecuted(done, begun)))

    def stored(self, epoch: int, stored: checkpoint_pb2.SnapshotStored) -> None:
        """A snapshot is stored with all that belongs to it."""
        if epoch != self.epoch:
            return
        if self._missing:
            self.failed(epoch, stored.checkpoint, self._missing)
            return
        stored.task, stored.incarnation, stored.epoch = self._task, self._incarnation, epoch
        self._outcome = checkpoint_pb2.InstanceReport(stored=stored)
        self._do.report(self._outcome)

    def failed(self, epoch: int, checkpoint: int, reason: str, lasting: bool = False) -> None:
        """A snapshot cannot be stored; `lasting`: nor can the next one be."""
        if epoch == self.epoch:
            failed = checkpoint_pb2.SnapshotFailed(
                task=self._task, checkpoint=checkpoint, epoch=epoch, reason=reason, lasting=lasting
            )
            self._outcome = checkpoint_pb2.InstanceReport(failed=failed)
            self._do.report(self._outcome)

    def committed(self, checkpoint: int) -> None:
        """The task, and user code, know of a commit."""
        if checkpoint > self._committed:
            self._committed = checkpoint
            self._say()

    def read_ahead(self, checkpoint: int, share: tuple[int, int]) -> None:
        """What may be restored soon was read as of a checkpoint, or cannot be; 0: it is not kept any more.

        Args:
            checkpoint: which.
            share: the task's index in its component, and how many tasks that is to have.
        """
        self._read_ahead, self._read_share = checkpoint, share
        self._say()

    # Orders

    def _obey(self, order: checkpoint_pb2.CheckpointOrder) -> None:
        kind = order.WhichOneof("order")
        if kind == "restore":
            self._restore(order.restore)
        elif kind == "resume":
            self._resume(order.resume)
        elif self.phase != RUNNING or self._alignment is None:
            return
        elif kind == "begin" and order.begin.epoch == self.epoch:
            self._marked(order.begin.checkpoint)
            self._carry_out(self._alignment.begun(order.begin.checkpoint, self._now_s))
        elif kind == "abort" and order.abort.epoch == self.epoch:
            self._carry_out(self._alignment.aborted(order.abort.checkpoint))
            self._do.drop(order.abort.checkpoint)
            self._do.abort(self.epoch, order.abort.checkpoint, order.abort.whole)
            self._decided(order.abort.checkpoint)
        elif kind == "commit":
            self._commit(order.commit.checkpoint)

    def _commit(self, checkpoint: int) -> None:
        self._decided(checkpoint)
        if checkpoint > max(self._announced, self._committed):
            self._announced = checkpoint
            self._do.commit(self.epoch, checkpoint)
        elif checkpoint <= self._committed:
            self._say()

    def _decided(self, checkpoint: int) -> None:
        """Repeat nothing of this checkpoint and older ones any more."""
        if (outcome := self._outcome) is not None and max(
            outcome.stored.checkpoint, outcome.failed.checkpoint
        ) <= checkpoint:
            self._outcome = None

    def _restore(self, order: checkpoint_pb2.RestoreTasks) -> None:
        newer = order.epoch > self.epoch
        if self._task not in order.tasks or not (newer or (order.epoch == self.epoch and self.phase == STARTED)):
            self._say()
            return
        if newer:
            self._enter(order.epoch)
        if not self._loading:
            self._loading = True
            set_aside = {each.tuple: each.reason for each in order.set_aside}
            self._do.restore(order.epoch, order.checkpoint, set_aside)

    def _enter(self, epoch: int) -> None:
        self.epoch, self.phase, self._loading, self._log = epoch, STARTED, False, ()
        self._missing, self._rollback = "", None
        self._outcome = None
        self._alignment, self._at_once, self._announced, self._next = None, 0, 0, 1
        self._kept = deque(frame for frame in self._kept if frame.epoch >= epoch)
        self._delivered.clear()
        self._do.end_epoch()

    def _resume(self, order: checkpoint_pb2.ResumeTasks) -> None:
        mine = order.epoch == self.epoch and order.incarnations.get(self._task) == self._incarnation
        if mine and self.phase == RESTORED:
            self.phase = RUNNING
            log, self._log = self._log, ()
            assert not any(batch.skip for batch in log[1:]), "only the batch in hand was begun"
            self._do.resume(self.epoch, log[0].skip if log else 0)
            self._alignment = Alignment(self._inputs, self._back)
            self._first = self._do.batches_put
            self._carry_out(self._alignment.restored(log))
            kept, self._kept = self._kept, deque()
            for frame in kept:
                if frame.epoch == self.epoch:
                    self._take(frame)
                else:
                    self._kept.append(frame)
        self._say()

    # Batches

    def _take(self, frame: stmgr_pb2.Frame) -> None:
        """Take the batches of a frame of this epoch."""
        if frame.number and frame.number != self._next:
            self._missing = self._missing or f"frame {self._next} did not come, but {frame.number}"
            self._say()
        self._next = frame.number + 1
        alignment = self._alignment
        assert alignment is not None
        for batch in frame.batches:
            if batch.kind == CONTROL and self._is_taken_here(alignment, batch):
                continue
            self._carry_out(alignment.received(TaskBatch(batch.src_task, batch.body, 0, batch)))

    def _is_taken_here(self, alignment: Alignment, batch: stmgr_pb2.Batch) -> bool:
        """Take a marker, or the end of a source. Everything else is for the task."""
        try:
            control = decode_control(batch.body)
        except MalformedBatch:
            return False  # the task says so
        kind = control.WhichOneof("control")
        if kind == "marker":
            self._marked(control.marker)
            self._carry_out(alignment.marked(batch.src_task, control.marker, self._now_s))
        elif kind == "ended":
            self._carry_out(alignment.ended(batch.src_task, self._now_s))
        return kind in ("marker", "ended")

    def _marked(self, checkpoint: int) -> None:
        if checkpoint > self._since_s[0]:
            self._since_s = checkpoint, self._now_s

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(batch):
                    self._deliver(batch)
                case Snapshot(checkpoint):
                    self._do.snapshot(self.epoch, checkpoint)
                case SnapshotNow(checkpoint):
                    self._at_once = checkpoint
                    self._do.snapshot_now(self.epoch, checkpoint)
                case CompleteSnapshot(checkpoint):
                    since_s = self._since_s[1] if self._since_s[0] == checkpoint else self._now_s
                    self._do.complete(effect, int((self._now_s - since_s) * 1e6))
                case FailSnapshot(checkpoint, reason):
                    self._do.drop(checkpoint)
                    self.failed(self.epoch, checkpoint, reason)

    def _deliver(self, batch: InputBatch) -> None:
        assert isinstance(batch, TaskBatch)
        done = self._do.batches_done
        while self._delivered and self._first < done:
            self._delivered.popleft()
            self._first += 1
        if not self._delivered:
            self._first = self._do.batches_put
        self._delivered.append(batch)
        self._do.put(batch.batch)

    def _unexecuted(self, done: int, begun: int) -> list[TaskBatch]:
        """What was delivered and is not covered by a snapshot, given how far the task was."""
        rest = [*self._delivered][max(0, done - self._first) :]
        if begun and rest:
            rest[0] = dataclasses.replace(rest[0], skip=begun)
        return rest

    # Reports

    @property
    def status(self) -> checkpoint_pb2.TaskStatus:
        """What is reported of the task."""
        return checkpoint_pb2.TaskStatus(
            task=self._task,
            incarnation=self._incarnation,
            epoch=0 if self.phase == STARTED else self.epoch,
            phase=self.phase,
            committed=self._committed,
            read_ahead=self._read_ahead,
            read_share=checkpoint_pb2.TaskShare(index=self._read_share[0], tasks=self._read_share[1]),
        )

    def _say(self) -> None:
        self._status_at_s = self._now_s + STATUS_EVERY_S
        self._do.report(checkpoint_pb2.InstanceReport(status=self.status))
        if self._missing:
            missing = checkpoint_pb2.FramesMissing(epoch=self.epoch, reason=self._missing)
            self._do.report(checkpoint_pb2.InstanceReport(missing=missing))
        elif self._outcome is not None:  # a report may be lost with a connection, and its checkpoint would wait for it
            self._do.report(self._outcome)
        if self._rollback is not None:
            self._do.report(checkpoint_pb2.InstanceReport(rollback=self._rollback))
