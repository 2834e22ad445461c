"""What the checkpoint coordinator restores if checkpoints are damaged, missing or not for these tasks."""

from __future__ import annotations

import coordinator_world
import pytest
from coordinator_world import COMPONENTS, TASKS, World, world_with_commits

from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    CheckpointDamaged,
    CheckpointLost,
    FenceChanged,
    FindIntact,
    IntactFound,
    ManifestFailed,
    Phase,
    RestoreTasks,
    WriteManifest,
)

world = coordinator_world.world


def test_the_newest_intact_checkpoint_is_restored_in_an_epoch_of_its_own() -> None:
    world = world_with_commits(damaged={2, 3})
    world.restart(1)
    world.all_report()
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 3), (3, 1)}
    assert (world.coordinator.phase, world.durable.committed) == (Phase.RUNNING, (1,))
    fallback = world.coordinator.fallback
    assert fallback.used == "checkpoint 1 is restored instead of 3: 2: a wrong checksum; 3: a wrong checksum"
    assert (fallback.problem, fallback.recent(world.now_s), fallback.recent(world.now_s + 1e4)) == (
        "",
        fallback.used,
        "",
    )
    assert world.coordinator.counts.damaged == 2
    world.commit(4)
    assert world.durable.committed == (1, 4), "ids are never used again"


def test_the_record_is_durable_before_an_older_checkpoint_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.restart(1)
    world.held = []
    world.all_report()
    assert [(e.epoch, e.committed) for e in world.take(FindIntact)] == [(2, (1, 2, 3))]
    assert (world.epoch, world.coordinator.phase) == (2, Phase.RESTORING)
    world.become_leader()
    world.held = None
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.durable.newest) == (Phase.RUNNING, 2), "a successor finds the same"


def test_without_an_intact_checkpoint_nothing_runs_until_storage_is_put_right() -> None:
    world = world_with_commits(damaged={1, 2, 3})
    world.restart(1)
    world.all_report()
    assert world.coordinator.phase is Phase.RESTORING
    problem = world.coordinator.fallback.problem
    assert "does not begin without state" in problem
    assert problem.endswith(
        "; and 1 more; put its storage right, or begin without state: heron kill --force, then heron submit"
    )
    assert world.durable.committed == (1, 2, 3), "the record stays"
    world.damaged = {3}
    world.all_report()
    assert world.take(FindIntact)[1:] == [], "not again at once"
    world.damaged = {1, 2, 3}
    world.pass_time()
    world.all_report()
    world.damaged = set()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)
    assert world.coordinator.fallback.problem == ""


def test_it_begins_without_state_only_if_that_is_allowed() -> None:
    world = world_with_commits(damaged={1, 2, 3}, allow_empty=True)
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring, world.durable.committed) == (Phase.RUNNING, 0, ())
    assert world.coordinator.fallback.used.startswith("no state is restored instead of 3: ")
    world.commit(4)


def test_storage_that_is_away_is_not_damage() -> None:
    world = world_with_commits(damaged={3}, allow_empty=True)
    world.storage_away = True
    world.restart(1)
    world.all_report()
    assert (world.coordinator.phase, world.durable.committed) == (Phase.RESTORING, (1, 2, 3))
    assert "does not answer: no route to host" in world.coordinator.fallback.problem
    world.storage_away, world.damaged = False, set()
    world.pass_time()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)


def cannot_follow(world: World, *checkpoints: int, reason: str = "the manifest of checkpoint 3 is damaged") -> None:
    """Checkpoints cannot be made, because something is damaged."""
    world.stores_manifests = False
    for checkpoint in checkpoints:
        world.pass_time()
        for task in TASKS:
            world.snapshot(task, checkpoint)
        world.feed(ManifestFailed(checkpoint, world.epoch, reason, world.now_s, damage=True))
    world.stores_manifests = True


