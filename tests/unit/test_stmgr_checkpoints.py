"""The Stream Manager's core with checkpoints: losses taint the epoch, orders and reports get through."""

from __future__ import annotations

import pytest
from stmgr_kit import INCARNATION, PEER, SINK, SOURCE, Shell, data, plan, tracked, without

from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.stmgr.events import OrdersReceived

TaskStatus = checkpoint_pb2.TaskStatus
EPOCH = 3
SINK_TASK, FAR_TASK = 3, 4


def restore(epoch: int) -> checkpoint_pb2.CheckpointOrder:
    return checkpoint_pb2.CheckpointOrder(restore=checkpoint_pb2.RestoreTasks(epoch=epoch, checkpoint=9, tasks=[1, 3]))


def begin(checkpoint: int, epoch: int = EPOCH) -> checkpoint_pb2.CheckpointOrder:
    return checkpoint_pb2.CheckpointOrder(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=checkpoint, epoch=epoch))


def order(shell: Shell, *orders: checkpoint_pb2.CheckpointOrder) -> None:
    shell.step(OrdersReceived(orders, shell.now_ns))
    shell.core.check_invariants(shell.now_ns)


def report(shell: Shell, name: str, **report: object) -> None:
    made = checkpoint_pb2.InstanceReport(**report)  # type: ignore[arg-type]  # one of its fields
    shell.receive(name, stmgr_pb2.Frame(reports=[made]))


def status(shell: Shell, name: str, epoch: int, phase: TaskStatus.Phase, incarnation: int = 1) -> None:
    task = shell.core.routes.tasks[name] if shell.core.routes is not None else 0
    made = TaskStatus(task=task, incarnation=incarnation, epoch=epoch, phase=phase)
    report(shell, name, status=made)


def latest(shell: Shell) -> checkpoint_pb2.StmgrReport:
    """The last report of the Stream Manager itself."""
    found: checkpoint_pb2.StmgrReport = [m.report for m in shell.reported if m.HasField("report")][-1]
    return found


def running(*, epoch: int = EPOCH, tracked: bool = False) -> Shell:
    """Everybody is attached, and runs in the epoch."""
    shell = Shell(plan(epoch=epoch, tracked=tracked, checkpoints=True))
    shell.open(SOURCE, SINK, PEER)
    order(shell, restore(epoch))
    for name in (SOURCE, SINK):
        status(shell, name, epoch, TaskStatus.RUNNING)
    assert latest(shell).taint == ""
    return shell


def numbers(shell: Shell, name: str) -> list[int]:
    return [frame.number for frame in shell.written[name] if frame.batches]


# numbers


def test_frames_are_numbered_by_link_and_from_one_in_every_epoch() -> None:
    shell = running()
    for number in (1, 2):
        shell.send(SOURCE, data(SINK_TASK), data(FAR_TASK), epoch=EPOCH, number=number)
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=1)
    assert numbers(shell, SINK) == [1, 2, 3]
    assert numbers(shell, PEER) == [1, 2]
    order(shell, restore(EPOCH + 1))
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH + 1, number=1)
    assert numbers(shell, PEER) == [1, 2, 1]
    assert latest(shell).taint == ""


def test_without_checkpoints_frames_have_no_numbers_and_nothing_is_reported() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, SINK, PEER)
    shell.send(SOURCE, data(SINK_TASK), data(FAR_TASK), data(77))
    report(shell, SOURCE, status=TaskStatus(task=1))
    order(shell, restore(EPOCH))
    shell.lose(SINK)
    assert numbers(shell, PEER) == [0]
    assert (shell.core.epoch, shell.core.report, shell.reported) == (0, None, [])


@pytest.mark.parametrize("name", [SOURCE, PEER])
def test_a_gap_taints_the_epoch_once_and_what_comes_behind_it_still_moves(name: str) -> None:
    shell = running()
    before = len(shell.reported)
    for number in (1, 3, 7):
        shell.send(name, data(SINK_TASK), epoch=EPOCH, number=number)
    assert latest(shell).taint == f"{name} has sent frame 3, and 2 was expected"
    assert len(shell.reported) == before + 1
    assert len(shell.batches(SINK)) == 3


def test_a_link_that_is_made_again_goes_on_with_the_number_of_its_sender() -> None:
    shell = running()
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=1)
    shell.lose(PEER)
    shell.open(PEER)
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=2)
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=1)
    assert latest(shell).taint == ""
    shell.lose(PEER)
    shell.open(PEER)
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=2)
    assert numbers(shell, PEER) == [2], "its receiver finds out whether the first was lost"
    assert latest(shell).taint == ""
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=4)
    assert latest(shell).taint == f"{PEER} has sent frame 4, and 3 was expected"


