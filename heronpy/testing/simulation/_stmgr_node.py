"""A simulated Stream Manager: its real core, plan intake and dialing, on simulated links. The twin of `Stmgr`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.config import InstanceConfig, StmgrConfig
from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import plan_pb2, state_pb2, stmgr_pb2, tmaster_pb2
from heronpy.statemgr import Kind
from heronpy.stmgr import PlanIntake, StmgrCore, peers_to_dial
from heronpy.stmgr.events import (
    CloseLink,
    DeleteSpill,
    Effect,
    Event,
    FrameReceived,
    FrameWritten,
    HoldReads,
    LinkClosed,
    LinkOpened,
    OrdersReceived,
    PlanReceived,
    ReadSpill,
    ResumeReads,
    SendToTmaster,
    SpillRead,
    SpillWritten,
    TimePassed,
    Wake,
    WakeAt,
    WriteFrame,
    WriteReady,
    WriteSpill,
)
from heronpy.testing.simulation._loop import Process
from heronpy.testing.simulation._network import End, Network
from heronpy.testing.simulation._state_store import MemoryStateManager

TICK_S = 1.0
RETRY_S = 0.2
HEARTBEAT_S = 1.0
_LOOK_S = 0.25
_DISK_S = 0.002
_INCARNATION = "#"
"""Between the name of a peer and the incarnation of its container."""


@dataclass
class _Link:
    number: int
    name: str
    end: End
    closed: Callable[[], None]
    """Reports that it is gone, once."""
    dialed: list[bool] | None = None
    """Whether the dialing that made it goes on."""
    due_ns: int = 0
    """When the writer is woken; 0: it waits for no time."""


class StmgrNode:
    """One incarnation of one Stream Manager."""

    def __init__(
        self,
        process: Process,
        network: Network,
        state: MemoryStateManager,
        *,
        container: int,
        topology: str,
        topology_id: str,
        config: StmgrConfig,
        instance: InstanceConfig,
    ) -> None:
        self.process, self.id, self.host = process, f"stmgr-{container}", f"host-{container}"
        self.core = StmgrCore(container, config, instance, self.now_ns)
        self.location = StmgrLocation(
            self.id,
            container,
            self.host,
            1000 * container + process.incarnation,
            process.incarnation,
            self.now_ns + process.clock_ns,
            process.incarnation,
        )
        self._hello_name = f"{self.id}{_INCARNATION}{process.incarnation}"
        """What is sent to peers: id, and incarnation of the container."""
        self._network, self._config, self._topology = network, config, topology
        self._intake = PlanIntake(topology_id, process.loop.now_s)
        self._links: dict[int, _Link] = {}
        self._waiting: list[tuple[End, str]] = []
        """Accepted before there was a plan that has them."""
        self._dialing: dict[str, tuple[StmgrLocation, list[bool]]] = {}
        self._disk: dict[tuple[str, int], bytes] = {}
        self._actions = self._all_actions()
        self._master = b""
        self._registration: End | None = None
        self._registering = False
        self._to_tmaster: deque[tmaster_pb2.StmgrMessage] = deque()
        self._writing_to_tmaster = False
        self._sent: tuple[list[str], list[str]] = ([], [])
        self._sent_s = 0.0
        process.check = self._check
        address = f"{self.location.host}:{self.location.port}"
        network.listen(f"{self.id}.sock", self.host, process, self._accept)
        network.listen(address, self.host, process, self._accept)
        state.watch(Kind.TMASTERS, topology, self._found)
        state.watch(Kind.PPLANS, topology, self._saved)
        process.after(TICK_S, self._tick)
        process.after(_LOOK_S, self._heartbeat)

    @property
    def now_ns(self) -> int:
        return self.process.loop.now_ns

    @property
    def plan(self) -> PhysicalPlan | None:
        return self._intake.plan

    def _check(self) -> None:
        self.core.check_invariants(self.now_ns)

    # the core

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            action = self._actions.get(type(effect))
            if action is not None:
                action(effect)

    def _all_actions(self) -> dict[type[Effect], Callable[[Any], None]]:
        return {
            WriteFrame: self._write,
            Wake: self._wake,
            WakeAt: self._wake_at,
            HoldReads: lambda effect: self._links[effect.link].end.hold_reads(),
            ResumeReads: lambda effect: self._links[effect.link].end.resume_reads(),
            SendToTmaster: lambda effect: self._report(effect.message),
            CloseLink: lambda effect: self.process.after(0, lambda: self._close(effect.link)),
            WriteSpill: self._write_spill,
            ReadSpill: self._read_spill,
            DeleteSpill: self._delete_spill,
        }

    def _tick(self) -> None:
        self._step(TimePassed(self.now_ns))
        self.process.after(TICK_S, self._tick)

    def _write_spill(self, effect: WriteSpill) -> None:
        self._disk[effect.outbox, effect.segment] = effect.data

        def written() -> None:
            self._step(SpillWritten(effect.outbox, effect.segment, self.now_ns))

        self.process.after(_DISK_S, written)

    def _delete_spill(self, effect: DeleteSpill) -> None:
        self._disk.pop((effect.outbox, effect.segment), None)

    def _read_spill(self, effect: ReadSpill) -> None:
        def read() -> None:
            data = self._disk.pop((effect.outbox, effect.segment), None)
            if data is not None:  # else it was deleted meanwhile
                self._step(SpillRead(effect.outbox, effect.segment, data, self.now_ns))

        self.process.after(_DISK_S, read)

    # links

    def _accept(self, end: End, name: str) -> None:
        routes = self.core.routes
        if routes is None or (name not in routes.tasks and not name.startswith("stmgr-")):
            self._waiting.append((end, name))
        elif not end.closed:
            self._serve(end, name)

    def _serve(
        self, end: End, name: str, again: Callable[[], None] = lambda: None, dialed: list[bool] | None = None
    ) -> None:
        assert self.core.routes is not None
        name, _, incarnation = name.partition(_INCARNATION)
        if dialed is None and name not in self.core.routes.tasks and name not in self.core.routes.peers:
            end.close()
            return
        number = self._network.number()

        def closed() -> None:
            if self._links.pop(number, None) is not None:
                self._step(LinkClosed(number, self.now_ns))
                again()

        self._links[number] = _Link(number, name, end, closed, dialed)
        self._step(LinkOpened(number, name, self.now_ns, int(incarnation or 0)))
        end.start(lambda data: self._read(number, data), closed)
        self.process.after(0, lambda: self._write_ready(number))

    def _read(self, number: int, data: bytes) -> None:
        if number in self._links:
            frame = stmgr_pb2.Frame.FromString(data)
            self._step(FrameReceived(number, frame, len(data), self.now_ns))

    def _write_ready(self, number: int) -> None:
        if number in self._links:
            self._step(WriteReady(number, self.now_ns))

    def _wake(self, effect: Wake) -> None:
        if (link := self._links.get(effect.link)) is not None:
            link.due_ns = 0
            self.process.after(0, lambda: self._write_ready(effect.link))

    def _wake_at(self, effect: WakeAt) -> None:
        link = self._links[effect.link]
        link.due_ns = effect.at_ns
        self.process.after(max(0, effect.at_ns - self.now_ns) / 1e9, lambda: self._due(link))

    def _due(self, link: _Link) -> None:
        if link.due_ns and link.due_ns <= self.now_ns + 1:  # else a `Wake` was before it
            link.due_ns = 0
            self._write_ready(link.number)

    def _write(self, effect: WriteFrame) -> None:
        number = effect.link

        def written() -> None:
            if number in self._links:
                self._step(FrameWritten(number, self.now_ns))

        self._links[number].end.write(effect.data, written)

    def _close(self, number: int) -> None:
        link = self._links.get(number)
        if link is not None:
            link.end.close()
            link.closed()

    # plans and peers

    def _take(self, plan: PhysicalPlan | None) -> None:
        if plan is None:
            return
        self._step(PlanReceived(plan, self.now_ns))
        assert self.core.routes is not None
        self._dial_peers(self.core.routes.plan)
        waiting, self._waiting = self._waiting, []
        for end, name in waiting:
            self._accept(end, name)

    def _dial_peers(self, plan: PhysicalPlan) -> None:
        wanted = peers_to_dial(plan, self.location)
        for peer_id, (location, live) in list(self._dialing.items()):
            if wanted.get(peer_id) != location:
                live[0] = False
                del self._dialing[peer_id]
                for link in list(self._links.values()):
                    if link.dialed is live:
                        self._close(link.number)
        for peer_id, location in wanted.items():
            if peer_id not in self._dialing:
                live = [True]
                self._dialing[peer_id] = location, live
                self._dial(location, live)

    def _dial(self, peer: StmgrLocation, live: list[bool]) -> None:
        def again() -> None:
            if live[0]:
                self.process.after(self._config.peer_reconnect_ms / 1e3, lambda: self._dial(peer, live))

        def opened(end: End) -> None:
            if not live[0]:
                end.close()
            elif end.closed:
                again()
            else:
                self._serve(end, f"{peer.id}{_INCARNATION}{peer.container_incarnation}", again, live)

        if live[0]:
            self._network.dial(self.process, self.host, f"{peer.host}:{peer.port}", opened, again, self._hello_name)

    # registration

    def _saved(self, value: bytes | None) -> None:
        if value is None:
            return
        saved = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value))
        self._take(self._intake.saved(saved, self.process.loop.now_s))
        if (due_s := self._intake.due_s) is not None:
            delay_s = max(0.0, due_s - self.process.loop.now_s) + 1e-6
            self.process.after(delay_s, lambda: self._take(self._intake.advance(self.process.loop.now_s)))

    def _found(self, value: bytes | None) -> None:
        self._master = value or b""
        if (end := self._registration) is not None:
            self._registration = None
            end.close()
            self.process.after(RETRY_S, self._register)
        else:
            self._register()

    def _register(self) -> None:
        if not self._master or self._registration is not None or self._registering:
            return
        master = state_pb2.TmasterLocation.FromString(self._master)
        wanted = self._master
        self._registering = True

        def failed() -> None:
            self._registering = False
            self.process.after(RETRY_S, self._register)

        def opened(end: End) -> None:
            self._registering = False
            if wanted != self._master or end.closed:
                end.close()
                self.process.after(RETRY_S, self._register)
                return
            self._registration, self._sent_s, self._writing_to_tmaster = end, -1.0, False
            end.start(self._sent_by_tmaster, lambda: self._unregistered(end))
            waiting = [message for message in self._to_tmaster if message.HasField("of_instance")]
            self._to_tmaster = deque([tmaster_pb2.StmgrMessage(hello=self._hello())])
            if (report := self.core.report) is not None:
                self._to_tmaster.append(tmaster_pb2.StmgrMessage(report=report))
            self._to_tmaster.extend(waiting)
            self._write_to_tmaster(end)

        self._network.dial(self.process, self.host, f"{master.host}:{master.port}", opened, failed, self.id)

    def _report(self, message: tmaster_pb2.StmgrMessage) -> None:
        """Send a report behind those before, as `Registration` does."""
        waiting = self._to_tmaster
        if message.HasField("report") and waiting and waiting[-1].HasField("report"):
            waiting.pop()
        waiting.append(message)
        if self._registration is not None:
            self._write_to_tmaster(self._registration)

    def _write_to_tmaster(self, end: End) -> None:
        if self._writing_to_tmaster or not self._to_tmaster or end.closed or self._registration is not end:
            return
        self._writing_to_tmaster = True

        def written() -> None:
            if self._registration is end:
                self._writing_to_tmaster = False
                self._write_to_tmaster(end)

        end.write(self._to_tmaster.popleft().SerializeToString(), written)

    def _unregistered(self, end: End) -> None:
        if self._registration is end:
            self._registration = None
            self.process.after(RETRY_S, self._register)

    def _sent_by_tmaster(self, data: bytes) -> None:
        message = tmaster_pb2.TmasterMessage.FromString(data)
        if message.HasField("plan"):
            self._take(self._intake.sent(PhysicalPlan.from_proto(message.plan)))
        if message.orders:
            self._step(OrdersReceived(message.orders, self.now_ns))
        for order in message.orders:
            if order.HasField("read_ahead"):
                for end, name in self._waiting:
                    if not end.closed and not name.startswith("stmgr-"):
                        end.write(stmgr_pb2.Frame(orders=[order]).SerializeToString(), lambda: None)

    def _heartbeat(self) -> None:
        self.process.after(_LOOK_S, self._heartbeat)
        now_s, attached = self.process.loop.now_s, self.core.attached
        waiting = sorted({name for end, name in self._waiting if not end.closed and not name.startswith("stmgr-")})
        busy = self._registration is None or self._writing_to_tmaster or self._to_tmaster
        if busy or ((attached, waiting) == self._sent and now_s < self._sent_s + HEARTBEAT_S):
            return
        self._sent, self._sent_s = (attached, waiting), now_s
        heartbeat = tmaster_pb2.StmgrHeartbeat(attached=attached, restore_epoch=self.core.epoch, waiting=waiting)
        self._report(tmaster_pb2.StmgrMessage(heartbeat=heartbeat))
        if (report := self.core.report) is not None:
            self._report(tmaster_pb2.StmgrMessage(report=report))

    def _hello(self) -> tmaster_pb2.StmgrHello:
        hello = tmaster_pb2.StmgrHello(location=self.location.to_proto(), restore_epoch=self.core.epoch)
        if (plan := self.plan) is not None:
            hello.plan_version = plan.version
            hello.peers.extend(peer.to_proto() for peer in plan.stmgrs)
        return hello
