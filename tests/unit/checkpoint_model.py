"""A model of the whole checkpoint protocol: the real cores in processes that die between any two steps.

Real are `CheckpointCoordinator` and `Leadership` (Topology Masters), `Alignment` and `CommitLedger` (tasks). Stream
Managers, links, the state manager and the storage of snapshots are modelled: links keep the order, number their frames
in each epoch, and lose frames silently; what a Stream Manager or a task finds missing taints the epoch, in order with
the reports of snapshots. Everything is drawn from one seed; faults are a list, which can be made smaller.

A topology is a small graph of components, with a cycle sometimes. Every tuple adds 1 to one key of each task that
executes it, and says which tuples follow from it, so what a prefix of the input makes of all state is known. Promised:

* Effectively once: whatever is committed is the state after a prefix of the input, once what its logs hold is executed;
  a restore takes the last committed checkpoint; in the end all state is that of a run without faults.
* At least once: whatever a spout is told of is in every task's committed state, once what the logs hold is executed.
* Without faults there is progress: checkpoints commit until one covers everything.
"""

from __future__ import annotations

import dataclasses
import marshal
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

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
from heronpy.proto import state_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import (
    ClaimNode,
    Leadership,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    Role,
    StoreFailed,
    WriteNode,
)
from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointCoordinator,
    CheckpointSettings,
    DiscardCheckpoints,
    FenceChanged,
    ManifestFailed,
    ManifestWritten,
    RaiseRestoreEpoch,
    Record,
    RestoreTasks,
    ResumeTasks,
    StmgrDisconnected,
    StmgrReported,
    TaskPhase,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
    TimePassed,
    WriteManifest,
)

KEYS = 5
BATCHES = 40
"""So many each spout task emits."""
TICK_S = 0.25
STEPS_PER_TICK = 40
FAULTY_STEPS = 2400
CALM_STEPS = 40_000
MESSAGE_TIMEOUT_S = 40.0
PENDING_MAX = 4

Fault = tuple[int, str, int]
"""At which step, what, and a number that says where."""
FAULTS = ("task", "stmgr", "tmaster", "zombie", "cut", "slow", "late", "storage", "away", "unanswered")

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


class Stmgr:
    """A Stream Manager: moves frames, finds gaps, and stands between its tasks and the Topology Master."""

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name = model, name
        self.incarnation = model.next_incarnation()
        self.epoch = 0
        """In whose restore it took part."""
        self.data_epoch = model.store.epoch.restore_epoch
        self.taint = ""
        self.tasks: dict[int, TaskStatus] = {}
        self.tmaster: Tmaster | None = None
        self.reports: deque[Any] = deque()
        """On their way to the Topology Master, in order; those of another Stream Manager may overtake them."""
        self.late_until = 0
        self.mine = [task for task, of in model.graph.stmgr_of.items() if of == name]
        self.links = [model.up[task] for task in self.mine] + [
            link for (_, to), link in model.peers.items() if to == name
        ]
        for link in self.links:
            link.expected = (0, 0)
        for link in self.outgoing():
            link.sent = (0, 0)

    def outgoing(self) -> list[Link]:
        model = self.model
        return [model.down[t] for t in self.mine] + [link for (of, _), link in model.peers.items() if of == self.name]

    def step(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 2 + 2 * len(self.mine))):
            if rng.random() < 0.5:
                self.control(rng)
            elif link := rng.choice([link for link in self.links if link.frames] or [None]):
                self.pass_on(link)

    def control(self, rng: random.Random) -> None:
        if self.tmaster is not None and self.reports and self.model.steps >= self.late_until:
            self.tmaster.inbox.append(dataclasses.replace(self.reports.popleft(), now_s=self.model.now_s))
        if waiting := [task for task in self.mine if self.model.control_up[task]]:
            task = rng.choice(waiting)
            self.from_task(task, *self.model.control_up[task].popleft())
        if self.tmaster is not None and (orders := self.tmaster.orders[self.name]):
            self.from_tmaster(orders.popleft())

    def pass_on(self, link: Link) -> None:
        epoch, _, what = link.frames[0]
        if epoch > self.data_epoch:
            return  # kept until the plan of that epoch is there
        if epoch == self.data_epoch and link.receive():
            self.tainted("a frame is missing")
        link.frames.popleft()
        if epoch == self.data_epoch:
            of = self.model.graph.stmgr_of[what[2]]
            onward = self.model.down[what[2]] if of == self.name else self.model.peers[self.name, of]
            onward.send(epoch, what)

    def tainted(self, reason: str) -> None:
        if not self.taint:
            self.taint = reason
            self.report()
            for link in self.outgoing():  # who receives what comes behind it reports it, too
                epoch, number = link.sent
                link.sent = (self.data_epoch, number + 1 if epoch == self.data_epoch else 1)

    def from_task(self, task: int, kind: str, *args: Any) -> None:
        if kind == "status":
            before, self.tasks[task] = self.tasks.get(task), args[0]
            if before != args[0]:
                self.report()
        elif kind == "tainted":
            if args[0] == self.data_epoch:
                self.tainted("an instance misses a frame")
        else:
            self.reports.append(args[0])

    def from_tmaster(self, order: Any) -> None:
        if isinstance(order, RestoreTasks) and order.epoch > self.epoch:
            self.epoch = self.data_epoch = order.epoch
            self.taint = ""
        for task in self.mine:
            self.model.control_down[task].append(order)

    def report(self) -> None:
        if self.tmaster is not None:
            report = (self.name, self.incarnation, self.epoch, self.taint, dict(self.tasks))
            self.reports.append(StmgrReported(*report, self.model.now_s))

    def tick(self) -> None:
        owner = self.model.active_tmaster()
        if owner is not self.tmaster:
            if self.tmaster is not None:
                self.tmaster.inbox.append(StmgrDisconnected(self.name, self.model.now_s))
            self.tmaster = owner
            if owner is not None:
                owner.orders[self.name].clear()
                waiting = [report for report in self.reports if not isinstance(report, StmgrReported)]
                self.reports.clear()
                self.report()
                self.reports.extend(waiting)
        if self.tmaster is not None and not self.tmaster.orders[self.name] and not self.reports:
            self.report()

    def die(self, rng: random.Random) -> None:
        for link in self.links:
            link.frames.clear()
        for link in self.outgoing():
            for _ in range(rng.randint(0, len(link.frames))):
                link.frames.pop()
        for task in self.mine:
            self.model.control_up[task].clear()
            self.model.control_down[task].clear()
        if self.tmaster is not None:
            self.tmaster.inbox.append(StmgrDisconnected(self.name, self.model.now_s))
            self.tmaster.orders[self.name].clear()


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


