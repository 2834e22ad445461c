"""Flow control: which links are read, and what is announced to the peers. Pure: events in, effects out.

Two mechanisms (Heron paper, §5.4, and one more):

* *Spout backpressure.* An outbox over its high water mark makes its owner a culprit until it is under the low one; so
  is a bolt that died, as soon as anything waits for its next incarnation. While there is a culprit anywhere, no
  Stream Manager reads its spouts.
* *Full outboxes.* A bolt may turn one tuple into thousands, long after the spouts are throttled. At three times the
  high water mark, instances that send tuples to an outbox are not read either, nor those of other containers that send
  to an instance behind it, until it is under the high water mark again.

Full outboxes cannot deadlock. Without cycles, the last bolts send acks only, which are never held; so they always get
on, then those before them, and so on. Feedback edges would close a cycle of full queues, so their tuples are not
counted there: they go to disk (`_feedback`). Only when the disk's share is used up are their senders held, and then the
topology is asked to stop. What comes from a peer is never held either, except while this Stream Manager is behind the
peer's restore epoch, which ends with a plan from the Topology Master: a peer held for one of its tuples would hold all
others behind it, and two Stream Managers that wait for each other wait for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from heronpy.config import MIB
from heronpy.stmgr._culprits import Culprits
from heronpy.stmgr.events import HoldReads, Log, ResumeReads, StopTopology

HARD_LIMIT = 3
"""At so many times the high water mark the senders to an outbox are held, not only the spouts."""
SPILL_RESUME = 0.9
"""Feedback that was held at the spill limit resumes below this share of it."""
FEEDBACK = "*feedback"
"""What senders of feedback wait for while no more of it may be spilled; no instance has such an id."""
EPOCH = "*epoch"
"""What a link waits for that is ahead of this Stream Manager's restore epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """The bounds, in bytes."""

    high: int
    low: int
    spill: int
    """Of what may wait on disk for all outboxes."""
    writing: int
    """Of what may be on its way to the disk."""


# -- events ------------------------------------------------------------------------------------------------------------


class OutboxChanged(Struct, frozen=True):
    """Something was put into an outbox, or has left it."""

    outbox: str
    bytes: int
    """Of what holds its senders: everything but feedback."""
    feedback_bytes: int
    """In memory and on disk."""
    now_ns: int


class MarkChanged(Struct, frozen=True):
    """The high water mark of an outbox is another one than that of the configuration; its low one and the hard limit
    are in proportion."""

    outbox: str
    high: int
    now_ns: int


class OutboxRemoved(Struct, frozen=True):
    """An instance or a peer is no longer in the plan."""

    outbox: str
    now_ns: int


class BoltLost(Struct, frozen=True):
    """A bolt that sends acks has died: what comes for it from now on waits for its next incarnation."""

    instance: str
    now_ns: int


class BoltAttached(Struct, frozen=True):
    instance: str
    now_ns: int


class ReaderOpened(Struct, frozen=True):
    """Frames are read from a link."""

    link: int


class ReaderClosed(Struct, frozen=True):
    link: int


class FrameRouted(Struct, frozen=True):
    """A frame of a local instance was put into outboxes."""

    link: int
    destinations: Iterable[str]
    """Instances, and the peers in front of them, that it brought tuples for which hold their sender."""
    feedback: bool
    """Whether it also brought feedback."""


class FrameParked(Struct, frozen=True):
    """A link is so far ahead in restore epochs that no more of it can be kept."""

    link: int


class EpochReached(Struct, frozen=True):
    """Nothing of a newer restore epoch is kept any longer."""


class PlanChanged(Struct, frozen=True):
    spout_links: frozenset[int]
    """Of the connected spouts of this container."""
    locations: Mapping[str, str]
    """The peer in front of each instance of another container."""


class PeerConnected(Struct, frozen=True):
    peer: str


class PeerLost(Struct, frozen=True):
    peer: str
    now_ns: int


