"""Data flows although plans, addresses and Topology Masters come and go in the worst order."""

from __future__ import annotations

from tmaster_world import Store, World, hello, location, packing_plan, topology

from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import topology_pb2
from heronpy.statemgr import Kind
from heronpy.stmgr import SAVED_PLAN_WAIT_S, PlanIntake, peers_to_dial
from heronpy.tmaster import SessionEnded, StmgrRegistered


def plan(version: int, *, epoch: int = 0, incarnations: tuple[int, int] = (1, 1), id: str = "words-1") -> PhysicalPlan:
    logical = LogicalPlan.from_proto(topology_pb2.Topology.FromString(topology(id)))
    stmgrs = tuple(location(n + 1, incarnation) for n, incarnation in enumerate(incarnations))
    return PhysicalPlan(version, logical, packing_plan(1, 2), stmgrs, restore_epoch=epoch)


def test_a_stmgr_that_is_replaced_while_there_is_no_topology_master_takes_the_saved_plan() -> None:
    intake = PlanIntake("words-1", now_s=100.0)
    saved = plan(3)
    assert intake.saved(saved, 100.5) is None
    assert intake.due_s == 100.0 + SAVED_PLAN_WAIT_S
    assert intake.advance(intake.due_s - 0.1) is None
    assert intake.advance(intake.due_s) is saved
    assert intake.advance(200.0) is None, "it was taken twice"


def test_a_plan_that_is_sent_in_time_wins_over_the_saved_one() -> None:
    intake = PlanIntake("words-1", now_s=0.0)
    intake.saved(plan(3), 0.1)
    sent = plan(4)
    assert intake.sent(sent) is sent
    assert intake.advance(100.0) is None
    assert intake.plan is sent


def test_a_saved_plan_that_nobody_could_send_any_more_is_taken_at_once_by_who_has_an_older_one() -> None:
    intake = PlanIntake("words-1", now_s=0.0)
    intake.sent(plan(3))
    newer = plan(4, incarnations=(1, 2))
    assert intake.saved(newer, 0.2) is newer
    assert intake.saved(plan(3), 0.3) is None
    assert intake.sent(plan(4)) is None


def test_a_plan_of_an_older_restore_epoch_is_old_whatever_its_version() -> None:
    intake = PlanIntake("words-1", now_s=0.0)
    intake.sent(plan(3, epoch=1))
    assert intake.sent(plan(9, epoch=0)) is None
    assert intake.sent(plan(4, epoch=1)) is not None


def test_the_plan_of_an_earlier_topology_of_the_same_name_is_not_taken() -> None:
    intake = PlanIntake("words-1", now_s=0.0)
    assert intake.saved(plan(3, id="words-0"), 50.0) is None
    assert intake.due_s is None


def test_of_each_pair_of_stmgrs_one_dials_the_other() -> None:
    now = plan(1)
    assert set(peers_to_dial(now, location(1))) == {"stmgr-2"}
    assert set(peers_to_dial(now, location(2))) == set()


def test_a_stmgr_that_the_plan_has_elsewhere_dials_everybody() -> None:
    now = plan(1)
    assert set(peers_to_dial(now, location(2, incarnation=2))) == {"stmgr-1"}
    assert set(peers_to_dial(now, location(1, incarnation=2))) == {"stmgr-2"}


# With the real Topology Master's decisions


def reachable(plans: dict[str, PhysicalPlan | None], at: dict[str, object]) -> bool:
    """Whether two Stream Managers with these plans, at these addresses, find each other."""
    for id, held in plans.items():
        other = "stmgr-2" if id == "stmgr-1" else "stmgr-1"
        if held is None or plans[other] is None:
            return False
        if peers_to_dial(held, at[id]).get(other) == at[other]:  # type: ignore[arg-type]
            return True
    return False


def running() -> World:
    store = Store({Kind.TOPOLOGIES: topology(), Kind.PACKINGPLANS: packing_plan(1, 2).to_proto().SerializeToString()})
    world = World(store)
    world.settle()
    world.feed(hello(1, 1), hello(2, 2))
    world.settle()
    return world


def test_whenever_the_topology_master_dies_after_a_stmgr_was_replaced_the_two_find_each_other() -> None:
    """A stall: the new address was saved, or known to one of the two only, and there was nobody left to tell it."""
    for replaced in (1, 2):
        for steps in range(12):
            world = running()
            old = world.last_sent["stmgr-1"][0]
            at = {"stmgr-1": location(1), "stmgr-2": location(2)}
            at[f"stmgr-{replaced}"] = location(replaced, 2)
            intakes = {id: PlanIntake("words-1", 0.0) for id in at}
            intakes[f"stmgr-{3 - replaced}"].sent(old)
            world.sent.clear()
            world.feed(SessionEnded(replaced, world.now_s), hello(3, replaced, incarnation=2))
            world.settle(steps=steps)  # and then it is killed
            for effect in world.sent:
                intakes[f"stmgr-{replaced if effect.session == 3 else 3 - replaced}"].sent(effect.plan)
            saved = world.saved_plans[-1]
            for intake in intakes.values():
                intake.saved(saved, 1.0)
                intake.advance(SAVED_PLAN_WAIT_S + 1.0)
            assert reachable({id: intake.plan for id, intake in intakes.items()}, dict(at)), (replaced, steps)


def test_a_topology_master_that_restarts_with_an_older_saved_plan_cuts_no_link() -> None:
    """A stall: its first plan had the address of a dead Stream Manager, and cut the live link to its replacement."""
    world = running()
    world.store.away = True  # so the next plan is sent, and never saved
    world.feed(SessionEnded(2, world.now_s), hello(3, 2, incarnation=2))
    world.pass_time(3.0)
    held, _ = world.last_sent["stmgr-1"]
    assert held.stmgrs == (location(1), location(2, 2))
    world.store.away = False
    world.store.delete(Kind.TMASTERS)
    restarted = World(world.store, location=b"second")
    restarted.settle()
    assert [p.version for p in world.saved_plans] == [1]
    restarted.feed(StmgrRegistered(1, location(1), held.version, 0.0, 0, held.stmgrs))  # only one of the two is back
    restarted.settle()
    again = restarted.core.state.plan
    assert again is not None
    assert again.stmgrs == held.stmgrs
    assert again.version > held.version


def test_a_stmgr_that_left_before_any_plan_had_it_is_in_no_plan() -> None:
    world = running()
    world.store.set(Kind.PACKINGPLANS, packing_plan(1, 2, 3, 4).to_proto().SerializeToString())
    world.settle()
    world.feed(hello(4, 3), SessionEnded(4, world.now_s), hello(5, 4))
    world.settle()
    now = world.core.state.plan
    assert now is not None
    assert now.packing == packing_plan(1, 2)
