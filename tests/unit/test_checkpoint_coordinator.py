"""When checkpoints are begun, committed and aborted, and when everybody is put back: the coordinator's decisions."""

from __future__ import annotations

import itertools

import coordinator_world
import pytest
from coordinator_world import COMPONENTS, TASKS, TIMEOUT_S, World

from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    DiscardCheckpoints,
    Failure,
    FenceChanged,
    ManifestFailed,
    ManifestWritten,
    Phase,
    RaiseRestoreEpoch,
    Record,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    StmgrDisconnected,
    TaskPhase,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
    WriteManifest,
)

world = coordinator_world.world


def test_a_topology_begins_with_a_restore_of_nothing() -> None:
    world = World()
    world.all_report()
    restored = {(e.stmgr_id, e.epoch, e.checkpoint) for e in world.effects if type(e) is RestoreTasks}
    assert restored == {("stmgr-1", 1, 0), ("stmgr-2", 1, 0)}
    assert (world.coordinator.phase, world.epoch) == (Phase.RUNNING, 1)


def test_nobody_resumes_before_all_have_restored() -> None:
    world = World()
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.RESTORING
    assert world.take(ResumeTasks) == []
    world.report("stmgr-2")
    assert {e.stmgr_id for e in world.take(ResumeTasks)} == {"stmgr-1", "stmgr-2"}


def test_a_checkpoint_is_durable_before_it_is_begun(world: World) -> None:
    world.held = []
    world.pass_time()
    assert world.take(BeginCheckpoint) == []
    world.write(world.held.pop())
    assert world.durable.in_progress == 1
    assert world.take(BeginCheckpoint) == [BeginCheckpoint("stmgr-1", 1, 1), BeginCheckpoint("stmgr-2", 1, 1)]


def test_a_checkpoint_is_committed_when_every_task_has_reported(world: World) -> None:
    world.pass_time()
    world.snapshot(1, 1)
    world.snapshot(2, 1)
    world.snapshot(2, 1)
    assert (world.durable.committed, world.coordinator.missing) == ((), [3])
    world.snapshot(3, 1)
    assert world.durable == Record("words-1", last_id=1, committed=(1,), settled=1)
    assert world.take(AnnounceCommit) == [AnnounceCommit("stmgr-1", 1), AnnounceCommit("stmgr-2", 1)]
    assert world.coordinator.counts.committed == 1


def test_one_checkpoint_is_under_way_at_a_time(world: World) -> None:
    world.pass_time()
    world.pass_time()
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {1}
    for task in TASKS:
        world.snapshot(task, 1)
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {2}, "the next one is overdue"


def test_reports_of_another_checkpoint_epoch_or_incarnation_do_not_count(world: World) -> None:
    world.pass_time()
    world.feed(TaskSnapshotted(1, 101, 2, 1, world.now_s))
    world.feed(TaskSnapshotted(1, 101, 1, 0, world.now_s))
    world.feed(TaskSnapshotted(1, 999, 1, 1, world.now_s))
    world.feed(TaskSnapshotted(9, 101, 1, 1, world.now_s))
    assert world.coordinator.missing == [1, 2, 3]


def test_a_commit_is_repeated_until_every_task_knows_of_it(world: World) -> None:
    world.commit(1)
    world.take(object)
    assert world.report("stmgr-2") == [AnnounceCommit("stmgr-2", 1)]
    status = world.tasks[3]
    world.tasks[3] = TaskStatus(status.incarnation, status.epoch, status.phase, committed=1)
    assert world.report("stmgr-2") == []


def test_the_record_says_which_checkpoint_has_no_logs(world: World) -> None:
    world.commit(1)
    for checkpoint in (2, 3):
        world.pass_time()
        world.snapshot(1, checkpoint)
        world.feed(TaskSnapshotted(2, 102, checkpoint, 1, world.now_s, unaligned=True))
        world.snapshot(3, checkpoint)
    assert (world.durable.newest, world.durable.settled) == (3, 1)
    assert world.durable.without_newer(2).settled == 1
    assert world.durable.without_newer(0).settled == 0


def test_rollbacks_because_of_a_tuple_are_counted_through_the_deaths_of_topology_masters(world: World) -> None:
    for rollbacks in (1, 2, 3):
        assert not any(order.set_aside for order in world.take(RestoreTasks))
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
        assert {tup: each.rollbacks for tup, each in world.durable.poisoned.items()} == {b"a digest": rollbacks}
        if rollbacks < 3:
            world.become_leader()
        world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {b"a digest": "ValueError"}
    world.become_leader()
    world.restart(1)
    world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {b"a digest": "ValueError"}
    world.commit(1)
    assert world.durable.poisoned == {}
    world.restart(1)
    world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {}