class PeerAnnounced(Struct, frozen=True):
    """A peer has reported the start or the end of an episode."""

    peer: str
    culprit: str
    started: bool
    full: bool
    """Its outbox is full, instead of over its high water mark."""
    now_ns: int


class SpillChanged(Struct, frozen=True):
    """Feedback went to disk, or came back."""

    bytes: int
    """On disk, or on its way to it."""
    writing: int
    outbox: str
    """The one with the most of it."""
    error: str = ""
    """Why it cannot be written now."""


FlowEvent = (
    OutboxChanged
    | MarkChanged
    | OutboxRemoved
    | BoltLost
    | BoltAttached
    | ReaderOpened
    | ReaderClosed
    | FrameRouted
    | FrameParked
    | EpochReached
    | PlanChanged
    | PeerConnected
    | PeerLost
    | PeerAnnounced
    | SpillChanged
)

# -- effects, beside HoldReads, ResumeReads, StopTopology and Log ------------------------------------------------------


class Announce(Struct, frozen=True):
    """Report the start or the end of an episode to the peers."""

    culprit: str
    started: bool
    full: bool
    peer: str = ""
    """Only to this one; empty: to all that are connected."""


class PauseFeedback(Struct, frozen=True):
    """Send no feedback to a peer, or go on sending it."""

    peer: str
    paused: bool


FlowEffect = HoldReads | ResumeReads | StopTopology | Log | Announce | PauseFeedback


@dataclass(slots=True)
class _Reader:
    waits_for: set[str] = field(default_factory=set)
    """Names of what is full."""
    held: bool = False