def test_a_loss_shows_when_its_link_is_made_again_and_not_only_with_the_next_frame() -> None:
    """There may be none: what was lost may be the marker that all wait for, and nothing else to send."""
    shell = running()
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=1)
    shell.lose(PEER)
    shell.open(PEER)
    announced = shell.written[PEER][-1]
    assert (list(announced.batches), announced.epoch, announced.number) == ([], EPOCH, 1)
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=1)
    shell.send(PEER, epoch=EPOCH, number=1)
    shell.send(PEER, epoch=EPOCH - 1, number=7)
    assert latest(shell).taint == ""
    shell.send(PEER, epoch=EPOCH, number=2)
    assert latest(shell).taint == f"{PEER} has sent frame 2, and 1 was expected"


def test_what_is_announced_before_its_epoch_is_compared_in_it() -> None:
    shell = running()
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH + 1, number=1)
    shell.send(PEER, epoch=EPOCH + 1, number=2)
    assert latest(shell).taint == ""
    order(shell, restore(EPOCH + 1))
    assert latest(shell).taint == f"{PEER} has sent frame 2, and 1 was expected"


def test_of_an_epoch_in_which_nothing_was_sent_nothing_is_announced() -> None:
    shell = running()
    shell.lose(PEER)
    shell.open(PEER)
    assert [frame for frame in shell.written[PEER] if frame.number] == []


def test_frames_that_come_before_their_epoch_are_numbered_in_it() -> None:
    shell = running()
    shell.send(PEER, data(SINK_TASK, b"a"), epoch=EPOCH + 1, number=1)
    shell.send(PEER, data(SINK_TASK, b"b"), epoch=EPOCH + 1, number=2)
    order(shell, restore(EPOCH + 1))
    assert latest(shell).taint == ""
    status(shell, SINK, EPOCH + 1, TaskStatus.RESTORED)
    assert shell.bodies(SINK) == [b"a", b"b"]


# other losses


def test_a_batch_for_nobody_taints() -> None:
    shell = running()
    shell.send(SOURCE, data(77), epoch=EPOCH, number=1)
    assert latest(shell).taint == "there is no task 77"


def test_an_instance_that_misses_frames_taints_its_epoch_and_no_other() -> None:
    shell = running()
    report(shell, SINK, missing=checkpoint_pb2.FramesMissing(epoch=EPOCH - 1, reason="old"))
    assert latest(shell).taint == ""
    report(shell, SINK, missing=checkpoint_pb2.FramesMissing(epoch=EPOCH, reason="frame 5"))
    assert latest(shell).taint == f"{SINK}: frame 5"


@pytest.mark.parametrize(("name", "task"), [(SINK, SINK_TASK), (PEER, FAR_TASK)])
def test_a_link_that_is_lost_with_a_frame_in_flight_taints(name: str, task: int) -> None:
    shell = running()
    shell.stalled[name] = None
    shell.send(SOURCE, data(task), epoch=EPOCH, number=1)
    shell.lose(name)
    assert latest(shell).taint == f"the connection to {name} was lost while batches were being sent"


def test_what_is_in_flight_from_an_earlier_epoch_may_be_lost() -> None:
    shell = running()
    shell.stalled[PEER] = None
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=1)
    order(shell, restore(EPOCH + 1))
    shell.lose(PEER)
    assert latest(shell).taint == ""


def test_what_waits_for_somebody_who_leaves_the_plan_taints_unless_a_new_epoch_begins() -> None:
    for epoch, taint in ((EPOCH, f"{SINK} is no longer in the plan, and batches waited for it"), (EPOCH + 1, "")):
        shell = running()
        shell.stalled[SINK] = None
        for number in (1, 2):
            shell.send(SOURCE, data(SINK_TASK), epoch=EPOCH, number=number)
        shell.replan(without(plan(7, epoch=epoch, checkpoints=True), SINK_TASK))
        assert latest(shell).taint == taint


def test_a_taint_ends_with_the_restore_of_a_newer_epoch_and_not_with_its_plan() -> None:
    shell = running()
    shell.send(SOURCE, data(77), epoch=EPOCH, number=1)
    shell.replan(plan(2, epoch=EPOCH + 1, checkpoints=True))
    assert shell.core.epoch == EPOCH + 1
    assert shell.core.report is not None
    assert (shell.core.report.epoch, shell.core.report.taint) == (EPOCH, "there is no task 77")
    order(shell, restore(EPOCH + 1))
    assert (latest(shell).epoch, latest(shell).taint) == (EPOCH + 1, "")


