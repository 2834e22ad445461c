"""A world for the core of a Topology Master: a state manager in memory, sessions, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from heronpy.errors import HeronError, ReadFailedError
from heronpy.plan import (
    ContainerPacking,
    InstancePacking,
    PackingPlan,
    PhysicalPlan,
    Resources,
    StmgrLocation,
    TopologyState,
)
from heronpy.proto import plan_pb2, state_pb2, topology_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import (
    ClaimNode,
    Core,
    Finish,
    KeepCopy,
    NodeChanged,
    NodeClaimed,
    NodesRead,
    NodeWritten,
    ReadNodes,
    Reply,
    RestoreRequested,
    SendPlan,
    StateRequested,
    StmgrRegistered,
    StoreEffect,
    StoreFailed,
    TimePassed,
    WriteNode,
)

LOCATION = b"first"
STMGR_TIMEOUT_S = 1000.0


def topology(id: str = "words-1") -> bytes:
    proto = topology_pb2.Topology(id=id, name="words", state=topology_pb2.RUNNING)
    spout = proto.spouts.add()
    spout.comp.name, spout.comp.class_name = "word", "words.Word"
    spout.comp.config.SetInParent()
    out = spout.outputs.add()
    out.stream.id, out.stream.component_name = "default", "word"
    out.schema.keys.add(key="word", type=topology_pb2.OBJECT)
    return proto.SerializeToString()


def packing_plan(*containers: int, component: str = "word") -> PackingPlan:
    resources = Resources(1.0, 1 << 20, 0)
    return PackingPlan(
        id="packing",
        containers=tuple(
            ContainerPacking(c, (InstancePacking(component, c, c - 1, resources),), resources) for c in containers
        ),
    )


def location(container: int, incarnation: int = 1) -> StmgrLocation:
    return StmgrLocation(f"stmgr-{container}", container, "127.0.0.1", 1000 + incarnation, 1, incarnation)


def hello(session: int, container: int, incarnation: int = 1, plan_version: int = 0) -> StmgrRegistered:
    return StmgrRegistered(session, location(container, incarnation), plan_version, 0.0)


class Store:
    """The state manager: does what effects ask for, and knows who is to be told of changes."""

    def __init__(self, nodes: Mapping[Kind, bytes]) -> None:
        self.nodes = dict(nodes)
        self.away = False
        self.operations = 0
        self.lose_answer_of = 0
        self.followers: list[World] = []

    @property
    def epoch(self) -> state_pb2.Epoch:
        return state_pb2.Epoch.FromString(self.nodes[Kind.EPOCHS])

    def set(self, kind: Kind, value: bytes | None) -> None:
        if value is None:
            self.nodes.pop(kind, None)
        else:
            self.nodes[kind] = value
        for world in self.followers:
            world.changes.append((kind, value))

    def delete(self, kind: Kind) -> None:
        self.set(kind, None)

    def empty(self) -> None:
        for kind in list(self.nodes):
            self.delete(kind)

    def do(self, effect: StoreEffect, now_s: float) -> NodeClaimed | NodesRead | NodeWritten | StoreFailed:
        self.operations += 1
        if self.away:
            return StoreFailed(effect, "it is away", now_s)
        answer = self._do(effect, now_s)
        if self.operations == self.lose_answer_of:
            return StoreFailed(effect, "its answer was lost", now_s)
        return answer

    def _do(self, effect: StoreEffect, now_s: float) -> NodeClaimed | NodesRead | NodeWritten:
        match effect:
            case ClaimNode(location):
                if Kind.TMASTERS not in self.nodes:
                    self.set(Kind.TMASTERS, location)
                return NodeClaimed(effect, self.nodes[Kind.TMASTERS] == location, now_s)
            case ReadNodes(kinds):
                return NodesRead(effect, {kind: self.nodes.get(kind) for kind in kinds}, now_s)
            case WriteNode(kind, value, expected, of):
                done = self.nodes.get(of) == expected
                if done:
                    self.set(kind, value)
                return NodeWritten(effect, done, now_s)


class World:
    """One Topology Master's core and what surrounds it."""

    retained = 5
    """So many checkpoints are kept."""

    def __init__(
        self, store: Store, *, location: bytes = LOCATION, copy: Mapping[Kind, bytes | ReadFailedError] | None = None
    ) -> None:
        self.store = store
        self.core = Core(
            topology="words",
            topology_id="words-1",
            location=location,
            stmgr_timeout_s=STMGR_TIMEOUT_S,
            copy=copy,
            retained=self.retained,
        )
        self.now_s = 0.0
        self.asleep = False
        self.effects: list[Any] = []
        self.sent: list[SendPlan] = []
        self.replies: list[str] = []
        self.copy: dict[Kind, bytes] = {kind: value for kind, value in (copy or {}).items() if isinstance(value, bytes)}
        self.saved_plans: list[PhysicalPlan] = []
        self.finished: HeronError | None = None
        self.changes: list[tuple[Kind, bytes | None]] = []
        self.sessions: dict[int, StmgrLocation] = {}
        self.last_sent: dict[str, tuple[PhysicalPlan, StmgrLocation]] = {}
        self._waiting: list[StoreEffect] = []
        self._calls = 0
        store.followers.append(self)

    @property
    def writable(self) -> bool:
        """Whether its next write would be accepted."""
        fence = self.core.leadership.fence
        return bool(fence) and self.store.nodes.get(Kind.EPOCHS) == fence

    def feed(self, *events: Any) -> None:
        for event in events:
            if isinstance(event, StmgrRegistered):
                self.sessions[event.session] = event.location
                event = structs.replace(event, now_s=self.now_s)
            self._apply(self.core.step(event))
            self.core.check_invariants()

    def request(self, runtime: TopologyState) -> None:
        self._calls += 1
        self.feed(StateRequested(self._calls, runtime, self.now_s))

    def restore(self) -> None:
        self.feed(RestoreRequested(self.now_s))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps no longer than what is due."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            due_s = self.core.due_s
            self.now_s = min(end_s, max(self.now_s + 0.01, due_s) if due_s is not None else end_s)
            self.feed(TimePassed(self.now_s))
            self._answer_all()

    def settle(self, *, steps: int = 400, time: bool = True) -> None:
        """Answer the state manager's requests and report its changes, in turn, until nothing is left to do."""
        self.feed(TimePassed(self.now_s))
        quiet = 0
        while steps > 0 and quiet < 8:
            steps -= 1
            if self._answer():
                quiet = 0
            elif time:
                self.now_s += 1.0
                quiet += 1
                self.feed(TimePassed(self.now_s))
            else:
                return

    def _answer_all(self) -> None:
        while self._answer():
            pass

    def _answer(self) -> bool:
        if self.asleep:
            return False
        if self._waiting:
            effect = self._waiting.pop(0)
            answer = self.store.do(effect, self.now_s)
            if isinstance(answer, NodeWritten) and answer.done and answer.write.kind is Kind.PPLANS:
                plan = plan_pb2.PhysicalPlan.FromString(answer.write.value)
                self.saved_plans.append(PhysicalPlan.from_proto(plan))
            self.feed(answer)
            return True
        if self.changes:
            kind, value = self.changes.pop(0)
            self.feed(NodeChanged(kind, value, self.now_s))
            return True
        return False

    def _apply(self, effects: list[Any]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case ClaimNode() | ReadNodes() | WriteNode():
                    self._waiting.append(effect)
                case SendPlan(session, plan):
                    self.sent.append(effect)
                    where = self.sessions[session]
                    self.last_sent[where.id] = plan, where
                case Reply(_, error):
                    self.replies.append(error)
                case KeepCopy(kind, value):
                    self.copy[kind] = value
                case Finish(error):
                    self.finished = error
