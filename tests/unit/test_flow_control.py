"""Flow control: who is read, decided from events alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heronpy.stmgr.events import HoldReads, Log, ResumeReads, StopTopology
from heronpy.stmgr.flow import (
    FEEDBACK,
    HARD_LIMIT,
    Announce,
    BoltAttached,
    BoltLost,
    EpochReached,
    FlowControl,
    FlowEvent,
    FlowLimits,
    FrameParked,
    FrameRouted,
    MarkChanged,
    OutboxChanged,
    OutboxRemoved,
    PauseFeedback,
    PeerAnnounced,
    PeerConnected,
    PeerLost,
    PlanChanged,
    ReaderClosed,
    ReaderOpened,
    SpillChanged,
)

ME = "stmgr-1"
HIGH, LOW, SPILL = 100, 50, 1000
LIMITS = FlowLimits(high=HIGH, low=LOW, spill=SPILL, writing=200)
SPOUT, BOLT, PEER = 1, 2, 3
"""Numbers of the links."""
SINK, FAR = "container_1_sink_3", "container_2_sink_4"


def flow() -> FlowControl:
    """With a spout's, a bolt's and a peer's link; `FAR` is behind `stmgr-2`."""
    made = FlowControl(ME, LIMITS)
    for link in (SPOUT, BOLT, PEER):
        made.step(ReaderOpened(link))
    made.step(PlanChanged(frozenset({SPOUT}), {FAR: "stmgr-2"}))
    return made


def decided(made: FlowControl, event: FlowEvent) -> list[Any]:
    """The effects that are not for the log."""
    effects = [effect for effect in made.step(event) if not isinstance(effect, Log)]
    made.check_invariants(10**9)
    return effects


def filled(size: int, feedback: int = 0, name: str = SINK) -> OutboxChanged:
    return OutboxChanged(name, size, feedback, 0)


def test_an_outbox_over_its_high_mark_throttles_the_spouts_until_it_is_under_the_low_one() -> None:
    made = flow()
    assert decided(made, filled(HIGH - 1)) == []
    assert decided(made, filled(HIGH)) == [Announce(SINK, started=True, full=False), HoldReads(SPOUT)]
    assert decided(made, filled(HIGH + 1)) == []
    assert decided(made, filled(LOW)) == []
    assert decided(made, filled(LOW - 1)) == [Announce(SINK, started=False, full=False), ResumeReads(SPOUT)]


def test_a_full_outbox_holds_those_that_send_to_it_and_no_others() -> None:
    made = flow()
    decided(made, filled(HARD_LIMIT * HIGH))
    assert decided(made, FrameRouted(BOLT, {FAR, "stmgr-2"}, False)) == []
    assert decided(made, FrameRouted(BOLT, {SINK}, False)) == [HoldReads(BOLT)]
    assert decided(made, filled(HIGH)) == []
    assert ResumeReads(BOLT) in decided(made, filled(HIGH - 1))


def test_feedback_throttles_the_spouts_and_holds_no_bolt() -> None:
    made = flow()
    assert HoldReads(SPOUT) in decided(made, filled(0, 10 * HARD_LIMIT * HIGH))
    assert made.quiet
    assert decided(made, FrameRouted(BOLT, set(), True)) == []


def test_senders_to_a_full_instance_behind_a_peer_are_held_until_it_has_room() -> None:
    made = flow()
    full = PeerAnnounced("stmgr-2", FAR, True, True, 0)
    decided(made, full)
    decided(made, full)
    assert decided(made, FrameRouted(BOLT, {FAR, "stmgr-2"}, False)) == [HoldReads(BOLT)]
    assert decided(made, PeerAnnounced("stmgr-2", FAR, False, True, 0)) == [ResumeReads(BOLT)]
    assert decided(made, FrameRouted(BOLT, {FAR}, False)) == []


@pytest.mark.parametrize(
    "event",
    [
        PeerLost("stmgr-2", 0),
        PlanChanged(frozenset({SPOUT}), {}),
        PlanChanged(frozenset({SPOUT}), {FAR: "stmgr-3"}),
    ],
    ids=["the peer is lost", "it leaves the plan", "it moves"],
)
def test_nobody_waits_for_an_announcement_that_will_not_come(event: FlowEvent) -> None:
    made = flow()
    decided(made, PeerAnnounced("stmgr-2", FAR, True, True, 0))
    decided(made, FrameRouted(BOLT, {FAR}, False))
    assert decided(made, event) == [ResumeReads(BOLT)]


def test_other_peers_and_plans_resume_nobody() -> None:
    made = flow()
    decided(made, PeerAnnounced("stmgr-2", FAR, True, True, 0))
    decided(made, FrameRouted(BOLT, {FAR}, False))
    assert decided(made, PeerLost("stmgr-7", 0)) == []
    assert decided(made, PlanChanged(frozenset({SPOUT}), {FAR: "stmgr-2"})) == []


def test_announcements_of_an_instance_that_is_not_behind_the_peer_are_ignored() -> None:
    made = flow()
    assert decided(made, PeerAnnounced("stmgr-3", FAR, True, True, 0)) == []
    assert decided(made, PeerAnnounced("stmgr-2", "container_9_gone_99", True, True, 0)) == []
    assert made.quiet


