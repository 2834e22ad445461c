"""The core of a Stream Manager: routing, flow control, outboxes and restore epochs. Pure: events in, effects out.

No socket, file, task or clock is in it, so that a simulator can run it as it is. Its owner (`Stmgr`) numbers
the links, reports what happens to them, and carries out the effects in order.

Restore epochs: a restore from a checkpoint puts every task back, so what was sent before it must not arrive after it.
Every frame carries the epoch that its batches were sent in. An older one is dropped; a newer one, from a process that
had the plan first, is kept until the plan comes, as far as there is room. A new epoch empties the outboxes.

With checkpoints an order of the Topology Master begins an epoch as well as a plan does, and what may
be lost in it is reported (`_membership`). Orders overtake batches: markers are batches. An instance is given batches
only once it has restored the epoch. Spouts are not held by leaving their links unread, but ordered to emit nothing new:
they still take snapshots, and their markers and reports get through. Links of bolts are left unread while an outbox is
full, as in every mode; their markers wait there until its reader has taken some, or a restore has emptied it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from heronpy.config import InstanceConfig, StmgrConfig
from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, metrics_pb2, stmgr_pb2, tmaster_pb2
from heronpy.stmgr._core_link import CoreLink
from heronpy.stmgr._core_outgoing import OutgoingCore
from heronpy.stmgr._delivered import Delivered
from heronpy.stmgr._membership import EpochMembership
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._routes import Routes
from heronpy.stmgr.events import (
    CloseLink,
    Effect,
    Event,
    FrameReceived,
    FrameWritten,
    LinkClosed,
    LinkOpened,
    Log,
    OrdersReceived,
    PlanReceived,
    SendToTmaster,
    SpillFailed,
    SpillRead,
    SpillWritten,
    TimePassed,
    WriteReady,
)
from heronpy.stmgr.flow import (
    BoltAttached,
    BoltLost,
    EpochReached,
    FrameParked,
    FrameRouted,
    OutboxRemoved,
    PeerAnnounced,
    PeerConnected,
    PeerLost,
    PlanChanged,
    ReaderClosed,
    ReaderOpened,
)

_DATA = stmgr_pb2.Batch.DATA
_ROOT_KINDS = frozenset((stmgr_pb2.Batch.ACK, stmgr_pb2.Batch.FAIL, stmgr_pb2.Batch.RESET_TIMEOUT))
"""What belongs to a spout's trees, and is gone with it."""
_REPLACED = "its container has a newer incarnation"