def test_a_rollback_that_is_asked_for_before_the_record_is_read_counts_besides(world: World) -> None:
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
        world.all_report()
    world.away = True
    world.become_leader()
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
    world.away = False
    world.pass_time()
    world.all_report()
    assert {tup: each.rollbacks for tup, each in world.durable.poisoned.items()} == {b"a digest": 3}


def test_a_failed_snapshot_aborts_the_checkpoint_and_its_id_is_not_used_again(world: World) -> None:
    world.pass_time()
    world.feed(TaskSnapshotFailed(2, 1, 1, "the disk is full", world.now_s))
    assert world.take(AbortCheckpoint) == [AbortCheckpoint("stmgr-1", 1, 1), AbortCheckpoint("stmgr-2", 1, 1)]
    assert world.coordinator.counts.failed == {Failure.TASK: 1}
    assert "task 2: the disk is full" in world.coordinator.counts.last_failure
    for task in TASKS:
        world.snapshot(task, 1)
    assert world.durable.committed == ()
    world.commit(2)


def test_a_manifest_of_all_snapshots_is_stored_before_the_commit(world: World) -> None:
    world.commit(1)
    world.stores_manifests = False
    world.pass_time()
    for task, objects in ((1, (b"a", b"b")), (2, ()), (3, (b"c",))):
        world.take(object)
        world.feed(TaskSnapshotted(task, 100 + task, 2, 1, world.now_s, objects=objects))
    assert world.take(object) == [WriteManifest(2, 1, 1, (b"a", b"b", b"c"), COMPONENTS, 0.0)]
    world.feed(ManifestWritten(1, 1, world.now_s))
    assert world.durable.newest == 1, "that is another one's"
    world.feed(ManifestWritten(2, 1, world.now_s))
    assert world.durable.newest == 2
    world.feed(ManifestWritten(2, 1, world.now_s))
    world.feed(ManifestFailed(2, 1, "late", world.now_s))
    assert world.coordinator.counts.failed == {}


def test_without_its_manifest_a_checkpoint_is_aborted(world: World) -> None:
    world.stores_manifests = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 1)
    world.feed(ManifestFailed(1, 1, "the disk is full", world.now_s))
    assert world.coordinator.counts.last_failure.endswith("its manifest could not be stored: the disk is full")
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 2)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.counts.last_failure.endswith("timed out: no manifest")
    world.feed(ManifestWritten(2, 1, world.now_s))
    assert world.durable.committed == ()


def test_a_manifest_that_is_stored_when_a_restore_has_begun_commits_nothing(world: World) -> None:
    world.stores_manifests = world.obeys = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 1)
    world.away = True
    world.epoch = 2
    world.feed(FenceChanged(world.fence, 2, world.now_s))
    world.feed(ManifestWritten(1, 1, world.now_s))
    world.away = False
    world.pass_time(1.0)
    assert world.durable.committed == ()
    assert world.coordinator.counts.failed == {Failure.LOSS: 1}


def test_a_snapshot_whose_report_may_be_lost_with_a_session_costs_the_checkpoint_and_no_time(world: World) -> None:
    world.pass_time()
    world.snapshot(3, 1)
    world.feed(StmgrDisconnected("stmgr-2", world.now_s))
    assert world.coordinator.in_progress == 1, "all of its tasks have reported"
    world.feed(StmgrDisconnected("stmgr-1", world.now_s))
    assert world.coordinator.counts.failed == {Failure.SESSION: 1}
    world.all_report()
    assert world.epoch == 1, "a session that has ended is no loss"
    world.commit(2)


def test_a_checkpoint_that_takes_too_long_is_aborted_and_names_who_is_missing(world: World) -> None:
    world.pass_time()
    world.snapshot(2, 1)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.counts.failed == {Failure.TIMEOUT: 1}
    assert world.coordinator.counts.last_failure.endswith("no snapshot of 2 tasks: 1, 3")


@pytest.mark.parametrize("found", ["gap", "stmgr", "task", "detached", "rollback", "plan"])
def test_a_loss_aborts_the_checkpoint_and_restores_the_last_committed_one(world: World, found: str) -> None:
    world.commit(1)
    world.pass_time()
    world.snapshot(1, 2)
    world.snapshot(2, 2)
    world.take(object)
    if found == "gap":
        world.taints["stmgr-1"] = "frame 7 of stmgr-2 is missing"
    elif found == "stmgr":
        world.restart_stmgr("stmgr-1")
    elif found == "task":
        world.restart(1)
    elif found == "detached":
        status = world.tasks.pop(1)
    if found == "rollback":
        world.feed(RollbackRequested(3, 1, "process() raised", world.now_s))
    elif found == "plan":
        world.feed(TasksChanged({1: "stmgr-1", 3: "stmgr-2"}, world.now_s))
    else:
        world.report("stmgr-1")
    if found == "detached":
        world.tasks[1] = status
        world.restart(1)
        world.all_report()
    assert world.coordinator.counts.failed == {Failure.LOSS: 1}
    assert world.epoch == 2
    restored = world.take(RestoreTasks)
    assert {(e.epoch, e.checkpoint) for e in restored} == {(2, 1)}
    assert world.coordinator.phase is Phase.RUNNING
    world.snapshot(3, 2)
    assert world.durable.newest == 1, "the last snapshot of the tainted epoch came too late"


