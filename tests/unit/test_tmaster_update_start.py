"""What an update does before the spouts rest: new containers start, tasks read what is committed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_tmaster_checkpoints import INTERVAL_S
from tmaster_scaled import PACKING, Scaled, running, scaled
from tmaster_world import topology

from heronpy.plan import CodeVersion, TopologyState
from heronpy.proto import checkpoint_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster.checkpoints import DiscardCheckpoints, instance_reported
from heronpy.tmaster.parts import READ_WAIT_S, CheckpointAsked


def test_what_is_new_is_started_while_all_go_on_and_then_the_spouts_rest() -> None:
    world = running()
    wanted = scaled((1, 3), (2,))
    world.update(wanted, start=False)
    world.settled()
    assert (world.prepared, world.packing) == (wanted, PACKING)
    assert world.plan.state is TopologyState.RUNNING
    assert not world.coordinator.in_progress
    world.start(wanted)
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.packing, world.plan.packing) == ([""], wanted, wanted)
    assert world.prepared == wanted, "executors may not have heard of the plan yet"
    world.update(PACKING, base=wanted)
    world.settle(time=False)
    assert world.prepared is None, "what is to end must not be named"


@pytest.mark.parametrize("commits", [True, False])
def test_a_checkpoint_under_way_is_not_waited_for_with_spouts_that_rest(commits: bool) -> None:
    world = running()
    world.feed(CheckpointAsked(8, divisible=False, timeout_s=60.0, now_s=world.now_s))
    world.settle(time=False)
    assert world.coordinator.in_progress == 1
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.plan.state is TopologyState.RUNNING
    if commits:
        world.snapshot(1, 2)
        world.settle(time=False)
        assert world.coordinator.record.newest == 1
    else:
        world.pass_time(15.0)
    assert world.plan.state is TopologyState.PAUSED
    assert world.packing == PACKING, "the new plan begins with a checkpoint that has all"


def test_no_other_checkpoint_begins_while_an_update_waits_for_the_one_under_way() -> None:
    world = running()
    world.feed(CheckpointAsked(8, divisible=False, timeout_s=60.0, now_s=world.now_s))
    world.settle(time=False)
    world.pass_time(INTERVAL_S)
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.coordinator.in_progress == 1
    world.snapshot(1, 2)
    world.settle(time=False)
    assert world.coordinator.record.newest == 1
    assert world.plan.state is TopologyState.RUNNING
    assert world.coordinator.in_progress == 2, "what was read is old: it took longer than the interval"
    world.pass_time(1.0)
    world.snapshot(1, 2)
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED


def committed(world: Scaled) -> None:
    world.pass_time(INTERVAL_S)
    world.snapshot(1, 2)
    world.settled()


def read_orders(world: Scaled) -> list[tuple[str, int, dict[int, tuple[int, int]]]]:
    """What tasks were to read ahead: by whom they are told, of which checkpoint, and their shares."""
    found = []
    for id, order in world.orders:
        if order.HasField("read_ahead"):
            shares = {task: (share.index, share.tasks) for task, share in order.read_ahead.shares.items()}
            found.append((id, order.read_ahead.checkpoint, shares))
    return found


def test_tasks_read_what_is_committed_before_the_spouts_rest() -> None:
    world = running()
    committed(world)
    world.pass_time(INTERVAL_S - 5.0)
    world.reads_ahead = False
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert read_orders(world) == [("stmgr-1", 1, {1: (0, 3), 3: (2, 3)}), ("stmgr-2", 1, {2: (1, 3)})]
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.RUNNING, 0)
    world.reads_ahead = True
    world.report("stmgr-1")
    assert read_orders(world)[-1] == ("stmgr-1", 1, {1: (0, 3), 3: (2, 3)}), "it is repeated"
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.RUNNING, 0)
    world.report("stmgr-2")
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.RUNNING, 2)
    world.pass_time(1.0)
    world.snapshot(1, 2)
    world.settled()
    assert read_orders(world)[-1][1] == 2
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 3)
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.coordinator.restoring) == ([""], 3)


def test_checkpoints_go_on_while_tasks_read_for_long_and_are_read_then() -> None:
    world = running()
    committed(world)
    world.pass_time(INTERVAL_S - 1.0)
    world.reads_ahead = False
    world.update(scaled((1, 3), (2,)), timeout_s=4 * READ_WAIT_S)
    world.settle(time=False)
    world.pass_time(1.0)
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.RUNNING, 2)
    world.pass_time(1.0)
    world.snapshot(1, 2)
    world.settle(time=False)
    assert [checkpoint for _, checkpoint, _ in read_orders(world)[-2:]] == [2, 2]
    assert (world.plan.state, world.coordinator.record.newest) == (TopologyState.RUNNING, 2)
    world.reads_ahead = True
    world.report("stmgr-1")
    world.report("stmgr-2")
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 3)


def discards(world: Scaled) -> list[DiscardCheckpoints]:
    return [effect for effect in world.effects if isinstance(effect, DiscardCheckpoints)]


@pytest.mark.parametrize("done", [True, False])
def test_what_is_being_read_is_not_deleted_before_all_are_restored(done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """New tasks may be reading an older checkpoint while all are told to restore."""
    monkeypatch.setattr(Scaled, "retained", 1)
    world = running()
    committed(world)
    world.pass_time(30.0)
    world.update(scaled((1, 3), (2,)), timeout_s=4 * READ_WAIT_S)
    world.settled()
    world.snapshot(1, 2)
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 3)
    assert discards(world)[-1] == DiscardCheckpoints((1, 2), 2)
    if done:
        world.restores = False
        world.snapshot(1, 2)
        world.settled()
        assert world.coordinator.phase.value == "restoring"
        assert discards(world)[-1] == DiscardCheckpoints((1, 2, 3), 3)
        world.restores = True
    else:
        world.snapshot(1)
        world.snapshot(2, undivided="state 'total', which has no split and merge")
    world.settled()
    assert (world.coordinator.phase.value, world.replies == [""]) == ("running", done)
    before = world.coordinator.record.newest
    world.pass_time(2 * INTERVAL_S)
    world.snapshot(1, 2, *([3] if done else []))
    world.settled()
    newest = world.coordinator.record.newest
    assert newest > before
    assert discards(world)[-1] == DiscardCheckpoints((newest,), newest)


def rounds(world: Scaled, took_s: float) -> int:
    """Take checkpoints until the spouts rest, each within some seconds; how many it were."""
    found = 0
    while world.plan.state is TopologyState.RUNNING:
        assert world.coordinator.in_progress, "it waits for nothing"
        found += 1
        world.pass_time(took_s)
        world.snapshot(1, 2)
        world.settled()
    return found


@pytest.mark.parametrize(("took_s", "expected"), [(1.0, 1), (3.0, 2), (15.0, 2), (30.0, 1)])
def test_what_is_read_ahead_is_new_or_does_not_get_newer(took_s: float, expected: int) -> None:
    """The checkpoint that is there began 30 s ago; when each that follows takes so long, the last is not of use."""
    world = running()
    committed(world)
    world.pass_time(30.0)
    world.update(scaled((1, 3), (2,)), timeout_s=4 * READ_WAIT_S)
    world.settled()
    assert rounds(world, took_s) == expected


def test_a_checkpoint_that_fails_is_not_tried_again_only_to_be_read() -> None:
    world = running()
    committed(world)
    world.pass_time(30.0)
    world.update(scaled((1, 3), (2,)))
    world.settled()
    assert world.coordinator.in_progress == 2
    world.pass_time(1.0)
    failed = checkpoint_pb2.SnapshotFailed(task=1, checkpoint=2, epoch=world.coordinator.epoch, reason="no storage")
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 3)


def test_what_was_read_for_an_update_that_came_to_nothing_is_not_taken_for_what_another_one_needs() -> None:
    world = running()
    committed(world)
    world.update(scaled((1, 3), (2,)), timeout_s=20.0)
    world.settled()
    assert world.plan.state is TopologyState.PAUSED
    world.pass_time(20.0)
    world.settle(time=False)
    assert (world.plan.state, len(world.replies)) == (TopologyState.RUNNING, 1)
    epoch, checkpoint = world.coordinator.epoch, world.coordinator.in_progress
    failed = checkpoint_pb2.SnapshotFailed(task=1, checkpoint=checkpoint, epoch=epoch, reason="no storage")
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    world.settle(time=False)
    assert (world.coordinator.record.newest, world.coordinator.in_progress) == (1, 0)
    world.reads_ahead = False
    world.update(scaled((1, 3, 4), (2,)))
    world.settle(time=False)
    assert read_orders(world)[-1] == ("stmgr-2", 1, {2: (1, 4)})
    assert world.plan.state is TopologyState.RUNNING
    world.reads_ahead = True
    world.report("stmgr-1")
    world.report("stmgr-2")
    world.settled()
    world.snapshot(1, 2)
    world.settled()
    assert (world.plan.state, world.coordinator.record.newest) == (TopologyState.PAUSED, 3)


def test_tasks_that_take_long_to_read_are_not_waited_for() -> None:
    world = running()
    committed(world)
    world.reads_ahead = False
    world.update(scaled((1, 3), (2,)), timeout_s=4 * READ_WAIT_S)
    world.settle(time=False)
    world.pass_time(READ_WAIT_S)
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 2)


def test_a_restore_meanwhile_is_not_waited_for() -> None:
    world = running()
    committed(world)
    world.reads_ahead = world.restores = False
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.restore()
    world.settle(time=False)
    assert world.coordinator.phase.value == "restoring"
    world.restores = True
    world.settled()
    assert (world.replies, world.plan.packing) == ([""], scaled((1, 3), (2,)))


def test_nothing_is_read_ahead_before_all_run_in_the_epoch() -> None:
    """It may begin with an older checkpoint than the newest known one, and what follows that is not what was read."""
    world = running()
    committed(world)
    world.restores = False
    world.restore()
    world.settle(time=False)
    assert world.coordinator.phase.value == "restoring"
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert read_orders(world) == []
    world.restores = True
    world.settled()
    assert (world.replies, world.plan.packing) == ([""], scaled((1, 3), (2,)))


def test_nothing_is_read_ahead_where_all_processes_are_replaced() -> None:
    code = CodeVersion("1" * 12, ("package",), topology())
    world = running()
    committed(world)
    wanted = replace(
        PACKING, containers=tuple(replace(c, code=code.version) for c in PACKING.containers), codes=(code,)
    )
    world.update(wanted)
    world.settle(time=False)
    assert (read_orders(world), world.plan.state) == ([], TopologyState.PAUSED)


def test_what_does_not_start_is_not_waited_for_for_ever() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)), start=False)
    world.pass_time(14.0)
    assert world.plan.state is TopologyState.RUNNING
    world.pass_time(2.0)
    assert world.plan.state is TopologyState.PAUSED


def test_where_nothing_is_new_nothing_is_waited_for() -> None:
    world = running()
    world.update(replace(scaled((1,)), highest_task_id=2), start=False)
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    assert world.prepared is None


def test_what_was_started_for_an_update_that_comes_to_nothing_ends() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.prepared is not None
    world.snapshot(1)
    world.snapshot(2, undivided="state 'total', which has no split and merge")
    world.settled()
    assert world.replies != [""]
    assert (world.prepared, world.packing) == (None, PACKING)


def test_a_new_topology_master_ends_what_was_started_for_the_update_of_one_that_died() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.prepared is not None
    world.store.delete(Kind.TMASTERS)
    successor = Scaled(world.store, location=b"second")
    successor.settle()
    assert (successor.prepared, successor.packing) == (None, PACKING)
