"""An instance with checkpoints, step by step: epochs and gaps, snapshots aligned and not, restores in place."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import gateway_messages
import pytest
from gateway_messages import COUNT, again, batch, ended, marker, sent
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.instance.checkpoints import ALIGNMENT_TIMEOUT_S, RESTORED, RUNNING, STARTED
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from tests.unit.checkpointed_kit import INCARNATION, ByHand
from tests.unit.snapshot_kit import Stored, plan_of

count = gateway_messages.count


# Phases


def test_a_new_process_has_restored_nothing_and_runs_nothing() -> None:
    plan = plan_of(spouts=2)
    hand = ByHand(plan, COUNT, Stored(plan))
    hand.gateway.attached()
    hand.settle()
    (status,) = hand.said("status")
    assert (status.task, status.incarnation, status.epoch, status.phase) == (COUNT, INCARNATION, 0, STARTED)
    assert not hand.cores


def test_it_restores_then_waits_then_runs() -> None:
    plan = plan_of(spouts=2)
    hand = ByHand(plan, COUNT, Stored(plan))
    hand.order(restore=checkpoint_pb2.RestoreTasks(epoch=4, tasks=[COUNT]))
    hand.received([batch([1])], epoch=4, number=1)
    hand.settle()
    assert [(s.phase, s.epoch) for s in hand.said("status")] == [(RESTORED, 4)]
    assert hand.cores
    assert not hand.user.counts, "nothing is executed before all are restored"
    hand.order(resume=checkpoint_pb2.ResumeTasks(epoch=4, incarnations={COUNT: INCARNATION}))
    hand.settle()
    assert [(s.phase, s.epoch) for s in hand.said("status")] == [(RUNNING, 4)]
    assert dict(hand.user.counts) == {1: 1}


def test_it_does_not_resume_for_another_incarnation_or_epoch() -> None:
    plan = plan_of(spouts=2)
    hand = ByHand(plan, COUNT, Stored(plan))
    hand.order(restore=checkpoint_pb2.RestoreTasks(epoch=4, tasks=[COUNT]))
    hand.settle()
    hand.order(resume=checkpoint_pb2.ResumeTasks(epoch=4, incarnations={COUNT: INCARNATION + 1}))
    hand.order(resume=checkpoint_pb2.ResumeTasks(epoch=3, incarnations={COUNT: INCARNATION}))
    assert hand.gateway.phase == RESTORED


def test_an_order_that_concerns_others_is_answered_by_its_status(count: ByHand) -> None:
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=9, tasks=[1, 2]))
    assert [(s.phase, s.epoch) for s in count.said("status")] == [(RUNNING, 1)]


def test_a_repeated_order_restores_once(count: ByHand) -> None:
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=1, tasks=[COUNT]))
    count.settle()
    assert len(count.cores) == 1
    count.loads_by_itself = False
    for _ in range(3):
        count.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT]))
    assert count.to_load == [(2, 0)]


def test_what_could_not_be_loaded_is_loaded_with_the_next_order(count: ByHand) -> None:
    count.loads_by_itself = False
    order = checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT])
    count.order(restore=order)
    count.gateway.not_loaded(2, 0, "")
    count.order(restore=order)
    assert len(count.to_load) == 2
    count.load()
    count.settle()
    assert count.gateway.phase == RESTORED


# Epochs and gaps


def test_older_batches_are_dropped_and_newer_ones_kept(count: ByHand) -> None:
    count.received([batch([5])], epoch=3, number=1)
    count.received([batch([4])], epoch=0, number=1)
    count.received([batch([1])], epoch=1, number=1)
    count.settle()
    assert dict(count.user.counts) == {1: 1}
    count.start(epoch=3)
    count.settle()
    assert dict(count.user.counts) == {5: 1}
    assert not count.said("missing")


def test_a_plan_of_a_newer_epoch_begins_none(count: ByHand) -> None:
    count.gateway.planned(plan_of(spouts=2, epoch=5))
    count.received([batch([1])], epoch=1, number=1)
    count.settle()
    assert dict(count.user.counts) == {1: 1}


def test_what_waits_at_a_restore_is_not_executed_after_it(count: ByHand) -> None:
    count.received([batch([1]), batch([2])], number=1)
    count.start(epoch=2)
    count.received([batch([3])], epoch=2, number=1)
    count.settle()
    assert dict(count.user.counts) == {3: 1}


def test_a_task_at_work_stops_between_two_tuples(count: ByHand) -> None:
    process, done = count.user.process, []

    def ending(tup: Any) -> None:
        process(tup)
        done.append(tup["number"])
        count.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT]))

    count.user.process = ending
    count.received([batch([1, 2, 3])], number=1)
    count.settle()
    assert done == [1]
    assert count.gateway.phase == RESTORED


def test_a_missing_frame_is_reported_until_the_next_restore_and_no_snapshot_is(count: ByHand) -> None:
    count.received([batch([1])], number=1)
    assert not count.said("missing")
    count.received([batch([1])], number=3)
    assert [(m.epoch, m.reason) for m in count.said("missing")] == [(1, "frame 2 did not come, but 3")]
    count.received([marker(1, 1), marker(1, 2)], number=4)
    count.settle()
    assert not [report for report in count.reports if report.HasField("stored")]
    assert "did not come" in count.said("failed")[0].reason
    count.gateway.tick(1000.0)
    assert count.said("missing")
    count.start(epoch=2)
    count.settle()
    count.reports.clear()
    count.gateway.tick(2000.0)
    assert not count.said("missing")


# Snapshots


def test_what_comes_behind_a_marker_waits_for_the_other_markers(count: ByHand) -> None:
    count.received([batch([1]), marker(1, 1), batch([2]), batch([3], 2)], number=1)
    count.settle()
    assert dict(count.user.counts) == {1: 1, 3: 1}
    count.received([marker(1, 2), batch([4], 2)], number=2)
    count.settle()
    (stored,) = count.said("stored")
    assert (stored.task, stored.incarnation, stored.checkpoint, stored.epoch) == (COUNT, INCARNATION, 1, 1)
    assert not stored.unaligned
    assert sent(count, 4) == [1, 3, ("marker", 1), 2, 4]
    count.stored.commit(1)
    assert dict(again(count, 1).user.counts) == {1: 1, 3: 1}


def test_the_end_of_a_source_is_waited_for_no_longer(count: ByHand) -> None:
    count.received([batch([1]), ended(1), marker(1, 2)], number=1)
    count.settle()
    assert [stored.checkpoint for stored in count.said("stored")] == [1]


def test_after_a_while_a_snapshot_is_taken_between_two_tuples(count: ByHand) -> None:
    count.received([batch([1, 2, 3]), batch([4], 2), marker(1, 1), batch([5])], number=1)
    process = count.user.process

    def slow(tup: Any) -> None:
        process(tup)
        if tup["number"] == 2:
            count.gateway.tick(ALIGNMENT_TIMEOUT_S + 1)

    count.user.process = slow
    count.settle()
    count.received([batch([6], 2), marker(1, 2), batch([7], 2)], number=2)
    count.settle()
    (stored,) = count.said("stored")
    assert stored.unaligned
    count.stored.commit(1)
    restored = again(count, 1)
    assert dict(restored.user.counts) == {1: 1, 2: 1, 3: 1, 4: 1, 6: 1}
    assert sent(restored, 4, epoch=2) == [3, 4, 6]


@pytest.mark.parametrize(
    "decision",
    [
        {"abort": checkpoint_pb2.AbortCheckpoint(checkpoint=1, epoch=1)},
        {"commit": checkpoint_pb2.CommitCheckpoint(checkpoint=1)},
    ],
    ids=["abort", "commit"],
)
def test_what_became_of_a_snapshot_is_repeated_until_its_checkpoint_is_decided(
    count: ByHand, decision: dict[str, Any]
) -> None:
    def said_later(kind: str) -> list[Any]:
        count.reports.clear()
        count.now_s += 1.5
        count.gateway.tick(count.now_s)
        return count.said(kind)

    count.received([marker(1, 1), marker(1, 2)], number=1)
    count.settle()
    (stored,) = count.said("stored")
    assert [said_later("stored"), said_later("stored")] == [[stored], [stored]], "a report may be lost"
    count.order(**decision)
    count.settle()
    assert said_later("stored") == []


def test_a_snapshot_before_a_loss_is_not_reported_after_it(count: ByHand) -> None:
    count.received([marker(1, 1), marker(1, 2)], number=1)
    count.settle()
    assert count.said("stored")
    count.received([batch([1])], number=7)
    count.now_s += 1.5
    count.gateway.tick(count.now_s)
    assert not count.said("stored")


def test_an_aborted_snapshot_is_not_stored(count: ByHand) -> None:
    count.received([marker(1, 1)], number=1)
    count.order(abort=checkpoint_pb2.AbortCheckpoint(checkpoint=1, epoch=1))
    count.received([marker(1, 2), marker(2, 1), marker(2, 2)], number=2)
    count.settle()
    assert [stored.checkpoint for stored in count.said("stored")] == [2]


def test_a_spout_follows_orders_also_when_it_is_held() -> None:
    plan = plan_of(spouts=2)
    spout = ByHand(plan, 1, Stored(plan))
    spout.start()
    spout.settle()
    spout.user.limit = 2
    spout.received(hold=True)
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
    spout.settle()
    assert [stored.checkpoint for stored in spout.said("stored")] == [1]
    assert sent(spout, COUNT) == [("marker", 1)]
    spout.received(hold=False)
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=2, epoch=1))
    spout.settle()
    assert sent(spout, COUNT) == [("marker", 1), 0, 1, ("marker", 2)]
    spout.order(commit=checkpoint_pb2.CommitCheckpoint(checkpoint=2))
    spout.settle()
    assert [status.committed for status in spout.said("status")][-1] == 2
    assert ("ack", 1) in spout.user.calls


def test_a_spout_is_not_held_by_a_stream_manager_that_is_gone() -> None:
    plan = plan_of(spouts=2)
    spout = ByHand(plan, 1, Stored(plan))
    spout.start()
    spout.received(hold=True)
    spout.gateway.detached()
    spout.settle()
    spout.user.limit = 1
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
    spout.settle()
    assert sent(spout, COUNT) == [0, ("marker", 1)]


def test_a_commit_is_told_once_and_reported_whenever_it_is_announced(count: ByHand) -> None:
    count.received([marker(1, 1), marker(1, 2)], number=1)
    count.settle()
    for _ in range(3):
        count.order(commit=checkpoint_pb2.CommitCheckpoint(checkpoint=1))
    count.settle()
    assert [status.committed for status in count.said("status")] == [1]
    count.order(commit=checkpoint_pb2.CommitCheckpoint(checkpoint=1))
    assert [status.committed for status in count.said("status")] == [1]


# Everything at once


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_state_and_log_are_what_came_before_the_markers(data: st.DataObject) -> None:
    """Two sources, any order of steps, any number of restores: what is stored is exactly the cut of the markers."""
    plan = plan_of(spouts=2)
    stored = Stored(plan)
    hand = ByHand(plan, COUNT, stored)
    hand.start()
    batches = st.lists(st.integers(0, 3), min_size=1, max_size=4)
    streams = {source: data.draw(st.lists(st.one_of(batches, st.just("marker")), max_size=8)) for source in (1, 2)}
    markers = min(stream.count("marker") for stream in streams.values())
    last = 0
    for round in range(markers):
        checkpoint = round + 1
        todo: dict[int, list[stmgr_pb2.Batch]] = {}
        covered: Counter[int] = Counter()
        for source, stream in streams.items():
            cut = stream.index("marker")
            before, streams[source] = stream[:cut], stream[cut + 1 :]
            ahead = next((i for i, each in enumerate(streams[source]) if each == "marker"), len(streams[source]))
            todo[source] = [*(batch(each, source) for each in before), marker(checkpoint, source)]
            todo[source] += [batch(each, source) for each in streams[source][: data.draw(st.integers(0, ahead))]]
            covered.update(value for each in before for value in each)
        expected = Counter(dict(hand.user.counts)) if last else Counter()
        expected += covered
        # Drawn at once: how many steps a snapshot is written in depends on the clock.
        steps = data.draw(st.lists(st.sampled_from([1, 2, "task", "loop", "time"]), max_size=60))
        rest = itertools.cycle([1, 2, "task", "loop"])
        number = 0
        while steps or any(todo.values()) or hand.queues.waiting or hand.later:
            step = steps.pop(0) if steps else next(rest)
            if step == "task":
                hand.task()
            elif step == "loop":
                hand.loop()
            elif step == "time":
                hand.now_s += 0.7
                hand.gateway.tick(hand.now_s)
                hand.signal.due = True
            elif todo[step] and not hand.gateway.full:
                number += 1
                hand.received([todo[step].pop(0)], epoch=hand.gateway.epoch, number=number)
        hand.settle()
        assert {found.checkpoint for found in hand.said("stored")} == {checkpoint}
        stored.commit(checkpoint)
        last = checkpoint
        # The markers divide what was sent by it as well: before them, the effects of what its state covers.
        hand = again_in(hand, checkpoint, epoch=checkpoint + 1)
        assert Counter(dict(hand.user.counts)) == expected


def again_in(hand: ByHand, checkpoint: int, epoch: int) -> ByHand:
    """The same process or another one, restored."""
    if checkpoint % 2:
        hand.start(checkpoint, epoch)
        hand.settle()
        hand.reports.clear()
        return hand
    other = ByHand(hand.plan, hand.task_id, hand.stored)
    other.logs = hand.logs
    other.start(checkpoint, epoch)
    other.settle()
    other.reports.clear()
    return other