def test_a_taint_is_reported_before_the_snapshot_that_was_taken_behind_it() -> None:
    shell = running()
    before = len(shell.reported)
    stored = checkpoint_pb2.SnapshotStored(task=1, checkpoint=4, epoch=EPOCH)
    shell.receive(
        SOURCE,
        stmgr_pb2.Frame(
            batches=[data(SINK_TASK)], epoch=EPOCH, number=2, reports=[checkpoint_pb2.InstanceReport(stored=stored)]
        ),
    )
    taint, relayed = shell.reported[before:]
    assert taint.report.taint == f"{SOURCE} has sent frame 2, and 1 was expected"
    assert relayed.of_instance.stored == stored


def test_who_receives_what_was_sent_behind_a_loss_finds_a_number_missing() -> None:
    """A snapshot behind it, reported through another Stream Manager, could be committed before the taint is known."""
    shell = running()
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=1)
    shell.send(SOURCE, data(FAR_TASK, b"marker"), data(SINK_TASK), epoch=EPOCH, number=3)
    assert (numbers(shell, PEER), numbers(shell, SINK)) == ([1, 3], [2])
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH, number=9)
    assert numbers(shell, PEER) == [1, 3, 4]
    order(shell, restore(EPOCH + 1))
    shell.send(SOURCE, data(FAR_TASK), epoch=EPOCH + 1, number=1)
    assert numbers(shell, PEER)[-1] == 1


@pytest.mark.parametrize(
    ("name", "batch"),
    [(SINK, tracked(SINK_TASK, 1, 2)), (SOURCE, stmgr_pb2.Batch(dest_task=1, kind=stmgr_pb2.Batch.ACK, body=b"ack"))],
)
def test_what_waits_for_an_instance_outlives_its_connection_also_at_least_once(
    name: str, batch: stmgr_pb2.Batch
) -> None:
    """A process that goes on is no loss, so nothing may be dropped: the Topology Master may be away just then."""
    shell = running(tracked=True)
    shell.stalled[name] = None
    order(shell, begin(5))  # is being written
    shell.send(PEER, batch, epoch=EPOCH, number=1)
    shell.lose(name)
    shell.open(name)
    status(shell, name, EPOCH, TaskStatus.RUNNING)
    assert shell.bodies(name) == [batch.body]
    assert latest(shell).taint == ""


def test_no_tuple_is_failed() -> None:
    shell = running(tracked=True)
    shell.stalled[SINK] = None
    shell.send(SOURCE, tracked(SINK_TASK, 1, 2), epoch=EPOCH, number=1)
    shell.lose(SINK)
    assert shell.batches(SOURCE) == []


# reports


def test_every_change_of_a_task_is_reported_and_nothing_else() -> None:
    shell = Shell(plan(epoch=EPOCH, checkpoints=True))
    shell.open(SOURCE, SINK)
    assert shell.core.report == checkpoint_pb2.StmgrReport(incarnation=INCARNATION)
    status(shell, SINK, 0, TaskStatus.STARTED)
    status(shell, SINK, 0, TaskStatus.STARTED)
    assert [message.report.tasks[0].phase for message in shell.reported] == [TaskStatus.STARTED]
    order(shell, restore(EPOCH))
    status(shell, SINK, EPOCH, TaskStatus.RESTORED)
    assert [task.phase for task in latest(shell).tasks] == [TaskStatus.RESTORED]
    assert latest(shell).epoch == EPOCH
    shell.lose(SINK)
    assert list(latest(shell).tasks) == []
    assert shell.core.report == latest(shell)


def test_what_an_instance_reports_of_checkpoints_is_passed_on_once_and_in_order() -> None:
    shell = running()
    del shell.reported[:]
    report(shell, SINK, stored=checkpoint_pb2.SnapshotStored(task=3, checkpoint=5, epoch=EPOCH))
    report(shell, SOURCE, failed=checkpoint_pb2.SnapshotFailed(task=1, checkpoint=5, epoch=EPOCH, reason="full"))
    report(shell, SINK, rollback=checkpoint_pb2.RollbackRequest(task=3, epoch=EPOCH, reason="ValueError"))
    assert [message.of_instance.WhichOneof("report") for message in shell.reported] == ["stored", "failed", "rollback"]


# orders and epochs


