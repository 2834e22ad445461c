"""The decisions of the Topology Master as a whole, with a state manager in memory and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tmaster_world import LOCATION, Store, World, hello, packing_plan, topology

from heronpy.errors import NotFoundError, ReadFailedError, StateError
from heronpy.plan import TopologyState
from heronpy.proto import loglevels_pb2, state_pb2, topology_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import HeartbeatReceived, Role, SendPlan, SessionEnded, StmgrRegistered

LEVELS = loglevels_pb2.LogLevels(levels=[loglevels_pb2.LogLevel(target="word")]).SerializeToString()


def execution() -> bytes:
    return state_pb2.ExecutionState(topology="words", topology_id="words-1").SerializeToString()


def scheduler(pid: int) -> bytes:
    return state_pb2.SchedulerLocation(topology="words", pid=pid).SerializeToString()


@pytest.fixture
def store() -> Store:
    return Store({Kind.TOPOLOGIES: topology(), Kind.PACKINGPLANS: packing_plan(1, 2).to_proto().SerializeToString()})


@pytest.fixture
def world(store: Store) -> World:
    world = World(store)
    world.settle()
    return world


def registered(world: World) -> World:
    world.feed(hello(1, 1), hello(2, 2))
    world.settle()
    return world


def test_the_first_one_becomes_the_leader_and_reads_the_state_back(world: World) -> None:
    assert world.core.active
    assert world.store.epoch.term == 1
    assert world.store.nodes[Kind.TMASTERS] == LOCATION


def test_a_plan_is_saved_before_it_is_sent(world: World) -> None:
    world.feed(hello(1, 1), hello(2, 2))
    assert world.sent == []
    world.settle()
    assert [plan.version for plan in world.saved_plans] == [1]
    assert {(e.session, e.plan.version) for e in world.sent} == {(1, 1), (2, 1)}


def test_a_state_manager_that_is_away_holds_a_plan_up_for_two_seconds(world: World) -> None:
    world.store.away = True
    world.feed(hello(1, 1), hello(2, 2))
    world.pass_time(1.9)
    assert world.sent == []
    world.pass_time(0.2)
    assert {(e.session, e.plan.version) for e in world.sent} == {(1, 1), (2, 1)}
    world.store.away = False
    world.pass_time(1.5)
    assert [plan.version for plan in world.saved_plans] == [1]


def test_plans_that_follow_each_other_are_not_held_up_longer_than_one(world: World) -> None:
    world.store.away = True
    world.feed(hello(1, 1), hello(2, 2))
    for session in range(3, 8):
        world.pass_time(0.5)
        world.feed(hello(session, 1, incarnation=session))
    assert world.sent, "a stream of changes put publishing off for ever"


def test_a_state_that_does_not_change_anything_is_confirmed_at_once_after_a_restart(world: World) -> None:
    registered(world)
    restarted = World(world.store, location=b"second")
    world.store.nodes.pop(Kind.TMASTERS)
    restarted.settle()
    began_s = restarted.now_s
    restarted.request(TopologyState.RUNNING)
    restarted.settle(time=False)
    assert restarted.replies == [""]
    assert restarted.now_s == began_s


def test_another_state_is_durable_and_sent_before_the_reply(world: World) -> None:
    registered(world)
    world.request(TopologyState.PAUSED)
    assert world.replies == []
    world.settle(time=False)
    assert world.replies == [""]
    assert topology_pb2.Topology.FromString(world.store.nodes[Kind.TOPOLOGIES]).state == topology_pb2.PAUSED
    assert world.sent[-1].plan.state is TopologyState.PAUSED


def test_a_state_that_no_plan_has_yet_is_confirmed_once_it_is_durable(world: World) -> None:
    world.request(TopologyState.PAUSED)
    world.settle(time=False)
    assert world.replies == [""]
    registered(world)
    assert world.sent[-1].plan.state is TopologyState.PAUSED


def test_requests_for_states_are_done_one_after_the_other(world: World) -> None:
    registered(world)
    for state in (TopologyState.PAUSED, TopologyState.RUNNING, TopologyState.PAUSED):
        world.request(state)
    world.settle()
    assert world.replies == ["", "", ""]
    assert world.core.state.runtime is TopologyState.PAUSED


def test_a_state_that_cannot_be_made_durable_is_not_taken_on(world: World) -> None:
    registered(world)
    world.store.away = True
    world.request(TopologyState.PAUSED)
    world.settle(time=False)
    assert world.replies != []
    assert world.replies != [""]
    assert world.core.state.runtime is TopologyState.RUNNING


def test_without_a_topology_there_is_nothing_to_do() -> None:
    world = World(Store({}))
    world.settle()
    assert isinstance(world.finished, NotFoundError)


def test_the_state_of_another_submission_is_not_touched(store: Store) -> None:
    store.nodes[Kind.TOPOLOGIES] = topology(id="words-2")
    world = World(store)
    world.settle()
    assert isinstance(world.finished, StateError)
    assert Kind.PPLANS not in store.nodes


def test_a_stmgr_that_cannot_go_on_pauses_the_topology_until_somebody_activates_it(world: World) -> None:
    registered(world)
    for _ in range(3):
        world.feed(HeartbeatReceived(1, frozenset(), world.now_s, "the disk is full"))
        world.settle(time=False)
    assert world.core.state.runtime is TopologyState.PAUSED
    assert world.core.stop_reason == "the disk is full"
    assert [plan.version for plan in world.saved_plans] == [1, 2]
    world.feed(HeartbeatReceived(1, frozenset(), world.now_s))
    assert world.core.stop_reason == "the disk is full", "the reason was gone before anybody could read it"
    world.request(TopologyState.RUNNING)
    world.settle(time=False)
    assert (world.core.state.runtime, world.core.stop_reason) == (TopologyState.RUNNING, "")


def test_a_pause_that_cannot_be_made_durable_is_tried_again_with_the_next_heartbeat(world: World) -> None:
    registered(world)
    world.store.away = True
    world.feed(HeartbeatReceived(1, frozenset(), world.now_s, "the disk is full"))
    world.pass_time(1)
    world.store.away = False
    world.feed(HeartbeatReceived(1, frozenset(), world.now_s, "the disk is full"))
    world.settle()
    assert world.core.state.runtime is TopologyState.PAUSED


# Leadership


def test_a_standby_takes_over_when_the_node_is_gone(world: World) -> None:
    registered(world)
    standby = World(world.store, location=b"standby")
    standby.settle()
    assert not standby.core.active
    world.store.delete(Kind.TMASTERS)
    standby.settle()
    assert standby.core.active
    assert standby.store.epoch.term == 2
    assert standby.core.state.plan == world.core.state.plan


def test_one_that_is_no_longer_the_leader_can_write_nothing_and_ends(world: World) -> None:
    registered(world)
    world.asleep = True  # stopped for longer than its session: it hears nothing
    world.store.delete(Kind.TMASTERS)
    other = World(world.store, location=b"other")
    other.settle()
    assert other.core.active
    before = dict(world.store.nodes)
    world.asleep = False
    world.request(TopologyState.PAUSED)
    world.feed(hello(9, 1, incarnation=9))
    world.settle()
    assert isinstance(world.finished, StateError)
    assert world.store.nodes == before
    assert world.replies in ([], ["this Topology Master's term has changed"])


def test_one_that_is_deposed_does_nothing_more(world: World) -> None:
    registered(world)
    world.store.delete(Kind.TMASTERS)
    World(world.store, location=b"other").settle()
    world.settle()
    assert world.core.leadership.role is Role.DEPOSED
    count = len(world.effects)
    world.feed(hello(9, 1, incarnation=9), SessionEnded(9, world.now_s))
    world.request(TopologyState.PAUSED)
    world.pass_time(30)
    assert len(world.effects) == count


def test_a_node_that_vanished_with_the_session_is_made_again_and_the_term_goes_on(world: World) -> None:
    registered(world)
    world.store.delete(Kind.TMASTERS)
    world.settle()
    assert world.store.nodes[Kind.TMASTERS] == LOCATION
    assert world.store.epoch.term == 1
    assert world.finished is None


def test_an_epoch_whose_end_nobody_reports_is_written_again(world: World) -> None:
    epoch = world.store.nodes[Kind.EPOCHS]
    del world.store.nodes[Kind.EPOCHS]  # as when it was written and removed between two looks of a watch
    world.pass_time(10)
    assert world.store.nodes[Kind.EPOCHS] == epoch
    assert world.core.leadership.role is Role.LEADER


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_lost_answer_at_any_step_of_the_election_is_made_good(store: Store, lost: int) -> None:
    world = World(store)
    world.store.lose_answer_of = lost  # it was done, but nobody is told
    world.settle()
    registered(world)
    assert world.finished is None
    assert world.core.active
    assert world.core.state.plan is not None
    assert [plan.version for plan in world.saved_plans][-1] == 1


def test_of_two_who_are_elected_at_once_only_one_is_active(store: Store) -> None:
    one, two = World(store, location=b"one"), World(store, location=b"two")
    for _ in range(40):
        for world in (one, two):
            world.settle(steps=1)
            world.store.delete(Kind.TMASTERS)  # sessions come and go all the time
        assert not (one.writable and two.writable)
    one.settle()
    two.settle()
    assert [one.finished is None and one.core.active, two.finished is None and two.core.active].count(True) == 1


# Restore epochs


def test_a_restore_epoch_is_durable_before_any_plan_has_it(world: World) -> None:
    registered(world)
    world.store.away = True
    world.restore()
    world.pass_time(5)
    assert all(e.plan.restore_epoch == 0 for e in world.sent)
    world.store.away = False
    world.settle()
    assert world.store.epoch.restore_epoch == 1
    assert world.sent[-1].plan.restore_epoch == 1


def test_a_raise_whose_answer_was_lost_deposes_nobody(world: World) -> None:
    registered(world)
    world.store.lose_answer_of = world.store.operations + 1
    world.restore()
    world.settle()
    world.pass_time(10)
    assert world.finished is None
    assert world.store.epoch.restore_epoch == 1
    assert world.core.state.restore_epoch == 1
    world.request(TopologyState.PAUSED)
    world.settle()
    assert world.replies == [""], "writes with the old epoch were refused for ever"


def test_one_that_is_deposed_cannot_begin_a_restore(world: World) -> None:
    registered(world)
    world.asleep = True
    world.store.delete(Kind.TMASTERS)
    other = World(world.store, location=b"other")
    other.settle()
    world.asleep = False
    world.restore()
    world.settle()
    assert isinstance(world.finished, StateError)
    assert world.store.epoch.restore_epoch == 0


def test_the_next_leader_goes_on_with_the_restore_epoch(world: World) -> None:
    registered(world)
    world.restore()
    world.settle()
    world.store.delete(Kind.TMASTERS)
    other = World(world.store, location=b"other")
    other.settle()
    assert other.core.state.restore_epoch == 1


# A state manager that comes back empty


def test_everything_is_written_again_when_the_state_manager_is_emptied(world: World) -> None:
    registered(world)
    world.store.set(Kind.EXECUTIONSTATE, execution())
    world.store.set(Kind.SCHEDULERS, scheduler(1))
    world.store.set(Kind.SCHEDULERS, scheduler(2))
    world.settle()
    before = dict(world.store.nodes)
    world.store.empty()
    world.settle()
    assert world.store.nodes == before
    assert world.finished is None
    world.request(TopologyState.PAUSED)
    world.settle()
    assert world.replies == [""]


def test_what_somebody_else_writes_first_into_an_emptied_state_manager_stays(world: World) -> None:
    registered(world)
    world.store.set(Kind.SCHEDULERS, scheduler(1))
    world.settle()
    world.store.empty()
    world.store.set(Kind.SCHEDULERS, scheduler(2))
    world.settle()
    assert world.store.nodes[Kind.SCHEDULERS] == scheduler(2)


def test_one_that_starts_beside_an_empty_state_manager_uses_its_copy(world: World) -> None:
    registered(world)
    world.restore()
    world.settle()
    plan = world.core.state.plan
    assert plan is not None
    world.store.empty()
    restarted = World(world.store, location=b"second", copy=world.copy)
    restarted.settle()
    assert restarted.core.active
    assert {Kind.TOPOLOGIES, Kind.PACKINGPLANS} <= restarted.store.nodes.keys()
    restarted.feed(StmgrRegistered(1, plan.stmgrs[0], plan.version, 0.0, plan.restore_epoch, plan.stmgrs))
    restarted.settle()
    again = restarted.core.state.plan
    assert again is not None
    assert again.version > plan.version
    assert again.stmgrs == plan.stmgrs
    assert again.restore_epoch == restarted.store.epoch.restore_epoch == 1


@pytest.mark.parametrize("lost", [Kind.TOPOLOGIES, Kind.PACKINGPLANS, Kind.SCHEDULERS])
def test_one_that_cannot_read_a_copy_that_it_needs_leaves_the_start_to_the_next(world: World, lost: Kind) -> None:
    registered(world)
    world.store.set(Kind.SCHEDULERS, scheduler(1))
    world.settle()
    world.store.delete(lost)
    world.store.delete(Kind.TMASTERS)
    restarted = World(world.store, location=b"second", copy=world.copy | {lost: ReadFailedError("EIO")})
    restarted.settle()
    assert isinstance(restarted.finished, StateError)
    assert str(restarted.finished) == f"the state manager has no {lost.value} of 'words', and the copy: EIO"
    world.store.delete(Kind.TMASTERS)
    third = World(world.store, location=b"third", copy=world.copy)
    third.settle()
    assert third.core.active
    assert world.store.nodes[lost] == world.copy[lost]


def test_a_copy_that_cannot_be_read_and_is_not_needed_is_kept_anew(world: World) -> None:
    registered(world)
    world.store.delete(Kind.TMASTERS)
    copy = {kind: ReadFailedError("EIO") for kind in world.copy}
    restarted = World(world.store, location=b"second", copy=copy)
    restarted.settle()
    assert restarted.core.active
    assert restarted.copy == world.copy


def test_copies_of_an_unknown_submission_are_not_taken_for_none(world: World) -> None:
    registered(world)
    world.store.delete(Kind.TMASTERS)
    copy = {**world.copy, Kind.LOGLEVELS: LEVELS, Kind.TOPOLOGIES: ReadFailedError("EIO")}
    restarted = World(world.store, location=b"second", copy=copy)
    restarted.settle()
    assert "no loglevels of 'words'" in str(restarted.finished)


# Scaling


def test_a_packing_plan_that_does_not_fit_is_refused_and_the_next_one_used(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    registered(world)
    world.store.set(Kind.PACKINGPLANS, packing_plan(1, component="verb").to_proto().SerializeToString())
    world.settle()
    assert "the new packing plan is not used" in caplog.text
    world.store.set(Kind.PACKINGPLANS, b"\xff\xff")
    world.settle()
    world.store.set(Kind.PACKINGPLANS, packing_plan(1).to_proto().SerializeToString())
    world.settle()
    assert world.core.state.packing == packing_plan(1)


@pytest.mark.parametrize(
    "then",
    [
        lambda w: w.feed(SessionEnded(1, w.now_s), hello(3, 1, incarnation=2)),
        lambda w: w.feed(HeartbeatReceived(1, frozenset({"container_1_word_1"}), w.now_s)),
        lambda w: w.request(TopologyState.PAUSED),
        lambda w: w.store.empty(),
        lambda w: w.store.delete(Kind.TMASTERS),
        lambda w: w.restore(),
    ],
    ids=["stmgr replaced", "heartbeat", "paused", "emptied", "session lost", "restore"],
)
def test_the_end_and_restart_at_any_step_leaves_every_stmgr_with_the_plan_in_force(
    store: Store, then: Callable[[World], None]
) -> None:
    for steps in range(12):
        one = World(Store(dict(store.nodes)))
        one.settle()
        registered(one)
        then(one)
        one.settle(steps=steps)  # and then it is killed
        held = one.last_sent
        one.store.delete(Kind.TMASTERS)
        two = World(one.store, location=b"second", copy=one.copy)
        two.settle()
        assert two.core.active
        session = 10
        for plan, location in held.values():
            session += 1
            two.feed(StmgrRegistered(session, location, plan.version, two.now_s, plan.restore_epoch, plan.stmgrs))
        two.settle()
        two.core.check_invariants()
        plan = two.core.state.plan
        assert plan is not None
        versions = [e.plan.version for e in two.sent if isinstance(e, SendPlan)]
        assert versions, "nobody was sent a plan"
        assert max(versions) == plan.version >= max(plan.version for plan, _ in held.values())
        assert set(plan.stmgrs) >= {location for _, location in held.values()}, "a stale address came back"