def test_an_outbox_that_leaves_the_plan_holds_nobody() -> None:
    made = flow()
    decided(made, filled(HARD_LIMIT * HIGH))
    decided(made, FrameRouted(BOLT, {SINK}, False))
    effects = decided(made, OutboxRemoved(SINK, 0))
    assert [e for e in effects if isinstance(e, ResumeReads)] == [ResumeReads(SPOUT), ResumeReads(BOLT)]
    assert made.quiet


def test_a_peer_that_connects_is_told_what_holds() -> None:
    made = flow()
    decided(made, filled(HARD_LIMIT * HIGH))
    decided(made, PeerAnnounced("stmgr-3", "container_3_slow_9", True, False, 0))
    assert decided(made, PeerConnected("stmgr-2")) == [
        Announce(SINK, started=True, full=False, peer="stmgr-2"),
        Announce(SINK, started=True, full=True, peer="stmgr-2"),
    ]


def test_what_waits_for_the_next_incarnation_of_a_bolt_throttles_the_spouts_until_it_attaches() -> None:
    made = flow()
    assert decided(made, BoltLost(SINK, 0)) == []
    assert HoldReads(SPOUT) in decided(made, filled(1))
    assert ResumeReads(SPOUT) in decided(made, BoltAttached(SINK, 0))
    assert decided(made, filled(1)) == []