class StmgrCore(OutgoingCore):
    """The core of one Stream Manager."""

    def __init__(self, container: int, config: StmgrConfig, instance: InstanceConfig, incarnation: int = 0) -> None:
        """Make the core of a container's Stream Manager; `incarnation` distinguishes its process from earlier ones."""
        super().__init__(container, config)
        self._container = container
        self._delivered_bytes = instance.in_queue_bytes
        self._incarnation = incarnation
        self._by_task: dict[int, Outbox] = {}
        self._lost_spouts: set[int] = set()
        self._parked: list[tuple[CoreLink, stmgr_pb2.Frame]] = []
        self._parked_bytes = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            FrameReceived: self._frame_received,
            WriteReady: self._write_ready,
            FrameWritten: self._frame_written,
            PlanReceived: self._plan_received,
            OrdersReceived: self._orders_received,
            LinkOpened: self._link_opened,
            LinkClosed: self._link_closed,
            SpillWritten: self._spill_written,
            SpillRead: self._spill_read,
            SpillFailed: self._spill_failed,
            TimePassed: self._time_passed,
        }

    def step(self, event: Event) -> Sequence[Effect]:
        """Decide what follows from an event."""
        self._handlers[type(event)](event)
        effects, self._effects = self._effects, []
        return effects

    @property
    def epoch(self) -> int:
        """The restore epoch."""
        return self._epoch

    @property
    def report(self) -> checkpoint_pb2.StmgrReport | None:
        """With checkpoints, what goes to the Topology Master with every heartbeat."""
        return self._membership.report if self._membership is not None else None

    @property
    def attached(self) -> list[str]:
        """Ids of the connected instances."""
        return sorted(name for name, link in self._connected.items() if not link.is_peer)

    @property
    def connected(self) -> list[str]:
        """Ids of the connected peers."""
        return sorted(name for name, link in self._connected.items() if link.is_peer)

    @property
    def culprits(self) -> set[str]:
        """Instances and links that throttle the spouts, here or at a peer."""
        return {culprit.id for culprit in self._flow.culprits}

    def newest_incarnation(self, peer: str) -> int:
        """Of the container of a peer, as far as this Stream Manager knows: what is older is refused."""
        planned = self.routes.incarnations.get(peer, 0) if self.routes is not None else 0
        link = self._connected.get(peer)
        return max(planned, link.incarnation) if link is not None and link.is_peer else planned

    def waiting(self) -> dict[str, int]:
        """How many batches each outbox could send now."""
        return {name: len(outbox) for name, outbox in self._outboxes.items()}

    def collect(self, now_ns: int) -> Iterator[metrics_pb2.Metric]:
        """Metrics since the last call."""
        return self.metrics.collect(self._flow.culprits, self._outboxes.values(), now_ns)

    # plans

    def _plan_received(self, event: PlanReceived) -> None:
        before, plan = self.routes, event.plan
        if before is not None and _order(plan) <= _order(before.plan):
            return
        text = f"plan {plan.version}: {len(plan.packing.containers)} containers, {plan.state.name}"
        self._effects.append(Log(logging.INFO, text))
        routes = self.routes = Routes(plan, self._container)
        if self._membership is None and routes.has_checkpoints:
            self._membership = EpochMembership(self._incarnation)
        names = [*routes.tasks, *sorted(routes.peers)]
        # Not `or`: an empty outbox is falsy.
        outboxes = {n: self._outboxes[n] if n in self._outboxes else Outbox(n, self._config) for n in names}
        gone = [outbox for name, outbox in self._outboxes.items() if name not in outboxes]
        self._outboxes = outboxes
        self._by_task = {task: outboxes[name] for task, name in routes.outbox_of.items()}
        self._cyclic = routes.cyclic
        self._lost_spouts &= set(routes.tasks.values())
        for outbox in gone:
            if plan.restore_epoch <= self._epoch and (outbox.bytes or outbox.feedback_bytes):
                self._taint(f"{outbox.name} is no longer in the plan, and batches waited for it")
            self._spill(outbox.clear())
            self._decide(OutboxRemoved(outbox.name, event.now_ns))
        self._bound_in_flight(event.now_ns)
        self._plan_links(plan, event.now_ns)
        self._sources_changed()
        if plan.restore_epoch > self._epoch:
            self._enter(plan.restore_epoch, event.now_ns)

    def _plan_links(self, plan: PhysicalPlan, now_ns: int) -> None:
        assert self.routes is not None
        frame = stmgr_pb2.Frame(plan=plan.to_proto())
        for link in list(self._connected.values()):
            if link.name not in self._outboxes:
                self._effects.append(CloseLink(link.number, "it is no longer in the plan"))
            elif link.is_peer and link.incarnation < self.routes.incarnations.get(link.name, 0):
                # Now, not when it has closed: what is still read from it is nothing of the topology any more.
                self._lose(link, now_ns)
                self._effects.append(CloseLink(link.number, _REPLACED))
            elif not link.is_peer:
                link.feedback = self.routes.feedback_tasks(link.name)
                self._control(link, frame)

    def _sources_changed(self) -> None:
        assert self.routes is not None
        spouts = frozenset(link.number for name, link in self._connected.items() if name in self.routes.spouts)
        self._decide(PlanChanged(spouts, self.routes.locations))

    def _enter(self, epoch: int, now_ns: int) -> None:
        """Drop what was sent in earlier epochs, and go on with what came too early."""
        self._effects.append(Log(logging.INFO, f"restore epoch {epoch}: outboxes are purged"))
        self._epoch = epoch
        if self._membership is not None:
            self._membership.move_to(epoch)
        for outbox in self._outboxes.values():
            self._spill(outbox.clear())
            self._changed(outbox, now_ns)
        for link in self._connected.values():
            link.takes_batches = link.is_peer or self._membership is None
            if link.delivered is not None:
                link.delivered.drain()
        parked, self._parked, self._parked_bytes = self._parked, [], 0
        self._decide(EpochReached())
        for link, frame in parked:
            self._take_batches(link, frame, 0, now_ns)

    # checkpoints

    def _orders_received(self, event: OrdersReceived) -> None:
        membership = self._membership
        if membership is None:
            return  # before its first plan; orders are repeated
        for order in event.orders:
            if order.HasField("restore"):
                if order.restore.epoch < self._epoch:
                    continue  # another restore has begun
                if order.restore.epoch > self._epoch:
                    self._enter(order.restore.epoch, event.now_ns)
                if membership.restored(order.restore.epoch):
                    self._report(membership)
            frame = stmgr_pb2.Frame(orders=[order])
            for link in self._connected.values():
                if not link.is_peer:
                    self._control(link, frame)

    def _reports_received(self, link: CoreLink, reports: Iterable[checkpoint_pb2.InstanceReport]) -> None:
        membership = self._membership
        assert membership is not None, "the others report nothing"
        for report in reports:
            if report.HasField("status"):
                if membership.reported(link.name, report.status):
                    self._report(membership)
                link.takes_batches = membership.has_restored(link.name)
                if link.idle:
                    self._wake_if_needed(link)
            elif not report.HasField("missing"):
                self._effects.append(SendToTmaster(tmaster_pb2.StmgrMessage(of_instance=report)))
            elif report.missing.epoch == self._epoch:
                self._taint(f"{link.name}: {report.missing.reason}")

    def _taint(self, reason: str) -> None:
        """Batches of this epoch may be lost. Without checkpoints that has no consequences."""
        if self._membership is not None and self._membership.lost(reason):
            self._effects.append(Log(logging.WARNING, f"restore epoch {self._epoch} is tainted: {reason}"))
            self._report(self._membership)

    def _report(self, membership: EpochMembership) -> None:
        self._effects.append(SendToTmaster(tmaster_pb2.StmgrMessage(report=membership.report)))

    # links

    def _link_opened(self, event: LinkOpened) -> None:
        outbox = self._outboxes.get(event.name)
        if outbox is None or self.routes is None:
            self._effects.append(CloseLink(event.link, "it is not in the plan"))
            return
        if event.incarnation < self.newest_incarnation(event.name):
            self._effects.append(CloseLink(event.link, _REPLACED))
            return
        if (old := self._connected.get(event.name)) is not None:
            self._lose(old, event.now_ns)
            self._effects.append(CloseLink(old.number, "a newer connection has taken its place"))
        is_peer = event.name in self.routes.peers
        fails = self.routes.tracked and self._membership is None
        keeps = fails and not is_peer and event.name not in self.routes.spouts
        delivered = Delivered(self._delivered_bytes) if keeps else None
        link = CoreLink(event.link, outbox, is_peer=is_peer, incarnation=event.incarnation, delivered=delivered)
        self._links[link.number] = self._connected[link.name] = link
        self._decide(ReaderOpened(link.number))
        if is_peer:
            self.metrics.connected()
            if self._membership is not None and (number := self._membership.last_number(link.name)):
                self._control(link, stmgr_pb2.Frame(epoch=self._epoch, number=number))
            self._decide(PeerConnected(link.name))
            return
        link.takes_batches = self._membership is None
        link.feedback = self.routes.feedback_tasks(link.name)
        self._lost_spouts.discard(self.routes.tasks[link.name])
        self._control(link, stmgr_pb2.Frame(plan=self.routes.plan.to_proto()))
        self._sources_changed()
        self._decide(BoltAttached(link.name, event.now_ns))

    def _link_closed(self, event: LinkClosed) -> None:
        if (link := self._links.get(event.link)) is not None:
            self._lose(link, event.now_ns)

    def _lose(self, link: CoreLink, now_ns: int) -> None:
        del self._links[link.number], self._connected[link.name]
        self._decide(ReaderClosed(link.number))
        # Not sent again: executed twice with one id, a tuple would leave its tree open for ever.
        lost = link.outbox.written() if link.in_flight is not None else []
        self.metrics.lost(lost, link.sent)
        if self._membership is not None:
            self._lose_member(link, self._membership)
        if link.is_peer:
            self._decide(PeerLost(link.name, now_ns))
        elif self.routes is not None and link.name in self.routes.tasks:
            lost += self._lose_instance(link, self.routes)
            self._sources_changed()
        self._changed(link.outbox, now_ns)
        self._fail(lost, now_ns)
        if link.delivered is not None and link.name in self._outboxes:
            self._decide(BoltLost(link.name, now_ns))

    def _lose_member(self, link: CoreLink, membership: EpochMembership) -> None:
        if link.in_flight is not None and link.in_flight_epoch == self._epoch:
            self._taint(f"the connection to {link.name} was lost while batches were being sent")
        if membership.detached(link.name):
            self._report(membership)

    def _fail(self, lost: list[stmgr_pb2.Batch], now_ns: int) -> None:
        """Fail what was tracked of lost batches."""
        if not lost or self._membership is not None:
            return
        # Here, because nothing else in a Stream Manager decodes batches, which takes numpy: a third of what its start
        # would cost. Most of them never lose an instance.
        from heronpy.stmgr._losses import fails_of

        self._route([fail for fail in fails_of(lost) if fail.dest_task not in self._lost_spouts], now_ns)

    def _lose_instance(self, link: CoreLink, routes: Routes) -> list[stmgr_pb2.Batch]:
        """What fails with an instance, besides what was being written to it."""
        if self._membership is not None:
            return []  # if it has died, all are restored; if not, it gets what waits for it
        if link.name in routes.spouts:
            # Its trees are gone with it.
            self._lost_spouts.add(routes.tasks[link.name])
            link.outbox.withdraw(lambda batch: batch.kind in _ROOT_KINDS)
            return []
        if link.delivered is None:
            return []
        from heronpy.stmgr._losses import is_tracked  # here for the same reason as in `_fail`

        waiting = link.outbox.withdraw(is_tracked)
        self.metrics.lost(waiting, link.sent)
        self._spill(link.outbox.feedback.refill())
        return [*link.delivered.drain(), *waiting]

    # frames in

    def _frame_received(self, event: FrameReceived) -> None:
        link = self._links.get(event.link)
        if link is None:
            return  # of a connection that was replaced
        frame = event.frame
        self.metrics.moved(event.size, link.received)
        if link.is_peer and (frame.start_backpressure or frame.stop_backpressure):
            for start in frame.start_backpressure:
                self._decide(PeerAnnounced(link.name, start.culprit, True, start.full, event.now_ns))
            for stop in frame.stop_backpressure:
                self._decide(PeerAnnounced(link.name, stop.culprit, False, stop.full, event.now_ns))
        self._take_batches(link, frame, event.size, event.now_ns)
        if self._membership is not None and frame.reports:
            # Behind the batches: a taint is reported before a later snapshot.
            self._reports_received(link, frame.reports)

    def _take_batches(self, link: CoreLink, frame: stmgr_pb2.Frame, size: int, now_ns: int) -> None:
        if frame.epoch != self._epoch and (frame.batches or frame.number):
            if frame.epoch < self._epoch:
                self.metrics.lost(frame.batches, link.received)
                return
            self._parked.append((link, frame))
            self._parked_bytes += size or frame.ByteSize()
            if self._parked_bytes >= self._config.outbox_bytes_high and link.number in self._links:
                self._decide(FrameParked(link.number))
            return
        batches = frame.batches
        if self._membership is not None and frame.number:
            compare = self._membership.received if batches else self._membership.announced
            if gap := compare(link.name, frame.number):
                self._taint(gap)
        self.metrics.passed(batches, link.received)
        if self._cyclic or self._lost_spouts:
            self._route_slowly(link, frame, now_ns)
        else:
            # Of a frame with one batch nearly all is its body.
            self._route(batches, now_ns, size if len(batches) == 1 else 0)
        if not link.is_peer and not self._flow.quiet:
            self._decide(self._routed(link, frame))

    def _route(self, batches: Iterable[stmgr_pb2.Batch], now_ns: int, body_bytes: int = 0) -> None:
        """Put each batch into the outbox of its destination."""
        find = self._by_task.get
        touched: dict[Outbox, None] = {}
        for batch in batches:
            outbox = find(batch.dest_task)
            if outbox is not None:
                outbox.put(batch, body_bytes)
                touched[outbox] = None
            else:  # the task was scaled away: its tuples time out and are replayed
                self._taint(f"there is no task {batch.dest_task}")
        for outbox in touched:
            self._changed(outbox, now_ns)

    def _route_slowly(self, link: CoreLink, frame: stmgr_pb2.Frame, now_ns: int) -> None:
        """The same for topologies with cycles, and while a spout is dead."""
        touched: dict[Outbox, None] = {}
        for batch in frame.batches:
            task = batch.dest_task
            outbox = self._by_task.get(task)
            if outbox is None:
                self._taint(f"there is no task {task}")
                continue
            if batch.kind in _ROOT_KINDS:
                if task in self._lost_spouts:
                    continue
                outbox.put(batch)
            elif task in link.feedback or batch.feedback:
                batch.feedback = True
                self._spill(outbox.put_feedback(batch))
            else:
                outbox.put(batch)
            touched[outbox] = None
        for outbox in touched:
            self._changed(outbox, now_ns)

    def _routed(self, link: CoreLink, frame: stmgr_pb2.Frame) -> FrameRouted:
        # Only tuples hold their sender. The rest is bounded: by the roots of the spouts, and by its interval.
        assert self.routes is not None
        destinations: set[str] = set()
        feedback = False
        for batch in frame.batches:
            outbox = self._by_task.get(batch.dest_task)
            if outbox is None or batch.kind != _DATA:
                continue
            if batch.dest_task in link.feedback:
                feedback = True
                continue
            destinations.add(outbox.name)
            destinations.add(self.routes.remote.get(batch.dest_task, outbox.name))
        return FrameRouted(link.number, destinations, feedback)

    def check_invariants(self, now_ns: int) -> None:
        assert not self._effects
        self._flow.check_invariants(now_ns)
        for outbox in self._outboxes.values():
            outbox.check_invariants()
        for name, link in self._connected.items():
            assert self._links[link.number] is link
            assert link.name == name
            assert not (link.idle and (link.control or (link.takes_batches and len(link.outbox)))), (
                f"{name} sleeps over what waits for it"
            )
            assert not link.in_flight or not (link.idle or link.merging)
        assert len(self._links) == len(self._connected)
        assert bool(self._parked) == bool(self._parked_bytes)
        assert all(frame.epoch > self._epoch for _, frame in self._parked)


def _order(plan: PhysicalPlan) -> tuple[int, int]:
    return plan.restore_epoch, plan.version
