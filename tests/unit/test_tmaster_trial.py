"""New code on trial: decided by the core of the Topology Master alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_tmaster_checkpoints import nodes
from tmaster_scaled import PACKING, Scaled, running
from tmaster_world import Store, World, hello, topology

from heronpy.plan import CodeTrial, CodeVersion, PackingPlan
from heronpy.statemgr import Kind
from heronpy.tmaster import TimePassed, UpdateRequested
from heronpy.tmaster.checkpoints import RollbackRequested

CODE = CodeVersion("0123456789ab", ("package",), nodes()[Kind.TOPOLOGIES])
TRIAL = PACKING.on_trial(CODE, (1, 2), CodeTrial("", 50.0))


def on_trial() -> Scaled:
    """A topology whose new code has restored checkpoint 1, and runs."""
    world = running()
    world.update(TRIAL)
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.plan.packing, world.coordinator.phase.value) == ([""], TRIAL, "running")
    assert world.coordinator.restoring == 1
    return world


def test_new_code_begins_with_a_checkpoint_in_a_new_epoch_and_none_is_taken_before_it_is_accepted() -> None:
    world = running()
    epoch = world.coordinator.epoch
    world.update(TRIAL)
    world.settle(time=False)
    assert (world.packing, world.plan.packing) == (PACKING, PACKING), "the spouts rest until the checkpoint is there"
    world.snapshot(1, 2)
    world.settled()
    assert (world.packing, world.plan.packing, world.plan.restore_epoch) == (TRIAL, TRIAL, epoch + 1)
    world.pass_time(40.0)
    assert (world.coordinator.in_progress, world.coordinator.record.newest) == (0, 1)


def test_accepted_code_goes_on_without_a_restore_and_takes_checkpoints_again() -> None:
    world = on_trial()
    epoch = world.coordinator.epoch
    world.update(TRIAL.accepted(), base=TRIAL)
    world.settled()
    assert (world.packing, world.plan.packing.trial, world.plan.restore_epoch) == (TRIAL.accepted(), None, epoch)
    world.pass_time(100.0)
    assert world.coordinator.in_progress == 2
    assert world.packing == TRIAL.accepted(), "nothing is rolled back any more"


def test_code_that_nobody_accepts_is_rolled_back_to_the_checkpoint_that_it_has_begun_with() -> None:
    world = on_trial()
    epoch = world.coordinator.epoch
    world.pass_time(49.0)
    assert world.packing == TRIAL
    world.pass_time(2.0)
    world.settled()
    assert (world.packing, world.plan.packing, world.coordinator.restoring) == (PACKING, PACKING, 1)
    assert world.plan.restore_epoch > epoch
    assert world.core.code_failure == "it was not accepted in time"


def test_code_that_fails_is_rolled_back_at_once_and_its_tuple_is_executed_by_the_old_code() -> None:
    world = on_trial()
    for _ in range(3):  # as often as sets a tuple aside
        event = RollbackRequested(1, world.coordinator.epoch, "ValueError('new')", world.now_s, b"tuple")
        world.feed(event)
        world.settled()
        assert world.coordinator.record.poisoned == {}
    world.pass_time(2.0)
    world.settled()
    assert (world.packing, world.plan.packing, world.coordinator.restoring) == (PACKING, PACKING, 1)
    assert world.core.code_failure == "task 1: ValueError('new')"


def test_a_new_topology_master_goes_on_with_the_trial() -> None:
    world = on_trial()
    world.store.followers.clear()
    world.store.delete(Kind.TMASTERS)
    successor = Scaled(world.store, location=b"second", copy=world.copy)
    successor.reports = world.reports
    successor.settle()
    successor.feed(hello(11, 1, plan_version=world.core.state.version))
    successor.feed(hello(12, 2, plan_version=world.core.state.version))
    successor.settled()
    successor.pass_time(51.0)
    assert successor.packing == PACKING


def test_nothing_else_is_changed_while_code_is_on_trial() -> None:
    world = on_trial()
    other = replace(TRIAL, master=replace(TRIAL.master, cpu=2.0))
    world.update(other, base=TRIAL)
    assert world.replies[-1] == "new code is on trial: ask again"
    half = PACKING.on_trial(CODE, (1,), CodeTrial("", 50.0))
    fresh = running()
    fresh.update(half)
    assert fresh.replies == ["with checkpoints all containers change their code at once"]


def test_code_that_some_containers_lack_is_not_accepted() -> None:
    world = World(Store({Kind.TOPOLOGIES: topology(), Kind.PACKINGPLANS: PACKING.to_proto().SerializeToString()}))
    world.settle()
    world.feed(hello(1, 1), hello(2, 2))
    world.settle(time=False)
    half = PACKING.on_trial(CODE, (1,), CodeTrial("", 50.0))
    for base, wanted in ((PACKING, half), (half, half.accepted())):
        world.feed(UpdateRequested(9, base, wanted, 60.0, world.now_s))
        world.settle(time=False)
    assert world.replies == ["", "code is accepted when all containers run it"]
    assert _wanted(world) == half


@pytest.mark.parametrize("accepted", [True, False])
def test_without_checkpoints_containers_follow_one_after_the_other(accepted: bool) -> None:
    world = World(Store({Kind.TOPOLOGIES: topology(), Kind.PACKINGPLANS: PACKING.to_proto().SerializeToString()}))
    world.settle()
    world.feed(hello(1, 1), hello(2, 2))
    world.settle(time=False)
    base, trial = PACKING, CodeTrial("", 50.0)
    for container in (1, 2):
        wanted = base.on_trial(CODE, (container,), trial)
        world.feed(UpdateRequested(9, base, wanted, 60.0, world.now_s))
        world.settle(time=False)
        base = wanted
    assert (world.replies, _in_force(world)) == (["", ""], TRIAL)
    if accepted:
        world.feed(UpdateRequested(9, base, base.accepted(), 60.0, world.now_s))
        world.settle(time=False)
    world.now_s += 60.0
    world.feed(TimePassed(world.now_s))
    world.settle(time=False)
    assert _wanted(world) == (TRIAL.accepted() if accepted else PACKING)


def _in_force(world: World) -> PackingPlan:
    assert world.core.state.plan is not None
    return world.core.state.plan.packing


def _wanted(world: World) -> PackingPlan:
    return world.core.state.packing