def test_orders_overtake_batches_on_their_way_to_instances_and_go_to_no_peer() -> None:
    shell = running()
    shell.stalled[SINK] = None
    for number in (1, 2):
        shell.send(SOURCE, data(SINK_TASK, b"%d" % number), epoch=EPOCH, number=number)
    order(shell, begin(5))
    shell.resume(SINK)
    last = shell.written[SINK][-3:]
    assert [len(frame.orders) for frame in last] == [0, 1, 0]
    assert list(shell.written[SOURCE][-1].orders) == [begin(5)]
    assert not any(frame.orders for frame in shell.written[PEER])


def test_the_order_to_restore_begins_an_epoch_before_its_plan_comes() -> None:
    shell = running()
    shell.stalled[SINK] = None
    shell.send(SOURCE, data(SINK_TASK, b"in flight"), epoch=EPOCH, number=1)
    shell.send(SOURCE, data(SINK_TASK, b"waits"), epoch=EPOCH, number=2)
    order(shell, restore(EPOCH + 1))
    shell.send(SOURCE, data(SINK_TASK, b"late"), epoch=EPOCH, number=3)
    shell.resume(SINK)
    shell.replan(plan(2, epoch=EPOCH + 1, checkpoints=True))
    status(shell, SINK, EPOCH + 1, TaskStatus.RUNNING)
    assert shell.bodies(SINK) == [b"in flight"]
    assert latest(shell).epoch == EPOCH + 1


def test_an_order_to_restore_an_epoch_that_is_over_is_not_passed_on() -> None:
    shell = running()
    written = len(shell.written[SINK])
    order(shell, restore(EPOCH - 1))
    assert (shell.core.epoch, len(shell.written[SINK])) == (EPOCH, written)


def test_a_stmgr_that_was_replaced_is_no_member_of_the_epoch_until_it_is_restored() -> None:
    shell = Shell(plan(epoch=EPOCH, checkpoints=True))
    shell.open(SOURCE, SINK, PEER)
    status(shell, SINK, EPOCH, TaskStatus.RUNNING)
    shell.send(PEER, data(SINK_TASK), epoch=EPOCH, number=1)
    assert len(shell.batches(SINK)) == 1, "data flows meanwhile"
    assert latest(shell).epoch == 0
    order(shell, begin(5))
    assert latest(shell).epoch == 0
    order(shell, restore(EPOCH))
    assert latest(shell).epoch == EPOCH


def test_an_instance_is_given_nothing_but_the_plan_and_orders_until_it_has_restored() -> None:
    shell = running()
    shell.lose(SINK)
    shell.open(SINK)
    shell.send(SOURCE, data(SINK_TASK, b"lost with it"), epoch=EPOCH, number=1)
    status(shell, SINK, 0, TaskStatus.STARTED, incarnation=2)
    order(shell, restore(EPOCH + 1))
    shell.send(SOURCE, data(SINK_TASK, b"first"), epoch=EPOCH + 1, number=1)
    assert [(frame.plan.version, len(frame.orders)) for frame in shell.written[SINK]] == [(1, 0), (0, 1)]
    status(shell, SINK, EPOCH + 1, TaskStatus.RESTORED, incarnation=2)
    assert shell.bodies(SINK) == [b"first"]


# backpressure


def test_spouts_are_held_by_a_message_and_still_read() -> None:
    shell = running()
    shell.stalled[SINK] = None
    shell.send(SOURCE, data(SINK_TASK, b"x" * 1000), epoch=EPOCH, number=1)
    assert shell.held == set()
    assert [frame.hold for frame in shell.written[SOURCE] if frame.HasField("hold")] == [True]
    shell.send(SOURCE, data(FAR_TASK, b"marker"), epoch=EPOCH, number=2)
    assert shell.bodies(PEER) == [b"marker"]
    shell.resume(SINK)
    assert [frame.hold for frame in shell.written[SOURCE] if frame.HasField("hold")] == [True, False]


def test_a_spout_that_attaches_while_there_is_backpressure_is_told_behind_its_plan() -> None:
    shell = running()
    shell.stalled[SINK] = None
    shell.send(PEER, data(SINK_TASK, b"x" * 1000), epoch=EPOCH, number=1)
    shell.lose(SOURCE)
    shell.open(SOURCE)
    assert [(frame.plan.version, frame.hold) for frame in shell.written[SOURCE]] == [(1, False), (0, True)]


def test_a_bolt_that_fills_an_outbox_is_read_again_when_a_restore_empties_it() -> None:
    """So its reports, the only way to the end of the restore, are not stuck behind what is of no use any more."""
    shell = running()
    shell.stalled[PEER] = None
    for number in (1, 2):
        shell.send(SINK, data(FAR_TASK, b"x" * 3000), epoch=EPOCH, number=number)
    assert shell.held == {SINK}
    order(shell, restore(EPOCH + 1))
    assert shell.held == set()
