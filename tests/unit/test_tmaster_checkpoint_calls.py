"""A checkpoint that somebody waits for: decided by the core of the Topology Master alone."""

from __future__ import annotations

from typing import Any

from test_tmaster_checkpoints import nodes
from tmaster_scaled import PACKING, Scaled, running, scaled
from tmaster_world import Store

from heronpy.plan import TopologyState
from heronpy.proto import checkpoint_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import ReadNodes, StoreFailed, UpdateRequested
from heronpy.tmaster.checkpoints import instance_reported
from heronpy.tmaster.parts import CheckpointAsked, RequestWithdrawn


def ask(world: Scaled, *, divisible: bool = False) -> None:
    world.feed(CheckpointAsked(7, divisible, 30.0, world.now_s))
    world.settled()


def fails(world: Scaled, reason: str, *, lasting: bool = False) -> None:
    """Task 1 does not store its snapshot of the checkpoint under way."""
    coordinator = world.coordinator
    failed = checkpoint_pb2.SnapshotFailed(
        task=1, checkpoint=coordinator.in_progress, epoch=coordinator.epoch, reason=reason, lasting=lasting
    )
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    world.settled()


def test_whoever_asks_is_answered_when_all_tasks_know_of_the_commit() -> None:
    world = running()
    ask(world)
    assert world.coordinator.in_progress == 1, "it is not waited for until the next is due"
    world.obeys_commits = False
    world.snapshot(1, 2)
    world.settle(time=False)
    assert (world.record.committed, world.replies) == ([1], []), "sinks commit when they are told"
    world.obeys_commits = True
    world.settled()
    assert world.replies == [""]
    assert world.plan.state is TopologyState.RUNNING


def test_one_that_was_begun_before_is_not_what_was_asked_for() -> None:
    world = running()
    ask(world)
    ask(world)
    world.snapshot(1, 2)
    world.settled()
    assert world.replies == [""]
    world.pass_time(1.0)
    world.settled()
    world.snapshot(1, 2)
    world.settled()
    assert (list(world.record.committed)[-1], world.replies) == (2, ["", ""])


def test_one_that_fails_is_followed_by_another_until_time_is_up() -> None:
    world = running()
    ask(world)
    fails(world, "the storage does not answer")
    assert (world.coordinator.in_progress, world.replies) == (0, [])
    world.pass_time(1.0)
    world.settled()
    assert (world.coordinator.in_progress, world.replies) == (2, [])
    world.snapshot(1)
    world.pass_time(30.0)
    world.settle(time=False)
    failed = "checkpoint 1: a task failed: task 1: the storage does not answer"
    why = f"no checkpoint within 30 s: tasks 2 have not stored their snapshots; {failed}"
    assert world.replies == [f"{why}; there is no earlier checkpoint"]


def test_what_the_next_is_bound_to_meet_ends_the_wait() -> None:
    world = running()
    ask(world)
    fails(world, "component 'word': a value cannot be saved", lasting=True)
    assert world.replies == [], "the first may be of what was under way"
    world.pass_time(1.0)
    world.settled()
    fails(world, "component 'word': a value cannot be saved", lasting=True)
    why = "checkpoint 2: a task failed: task 1: component 'word': a value cannot be saved"
    assert world.replies == [f"{why}; there is no earlier checkpoint"]


def test_user_code_that_fails_again_after_a_restore_ends_the_wait() -> None:
    world = running()
    ask(world)
    for _ in range(2):
        assert world.replies == []
        rollback = checkpoint_pb2.RollbackRequest(
            task=1, epoch=world.coordinator.epoch, reason="pre_save() failed", lasting=True
        )
        world.feed(instance_reported(checkpoint_pb2.InstanceReport(rollback=rollback), world.now_s))
        world.settled()
        world.pass_time(1.0)
        world.settled()
    assert world.replies == ["task 1: pre_save() failed; there is no earlier checkpoint"]


def test_whoever_waits_no_longer_leaves_the_spouts_to_go_on() -> None:
    world = running()
    ask(world, divisible=True)
    assert world.plan.state is TopologyState.PAUSED
    world.feed(RequestWithdrawn(7, world.now_s))
    world.settled()
    assert world.plan.state is TopologyState.RUNNING
    world.pass_time(60.0)
    world.settled()
    assert world.replies == []


def test_while_any_number_of_tasks_is_to_restore_it_the_spouts_rest() -> None:
    world = running()
    ask(world, divisible=True)
    assert world.plan.state is TopologyState.PAUSED
    world.snapshot(1, 2, unaligned=True)
    world.pass_time(1.0)
    world.settled()
    assert (world.coordinator.in_progress, list(world.record.committed)) == (2, []), "it has logs"
    world.feed(UpdateRequested(9, PACKING, scaled((1, 2)), 60.0, world.now_s))
    assert world.replies == ["a checkpoint that was asked for is under way: ask again"]
    world.snapshot(1, 2)
    world.settled()
    assert (list(world.record.committed), world.replies[1:]) == ([2], [""])
    assert world.plan.state is TopologyState.RUNNING


def test_a_new_topology_master_does_not_answer_with_one_of_before() -> None:
    """It is asked before it has read back what was begun."""
    world = succeeded()
    ask(world)
    world.store.away = False
    world.pass_time(2.0)
    world.settled()
    assert (world.coordinator.phase.value, list(world.record.committed), world.replies) == ("running", [1], [])
    world.pass_time(1.0)
    world.settled()
    world.snapshot(1, 2)
    world.settled()
    assert (list(world.record.committed)[-1], world.replies) == (2, [""])


def test_an_update_does_not_begin_with_one_of_before_a_new_topology_master() -> None:
    """It is asked for before that has read back what was begun; that one has logs, which are for so many tasks."""
    world = succeeded(unaligned=True)
    world.update(scaled((1,), (2,), (3,)), timeout_s=60.0)
    world.pass_time(20.0)
    world.settled()
    world.store.away = False
    world.pass_time(2.0)
    world.settled()
    assert (list(world.record.committed), world.packing, world.replies) == ([1], PACKING, [])
    world.pass_time(1.0)
    world.settled()
    world.snapshot(1, 2)
    world.settled()
    assert (list(world.record.committed)[-1], world.replies) == (2, [""])
    assert world.packing == scaled((1,), (2,), (3,))


def succeeded(*, unaligned: bool = False) -> Scaled:
    """A new Topology Master that knows all but the record of checkpoints: the state manager is away just then."""
    world = running()
    world.pass_time(100.0)
    world.snapshot(1, 2, unaligned=unaligned)
    world.settled()
    assert list(world.record.committed) == [1]
    world.store.followers.clear()
    world.store.delete(Kind.TMASTERS)
    successor = Scaled(world.store, location=b"second", copy=world.copy)
    successor.reports = world.reports
    read = successor.store.do

    def do(effect: Any, now_s: float) -> Any:
        if isinstance(effect, ReadNodes) and effect.kinds == (Kind.STATEFULCHECKPOINTS,) and successor.store.away:
            return StoreFailed(effect, "it is away", now_s)
        away, successor.store.away = successor.store.away, False
        try:
            return read(effect, now_s)
        finally:
            successor.store.away = away

    successor.store.do = do  # type: ignore[method-assign]
    successor.store.away = True
    successor.settle()
    successor.attach()
    successor.settled()
    assert successor.core.active
    assert not successor.coordinator.is_read
    return successor


def test_a_topology_without_checkpoints_says_so() -> None:
    world = Scaled(Store(nodes("ATMOST_ONCE")))
    world.settle()
    ask(world)
    assert world.replies == ["the topology takes no checkpoints"]
