"""A simulated Topology Master: its real core, with sessions on simulated links. The twin of `TopologyMaster`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from heronpy.plan import PackingPlan, PhysicalPlan, StmgrLocation, TopologyState
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.statemgr import Kind
from heronpy.testing.simulation._loop import Process
from heronpy.testing.simulation._network import End, Network
from heronpy.testing.simulation._programs import Broken
from heronpy.testing.simulation._state_store import MemoryStateManager
from heronpy.testing.simulation._storage import Answer, Storage
from heronpy.tmaster import (
    Activated,
    CheckpointAsked,
    ClaimNode,
    CloseSession,
    Core,
    Event,
    Finish,
    HeartbeatReceived,
    KeepCopy,
    NodeChanged,
    NodeWritten,
    Outgoing,
    ReadNodes,
    Reply,
    RestoreRequested,
    SendOrder,
    SendPlan,
    SessionEnded,
    StateRequested,
    StmgrRegistered,
    StoreEffect,
    StoreFailed,
    TimePassed,
    UpdateRequested,
    WriteNode,
    carry_out,
)
from heronpy.tmaster.checkpoints import DiscardCheckpoints, FindIntact, WriteManifest, instance_reported, stmgr_reported

TICK_S = 1.0
UPDATE_TIMEOUT_S = 20.0
ACTIVE_WAIT_S = 5.0
_PAUSE_MIN_S = 0.01
_CALL_S = 0.004
_MANIFEST_S = 0.2
_CALL_TIMEOUT_S = 2.0


@dataclass
class _Session:
    number: int
    end: End
    stmgr: str = ""
    outgoing: Outgoing = field(default_factory=Outgoing)
    writing: bool = False


class TmasterNode:
    """One incarnation of a Topology Master."""

    def __init__(
        self,
        process: Process,
        network: Network,
        state: MemoryStateManager,
        *,
        container: int,
        topology: str,
        topology_id: str,
        stmgr_timeout_s: float,
        copies: dict[Kind, bytes],
        plan_sent: Callable[[PhysicalPlan], None],
        storage: Storage,
    ) -> None:
        self.process, self._network, self._state = process, network, state
        self._topology, self._copies, self._plan_sent, self._storage = topology, copies, plan_sent, storage
        self._rng = process.loop.rng(f"{process.name} {process.incarnation}")
        host, port = "host-tmaster", 90000 + 1000 * container + process.incarnation
        self.host = f"{host}-{container}"
        location = state_pb2.TmasterLocation(
            topology=topology, topology_id=topology_id, host=self.host, port=port, pid=process.incarnation
        )
        self._location = location.SerializeToString()
        kept: Mapping[Kind, bytes] = dict(copies)
        self.core = Core(
            topology=topology,
            topology_id=topology_id,
            location=self._location,
            stmgr_timeout_s=stmgr_timeout_s,
            copy=kept,
        )
        self._sessions: dict[int, _Session] = {}
        self._next_session = 0
        self._callers: list[tuple[End, str]] = []
        self.replies: dict[int, str] = {}
        self._saves: dict[int, int] = {}
        """The newest checkpoint that was committed when somebody asked for another, by call."""
        self._wake_ns = 0
        self._next_tick_s = 0.0
        self._tick_s = min(TICK_S, stmgr_timeout_s / 4)
        process.check = self.core.check_invariants
        network.listen(f"{self.host}:{port}", self.host, process, self._accept)
        for kind in (Kind.TMASTERS, Kind.EPOCHS):
            self._follow(kind)
        process.after(0, self._pass_time)

    def restore(self) -> bool:
        """Begin a restore. False if this is not the active one."""
        if self.core.active:
            self.feed(RestoreRequested(self.process.loop.now_s))
        return self.core.active

    def request(self, call: int, runtime: TopologyState) -> bool:
        """Ask for another state; the reply goes to `replies`. False if this is not the active one."""
        if self.core.active:
            self.feed(StateRequested(call, runtime, self.process.loop.now_s))
        return self.core.active

    def update(self, call: int, base: PackingPlan, packing: PackingPlan) -> bool:
        """Ask for another packing plan; the reply goes to `replies`. False if this is not the active one."""
        if self.core.active:
            self.feed(UpdateRequested(call, base, packing, UPDATE_TIMEOUT_S, self.process.loop.now_s))
        return self.core.active

    def save(self, call: int) -> bool:
        """Ask for a checkpoint without logs; the reply goes to `replies`. False if this is not the active one."""
        if self.core.active:
            self._saves[call] = self._storage.newest
            self.feed(CheckpointAsked(call, True, UPDATE_TIMEOUT_S, self.process.loop.now_s))
        return self.core.active

    # the core

    def feed(self, event: Event) -> None:
        for effect in self.core.step(event):
            self._carry_out(effect)
        self._schedule()

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case ClaimNode() | ReadNodes() | WriteNode():
                self._ask(effect)
            case SendPlan(session, plan):
                self._send(session, plan)
            case SendOrder(session, order):
                if (open_session := self._sessions.get(session)) is not None:
                    open_session.outgoing.order(order)
                    self._write(open_session)
            case WriteManifest():
                self._call_storage(lambda: self._storage.write_manifest(effect, self._rng))
            case FindIntact():
                self._call_storage(lambda: self._storage.find_intact(effect, self._rng))
            case DiscardCheckpoints(keep, before):
                self._storage.discard(keep, before)
            case CloseSession(session, _, _):
                self._end_session(session)
            case Activated(kinds):
                for kind in kinds:
                    self._follow(kind)
                callers, self._callers = self._callers, []
                for end, name in callers:
                    self._accept(end, name)
            case Reply(call, error):
                self.replies[call] = error
                if call in self._saves and not error:
                    self._storage.check_saved(self._saves[call])
            case KeepCopy(kind, value):
                self._copies[kind] = value
            case Finish():
                self.process.loop.after(0, self.process.die)

    def _follow(self, kind: Kind) -> None:
        self._state.watch(kind, self._topology, lambda value: self.feed(self._change(kind, value)))

    def _change(self, kind: Kind, value: bytes | None) -> NodeChanged:
        return NodeChanged(kind, value, self.process.loop.now_s)

    def _ask(self, effect: StoreEffect) -> None:
        there_s, back_s = self._rng.random() * _CALL_S, self._rng.random() * _CALL_S

        def call() -> None:
            # A call that is made when its process is stopped or dead was under way.
            answer = carry_out(self._state, self._topology, effect)
            failed = isinstance(answer, StoreFailed)
            if isinstance(answer, NodeWritten) and answer.done:
                self._check_term(answer.write)
            if not failed and self._rng.random() < 0.01:
                answer, failed = StoreFailed(effect, "the answer was lost", 0.0), True
            self.process.after(
                _CALL_TIMEOUT_S * self._rng.random() if failed else back_s,
                lambda: self.feed(structs.replace(answer, now_s=self.process.loop.now_s)),
            )

        def guarded() -> None:
            if self.process.alive:
                call()

        self.process.loop.after(there_s, guarded)

    def _call_storage(self, call: Callable[[], Answer]) -> None:
        def called() -> None:
            if self.process.alive:
                answer = call()
                self.process.after(self._rng.random() * _CALL_S, lambda: self.feed(answer(self.process.loop.now_s)))

        self.process.loop.after(self._rng.random() * _MANIFEST_S, called)

    def _check_term(self, write: WriteNode) -> None:
        """Whatever was to depend on the term was written in this one's own, however the state manager compares."""
        if write.of is not Kind.EPOCHS or write.kind is Kind.EPOCHS:
            return
        epoch = state_pb2.Epoch.FromString(self._state.get(Kind.EPOCHS, self._topology) or b"")
        if epoch.leader != self._location:
            raise Broken(f"{self.process.name} wrote {write.kind.value} in term {epoch.term}, which is not its own")
        if write.kind is Kind.STATEFULCHECKPOINTS:
            self._storage.recorded(state_pb2.Checkpoints.FromString(write.value), epoch.restore_epoch)

    def _pass_time(self) -> None:
        now_s = self.process.loop.now_s
        self._wake_ns = 0
        self._next_tick_s = now_s + self._tick_s
        self.feed(TimePassed(now_s))

    def _schedule(self) -> None:
        now_s = self.process.loop.now_s
        due_s = self.core.due_s
        at_s = self._next_tick_s if due_s is None else min(self._next_tick_s, due_s)
        at_ns = int(max(now_s + _PAUSE_MIN_S, at_s) * 1e9) + 1
        if self._wake_ns and self._wake_ns <= at_ns:
            return
        self._wake_ns = at_ns
        self.process.after((at_ns - self.process.loop.now_ns) / 1e9, self._due)

    def _due(self) -> None:
        if self._wake_ns and self._wake_ns <= self.process.loop.now_ns:
            self._pass_time()

    # sessions

    def _accept(self, end: End, name: str) -> None:
        if end.closed:
            return
        if not self.core.active:
            self._callers.append((end, name))
            self.process.after(ACTIVE_WAIT_S, lambda: self._give_up(end))
            return
        self._next_session += 1
        session = _Session(self._next_session, end)

        def received(data: bytes) -> None:
            self._received(session, tmaster_pb2.StmgrMessage.FromString(data))

        end.start(received, lambda: self._ended(session))

    def _give_up(self, end: End) -> None:
        if any(each is end for each, _ in self._callers):
            self._callers = [(each, name) for each, name in self._callers if each is not end]
            end.close()

    def _received(self, session: _Session, message: tmaster_pb2.StmgrMessage) -> None:
        now_s = self.process.loop.now_s
        if message.HasField("hello"):
            hello = message.hello
            session.stmgr = hello.location.id
            self._sessions[session.number] = session
            self.feed(
                StmgrRegistered(
                    session.number,
                    StmgrLocation.from_proto(hello.location),
                    hello.plan_version,
                    now_s,
                    hello.restore_epoch,
                    tuple(map(StmgrLocation.from_proto, hello.peers)),
                )
            )
        elif message.HasField("heartbeat"):
            attached, waiting = frozenset(message.heartbeat.attached), frozenset(message.heartbeat.waiting)
            self.feed(HeartbeatReceived(session.number, attached, now_s, waiting=waiting))
        elif session.number not in self._sessions or session.end.closed:
            return
        elif message.HasField("report"):
            self.feed(stmgr_reported(session.stmgr, message.report, now_s))
        elif (event := instance_reported(message.of_instance, now_s)) is not None:
            self.feed(event)

    def _ended(self, session: _Session) -> None:
        if self._sessions.pop(session.number, None) is not None:
            self.feed(SessionEnded(session.number, self.process.loop.now_s))

    def _end_session(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is not None:
            session.end.close()
            self.process.after(0, lambda: self._ended(session))

    def _send(self, number: int, plan: PhysicalPlan) -> None:
        session = self._sessions.get(number)
        if session is None:
            return
        session.outgoing.offer(plan.version, plan.to_proto())
        self._plan_sent(plan)
        self._write(session)

    def _write(self, session: _Session) -> None:
        if session.writing or session.end.closed or (message := session.outgoing.take()) is None:
            return
        session.writing = True

        def written() -> None:
            session.writing = False
            self._write(session)

        session.end.write(message.SerializeToString(), written)
