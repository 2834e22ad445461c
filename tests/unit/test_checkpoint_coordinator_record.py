"""The checkpoint coordinator's record: lost answers, other leaders, damage."""

from __future__ import annotations

import coordinator_world
import pytest
from coordinator_world import TASKS, TIMEOUT_S, World

from heronpy.errors import StateError
from heronpy.statemgr import Kind
from heronpy.tmaster import NodeChanged
from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointCoordinator,
    Failure,
    FenceChanged,
    Phase,
    Poisoned,
    Record,
    RestoreTasks,
    RollbackRequested,
    TaskPhase,
    TasksChanged,
    TaskStatus,
    Undivided,
)

world = coordinator_world.world


def test_an_epoch_that_somebody_else_has_raised_has_the_leadership_checked(world: World) -> None:
    world.stmgr_epochs["stmgr-1"] = 2
    assert world.report("stmgr-1") == [CheckLeadership()]


def test_a_commit_whose_answer_was_lost_is_what_a_restore_finds(world: World) -> None:
    world.pass_time()
    for task in (1, 2):
        world.snapshot(task, 1)
    world.loses_answers = True
    world.snapshot(3, 1)
    assert (world.durable.newest, world.coordinator.record.newest) == (1, 0)
    world.loses_answers = False
    world.restart(3)
    world.report("stmgr-2")
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {1}
    assert world.coordinator.counts.committed == 1


def test_a_commit_that_comes_after_the_epoch_was_raised_is_refused(world: World) -> None:
    world.pass_time()
    world.held = []
    for task in TASKS:
        world.snapshot(task, 1)
    commit = world.held.pop()
    world.restart(3)
    world.report("stmgr-2")
    world.held = None
    world.write(commit)
    assert world.durable.newest == 0
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {0}


def test_a_commit_is_written_until_the_state_manager_answers(world: World) -> None:
    world.pass_time()
    world.away = True
    for task in TASKS:
        world.snapshot(task, 1)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.in_progress == 1, "it may have been committed, so it cannot time out"
    world.away = False
    world.pass_time(1.0)
    assert (world.durable.newest, world.coordinator.counts.failed) == (1, {})


def test_a_begin_that_fails_costs_its_id(world: World) -> None:
    world.away = True
    world.pass_time()
    assert world.coordinator.counts.failed == {Failure.STORE: 1}
    assert world.take(BeginCheckpoint) == []
    world.away = False
    world.commit(2)


def test_a_refused_write_has_the_leadership_checked(world: World) -> None:
    world.held = []
    world.pass_time()
    world.term += 1
    world.write(world.held.pop())
    assert world.take(CheckLeadership) == [CheckLeadership()]
    assert world.take(BeginCheckpoint) == []


def test_a_new_topology_master_goes_on_where_everybody_runs(world: World) -> None:
    world.commit(1)
    world.pass_time()
    world.take(object)
    world.become_leader()
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.ADOPTING
    world.report("stmgr-2")
    assert (world.coordinator.phase, world.epoch) == (Phase.RUNNING, 1)
    assert world.coordinator.counts.failed == {Failure.LEADER: 1}
    assert AbortCheckpoint("stmgr-1", 2, 1) in world.effects
    assert {e.checkpoint for e in world.take(AnnounceCommit)} == {1}
    for task in TASKS:
        world.snapshot(task, 2)
    assert world.durable.newest == 1
    world.commit(3)


def test_reports_that_come_before_the_leadership_count(world: World) -> None:
    standby = world.coordinator = CheckpointCoordinator("words-1", world.settings)
    world.feed(TasksChanged(TASKS, world.now_s))
    world.all_report()
    assert standby.phase is Phase.STANDBY
    world.term += 1
    world.feed(FenceChanged(world.fence, world.epoch, world.now_s))
    assert standby.phase is Phase.RUNNING
    world.commit(1)
    world.restart(3)
    world.report("stmgr-2")
    assert world.epoch == 2


@pytest.mark.parametrize("found", ["gap", "stmgr", "task", "half resumed"])
def test_what_was_lost_without_a_topology_master_is_a_rollback(world: World, found: str) -> None:
    world.commit(1)
    if found == "gap":
        world.taints["stmgr-2"] = "frame 7 of stmgr-1 is missing"
    elif found == "stmgr":
        world.restart_stmgr("stmgr-2")
    elif found == "task":
        world.restart(3)
    else:
        world.tasks[3] = TaskStatus(world.tasks[3].incarnation, 1, TaskPhase.RESTORED)
    world.take(object)
    world.become_leader()
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 1)}
    assert world.coordinator.phase is Phase.RUNNING


def test_a_loss_that_is_reported_while_the_record_is_read_counts(world: World) -> None:
    world.away = True
    world.become_leader()
    world.taints["stmgr-2"] = "frame 7 of stmgr-1 is missing"
    world.all_report()
    world.feed(RollbackRequested(3, 1, "process() raised", world.now_s))
    world.away = False
    world.pass_time(1.0)
    assert world.epoch == 2


def test_a_record_that_the_state_manager_has_lost_is_written_again(world: World) -> None:
    world.commit(1)
    world.record = None
    world.feed(NodeChanged(Kind.STATEFULCHECKPOINTS, None, world.now_s))
    assert world.durable.newest == 1
    world.record = None
    world.restart(3)
    world.report("stmgr-2")
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {1}
    assert world.durable.newest == 1


def test_the_record_of_an_earlier_topology_of_the_same_name_does_not_count() -> None:
    world = World()
    world.record = Record("words-0", 7, 0, (7,)).to_proto().SerializeToString()
    world.become_leader()
    world.all_report()
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {0}


def test_a_record_survives_its_message() -> None:
    record = Record(
        "words-1",
        9,
        9,
        (7, 8),
        settled=7,
        poisoned={b"a digest": Poisoned(2, "ValueError")},
        undivided={"count": Undivided(2, "state")},
    )
    assert Record.from_proto(record.to_proto()) == record


def test_a_damaged_record_is_not_taken_for_a_topology_without_checkpoints(world: World) -> None:
    world.commit(1)
    intact, world.record = world.record, b"\xff damaged"
    with pytest.raises(StateError, match="what to restore is not known"):
        world.become_leader()
    world.record = intact
    world.become_leader()
    assert world.coordinator.record.newest == 1


def test_a_record_that_is_damaged_while_its_leader_lives_is_written_again(world: World) -> None:
    world.commit(1)
    world.record = b"\xff damaged"
    world.restart(1)
    world.all_report()
    world.pass_time()
    assert world.durable.newest == 1
    assert [e.checkpoint for e in world.take(RestoreTasks)] == [1, 1]
