"""A simulated instance with checkpoints: the real alignment between a simulated link and a task that counts.

It stands in for the real gateway and task, and does what they have to do: number frames, report what is missing, obey
orders, restore in place, keep what comes before it may run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from heronpy.checkpoints import ReadAhead
from heronpy.instance.checkpoints import (
    Alignment,
    CompleteSnapshot,
    Deliver,
    Effect,
    FailSnapshot,
    InputBatch,
    Snapshot,
    SnapshotNow,
)
from heronpy.plan import PhysicalPlan, TopologyState
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.testing.simulation._loop import Process
from heronpy.testing.simulation._network import End, Network
from heronpy.testing.simulation._programs import CYCLE, Broken, Ledger
from heronpy.testing.simulation._storage import (
    FAIL_SHARE,
    Item,
    Storage,
    TaskSnapshot,
    decoded,
    encoded,
    first,
    owner,
)
from heronpy.wire import CONTROL, DATA, control_batch, decode_control

STEP_S = 0.004
STATUS_S = 1.0
_LOOK_S = 0.1
_STORAGE_S = 0.1
_RECONNECT_S = 0.2
_ITEMS_A_STEP = 8
_QUEUE_MAX = 100
_FRAMES_MAX = 40
Status = checkpoint_pb2.TaskStatus


class CountingNode:
    """One incarnation of one instance."""

    _limits: Sequence[tuple[int, float]] = ((200, 0.3), (1 << 20, 2.0))
    """Bytes set aside, and seconds, after which an alignment goes on without waiting: one of these."""

    def __init__(
        self,
        process: Process,
        network: Network,
        *,
        container: int,
        task_id: int,
        component: str,
        storage: Storage,
        ledger: Ledger,
        cost_s: float,
    ) -> None:
        self.process, self._network, self._container = process, network, container
        self.task, self.component = task_id, component
        self._storage, self._ledger, self._cost_s = storage, ledger, cost_s
        self._rng = process.loop.rng(f"{process.name} {process.incarnation}")
        self.status = Status(task=task_id, incarnation=process.incarnation)
        self._plan: PhysicalPlan | None = None
        self._to_read: ReadAhead | None = None
        self._has_read: ReadAhead | None = None
        self._end: End | None = None
        self._urgent: deque[bytes] = deque()
        """Reports, which overtake batches."""
        self._out: deque[bytes] = deque()
        self._writing = self._held = False
        self._begin(TaskSnapshot(0, Counter(), ()))
        process.check = self._check
        self._attach()
        self._work()
        self._look()
        self._say_status()

    def _begin(self, saved: TaskSnapshot) -> None:
        """Forget everything but what was saved."""
        self.position, self.counts, self._replay = saved.position, Counter(saved.counts), saved.log
        self._whole = saved.whole
        """Whether what it writes next needs no checkpoint before."""
        self._queue: deque[InputBatch | Snapshot] = deque()
        self._early: list[stmgr_pb2.Frame] = []
        self._batches: list[stmgr_pb2.Batch] = []
        self._out.clear()
        self._number = self._received = self._last_taken = self._now = 0
        self._taken: dict[int, tuple[int, Counter[Item], bool]] = {}
        self._complete: dict[int, CompleteSnapshot] = {}
        limits = self._rng.choice(self._limits)
        sources, back = self._inputs()
        self._alignment = Alignment(
            sources, back, set_aside_bytes_max=limits[0], log_bytes_max=1 << 20, timeout_s=limits[1]
        )

    def _check(self) -> None:
        self._alignment.check_invariants()

    # the link

    def _attach(self) -> None:
        def again() -> None:
            self.process.after(_RECONNECT_S, self._attach)

        def opened(end: End) -> None:
            def ended() -> None:
                self._end, self._writing = None, False
                again()

            if end.closed:
                again()
                return
            self._end, self._writing, self._held = end, False, False
            end.start(self._read, ended)
            self._report(status=self.status)

        host = f"host-{self._container}"
        self._network.dial(self.process, host, f"stmgr-{self._container}.sock", opened, again, self.process.name)

    def _report(self, **report: Any) -> None:
        frame = stmgr_pb2.Frame(reports=[checkpoint_pb2.InstanceReport(**report)])
        self._urgent.append(frame.SerializeToString())
        self._write()

    def _write(self) -> None:
        end = self._end
        if end is None or self._writing or end.closed or not (self._urgent or self._out):
            return
        self._writing = True

        def written() -> None:
            if self._end is end:
                self._writing = False
                self._write()

        end.write((self._urgent or self._out).popleft(), written)

    def _read(self, data: bytes) -> None:
        frame = stmgr_pb2.Frame.FromString(data)
        if frame.HasField("plan"):
            self._plan = PhysicalPlan.from_proto(frame.plan)
        if frame.HasField("hold"):
            self._held = frame.hold
        for order in frame.orders:
            self._obey(order)
        if frame.batches:
            self._take(frame)
        if self._end is not None and (len(self._queue) > _QUEUE_MAX or self._alignment.full):
            self._end.hold_reads()

    def _take(self, frame: stmgr_pb2.Frame) -> None:
        if frame.epoch < self.status.epoch:
            return
        if frame.epoch > self.status.epoch:
            raise Broken(f"task {self.task} in epoch {self.status.epoch} was given batches of epoch {frame.epoch}")
        if self.status.phase != Status.RUNNING:
            self._early.append(frame)
            return
        self._received += 1
        if frame.number != self._received:
            reason = f"frame {frame.number} came, and {self._received} was expected"
            self._report(missing=checkpoint_pb2.FramesMissing(epoch=frame.epoch, reason=reason))
            self._received = frame.number
        for batch in frame.batches:
            if batch.kind == CONTROL:
                marker = decode_control(batch.body).marker
                self._do(self._alignment.marked(batch.src_task, marker, self.process.loop.now_s))
            else:
                self._do(self._alignment.received(InputBatch(batch.src_task, batch.body)))

    # orders

    def _obey(self, order: checkpoint_pb2.CheckpointOrder) -> None:
        status, running = self.status, self.status.phase == Status.RUNNING
        match order.WhichOneof("order"):
            case "restore":
                self._restore(order.restore)
            case "resume":
                mine = order.resume.incarnations.get(self.task) == status.incarnation
                if mine and (status.epoch, status.phase) == (order.resume.epoch, Status.RESTORED):
                    self._resume()
                self._report(status=status)
            case "begin" if running and order.begin.epoch == status.epoch:
                self._do(self._alignment.begun(order.begin.checkpoint, self.process.loop.now_s))
            case "abort" if running and order.abort.epoch == status.epoch:
                self._do(self._alignment.aborted(order.abort.checkpoint))
                self._whole |= order.abort.whole
            case "commit" if running:
                self._storage.announced(order.commit.checkpoint)
                self._on_commit(order.commit.checkpoint)
                self._whole = False
                status.committed = max(status.committed, order.commit.checkpoint)
                self._report(status=status)
            case "read_ahead" if self.task in order.read_ahead.shares:
                self._read_ahead(order.read_ahead)

    def _read_ahead(self, order: checkpoint_pb2.ReadAhead) -> None:
        share = order.shares[self.task]
        wanted = ReadAhead(order.checkpoint, order.epoch, share.index, share.tasks, {})
        if wanted == self._to_read:
            self._report(status=self.status)
            return
        self._to_read = wanted

        def read() -> None:
            if self._to_read is wanted:
                if self._has_read is not None:
                    self._storage.read_on(self._has_read, wanted)
                self._has_read = wanted
                self.status.read_ahead = wanted.checkpoint_id
                self.status.read_share.CopyFrom(share)
                self._report(status=self.status)

        self.process.after(self._rng.random() * _STORAGE_S, read)

    def _restore(self, order: checkpoint_pb2.RestoreTasks) -> None:
        if order.epoch <= self.status.epoch or self.task not in order.tasks:
            self._report(status=self.status)
            return

        def loaded() -> None:
            if order.epoch <= self.status.epoch or self._rng.random() < FAIL_SHARE:
                return  # the order is repeated
            if self._plan is None or self.task not in self._plan.tasks or self._storage.away:
                return  # it is being ended; or the order is repeated
            if self._storage.is_damaged(order.checkpoint, self.component):
                self._report(
                    damaged=checkpoint_pb2.CheckpointDamaged(
                        task=self.task, epoch=order.epoch, checkpoint=order.checkpoint, reason="a block is damaged"
                    )
                )
                return
            saved = self._storage.restored(order.epoch, order.checkpoint, self.component, *self._place())
            if self._has_read is not None:
                self._storage.restored_ahead(order.checkpoint, self._has_read, *self._place())
            self._to_read = self._has_read = None
            self._rolled_back(order.checkpoint)
            self._begin(saved)
            self.status = Status(
                task=self.task, incarnation=self.status.incarnation, epoch=order.epoch, phase=Status.RESTORED
            )
            self._report(status=self.status)

        self.process.after(self._rng.random() * _STORAGE_S, loaded)

    def _on_commit(self, checkpoint: int) -> None:
        """A checkpoint is committed."""

    def _rolled_back(self, checkpoint: int) -> None:
        """The state of a checkpoint is about to be restored."""

    def _resume(self) -> None:
        self.status.phase = Status.RUNNING
        early, self._early = self._early, []
        self._do(self._alignment.restored(self._replay))
        for frame in early:
            self._take(frame)

    # the task

    def _work(self) -> None:
        worked = 0
        running = self.status.phase == Status.RUNNING
        while running and worked < _ITEMS_A_STEP and len(self._out) < _FRAMES_MAX and self._step():
            worked += 1
        self._flush()
        if self._end is not None and len(self._queue) <= _QUEUE_MAX and not self._alignment.full:
            self._end.resume_reads()
        self.process.after(STEP_S + worked * self._cost_s, self._work)

    def _step(self) -> bool:
        """Do one thing, if there is one."""
        if self._now:
            checkpoint, self._now = self._now, 0
            unexecuted = [item for item in self._queue if isinstance(item, InputBatch)]
            self._snapshot(checkpoint)
            self._do(self._alignment.snapshot_taken(checkpoint, unexecuted))
        elif self._queue:
            item = self._queue.popleft()
            if isinstance(item, Snapshot):
                self._snapshot(item.checkpoint)
            else:
                self._execute_batch(item)
        else:
            return self.component == "source" and self._emit_next()
        return True

    def _execute_batch(self, batch: InputBatch) -> None:
        item = decoded(batch.data)
        self.counts[item] += 1
        if self.component == "relay":
            for component, made in self._storage.follows(item):
                self._send(component, made)

    def _may_emit(self) -> bool:
        self._ledger.now_s = self.process.loop.now_s
        return not self._held and self._plan is not None and self._plan.state is TopologyState.RUNNING

    def _emit_next(self) -> bool:
        if not self._may_emit() or self.position >= self._ledger.due_numbers():
            return False
        self._send(*first(self.task, self.position))
        self.position += 1
        return True

    def _send(self, component: str, item: Item) -> None:
        tasks = self._tasks(component)
        dest = tasks[owner(component, item, len(tasks))]
        self._batches.append(
            stmgr_pb2.Batch(dest_task=dest, kind=DATA, count=1, body=encoded(item), src_task=self.task)
        )

    def _flush(self) -> None:
        if not self._batches:
            return
        self._number += 1
        frame = stmgr_pb2.Frame(batches=self._batches, epoch=self.status.epoch, number=self._number)
        self._batches = []
        self._out.append(frame.SerializeToString())
        self._write()

    # snapshots

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(batch):
                    self._queue.append(batch)
                case Snapshot():
                    self._queue.append(effect)
                case SnapshotNow(checkpoint):
                    self._now = checkpoint
                case CompleteSnapshot(checkpoint):
                    self._complete[checkpoint] = effect
                    self._joined(checkpoint)
                case FailSnapshot(checkpoint, reason):
                    self._taken.pop(checkpoint, None)
                    self._fail(checkpoint, reason)

    def _fail(self, checkpoint: int, reason: str) -> None:
        failed = checkpoint_pb2.SnapshotFailed(
            task=self.task, checkpoint=checkpoint, epoch=self.status.epoch, reason=reason
        )
        self._report(failed=failed)

    def _snapshot(self, checkpoint: int) -> None:
        if checkpoint <= self._last_taken:
            return
        self._last_taken = checkpoint
        self._taken[checkpoint] = self.position, Counter(self.counts), self._whole
        self._batches += [control_batch(self.task, dest, marker=checkpoint) for dest in self._consumers()]
        self._joined(checkpoint)

    def _joined(self, checkpoint: int) -> None:
        if checkpoint not in self._taken or checkpoint not in self._complete:
            return
        (position, counts, whole), complete = self._taken.pop(checkpoint), self._complete.pop(checkpoint)
        epoch, place = self.status.epoch, self._place()

        def stored() -> None:
            if self.status.epoch != epoch:
                return
            if self._storage.away or self._rng.random() < FAIL_SHARE:
                self._fail(checkpoint, "the storage does not answer")
                return
            snapshot = TaskSnapshot(position, counts, complete.log, whole)
            self._storage.save(checkpoint, self.component, *place, snapshot)
            report = checkpoint_pb2.SnapshotStored(
                task=self.task,
                incarnation=self.status.incarnation,
                checkpoint=checkpoint,
                epoch=epoch,
                unaligned=complete.unaligned,
                whole=whole,
            )
            self._report(stored=report)

        self.process.after(self._rng.random() * _STORAGE_S, stored)

    # time

    def _look(self) -> None:
        due_s, now_s = self._alignment.due_s, self.process.loop.now_s
        if self.status.phase == Status.RUNNING and due_s is not None and due_s <= now_s:
            self._do(self._alignment.time_passed(now_s))
        self.process.after(_LOOK_S, self._look)

    def _say_status(self) -> None:
        if not self._urgent:
            self._report(status=self.status)
        self.process.after(STATUS_S, self._say_status)

    # the plan

    def _tasks(self, component: str) -> list[int]:
        return self._plan.component_tasks[component] if self._plan is not None else []

    def _place(self) -> tuple[int, int]:
        """The index of this task in its component, and how many that has."""
        tasks = self._tasks(self.component)
        return tasks.index(self.task), len(tasks)

    def _inputs(self) -> tuple[set[int], set[int]]:
        """The tasks that send to this one, and those of them behind back edges."""
        again = self._tasks("relay") if self._storage.kind == CYCLE else []
        if self.component == "source":
            return set(), set()
        if self.component == "relay":
            return {*self._tasks("source"), *again}, set(again)
        return {*self._tasks("source"), *self._tasks("relay")}, set()

    def _consumers(self) -> list[int]:
        """The tasks that this one sends to."""
        again = self._tasks("relay") if self._storage.kind == CYCLE else []
        relays = {"source": self._tasks("relay"), "relay": again}.get(self.component, [])
        return [*relays, *(self._tasks("sink") if self.component != "sink" else [])]