def test_what_follows_a_damaged_checkpoint_while_all_run_is_whole() -> None:
    world = world_with_commits(damaged={1, 2, 3})
    cannot_follow(world, 4)
    assert {(e.checkpoint, e.whole) for e in world.take(AbortCheckpoint)} == {(4, True)}
    fallback = world.coordinator.fallback
    assert fallback.problem == (
        "checkpoint 3 is lost, so the next has the whole state: the manifest of checkpoint 3 is damaged"
    )
    assert not fallback.lasts, "whoever waits for a checkpoint goes on waiting"
    world.commit(5)
    world.commit(6)
    assert [(e.checkpoint, e.previous) for e in world.take(WriteManifest)] == [(5, 0), (6, 5)]
    assert (world.epoch, world.durable.committed, fallback.problem) == (1, (3, 5, 6), "")
    assert fallback.recent(world.now_s) == "checkpoint 5 has the whole state, because the one before was lost"


def test_a_checkpoint_is_whole_only_if_all_say_so() -> None:
    world = world_with_commits(damaged={3})
    cannot_follow(world, 4)
    world.pass_time()
    world.effects = []
    for task in TASKS:
        world.snapshot(task, 5, whole=task != 1)
    assert {(e.checkpoint, e.whole) for e in world.take(AbortCheckpoint)} == {(5, True)}, "who missed it is told again"
    assert world.coordinator.counts.last_failure.endswith("not all tasks have written their whole state")
    world.commit(6)
    assert [e.previous for e in world.take(WriteManifest)] == [0]


def test_a_loss_that_is_found_while_all_run_has_a_whole_checkpoint_taken_soon() -> None:
    world = world_with_commits(damaged=set())
    world.effects = []
    world.feed(CheckpointLost(2, "an object is missing", world.now_s))
    assert world.take(AbortCheckpoint) == [], "that is not the newest"
    world.feed(CheckpointLost(3, "an object is missing", world.now_s))
    assert {(e.checkpoint, e.whole) for e in world.take(AbortCheckpoint)} == {(3, True)}
    world.pass_time(1.0)
    world.feed(CheckpointLost(3, "an object is missing", world.now_s))
    for task in TASKS:
        world.snapshot(task, 4)
    assert [(e.checkpoint, e.previous) for e in world.take(WriteManifest)] == [(4, 0)]
    assert world.durable.newest == 4


def test_a_loss_that_is_found_while_a_checkpoint_is_under_way_ends_that() -> None:
    world = world_with_commits(damaged=set())
    world.pass_time()
    world.effects = []
    world.feed(CheckpointLost(3, "an object is missing", world.now_s))
    assert {(e.checkpoint, e.whole) for e in world.take(AbortCheckpoint)} == {(4, True)}
    world.commit(5)
    assert [(e.checkpoint, e.previous) for e in world.take(WriteManifest)] == [(5, 0)]


def test_what_is_restored_after_all_can_be_followed() -> None:
    world = world_with_commits(damaged=set())
    cannot_follow(world, 4)
    world.restart(1)
    world.all_report()
    world.all_report()
    world.effects = []
    world.commit(5)
    assert [(e.checkpoint, e.previous) for e in world.take(WriteManifest)] == [(5, 3)]


def test_an_older_checkpoint_is_restored_if_whole_ones_fail_as_well() -> None:
    world = world_with_commits(damaged={3})
    world.stores_manifests = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 4)
    world.feed(ManifestFailed(4, 1, "the storage does not answer", world.now_s))
    cannot_follow(world, 5, 6, 7)
    assert world.take(FindIntact) == []
    cannot_follow(world, 8)
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 2)}
    world.commit(9)
    assert world.durable.committed == (1, 2, 9)


def test_a_look_that_knows_nothing_of_a_newer_commit_passes_nothing_over() -> None:
    world = world_with_commits(damaged=set())
    world.looks_are_held = True
    cannot_follow(world, 4, 5, 6, 7, reason="an object is missing")
    (look,) = world.take(FindIntact)
    world.commit(8)
    world.feed(IntactFound(look.epoch, 3, (), world.now_s))
    assert (world.coordinator.phase, world.epoch, world.durable.committed) == (Phase.RUNNING, 1, (2, 3, 8))