def test_a_spill_limit_that_is_reached_stops_the_topology_and_holds_the_feedback() -> None:
    made = flow()
    assert decided(made, SpillChanged(SPILL - 1, 0, SINK)) == []
    stop, announce = decided(made, SpillChanged(SPILL, 0, SINK))
    assert isinstance(stop, StopTopology)
    assert SINK in stop.reason
    assert "heron.streammgr.feedback.spill.limit.mb" in stop.reason
    assert announce == Announce(FEEDBACK, started=True, full=True)
    assert decided(made, FrameRouted(BOLT, {SINK}, True)) == [HoldReads(BOLT)]
    assert decided(made, SpillChanged(SPILL - 1, 0, SINK)) == []
    effects = decided(made, SpillChanged(SPILL // 2, 0, SINK))
    assert effects == [StopTopology(""), Announce(FEEDBACK, started=False, full=True), ResumeReads(BOLT)]


def test_a_disk_that_cannot_be_written_stops_the_topology_until_it_can() -> None:
    made = flow()
    stop, _ = decided(made, SpillChanged(10, 10, SINK, "No space left on device"))
    assert "No space left on device" in stop.reason
    assert StopTopology("") in decided(made, SpillChanged(10, 0, SINK))


def test_a_slow_disk_holds_the_feedback_and_stops_nothing() -> None:
    made = flow()
    assert decided(made, SpillChanged(LIMITS.writing, LIMITS.writing, SINK)) == []
    assert decided(made, FrameRouted(BOLT, set(), True)) == [HoldReads(BOLT)]
    assert decided(made, SpillChanged(LIMITS.writing, 0, SINK)) == [ResumeReads(BOLT)]


def test_a_peer_whose_disk_is_full_gets_no_feedback() -> None:
    made = flow()
    assert decided(made, PeerAnnounced("stmgr-2", FEEDBACK, True, True, 0)) == [PauseFeedback("stmgr-2", True)]
    assert decided(made, PeerLost("stmgr-2", 0)) == [PauseFeedback("stmgr-2", False)]


def test_a_link_that_is_too_far_ahead_is_held_until_its_epoch_is_reached() -> None:
    made = flow()
    assert decided(made, FrameParked(PEER)) == [HoldReads(PEER)]
    assert decided(made, EpochReached()) == [ResumeReads(PEER)]


def test_an_invariant_that_is_broken_is_found() -> None:
    made = flow()
    made.step(filled(HARD_LIMIT * HIGH))
    made._over.clear()
    with pytest.raises(AssertionError, match="should throttle"):
        made.check_invariants(0)


def test_a_lower_mark_throttles_the_spouts_at_once_and_a_higher_one_lets_them_go() -> None:
    made = flow()
    assert decided(made, filled(HIGH // 2)) == []
    lowered = decided(made, MarkChanged(SINK, HIGH // 4, 0))
    assert lowered == [Announce(SINK, started=True, full=False), HoldReads(SPOUT)]
    assert decided(made, filled(LOW // 4)) == [], "the low mark is in proportion"
    assert ResumeReads(SPOUT) in decided(made, filled(LOW // 4 - 1))
    decided(made, filled(HARD_LIMIT * HIGH // 4))
    assert decided(made, FrameRouted(BOLT, {SINK}, False)) == [HoldReads(BOLT)]
    assert {ResumeReads(SPOUT), ResumeReads(BOLT)} <= {*decided(made, MarkChanged(SINK, 2 * HIGH, 0))}
    decided(made, OutboxRemoved(SINK, 0))
    assert decided(made, filled(HIGH - 1)) == [], "a new outbox has the mark of the configuration"


outboxes = st.sampled_from([SINK, "container_1_other_5", "stmgr-2"])
peers = st.sampled_from(["stmgr-2", "stmgr-3"])
remote = st.sampled_from([FAR, "container_3_far_7", "container_9_gone_99"])
links = st.sampled_from([SPOUT, BOLT, PEER, 4])


class AgainstAModel(RuleBasedStateMachine):
    """The effects alone, applied to a model, always agree with what the rules of the module say."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = FlowControl(ME, LIMITS)
        self.now_ns = 0
        self.held: dict[int, bool] = {}
        self.spouts: frozenset[int] = frozenset()
        self.announced: set[tuple[str, bool]] = set()
        self.remote_culprits: set[tuple[str, str]] = set()
        self.stopped = False

    def apply(self, event: FlowEvent) -> None:
        self.now_ns += 1
        for effect in self.flow.step(event):
            match effect:
                case HoldReads(link):
                    assert not self.held[link], "held twice"
                    self.held[link] = True
                case ResumeReads(link):
                    assert self.held[link], "resumed twice"
                    self.held[link] = False
                case Announce(culprit, started, full, ""):
                    assert ((culprit, full) in self.announced) != started, "announced twice"
                    self.announced ^= {(culprit, full)}
                case StopTopology(reason):
                    assert bool(reason) != self.stopped
                    self.stopped = bool(reason)
                case _:
                    pass

    @rule(link=links)
    def link_opens_or_closes(self, link: int) -> None:
        if link in self.held:
            self.apply(ReaderClosed(link))
            del self.held[link]
        else:
            self.held[link] = False
            self.apply(ReaderOpened(link))

    @rule(spouts=st.frozensets(links), moved=st.booleans())
    def plan_changes(self, spouts: frozenset[int], moved: bool) -> None:
        self.spouts = spouts
        self.apply(PlanChanged(spouts, {FAR: "stmgr-3" if moved else "stmgr-2", "container_3_far_7": "stmgr-3"}))

    @rule(outbox=outboxes, size=st.integers(0, 4 * HIGH), feedback=st.integers(0, 2 * HIGH))
    def outbox_changes(self, outbox: str, size: int, feedback: int) -> None:
        self.apply(OutboxChanged(outbox, size, feedback, self.now_ns))

    @rule(outbox=outboxes, high=st.integers(1, 2 * HIGH))
    def mark_changes(self, outbox: str, high: int) -> None:
        self.apply(MarkChanged(outbox, high, self.now_ns))

    @rule(outbox=outboxes)
    def outbox_is_removed(self, outbox: str) -> None:
        self.apply(OutboxRemoved(outbox, self.now_ns))

    @rule(lost=st.booleans())
    def bolt_dies_or_attaches(self, lost: bool) -> None:
        self.apply(BoltLost(SINK, self.now_ns) if lost else BoltAttached(SINK, self.now_ns))

    @rule(link=links, destinations=st.sets(st.one_of(outboxes, remote)), feedback=st.booleans())
    def frame_is_routed(self, link: int, destinations: set[str], feedback: bool) -> None:
        self.apply(FrameRouted(link, destinations, feedback))

    @rule(link=links, reached=st.booleans())
    def epochs_differ(self, link: int, reached: bool) -> None:
        if reached:
            self.apply(EpochReached())
        elif link in self.held:
            self.apply(FrameParked(link))

    @rule(peer=peers, culprit=st.one_of(remote, st.just(FEEDBACK)), started=st.booleans(), full=st.booleans())
    def peer_announces(self, peer: str, culprit: str, started: bool, full: bool) -> None:
        if not full:
            (self.remote_culprits.add if started else self.remote_culprits.discard)((peer, culprit))
        self.apply(PeerAnnounced(peer, culprit, started, full, self.now_ns))

    @rule(peer=peers)
    def peer_is_lost(self, peer: str) -> None:
        self.remote_culprits = {c for c in self.remote_culprits if c[0] != peer}
        self.apply(PeerLost(peer, self.now_ns))

    @rule(size=st.integers(0, 2 * SPILL), writing=st.integers(0, 2 * LIMITS.writing), error=st.sampled_from(["", "no"]))
    def spill_changes(self, size: int, writing: int, error: str) -> None:
        self.apply(SpillChanged(size, writing, SINK, error))

    @invariant()
    def holds(self) -> None:
        self.flow.check_invariants(self.now_ns)
        over = {culprit for culprit, full in self.announced if not full}
        assert over == set(self.flow.culprits.local())
        if over or self.remote_culprits:
            assert all(held for link, held in self.held.items() if link in self.spouts)
        assert (FEEDBACK, True) in self.announced or not self.stopped

    def teardown(self) -> None:
        """When everything has room, everything is read."""
        for outbox in (SINK, "container_1_other_5", "stmgr-2"):
            self.apply(OutboxChanged(outbox, 0, 0, self.now_ns))
        for peer in ("stmgr-2", "stmgr-3"):
            self.apply(PeerLost(peer, self.now_ns))
        self.apply(SpillChanged(0, 0, ""))
        self.apply(EpochReached())
        assert not any(self.held.values())
        assert not self.announced
        assert self.flow.quiet


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
