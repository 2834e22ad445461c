"""The checkpoint model's engine: Stream Managers, Topology Masters around the real cores, the state manager."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from checkpoint_model_tasks import Broken, Link
from msgspec import structs

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
    CheckLeadership,
    CheckpointCoordinator,
    DiscardCheckpoints,
    FenceChanged,
    RaiseRestoreEpoch,
    Record,
    RestoreTasks,
    StmgrDisconnected,
    StmgrReported,
    TasksChanged,
    TaskStatus,
    TimePassed,
    WriteManifest,
)

if TYPE_CHECKING:
    from checkpoint_model import Model


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
            self.tmaster.inbox.append(structs.replace(self.reports.popleft(), now_s=self.model.now_s))
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
