"""The checkpoint model's topology: its graph, its links, and tasks around the real cores."""

from __future__ import annotations

import marshal
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.instance.checkpoints import (
    Alignment,
    CommitLedger,
    CompleteSnapshot,
    Deliver,
    FailSnapshot,
    InputBatch,
    Snapshot,
    SnapshotNow,
)
from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    RestoreTasks,
    ResumeTasks,
    TaskPhase,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
)

if TYPE_CHECKING:
    from checkpoint_model import Model


KEYS = 5
BATCHES = 40
"""So many each spout task emits."""
MESSAGE_TIMEOUT_S = 40.0
PENDING_MAX = 4

Item = tuple[int, int, int, int]
"""A tuple: its key, how often it may still go round a cycle, and with trees its root and its id."""


class Broken(AssertionError):
    """A promise was not kept."""


class Graph:
    """Components in topological order, spouts first; edges that go back are back edges."""

    def __init__(self, rng: random.Random) -> None:
        spouts, bolts = rng.randint(1, 2), rng.randint(1, 3)
        self.components = spouts + bolts
        self.edges: list[tuple[int, int]] = []
        for bolt in range(spouts, self.components):
            for source in rng.sample(range(bolt), min(bolt, rng.randint(1, 2))):
                self.edges.append((source, bolt))
        if rng.random() < 0.5:
            last = rng.randrange(spouts, self.components)
            self.edges.append((last, rng.randint(spouts, last)))
        self.component_of: dict[int, int] = {}
        self.tasks: list[list[int]] = []
        for component in range(self.components):
            tasks = [len(self.component_of) + 1 + i for i in range(rng.randint(1, 2))]
            self.tasks.append(tasks)
            self.component_of |= dict.fromkeys(tasks, component)
        self.spouts = [task for tasks in self.tasks[:spouts] for task in tasks]
        self.stmgrs = [f"stmgr-{n}" for n in range(rng.randint(1, min(3, len(self.component_of))))]
        self.stmgr_of = {task: self.stmgrs[task % len(self.stmgrs)] for task in self.component_of}

    def inputs(self, task: int) -> tuple[set[int], set[int]]:
        """All tasks that send to one, and those behind back edges."""
        sources = [(a, a >= b) for a, b in self.edges if b == self.component_of[task]]
        every = {source for a, _ in sources for source in self.tasks[a]}
        return every, {source for a, back in sources if back for source in self.tasks[a]}

    def outputs(self, task: int) -> list[int]:
        return sorted({t for a, b in self.edges if a == self.component_of[task] for t in self.tasks[b]})

    def emitted(self, task: int, key: int, hops: int) -> Iterator[tuple[int, int, int]]:
        """What follows from a tuple that a task has executed: destination, key, hops."""
        component = self.component_of[task]
        for a, b in self.edges:
            if a == component and (a < b or hops):
                child = (key * 3 + b) % KEYS
                yield self.tasks[b][child % len(self.tasks[b])], child, hops - (a >= b)

    def source(self, spout: int, number: int) -> list[tuple[int, int]]:
        """The tuples of a spout's batch, as (key, hops)."""
        return [((spout + number * 2 + i) % KEYS, (number + i) % 2) for i in range(1 + number % 3)]

    def closure(self, counts: Counter[tuple[int, int]], task: int, key: int, hops: int) -> None:
        """Count a tuple that a task executes, and everything that follows from it."""
        counts[task, key] += 1
        for dest, child, left in self.emitted(task, key, hops):
            self.closure(counts, dest, child, left)

    def counts_of(self, spout: int, number: int) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        for key, hops in self.source(spout, number):
            for dest, child, left in self.emitted(spout, key, hops):
                self.closure(counts, dest, child, left)
        return counts


class Link:
    """One direction of a connection: frames of (epoch, number, what)."""

    def __init__(self) -> None:
        self.frames: deque[tuple[int, int, tuple[Any, ...]]] = deque()
        self.sent = (0, 0)
        """Epoch and number of the sender's next frame."""
        self.expected = (0, 0)

    def send(self, epoch: int, what: tuple[Any, ...]) -> None:
        number = self.sent[1] if self.sent[0] == epoch else 0
        self.frames.append((epoch, number, what))
        self.sent = (epoch, number + 1)

    def receive(self) -> bool:
        """Take note of the first frame; whether one before it is missing."""
        epoch, number, _ = self.frames[0]
        missing = number != (self.expected[1] if self.expected[0] == epoch else 0)
        self.expected = (epoch, number + 1)
        return missing