def test_without_an_intact_checkpoint_what_runs_goes_on_with_its_state() -> None:
    world = world_with_commits(damaged={1, 2, 3}, allow_empty=True)
    cannot_follow(world, 4, 5, 6, 7)
    assert (world.coordinator.phase, world.epoch, world.durable.committed) == (Phase.RUNNING, 1, (1, 2, 3))
    assert world.coordinator.fallback.problem.startswith("no checkpoint can be restored, and none can be taken: ")
    world.damaged = set()
    world.commit(8)
    assert world.coordinator.fallback.problem == ""


def test_a_checkpoint_that_is_intact_is_tried_again() -> None:
    world = world_with_commits(damaged=set())
    world.obeys = False
    world.restart(1)
    world.all_report()
    world.epoch = 2
    world.feed(FenceChanged(world.fence, world.epoch, world.now_s))
    assert world.feed(CheckpointDamaged(1, 2, 3, "a read was cut short", world.now_s)) == [
        FindIntact(2, (1, 2, 3), COMPONENTS)
    ]
    assert (world.coordinator.phase, world.durable.newest) == (Phase.RESTORING, 3)
    world.obeys = True
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)


def test_a_checkpoint_whose_log_cannot_be_read_is_passed_over_though_it_is_intact() -> None:
    world = world_with_commits(damaged={2})
    world.unreadable = {3}
    world.restart(1)
    world.all_report()
    world.all_report()
    coordinator = world.coordinator
    assert (coordinator.phase, coordinator.restoring, world.durable.committed) == (Phase.RUNNING, 1, (1,))
    assert coordinator.fallback.used == (
        "checkpoint 1 is restored instead of 3: checkpoint 3: no one can read its log; 2: a wrong checksum"
    )


def test_if_no_log_can_be_read_nothing_runs_until_something_can_read_it() -> None:
    world = world_with_commits(damaged={1, 2})
    world.unreadable = {3}
    world.restart(1)
    world.all_report()
    coordinator = world.coordinator
    assert (coordinator.phase, world.epoch, world.durable.committed) == (Phase.RESTORING, 2, (1, 2, 3))
    assert "checkpoint 3: no one can read its log" in coordinator.fallback.problem
    assert (
        "; bring back what can read its log, or begin without state: heron kill --force" in coordinator.fallback.problem
    )
    world.unreadable = set()
    world.all_report()
    assert (coordinator.phase, coordinator.restoring, coordinator.fallback.problem) == (Phase.RUNNING, 3, "")


def test_a_checkpoint_with_batches_for_another_number_of_tasks_is_passed_over() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: 7}
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 1)
    assert world.coordinator.fallback.used.endswith("2: batches in flight; 3: a wrong checksum")


def test_a_checkpoint_with_batches_for_just_these_tasks_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: COMPONENTS["count"]}
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 2)


def test_while_the_number_of_tasks_changes_no_checkpoint_with_batches_in_flight_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: COMPONENTS["count"]}
    world.coordinator.divisible = True
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 1)


@pytest.mark.parametrize("allow_empty", [False, True])
def test_what_only_another_number_of_tasks_can_restore_is_not_lost_and_the_way_back_is_named(allow_empty: bool) -> None:
    world = world_with_commits(damaged={1, 3}, allow_empty=allow_empty)
    world.logged = {2: 7}
    world.restart(1)
    world.all_report()
    world.all_report()
    coordinator = world.coordinator
    assert (coordinator.phase, world.durable.committed) == (Phase.RESTORING, (1, 2, 3))
    assert coordinator.fallback.problem.startswith("no checkpoint can be restored with these numbers of tasks: ")
    assert coordinator.fallback.problem.endswith("; heron update --component-parallelism count:7")
    assert coordinator.restorable_with({"word": 1, "count": 7})
    assert not coordinator.restorable_with({"word": 1, "count": 8})
