"""The Topology Master's decisions, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from heronpy.errors import TopologyError
from heronpy.plan import (
    ContainerPacking,
    InstancePacking,
    LogicalPlan,
    PackingPlan,
    PhysicalPlan,
    Resources,
    StmgrLocation,
    TopologyState,
)
from heronpy.proto import topology_pb2
from heronpy.tmaster import CloseSession, HeartbeatReceived, SendPlan, SessionEnded, State, StmgrRegistered, TimePassed
from heronpy.tmaster.parts import PackingChanged, PublishPlan, StateChanged, StateEffect, StateEvent, start, step

TIMEOUT_S = 10.0


def logical_plan() -> LogicalPlan:
    proto = topology_pb2.Topology(id="words-1", name="words", state=topology_pb2.RUNNING)
    spout = proto.spouts.add()
    spout.comp.name = "word"
    spout.comp.class_name = "words.Word"
    spout.comp.config.SetInParent()
    out = spout.outputs.add()
    out.stream.id, out.stream.component_name = "default", "word"
    out.schema.keys.add(key="word", type=topology_pb2.OBJECT)
    return LogicalPlan.from_proto(proto)


def packing_plan(*containers: int, component: str = "word") -> PackingPlan:
    resources = Resources(1.0, 1 << 20, 0)
    return PackingPlan(
        id="packing",
        containers=tuple(
            ContainerPacking(c, (InstancePacking(component, c, c - 1, resources),), resources) for c in containers
        ),
    )


def location(container: int, incarnation: int = 1, port: int | None = None) -> StmgrLocation:
    return StmgrLocation(f"stmgr-{container}", container, "127.0.0.1", port or 1000 + incarnation, 1, incarnation)


def started(*containers: int, saved: PhysicalPlan | None = None) -> State:
    state, _ = start(logical_plan(), packing_plan(*containers), TopologyState.RUNNING, saved, timeout_s=TIMEOUT_S)
    return state


def hello(session: int, container: int, incarnation: int = 1, plan_version: int = 0, now_s: float = 0.0) -> StateEvent:
    return StmgrRegistered(session, location(container, incarnation), plan_version, now_s)


def after(state: State, *events: StateEvent) -> tuple[State, list[StateEffect]]:
    """The state after all events, and the effects of the last."""
    effects: list[StateEffect] = []
    for event in events:
        state, effects = step(state, event)
        state.check_invariants()
    return state, effects


def test_the_first_plan_is_made_when_the_last_stmgr_registers() -> None:
    state, effects = after(started(1, 2), hello(1, 1))
    assert effects == []
    assert state.missing == ["stmgr-2"]
    state, effects = after(state, hello(2, 2))
    assert state.plan is not None
    assert effects == [PublishPlan(state.plan)]
    assert [s.id for s in state.plan.stmgrs] == ["stmgr-1", "stmgr-2"]
    assert state.plan.version == 1


def test_a_stmgr_that_left_before_the_first_plan_is_missing_again() -> None:
    state, _ = after(started(1, 2), hello(1, 1), SessionEnded(1, 0.0), hello(2, 2))
    assert state.plan is None
    assert state.missing == ["stmgr-1"]


def test_a_stmgr_that_registers_again_unchanged_gets_the_same_plan() -> None:
    state, _ = after(started(1), hello(1, 1), SessionEnded(1, 0.0))
    state, effects = after(state, hello(2, 1, plan_version=1))
    assert state.plan is not None
    assert effects == [SendPlan(2, state.plan)]
    assert state.plan.version == 1


def test_a_lost_stmgr_stays_in_the_plan_until_its_replacement_registers() -> None:
    state, effects = after(started(1, 2), hello(1, 1), hello(2, 2), SessionEnded(1, 0.0))
    assert effects == []
    assert state.plan is not None
    assert state.plan.stmgrs[0] == location(1)
    assert not state.ready
    state, effects = after(state, hello(3, 1, incarnation=2))
    assert state.plan.version == 2
    assert state.plan.stmgrs == (location(1, 2), location(2))
    assert effects == [PublishPlan(state.plan)]


def test_the_stream_of_a_silent_stmgr_is_closed() -> None:
    state, _ = after(
        started(1, 2), hello(1, 1), hello(2, 2), HeartbeatReceived(2, frozenset(), 9.0), TimePassed(TIMEOUT_S)
    )
    assert set(state.stmgrs) == {"stmgr-1", "stmgr-2"}, "silent for exactly the timeout is not lost yet"
    state, effects = after(state, TimePassed(TIMEOUT_S + 0.1))
    assert set(state.stmgrs) == {"stmgr-2"}
    assert [(e.session, e.stmgr_id) for e in effects if isinstance(e, CloseSession)] == [(1, "stmgr-1")]


def test_an_older_incarnation_cannot_displace_a_newer_one() -> None:
    state, effects = after(started(1), hello(1, 1, incarnation=5), hello(2, 1, incarnation=4))
    assert state.stmgrs["stmgr-1"].session == 1
    assert [e.session for e in effects if isinstance(e, CloseSession)] == [2]


def test_a_container_that_was_replaced_cannot_come_back_whatever_its_clock_says() -> None:
    state, _ = after(started(1), contained(1, incarnation=7, started_ns=1), SessionEnded(1, 0.0))
    state, effects = after(state, contained(2, incarnation=6, started_ns=9))
    assert [e.reason for e in effects if isinstance(e, CloseSession)] == ["its container has a newer incarnation"]
    assert state.stmgrs == {}, "its replacement is away, and still the newest"
    state, _ = after(state, contained(3, incarnation=7, started_ns=2))
    state, effects = after(state, contained(4, incarnation=8, started_ns=0))
    assert [e.session for e in effects if isinstance(e, CloseSession)] == [3], "the newest is that of the container"
    assert state.plan is not None
    assert state.plan.stmgrs[0].container_incarnation == 8


def contained(session: int, incarnation: int, started_ns: int) -> StateEvent:
    """Stream Manager 1 says hello, from an incarnation of its container."""
    return StmgrRegistered(session, replace(location(1, started_ns), container_incarnation=incarnation), 0, 0.0)


def test_a_newer_stream_of_a_stmgr_closes_the_one_before() -> None:
    state, effects = after(started(1), hello(1, 1), hello(2, 1))
    assert state.stmgrs["stmgr-1"].session == 2
    assert [e.session for e in effects if isinstance(e, CloseSession)] == [1]
    state, _ = after(state, SessionEnded(1, 1.0))
    assert "stmgr-1" in state.stmgrs, "the end of the old stream says nothing about the new one"


def test_ready_needs_every_instance_attached() -> None:
    state, _ = after(started(1, 2), hello(1, 1), hello(2, 2))
    assert not state.ready
    state, _ = after(state, HeartbeatReceived(1, frozenset({"container_1_word_1"}), 1.0))
    assert not state.ready
    state, _ = after(state, HeartbeatReceived(2, frozenset({"container_2_word_2"}), 1.0))
    assert state.ready
    state, _ = after(state, HeartbeatReceived(2, frozenset(), 2.0))
    assert not state.ready


def test_a_larger_packing_waits_for_its_stmgrs_but_restarts_still_get_through() -> None:
    state, _ = after(started(1), hello(1, 1))
    state, effects = after(state, PackingChanged(logical_plan(), packing_plan(1, 2), 1.0))
    assert effects == []
    state, effects = after(state, hello(2, 1, incarnation=2))
    assert state.plan is not None
    assert state.plan.packing == packing_plan(1)
    assert state.plan.stmgrs == (location(1, 2),)
    state, effects = after(state, hello(3, 2))
    assert state.plan.packing == packing_plan(1, 2)
    assert effects == [PublishPlan(state.plan)]
    assert state.plan.version == 3


def test_a_smaller_packing_is_in_force_at_once() -> None:
    state, _ = after(started(1, 2), hello(1, 1), hello(2, 2))
    state, _ = after(state, PackingChanged(logical_plan(), packing_plan(1), 1.0))
    assert state.plan is not None
    assert [s.id for s in state.plan.stmgrs] == ["stmgr-1"]
    assert state.receivers(state.plan) == [1]


def test_the_same_packing_again_makes_no_new_version() -> None:
    state, _ = after(started(1), hello(1, 1))
    state, effects = after(state, PackingChanged(logical_plan(), packing_plan(1), 1.0))
    assert effects == []
    assert state.version == 1


def test_a_changed_state_is_a_new_version_and_the_same_state_is_none() -> None:
    state, _ = after(started(1), hello(1, 1))
    state, effects = after(state, StateChanged(TopologyState.PAUSED, 1.0))
    assert state.plan is not None
    assert effects == [PublishPlan(state.plan)]
    assert (state.plan.version, state.plan.state) == (2, TopologyState.PAUSED)
    _, effects = after(state, StateChanged(TopologyState.PAUSED, 2.0))
    assert effects == []


def test_after_a_restart_the_saved_plan_is_in_force_and_nothing_is_sent_twice() -> None:
    before, _ = after(started(1, 2), hello(1, 1), hello(2, 2))
    state = started(1, 2, saved=before.plan)
    assert state.plan == before.plan
    state, effects = after(state, hello(1, 1, plan_version=1), hello(2, 2, plan_version=1))
    assert state.version == 1
    assert effects == [SendPlan(2, before.plan)] if before.plan else False


def test_after_a_restart_one_moved_stmgr_is_announced_without_waiting_for_the_others() -> None:
    before, _ = after(started(1, 2), hello(1, 1), hello(2, 2))
    state, effects = after(started(1, 2, saved=before.plan), hello(1, 1, incarnation=2, plan_version=1))
    assert state.plan is not None
    assert effects == [PublishPlan(state.plan)]
    assert state.plan.version == 2


def test_versions_continue_after_a_plan_that_was_sent_but_never_saved() -> None:
    before, _ = after(started(1), hello(1, 1))
    state, effects = after(started(1, saved=before.plan), hello(1, 1, plan_version=7))
    assert state.plan is not None
    assert state.plan.version == 8
    assert effects == [PublishPlan(state.plan)]


def test_a_saved_plan_with_another_state_is_replaced_at_the_start() -> None:
    before, _ = after(started(1), hello(1, 1))
    state, effects = start(logical_plan(), packing_plan(1), TopologyState.PAUSED, before.plan, timeout_s=TIMEOUT_S)
    state.check_invariants()
    assert state.plan is not None
    assert (state.plan.version, state.plan.state) == (2, TopologyState.PAUSED)
    assert effects == [PublishPlan(state.plan)]


@pytest.mark.parametrize("packing", [packing_plan(), packing_plan(1, component="verb")])
def test_a_packing_of_another_topology_is_refused(packing: PackingPlan) -> None:
    with pytest.raises(TopologyError):
        start(logical_plan(), packing, TopologyState.RUNNING, None, timeout_s=TIMEOUT_S)


CONTAINERS = st.integers(1, 3)
PACKINGS = st.sampled_from([(1,), (1, 2), (1, 2, 3), (2, 3)])


class TopologyMasterMachine(RuleBasedStateMachine):
    """Hellos, losses, heartbeats, restarts and changes in any order; the model is what every session was sent."""

    @initialize(containers=PACKINGS)
    def begin(self, containers: tuple[int, ...]) -> None:
        self.now_s = 0.0
        self.session = 0
        self.open: dict[int, int] = {}  # session -> container
        self.sent: dict[int, PhysicalPlan] = {}  # session -> the last plan sent on it
        self.saved: PhysicalPlan | None = None
        self.held: dict[int, int] = {}  # container -> plan version its stmgr has
        self.published: list[PhysicalPlan] = []
        self.state, effects = start(
            logical_plan(), packing_plan(*containers), TopologyState.RUNNING, None, timeout_s=TIMEOUT_S
        )
        self.apply(effects)

    def feed(self, event: StateEvent) -> None:
        self.state, effects = step(self.state, event)
        self.apply(effects)

    def apply(self, effects: list[StateEffect]) -> None:
        for effect in effects:
            match effect:
                case PublishPlan(plan):
                    if self.published:
                        assert plan.version > self.published[-1].version
                    self.published.append(plan)
                    self.saved = plan
                    for session in self.state.receivers(plan):
                        self.send(session, plan)
                case SendPlan(session, plan):
                    self.send(session, plan)
                case CloseSession():
                    self.open.pop(effect.session, None)
                    self.sent.pop(effect.session, None)

    def send(self, session: int, plan: PhysicalPlan) -> None:
        if session in self.open:
            self.sent[session] = plan
            self.held[self.open[session]] = plan.version

    @rule(container=CONTAINERS, incarnation=st.integers(1, 3), keeps_plan=st.booleans())
    def hello(self, container: int, incarnation: int, keeps_plan: bool) -> None:
        self.session += 1
        self.open[self.session] = container
        version = self.held.get(container, 0) if keeps_plan else 0
        self.feed(hello(self.session, container, incarnation, version, self.now_s))

    @rule(number=st.integers(1, 30))
    def disconnect(self, number: int) -> None:
        self.open.pop(number, None)
        self.sent.pop(number, None)
        self.feed(SessionEnded(number, self.now_s))

    @rule(number=st.integers(1, 30), container=CONTAINERS)
    def heartbeat(self, number: int, container: int) -> None:
        self.feed(HeartbeatReceived(number, frozenset({f"container_{container}_word_{container}"}), self.now_s))

    @rule(seconds=st.sampled_from([0.5, 6.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.feed(TimePassed(self.now_s))

    @rule(containers=PACKINGS)
    def packing_changes(self, containers: tuple[int, ...]) -> None:
        self.feed(PackingChanged(logical_plan(), packing_plan(*containers), self.now_s))

    @rule(runtime=st.sampled_from([TopologyState.RUNNING, TopologyState.PAUSED]))
    def state_changes(self, runtime: TopologyState) -> None:
        self.feed(StateChanged(runtime, self.now_s))

    @rule()
    def tmaster_restarts(self) -> None:
        before = self.state
        self.open.clear()
        self.sent.clear()
        self.state, effects = start(before.logical, before.packing, before.runtime, self.saved, timeout_s=TIMEOUT_S)
        self.apply(effects)
        assert self.state.plan == before.plan, "a restart alone changes no plan"

    @rule()
    def saved_plan_is_lost_with_the_tmaster(self) -> None:
        self.saved = None
        before = self.state
        self.open.clear()
        self.sent.clear()
        self.published.clear()
        self.state, effects = start(before.logical, before.packing, before.runtime, None, timeout_s=TIMEOUT_S)
        self.apply(effects)

    @invariant()
    def invariants_hold(self) -> None:
        if not hasattr(self, "state"):
            return
        self.state.check_invariants()
        assert {s.session for s in self.state.stmgrs.values()} == set(self.open)
        plan = self.state.plan
        if plan is not None:
            assert self.saved == plan
            for session in self.state.receivers(plan):
                assert self.sent[session] == plan, "a registered Stream Manager does not have the plan in force"

    @invariant()
    def no_version_has_two_contents(self) -> None:
        contents = {}
        for plan in getattr(self, "published", []):
            assert contents.setdefault(plan.version, plan) == plan
        for older, newer in zip(getattr(self, "published", []), getattr(self, "published", [])[1:], strict=False):
            unchanged = replace(older, version=0) == replace(newer, version=0)
            assert not unchanged or newer.version > older.version + 1, "the same content was versioned again"


TestAnyOrderOfEvents = TopologyMasterMachine.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