class Tmaster:
    """A Topology Master: leadership and coordinator, and what they have asked of the state manager."""

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name = model, name
        self.location = f"{name} {model.next_incarnation()}".encode()
        self.leadership = Leadership("words", "words-1", self.location)
        self.coordinator = CheckpointCoordinator("words-1", model.settings)
        self.fence = b""
        self.asked: deque[tuple[Any, Any]] = deque()
        self.manifests: deque[WriteManifest] = deque()
        self.inbox: deque[Any] = deque()
        self.orders: dict[str, deque[Any]] = {name: deque() for name in model.graph.stmgrs}
        self.paused_until = 0
        self.deposed = False
        self.feed(TasksChanged(model.graph.stmgr_of, model.now_s))

    def step(self, rng: random.Random) -> None:
        if self.model.steps < self.paused_until or self.deposed:
            return
        if self.asked and rng.random() < 0.5:
            effect, of = self.asked.popleft()
            answer = self.model.store.do(effect, self.model.now_s)
            if of is self.leadership:
                self.ask(of.on(answer))
            else:
                self.feed(answer)
        if self.manifests and rng.random() < 0.5:
            self.feed(self.model.write_manifest(self.manifests.popleft()))
        for _ in range(min(3, len(self.inbox))):
            self.feed(self.inbox.popleft())
        self.led()

    def led(self) -> None:
        if self.leadership.role is Role.DEPOSED:
            self.deposed = True
        elif self.leadership.role is Role.LEADER and self.leadership.fence != self.fence:
            self.fence = self.leadership.fence
            self.feed(FenceChanged(self.fence, self.leadership.restore_epoch, self.model.now_s))

    def ask(self, effects: Sequence[Any]) -> None:
        self.asked.extend((effect, self.leadership) for effect in effects)

    def feed(self, event: Any) -> None:
        effects = self.coordinator.step(event)
        self.coordinator.check_invariants()
        for effect in effects:
            match effect:
                case ReadNodes() | WriteNode():
                    self.asked.append((effect, self.coordinator))
                case WriteManifest():
                    self.manifests.append(effect)
                case RaiseRestoreEpoch(above):
                    self.leadership.raise_restore_epoch(above + 1)
                    self.ask(self.leadership.advance(self.model.now_s))
                case CheckLeadership():
                    self.leadership.check()
                case DiscardCheckpoints(keep, before):
                    self.model.discard(keep, before)
                case _:
                    self.orders[effect.stmgr_id].append(effect)

    def tick(self) -> None:
        if self.model.steps >= self.paused_until and not self.deposed:
            if not self.model.store.away and self.model.store.nodes.get(Kind.EPOCHS) != self.leadership.fence:
                self.leadership.check()  # it follows the node
            self.ask(self.leadership.advance(self.model.now_s))
            for _ in range(3):  # one checkpoint times out, and the next begins
                if (due_s := self.coordinator.due_s) is None or due_s > self.model.now_s:
                    break
                self.feed(TimePassed(self.model.now_s))
            else:
                raise Broken("the coordinator would be asked again and again")
            self.led()

    def die(self, _rng: random.Random) -> None:
        self.model.store.expire(self.location)