class Task:
    """An instance: a spout that emits numbered batches, or a bolt that counts."""

    def __init__(self, model: Model, id: int) -> None:
        self.model, self.id = model, id
        self.incarnation = model.next_incarnation()
        self.is_spout = id in model.graph.spouts
        self.epoch, self.phase = model.store.epoch.restore_epoch, TaskPhase.STARTED
        self.committed = 0
        self.state = self.initial()
        self.replay: Sequence[InputBatch] = ()
        self.busy_until = 0
        self.up, self.down = model.up[id], model.down[id]
        self.up.sent = self.down.expected = (0, 0)
        self.pending: dict[int, tuple[int, float, int]] = {}
        """By root: what is left of its tree, since when, and its number."""
        self.to_emit = [n for n in range(BATCHES) if self.is_spout and n not in model.acked[id]]
        """Of a source that knows what it was told of; this object knows what else it has emitted."""
        self.ledger: CommitLedger[int] = CommitLedger()
        self.clear()

    def clear(self) -> None:
        self.queue: deque[InputBatch | Snapshot] = deque()
        self.current: tuple[InputBatch, list[Item], int] | None = None
        self.urgent = self.last_taken = 0
        self.answer: tuple[int, list[InputBatch]] | None = None
        self.taken: dict[int, bytes] = {}
        self.complete: dict[int, CompleteSnapshot] = {}
        self.saving: deque[tuple[int, bytes, CompleteSnapshot]] = deque()
        inputs, back = self.model.graph.inputs(self.id)
        self.alignment = Alignment(inputs, back, **self.model.alignment)
        self.end_sent = False

    @property
    def status(self) -> TaskStatus:
        epoch = self.epoch if self.phase is not TaskPhase.STARTED else 0
        return TaskStatus(self.incarnation, epoch, self.phase, self.committed)

    def say(self, *message: Any) -> None:
        self.model.control_up[self.id].append(message)

    def step(self, rng: random.Random) -> None:
        if self.model.steps < self.busy_until and rng.random() < 0.98:
            if self.down.frames and not self.alignment.full:
                self.read()  # its gateway is not busy
            return
        action = rng.random()
        if action < 0.25 and (orders := self.model.control_down[self.id]):
            self.obey(orders.popleft())
        elif self.phase is not TaskPhase.RUNNING:
            if self.down.frames and self.down.frames[0][0] < self.epoch:
                self.down.frames.popleft()
        elif action < 0.45 and self.saving:
            self.save()
        elif action < 0.55 and self.answer is not None:
            answer, self.answer = self.answer, None
            self.do(self.alignment.snapshot_taken(*answer))
        elif action < 0.7 and self.down.frames and not self.alignment.full:
            self.read()
        elif self.urgent:
            self.answer = (self.urgent, self.unexecuted())
            checkpoint, self.urgent = self.urgent, 0
            self.snapshot(checkpoint)
        elif self.is_spout and action < 0.76:
            self.emit_next(rng)
        else:
            for _ in range(rng.randint(1, 4)):
                self.execute()
        self.alignment.check_invariants()

    # orders

    def obey(self, order: Any) -> None:
        now_s = self.model.now_s
        match order:
            case RestoreTasks():
                self.restore(order)
            case ResumeTasks(_, epoch, incarnations):
                mine = (epoch, incarnations.get(self.id)) == (self.epoch, self.incarnation)
                if mine and self.phase is TaskPhase.RESTORED:
                    self.phase = TaskPhase.RUNNING
                    self.do(self.alignment.restored(self.replay))
                self.say("status", self.status)
            case BeginCheckpoint(_, checkpoint, epoch) if epoch == self.epoch and self.phase is TaskPhase.RUNNING:
                self.do(self.alignment.begun(checkpoint, now_s))
            case AbortCheckpoint(_, checkpoint, epoch) if epoch == self.epoch and self.phase is TaskPhase.RUNNING:
                self.do(self.alignment.aborted(checkpoint))
            case AnnounceCommit(_, checkpoint) if self.phase is TaskPhase.RUNNING:
                self.commit(checkpoint)
            case _:
                pass

    def commit(self, checkpoint: int) -> None:
        if checkpoint not in self.model.store.commits:
            raise Broken(f"task {self.id} was told that {checkpoint} is committed, and it is not")
        self.committed = max(self.committed, checkpoint)
        self.acked(self.ledger.committed(checkpoint))
        self.say("status", self.status)

    def restore(self, order: RestoreTasks) -> None:
        model = self.model
        if order.epoch < self.epoch or (order.epoch == self.epoch and self.phase is not TaskPhase.STARTED):
            self.say("status", self.status)
            return
        if self.id not in order.tasks:
            return
        if order.checkpoint and order.checkpoint not in model.manifests:
            raise Broken(f"checkpoint {order.checkpoint} is restored, and has no manifest")
        if order.checkpoint != model.store.newest_before(order.epoch):
            raise Broken(
                f"epoch {order.epoch} restores {order.checkpoint}, "
                f"but {model.store.newest_before(order.epoch)} was committed"
            )
        loaded = model.storage.get((self.id, order.checkpoint)) if order.checkpoint else None
        if order.checkpoint and loaded is None:
            raise Broken(f"checkpoint {order.checkpoint} has no snapshot of task {self.id}")
        if model.storage_fails:
            return  # tried again with the next order
        self.clear()
        self.epoch, self.phase, self.replay = order.epoch, TaskPhase.RESTORED, ()
        state, log = loaded if loaded is not None else (marshal.dumps(self.initial()), ())
        self.state, self.replay = marshal.loads(state), log
        if self.is_spout and model.at_least_once:
            acked, failed = self.ledger.restored(order.checkpoint)
            self.acked(acked)
            failed += [number for _, _, number in self.pending.values()]
            self.pending.clear()
            self.to_emit = sorted({*self.to_emit, *failed})
        self.say("status", self.status)

    def initial(self) -> dict[str, Any]:
        return {"position": 0, "counts": {}, "seen": set()}

    # data

    def read(self) -> None:
        epoch, _, what = self.down.frames[0]
        if epoch > self.epoch or (epoch == self.epoch and self.phase is not TaskPhase.RUNNING):
            return  # kept until it is there
        if epoch == self.epoch and self.down.receive():
            self.say("tainted", epoch)
        self.down.frames.popleft()
        if epoch < self.epoch:
            return
        kind, source, _, content = what
        if kind == "data":
            self.do(self.alignment.received(InputBatch(source, content)))
        elif kind == "marker":
            self.do(self.alignment.marked(source, content, self.model.now_s))
        elif kind == "end":
            self.do(self.alignment.ended(source, self.model.now_s))
        else:
            self.tree_changed(*content)

    def do(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            match effect:
                case Deliver(batch):
                    self.queue.append(batch)
                case Snapshot():
                    self.queue.append(effect)
                case SnapshotNow(checkpoint):
                    self.urgent = checkpoint
                case CompleteSnapshot(checkpoint):
                    self.complete[checkpoint] = effect
                    self.joined(checkpoint)
                case FailSnapshot(checkpoint, reason):
                    self.taken.pop(checkpoint, None)
                    self.say(
                        "event",
                        TaskSnapshotFailed(self.id, checkpoint, self.epoch, reason, self.model.now_s),
                    )

    def unexecuted(self) -> list[InputBatch]:
        rest = []
        if self.current is not None:
            batch, _, at = self.current
            rest = [InputBatch(batch.source, batch.data, at)]
        return rest + [item for item in self.queue if isinstance(item, InputBatch)]

    def snapshot(self, checkpoint: int) -> None:
        if checkpoint <= self.last_taken:
            return
        self.last_taken = checkpoint
        self.taken[checkpoint] = marshal.dumps(self.state)
        for dest in self.model.graph.outputs(self.id):
            self.up.send(self.epoch, ("marker", self.id, dest, checkpoint))
        if self.is_spout and self.model.at_least_once:
            self.ledger.marker_sent(checkpoint)
        self.joined(checkpoint)

    def joined(self, checkpoint: int) -> None:
        if checkpoint in self.taken and checkpoint in self.complete:
            self.saving.append((checkpoint, self.taken.pop(checkpoint), self.complete.pop(checkpoint)))

    def save(self) -> None:
        checkpoint, state, complete = self.saving.popleft()
        epoch, now_s = self.epoch, self.model.now_s
        if self.model.storage_fails:
            self.say("event", TaskSnapshotFailed(self.id, checkpoint, epoch, "no storage", now_s))
            return
        self.model.storage[self.id, checkpoint] = (state, complete.log)
        report = TaskSnapshotted(self.id, self.incarnation, checkpoint, epoch, now_s, complete.unaligned)
        self.say("event", report)

    def execute(self) -> None:
        """Execute one tuple."""
        if self.current is None:
            if not self.queue:
                return
            item = self.queue.popleft()
            if isinstance(item, Snapshot):
                self.snapshot(item.checkpoint)
                return
            self.current = item, marshal.loads(item.data), item.skip
        batch, items, at = self.current
        key, hops, root, id = items[at]
        self.current = (batch, items, at + 1) if at + 1 < len(items) else None
        self.state["counts"][key] = self.state["counts"].get(key, 0) + 1
        if root:
            self.state["seen"].add(root % 1000)
        value = id
        for dest, child, left in self.model.graph.emitted(self.id, key, hops):
            child_id = self.model.next_id() if root else 0
            value ^= child_id
            self.up.send(self.epoch, ("data", self.id, dest, marshal.dumps([(child, left, root, child_id)])))
        if root:
            self.up.send(self.epoch, ("ack", self.id, root // 1000 % 1000, (root, value)))

    # spouts

    def emit_next(self, rng: random.Random) -> None:
        if self.model.at_least_once:
            if self.to_emit and len(self.pending) < PENDING_MAX:
                self.emit(self.to_emit.pop(0))
        elif self.state["position"] < BATCHES and rng.random() < 0.3:
            number = self.state["position"]
            self.state["position"] += 1
            self.emit(number)
        elif self.state["position"] == BATCHES and self.model.inputs_end and not self.end_sent:
            self.end_sent = True
            for dest in self.model.graph.outputs(self.id):
                self.up.send(self.epoch, ("end", self.id, dest, None))

    def emit(self, number: int) -> None:
        """Emit a batch: to each destination its tuples."""
        root = value = 0
        if self.model.at_least_once:
            root = (self.model.next_incarnation() * 1000 + self.id) * 1000 + self.id * BATCHES + number
        by_dest: dict[int, list[Item]] = {}
        for key, hops in self.model.graph.source(self.id, number):
            for dest, child, left in self.model.graph.emitted(self.id, key, hops):
                id = self.model.next_id() if root else 0
                value ^= id
                by_dest.setdefault(dest, []).append((child, left, root, id))
        for dest, items in by_dest.items():
            self.up.send(self.epoch, ("data", self.id, dest, marshal.dumps(items)))
        if root:
            self.pending[root] = value, self.model.now_s, number
            self.tree_changed(root, 0)

    def tree_changed(self, root: int, value: int) -> None:
        if root in self.pending:
            left, since_s, number = self.pending.pop(root)
            if left ^ value:
                self.pending[root] = left ^ value, since_s, number
            else:
                self.ledger.completed(number, 1)

    def acked(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.model.acked[self.id].add(number)
        if numbers:
            self.model.check_acked()

    def tick(self) -> None:
        if not self.model.control_up[self.id]:
            self.say("status", self.status)
        due_s = self.alignment.due_s
        if self.phase is TaskPhase.RUNNING and due_s is not None and due_s <= self.model.now_s:
            self.do(self.alignment.time_passed(self.model.now_s))
            assert self.alignment.due_s is None, "the alignment would be asked again and again"
        for root, (_, since_s, number) in list(self.pending.items()):
            if self.model.now_s - since_s > MESSAGE_TIMEOUT_S:
                del self.pending[root]
                self.to_emit.append(number)

    def die(self, rng: random.Random) -> None:
        self.down.frames.clear()
        for _ in range(rng.randint(0, len(self.up.frames))):
            self.up.frames.pop()
        self.model.control_down[self.id].clear()
        self.model.control_up[self.id].clear()