class FlowControl:
    """The flow control of one Stream Manager."""

    def __init__(self, stmgr: str, limits: FlowLimits) -> None:
        self._stmgr = stmgr
        self._limits = limits
        self._marks: dict[str, int] = {}
        """High water marks that are not those of the configuration."""
        self.culprits = Culprits(stmgr)
        self._levels: dict[str, tuple[int, int]] = {}
        """Bytes of each outbox, without and with feedback."""
        self._over: set[str] = set()
        self._full: set[str] = set()
        self._remote_full: dict[str, str] = {}
        """The peer in front of each instance that is full in another container."""
        self._paused: set[str] = set()
        """Peers that take no feedback."""
        self._lost: set[str] = set()
        self._spill_full = self._spill_busy = False
        self._readers: dict[int, _Reader] = {}
        self._spouts: frozenset[int] = frozenset()
        self._locations: Mapping[str, str] = {}
        self._effects: list[FlowEffect] = []
        handlers: dict[type, Callable[[Any], None]] = {
            MarkChanged: self._mark_changed,
            OutboxRemoved: self._outbox_removed,
            BoltLost: self._bolt_lost,
            BoltAttached: self._bolt_attached,
            ReaderOpened: lambda event: self._readers.update({event.link: _Reader()}),
            ReaderClosed: lambda event: self._readers.__delitem__(event.link),
            FrameRouted: self._routed,
            FrameParked: lambda event: self._readers[event.link].waits_for.add(EPOCH),
            EpochReached: lambda _: self._opened(EPOCH),
            PlanChanged: self._plan_changed,
            PeerConnected: self._peer_connected,
            PeerLost: self._peer_lost,
            PeerAnnounced: self._peer_announced,
            SpillChanged: self._spill_changed,
        }
        self._handlers = handlers

    @property
    def quiet(self) -> bool:
        """Nothing is full: a frame that was routed holds no sender."""
        return not (self._full or self._remote_full or self._spill_full or self._spill_busy)

    def step(self, event: FlowEvent) -> list[FlowEffect]:
        """Decide what follows from an event."""
        if type(event) is OutboxChanged:
            # With every frame, and nearly always without consequences.
            self._outbox_changed(event)
            if not self._effects:
                return self._effects
        else:
            self._handlers[type(event)](event)
        self._settle()
        effects, self._effects = self._effects, []
        return effects

    # outboxes

    def _outbox_changed(self, event: OutboxChanged) -> None:
        name, size = event.outbox, event.bytes
        total = size + event.feedback_bytes
        self._levels[name] = size, total
        high = self._high(name)
        if name in self._over:
            if total < self._low(high) and not (total and name in self._lost):
                self._caught_up(name, event.now_ns)
        elif total >= high or (self._lost and name in self._lost and total):
            self._over.add(name)
            self.culprits.started(self._stmgr, name, event.now_ns)
            self._effects.append(Log(logging.WARNING, f"backpressure starts: {total} bytes wait for {name}"))
            self._effects.append(Announce(name, started=True, full=False))
        if name in self._full:
            if size < high:
                self._has_room(name)
        elif size >= HARD_LIMIT * high:
            self._full.add(name)
            self._effects.append(Announce(name, started=True, full=True))

    def _high(self, name: str) -> int:
        return self._marks.get(name, self._limits.high) if self._marks else self._limits.high

    def _low(self, high: int) -> int:
        if high == self._limits.high:
            return self._limits.low
        return max(1, high * self._limits.low // self._limits.high)  # an empty outbox is below every mark

    def _mark_changed(self, event: MarkChanged) -> None:
        self._marks[event.outbox] = event.high
        size, total = self._levels.get(event.outbox, (0, 0))
        self._outbox_changed(OutboxChanged(event.outbox, size, total - size, event.now_ns))

    def _caught_up(self, name: str, now_ns: int) -> None:
        self._over.discard(name)
        self.culprits.stopped(self._stmgr, name, now_ns)
        self._effects.append(Log(logging.INFO, f"backpressure ends for {name}"))
        self._effects.append(Announce(name, started=False, full=False))

    def _has_room(self, name: str) -> None:
        self._full.discard(name)
        self._opened(name)
        self._effects.append(Announce(name, started=False, full=True))

    def _outbox_removed(self, event: OutboxRemoved) -> None:
        self._levels.pop(event.outbox, None)
        self._marks.pop(event.outbox, None)
        self._lost.discard(event.outbox)
        if event.outbox in self._over:
            self._caught_up(event.outbox, event.now_ns)
        if event.outbox in self._full:
            self._has_room(event.outbox)

    def _bolt_lost(self, event: BoltLost) -> None:
        self._lost.add(event.instance)
        size, total = self._levels.get(event.instance, (0, 0))
        self._outbox_changed(OutboxChanged(event.instance, size, total - size, event.now_ns))

    def _bolt_attached(self, event: BoltAttached) -> None:
        self._lost.discard(event.instance)
        _, total = self._levels.get(event.instance, (0, 0))
        if event.instance in self._over and total < self._high(event.instance):
            self._caught_up(event.instance, event.now_ns)

    # spilled feedback

    def _spill_changed(self, event: SpillChanged) -> None:
        limit = self._limits.spill
        full = bool(event.error) or event.bytes >= (SPILL_RESUME * limit if self._spill_full else limit)
        if full != self._spill_full:
            self._spill_full = full
            reason = self._why_stopped(event) if full else ""
            if full:
                self._effects.append(Log(logging.ERROR, reason))
            self._effects.append(StopTopology(reason))
            self._effects.append(Announce(FEEDBACK, started=full, full=True))
        self._spill_busy = event.writing >= self._limits.writing
        if not self._spill_full and not self._spill_busy:
            self._opened(FEEDBACK)

    def _why_stopped(self, event: SpillChanged) -> str:
        if event.error:
            return f"tuples that go round a cycle cannot be written to the disk of {self._stmgr}: {event.error}"
        return (
            f"tuples that go round a cycle fill their share of the disk of {self._stmgr}: {event.bytes / MIB:.0f} MiB "
            f"wait, most of them for {event.outbox} (heron.streammgr.feedback.spill.limit.mb)"
        )

    # readers

    def _routed(self, event: FrameRouted) -> None:
        reader = self._readers.get(event.link)
        if reader is None:
            return
        reader.waits_for.update(n for n in event.destinations if n in self._full or n in self._remote_full)
        if event.feedback and (self._spill_full or self._spill_busy):
            reader.waits_for.add(FEEDBACK)

    def _opened(self, name: str) -> None:
        for reader in self._readers.values():
            reader.waits_for.discard(name)

    def _must_hold(self, link: int, reader: _Reader) -> bool:
        return bool(reader.waits_for) or (bool(self.culprits) and link in self._spouts)

    def _settle(self) -> None:
        for link, reader in self._readers.items():
            hold = self._must_hold(link, reader)
            if hold != reader.held:
                reader.held = hold
                self._effects.append(HoldReads(link) if hold else ResumeReads(link))

    # plans and peers

    def _plan_changed(self, event: PlanChanged) -> None:
        self._spouts, self._locations = event.spout_links, event.locations
        for name in [n for n, peer in self._remote_full.items() if event.locations.get(n) != peer]:
            self._remote_has_room(name)  # gone or moved: its announcer will not report that it has room

    def _remote_has_room(self, name: str) -> None:
        if self._remote_full.pop(name, None) is not None:
            self._opened(name)

    def _peer_connected(self, event: PeerConnected) -> None:
        for culprit in self.culprits.local():
            self._effects.append(Announce(culprit, started=True, full=False, peer=event.peer))
        for name in sorted(self._full):
            self._effects.append(Announce(name, started=True, full=True, peer=event.peer))
        if self._spill_full:
            self._effects.append(Announce(FEEDBACK, started=True, full=True, peer=event.peer))

    def _peer_lost(self, event: PeerLost) -> None:
        self.culprits.lost(event.peer, event.now_ns)
        for name in [n for n, peer in self._remote_full.items() if peer == event.peer]:
            self._remote_has_room(name)
        self._pause(event.peer, False)

    def _peer_announced(self, event: PeerAnnounced) -> None:
        if not event.full:
            change = self.culprits.started if event.started else self.culprits.stopped
            change(event.peer, event.culprit, event.now_ns)
        elif event.culprit == FEEDBACK:
            self._pause(event.peer, event.started)
        elif self._locations.get(event.culprit) == event.peer:
            if event.started:
                self._remote_full[event.culprit] = event.peer
            else:
                self._remote_has_room(event.culprit)

    def _pause(self, peer: str, paused: bool) -> None:
        if paused != (peer in self._paused):
            self._paused ^= {peer}
            self._effects.append(PauseFeedback(peer, paused))

    def check_invariants(self, now_ns: int) -> None:
        self.culprits.check_invariants(now_ns)
        assert not self._effects
        for name, (size, total) in self._levels.items():
            high = self._high(name)
            low = self._low(high)
            waits_for_next = name in self._lost and total > 0
            assert (name in self._over) or (total < high and not waits_for_next), f"{name} should throttle the spouts"
            assert (name not in self._over) or total >= low or waits_for_next, f"{name} should not throttle the spouts"
            assert (name in self._full) or size < HARD_LIMIT * high, f"senders to {name} should be held"
            assert (name not in self._full) or size >= high, f"senders to {name} should not be held"
        assert self._over | self._full <= set(self._levels)
        assert set(self.culprits.local()) == self._over, "a culprit that no outbox causes, or the other way round"
        assert all(self._locations.get(name) == peer for name, peer in self._remote_full.items())
        closed = self._full | set(self._remote_full) | {EPOCH}
        if self._spill_full or self._spill_busy:
            closed.add(FEEDBACK)
        for link, reader in self._readers.items():
            assert reader.waits_for <= closed, f"link {link} waits for what has room: {reader.waits_for - closed}"
            assert reader.held == self._must_hold(link, reader), f"link {link} is held, or not, without a reason"