class Store:
    """The state manager, and what it has seen committed."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.nodes: dict[Kind, bytes] = {}
        self.commits: dict[int, int] = {}
        """The restore epoch of each commit."""
        self.away = self.unanswered = False

    @property
    def epoch(self) -> state_pb2.Epoch:
        return state_pb2.Epoch.FromString(self.nodes.get(Kind.EPOCHS, b""))

    def newest_before(self, epoch: int) -> int:
        return max((id for id, of in self.commits.items() if of < epoch), default=0)

    def expire(self, location: bytes) -> None:
        if self.nodes.get(Kind.TMASTERS) == location:
            del self.nodes[Kind.TMASTERS]

    def do(self, effect: Any, now_s: float) -> Any:
        if self.away:
            return StoreFailed(effect, "it is away", now_s)
        answer = self.answer(effect, now_s)
        return StoreFailed(effect, "the answer was lost", now_s) if self.unanswered else answer

    def answer(self, effect: Any, now_s: float) -> Any:
        match effect:
            case ClaimNode(location):
                owner = self.nodes.setdefault(Kind.TMASTERS, location)
                return NodeClaimed(effect, owner == location, now_s)
            case ReadNodes(kinds):
                return NodesRead(effect, {kind: self.nodes.get(kind) for kind in kinds}, now_s)
            case WriteNode(kind, value, expected, of):
                if self.nodes.get(of) != expected:
                    return NodeWritten(effect, False, now_s)
                self.nodes[kind] = value
                if kind is Kind.STATEFULCHECKPOINTS:
                    self.recorded(Record.from_proto(state_pb2.Checkpoints.FromString(value)))
                return NodeWritten(effect, True, now_s)

    def recorded(self, record: Record) -> None:
        if record.newest in (0, *self.commits):
            if record.newest != max(self.commits, default=0):
                raise Broken(f"the record went back to {record.newest} from {max(self.commits)}")
            return
        if record.newest < max(self.commits, default=0):
            raise Broken(f"{record.newest} is committed after {max(self.commits)}")
        if record.newest not in self.model.manifests:
            raise Broken(f"{record.newest} is committed before its manifest is stored")
        self.commits[record.newest] = self.epoch.restore_epoch
        self.model.check_cut(record.newest)


class Model:
    """A topology that runs."""

    def __init__(self, seed: int, *, at_least_once: bool = False) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph(self.rng)
        self.at_least_once = at_least_once
        self.inputs_end = self.rng.random() < 0.5
        self.alignment = {
            "set_aside_bytes_max": self.rng.choice((0, 120, 1 << 20)),
            "log_bytes_max": self.rng.choice((600, 1 << 20)),
            "timeout_s": self.rng.choice((0.3, 1.5, 5.0)),
        }
        self.settings = CheckpointSettings(interval_s=0.5, timeout_s=10.0)
        every = set(self.graph.component_of)
        self.steps, self.now_s = 0, 0.0
        self._incarnations = 0
        self.store = Store(self)
        self.storage: dict[tuple[int, int], tuple[bytes, tuple[InputBatch, ...]]] = {}
        self.manifests: set[int] = set()
        self.storage_fails = False
        self.acked: dict[int, set[int]] = {spout: set() for spout in self.graph.spouts}
        self.up = {task: Link() for task in every}
        self.down = {task: Link() for task in every}
        self.peers = {(a, b): Link() for a in self.graph.stmgrs for b in self.graph.stmgrs if a != b}
        self.control_up: dict[int, deque[Any]] = {task: deque() for task in every}
        self.control_down: dict[int, deque[Any]] = {task: deque() for task in every}
        self.processes: dict[str, Any] = {}
        self.down_until: dict[str, int] = {}
        self.ends: list[tuple[int, str]] = []
        for task in sorted(every):
            self.start(f"task {task}")
        for name in (*self.graph.stmgrs, "tmaster-0", "tmaster-1"):
            self.start(name)
        self.names = sorted(self.processes)

    def next_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def next_id(self) -> int:
        return self.rng.getrandbits(62)

    def start(self, name: str) -> None:
        if name.startswith("task"):
            self.processes[name] = Task(self, int(name.removeprefix("task ")))
        elif name.startswith("stmgr"):
            self.processes[name] = Stmgr(self, name)
        else:
            self.processes[name] = Tmaster(self, name)

    def links(self) -> list[Link]:
        return [*self.up.values(), *self.down.values(), *self.peers.values()]

    def tasks(self) -> list[Task]:
        return [p for p in self.processes.values() if isinstance(p, Task)]

    def active_tmaster(self) -> Tmaster | None:
        owner = self.store.nodes.get(Kind.TMASTERS)
        found = [p for p in self.processes.values() if isinstance(p, Tmaster) and p.location == owner]
        return found[0] if found else None

    def write_manifest(self, effect: WriteManifest) -> ManifestWritten | ManifestFailed:
        """Store a manifest for a Topology Master, who may have been replaced meanwhile."""
        if effect.previous and effect.previous not in self.manifests:
            return ManifestFailed(effect.checkpoint, effect.epoch, "what it follows is discarded", self.now_s)
        if not self.storage_fails:
            self.manifests.add(effect.checkpoint)
            if not self.store.unanswered:
                return ManifestWritten(effect.checkpoint, effect.epoch, self.now_s)
        return ManifestFailed(effect.checkpoint, effect.epoch, "no storage", self.now_s)

    def discard(self, keep: tuple[int, ...], before: int) -> None:
        self.manifests = {id for id in self.manifests if id >= before or id in keep}
        for task, id in list(self.storage):
            if id < before and id not in keep:
                del self.storage[task, id]

    # running

    def step(self) -> None:
        self.steps += 1
        if self.steps % STEPS_PER_TICK == 0:
            self.tick()
        process = self.processes.get(self.rng.choice(self.names))
        if process is not None:
            process.step(self.rng)

    def tick(self) -> None:
        self.now_s += TICK_S
        for name, until in list(self.down_until.items()):
            if self.steps >= until:
                del self.down_until[name]
                self.start(name)
        for name in self.names:
            process = self.processes.get(name)
            if isinstance(process, Tmaster) and process.deposed:
                self.kill(name, 40)
            elif process is not None:
                process.tick()

    def kill(self, name: str, steps: int) -> None:
        process = self.processes.pop(name, None)
        if process is not None:
            process.die(self.rng)
            self.down_until[name] = self.steps + steps

    def fault(self, kind: str, which: int) -> None:
        """Have something happen; `which` says to whom, and for how long."""
        rng = random.Random(which)
        alive = sorted(self.processes)
        steps = rng.randint(1, 200)
        if kind in ("task", "stmgr", "tmaster"):
            if names := [name for name in alive if name.startswith(kind)]:
                self.kill(rng.choice(names), steps)
        elif kind == "zombie":
            if (active := self.active_tmaster()) is not None:
                active.paused_until = self.steps + steps
                self.store.expire(active.location)
        elif kind == "cut":
            if links := [link for link in self.links() if link.frames]:
                link = rng.choice(links)
                for _ in range(rng.randint(1, len(link.frames))):
                    link.frames.pop()
        elif kind == "slow":
            if names := [name for name in alive if name.startswith("task")]:
                self.processes[rng.choice(names)].busy_until = self.steps + 4 * steps
        elif kind == "late":
            if names := [name for name in alive if name.startswith("stmgr")]:
                self.processes[rng.choice(names)].late_until = self.steps + 4 * steps
        else:
            setattr(*self.switch(kind), True)
            self.ends.append((self.steps + steps, kind))

    def switch(self, kind: str) -> tuple[Any, str]:
        return (self, "storage_fails") if kind == "storage" else (self.store, kind)

    def run(self, faults: Sequence[Fault]) -> None:
        """Run with faults, then without until everything is committed.

        Raises:
            Broken: a promise was not kept.
        """
        waiting = deque(sorted(faults))
        while waiting or self.ends:
            while waiting and waiting[0][0] <= self.steps:
                self.fault(*waiting.popleft()[1:])
            for end in [end for end in self.ends if end[0] <= self.steps]:
                self.ends.remove(end)
                if end[1] not in [kind for _, kind in self.ends]:
                    setattr(*self.switch(end[1]), False)
            self.step()
        deadline = self.steps + CALM_STEPS
        while not self.done():
            if self.steps > deadline:
                raise Broken(f"not everything is committed after {CALM_STEPS} steps without a fault")
            for _ in range(STEPS_PER_TICK):
                self.step()
        self.check_end()

    def done(self) -> bool:
        """Whether a committed checkpoint covers everything, and nothing is under way."""
        if self.at_least_once:
            return all(len(acked) == BATCHES for acked in self.acked.values())
        newest = max(self.store.commits, default=0)
        for spout in self.graph.spouts:
            found = self.storage.get((spout, newest))
            if found is None or marshal.loads(found[0])["position"] < BATCHES:
                return False
        return self.quiet()

    def quiet(self) -> bool:
        if any(what[0] == "data" for link in self.links() for _, _, what in link.frames):
            return False
        tasks = self.tasks()
        return len(tasks) == len(self.graph.component_of) and all(
            task.phase is TaskPhase.RUNNING and not task.queue and not task.current and not task.alignment.in_progress
            for task in tasks
        )

    # promises

    def expected(self, positions: dict[int, int]) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        for spout, position in positions.items():
            for number in range(position):
                counts += self.graph.counts_of(spout, number)
        return counts

    def check_cut(self, checkpoint: int) -> None:
        if self.at_least_once:
            self.check_acked()
            return
        counts: Counter[tuple[int, int]] = Counter()
        positions: dict[int, int] = {}
        for task in self.graph.component_of:
            if (task, checkpoint) not in self.storage:
                raise Broken(f"checkpoint {checkpoint} is committed without a snapshot of task {task}")
            state, log = self.storage[task, checkpoint]
            loaded = marshal.loads(state)
            if task in self.graph.spouts:
                positions[task] = loaded["position"]
            for key, count in loaded["counts"].items():
                counts[task, key] += count
            for batch in log:
                for key, hops, _, _ in marshal.loads(batch.data)[batch.skip :]:
                    self.graph.closure(counts, task, key, hops)
        if counts != (expected := self.expected(positions)):
            raise Broken(f"checkpoint {checkpoint}: more {counts - expected}, less {expected - counts}")

    def check_acked(self) -> None:
        """What spouts were told of is in every committed state."""
        newest = max(self.store.commits, default=0)
        covered = self.covered(newest) if newest else {}
        for spout, numbers in self.acked.items():
            for number in numbers:
                for task, _ in self.graph.counts_of(spout, number):
                    if spout * BATCHES + number not in covered[task]:
                        raise Broken(f"{number} of {spout} is acked, but not in checkpoint {newest} of task {task}")

    def covered(self, checkpoint: int) -> dict[int, set[int]]:
        """What each task has executed once a checkpoint is restored, as numbers of spouts' batches."""
        covered = {}
        logged: list[tuple[int, Item]] = []
        for task in self.graph.component_of:
            state, log = self.storage[task, checkpoint]
            covered[task] = set(marshal.loads(state)["seen"])
            logged += [(task, item) for batch in log for item in marshal.loads(batch.data)[batch.skip :]]
        for task, (key, hops, root, _) in logged:
            counts: Counter[tuple[int, int]] = Counter()
            self.graph.closure(counts, task, key, hops)
            for each, _ in counts:
                covered[each].add(root % 1000)
        return covered

    def check_end(self) -> None:
        if self.at_least_once:
            self.check_acked()
            return
        counts = Counter({(t.id, key): n for t in self.tasks() for key, n in t.state["counts"].items()})
        expected = self.expected(dict.fromkeys(self.graph.spouts, BATCHES))
        if counts != expected:
            raise Broken(f"at the end: more {counts - expected}, less {expected - counts}")


def faults_of(seed: int) -> list[Fault]:
    """Some faults for a seed."""
    rng = random.Random(f"faults {seed}")
    return sorted(
        (rng.randrange(FAULTY_STEPS), rng.choice(FAULTS), rng.randrange(10_000)) for _ in range(rng.randint(0, 8))
    )


def failure_of(seed: int, faults: Sequence[Fault] | None = None, *, at_least_once: bool = False) -> str:
    """How a run breaks a promise; empty: it does not."""
    try:
        Model(seed, at_least_once=at_least_once).run(faults_of(seed) if faults is None else faults)
    except AssertionError as error:
        return str(error) or "an assertion"
    return ""