def test_a_second_failure_during_a_restore_begins_a_newer_epoch(world: World) -> None:
    world.commit(1)
    world.obeys = False
    world.restart(1)
    world.report("stmgr-1")
    assert [e.above for e in world.take(RaiseRestoreEpoch)] == [1]
    world.epoch = 2
    world.feed(FenceChanged(world.fence, 2, world.now_s))
    status = world.tasks[1] = TaskStatus(world.tasks[1].incarnation, 2, TaskPhase.RESTORED)
    world.stmgr_epochs["stmgr-1"] = 2
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.RESTORING
    world.tasks[1] = TaskStatus(status.incarnation + 1, 2, TaskPhase.RESTORED)
    world.report("stmgr-1")
    assert [e.above for e in world.take(RaiseRestoreEpoch)] == [2]


def test_nothing_is_begun_while_somebody_is_out_of_reach(world: World) -> None:
    world.feed(StmgrDisconnected("stmgr-2", world.now_s))
    world.pass_time()
    assert world.take(BeginCheckpoint) == []
    assert world.epoch == 1, "a session that has ended is no loss"
    world.report("stmgr-2")
    world.pass_time(1.0)
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {1}


def test_so_many_checkpoints_are_kept_as_are_to_be_retained() -> None:
    world = World(retained=2)
    world.all_report()
    for checkpoint in (1, 2, 3):
        world.commit(checkpoint)
    assert world.durable.committed == (2, 3)
    assert world.take(DiscardCheckpoints)[-1] == DiscardCheckpoints((2, 3), before=3)


def test_what_was_aborted_is_discarded_when_the_next_one_has_begun(world: World) -> None:
    world.commit(1)
    world.take(DiscardCheckpoints)
    world.pass_time()
    world.feed(TaskSnapshotFailed(3, 2, 1, "the disk is full", world.now_s))
    assert world.take(DiscardCheckpoints) == [], "the record does not say yet that it is aborted"
    world.pass_time()
    assert world.take(DiscardCheckpoints) == [DiscardCheckpoints((1,), before=3)]


def test_what_always_fails_and_is_no_tuple_is_rolled_back_more_and_more_rarely(world: World) -> None:
    rolled_back_s = []
    while len(rolled_back_s) < 9:
        before = world.epoch
        world.feed(RollbackRequested(3, world.epoch, "post_save() raised", world.now_s))
        world.all_report()
        if world.epoch > before:
            rolled_back_s.append(world.now_s)
        world.now_s += 0.5
    between_s = [later - earlier for earlier, later in itertools.pairwise(rolled_back_s)]
    assert between_s == [0.5, 0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a tuple"))
    world.all_report()
    assert world.epoch == 11, "tuples are set aside in the end"
    world.commit(1)
    for epoch in (12, 13, 14):
        world.feed(RollbackRequested(3, world.epoch, "post_save() raised", world.now_s))
        world.all_report()
        assert world.epoch == epoch, "a commit is progress"


# Tuples that always fail


def fail(world: World, tup: bytes = b"a tuple") -> list[RestoreTasks]:
    """A tuple is failed, which is reported twice."""
    world.take(object)
    world.obeys = False
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, tup))
    world.obeys = True
    world.carry_out(world.take(RaiseRestoreEpoch)[0])
    world.all_report()
    assert world.coordinator.phase is Phase.RUNNING
    return world.take(RestoreTasks)


def test_a_tuple_is_set_aside_after_three_rollbacks_without_a_commit(world: World) -> None:
    for _ in range(2):
        assert {frozenset(e.set_aside) for e in fail(world)} == {frozenset()}
    assert {frozenset(e.set_aside.items()) for e in fail(world)} == {frozenset([(b"a tuple", "ValueError")])}
    assert {frozenset(e.set_aside) for e in fail(world, b"another")} == {frozenset([b"a tuple"])}
    world.commit(1)
    assert {frozenset(e.set_aside) for e in fail(world)} == {frozenset()}, "what is committed is over"


@pytest.mark.parametrize("tup", [b"", b"a tuple"])
def test_a_commit_in_between_and_failures_of_no_tuple_set_nothing_aside(world: World, tup: bytes) -> None:
    for checkpoint in range(1, 5):
        assert {frozenset(e.set_aside) for e in fail(world, tup)} == {frozenset()}
        if tup:
            world.commit(checkpoint)
