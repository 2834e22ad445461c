"""A task with checkpoints whose component is replaced, fails, or whose tuples are set aside."""

from __future__ import annotations

import asyncio
import pickle
from threading import Lock
from typing import Any

import cloudpickle
import gateway_messages
import pytest
from gateway_messages import COUNT, SINK, batch, marker, sent
from hostile_objects import ERRORS

from heronpy.api import Tuple
from heronpy.errors import TupleError
from heronpy.instance.checkpoints import RESTORED, RUNNING
from heronpy.proto import checkpoint_pb2
from heronpy.wire import DATA, decode_tuples, tuple_batch
from tests.unit.checkpointed_kit import INCARNATION, ByHand
from tests.unit.snapshot_kit import Stored, plan_of

count = gateway_messages.count


def test_a_component_is_replaced_in_place() -> None:
    plan = plan_of(spouts=2)
    spout = ByHand(plan, 1, Stored(plan))
    spout.start()
    spout.settle()
    spout.user.limit = 3
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
    spout.settle()
    spout.stored.commit(1)
    old = spout.user
    old.limit = 10
    spout.settle()
    spout.start(1, epoch=2)
    spout.settle()
    assert old.calls[-2:] == [("pre_restore", "1"), "close"]
    with pytest.raises(TupleError):
        old.emit([1])
    assert spout.user is not old
    assert [core.context.restore_epoch for core in spout.cores] == [1, 2]
    spout.user.limit = 5
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=2, epoch=2))
    spout.settle()
    assert sent(spout, COUNT, epoch=2) == [3, 4, ("marker", 2)]


def test_a_spout_hears_of_a_commit_that_only_the_restore_tells_of() -> None:
    plan = plan_of(spouts=2)
    spout = ByHand(plan, 1, Stored(plan))
    spout.start()
    spout.settle()
    spout.user.limit = 2
    spout.settle()
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
    spout.settle()
    spout.stored.commit(1)
    old = spout.user
    old.limit = 3
    spout.settle()
    spout.start(1, epoch=2)
    spout.settle()
    assert [call for call in old.calls if call[0] == "ack"] == [("ack", 0), ("ack", 1)]


def test_a_component_that_cannot_be_cleaned_up_is_replaced_nevertheless(count: ByHand) -> None:
    def broken() -> None:
        raise RuntimeError("no cleanup")

    count.user.cleanup = broken
    count.start(epoch=2)
    count.settle()
    assert count.gateway.phase == RUNNING
    assert count.gateway.epoch == 2


@pytest.mark.parametrize("number", ["fail", "raise"])
def test_a_failed_tuple_stops_the_task_until_a_restore(count: ByHand, number: str) -> None:
    count.received([batch([1, number, 2])], number=1)
    count.received([batch([3])], number=2)
    count.settle()
    rollback = count.said("rollback")
    assert {(r.task, r.epoch) for r in rollback} == {(COUNT, 1)}
    assert "numbers:default" in rollback[0].reason if number == "fail" else "ValueError" in rollback[0].reason
    count.received([marker(1, 1), marker(1, 2)], number=3)
    count.settle()
    assert not count.said("stored")
    count.gateway.tick(1000.0)
    assert count.said("rollback"), "it is asked for until it happens"
    count.start(epoch=2)
    count.received([batch([4])], epoch=2, number=1)
    count.settle()
    assert dict(count.user.counts) == {4: 1}
    count.reports.clear()
    count.gateway.tick(2000.0)
    assert not count.said("rollback")


@pytest.mark.parametrize("number", ["fail", "raise"])
def test_a_tuple_that_is_set_aside_is_a_dead_letter_and_leaves_nothing_else(count: ByHand, number: str) -> None:
    count.received([batch([number])], number=1)
    count.settle()
    (failed, *_) = count.said("rollback")
    assert f"component 'count', a tuple of numbers:default with key ('{number}',)" in failed.reason
    set_aside = [checkpoint_pb2.SetAside(tuple=failed.tuple, reason="why")]
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT], set_aside=set_aside))
    count.settle()
    count.order(resume=checkpoint_pb2.ResumeTasks(epoch=2, incarnations={COUNT: INCARNATION}))
    count.received([batch([1, number, 2]), batch([number, 3])], epoch=2, number=1)
    count.settle()
    assert not count.said("rollback")
    assert dict(count.user.counts) == {1: 1, 2: 1, 3: 1}
    letters = [
        values
        for epoch, each in count.queues.sent
        if (epoch, each.dest_task) == (2, SINK) and each.kind == DATA
        for values in pickle.loads(decode_tuples(each.body).values)
        if len(values) == 3
    ]
    where = f"component 'count', a tuple of numbers:default with key ('{number}',)"
    assert letters == [[where, [number], "why"]] * 2
    for checkpoint in (1, 2):
        count.order(commit=checkpoint_pb2.CommitCheckpoint(checkpoint=checkpoint))
    count.settle()
    count.received([batch([number])], epoch=2, number=2)
    count.settle()
    assert count.said("rollback"), "what is behind two commits counts anew"


@pytest.mark.parametrize(("number", "error"), [("exit", SystemExit), ("cancelled", asyncio.CancelledError)])
def test_a_tuple_that_ends_its_process_is_named_so_that_it_can_be_set_aside(
    count: ByHand, number: str, error: type[BaseException]
) -> None:
    count.received([batch([1, number, 2])], number=1)
    with pytest.raises(error):
        count.settle()
    while count.later:
        count.loop()
    (failed, *_) = count.said("rollback")
    assert f"component 'count', a tuple of numbers:default with key ('{number}',)" in failed.reason
    assert error.__name__ in failed.reason
    assert failed.tuple


def test_a_tick_that_ends_the_process_is_no_fault_of_the_tuple_before_it(count: ByHand) -> None:
    def ends(_tup: Tuple) -> None:
        raise SystemExit("in a tick")

    count.user.process_tick = ends
    task = count.thread.runner.task  # type: ignore[union-attr]  # it was restored
    task._tick_ns = 1
    count.signal.due = True
    count.received([batch([1, 2])], number=1)
    with pytest.raises(SystemExit):
        count.settle()
    while count.later:
        count.loop()
    assert not count.said("rollback"), "the death of the process is one"


def test_equal_tuples_have_the_same_name_and_others_another(count: ByHand) -> None:
    names = {}
    for epoch, number in enumerate(["fail", "raise", "fail"], 1):
        count.received([batch([1, number])], epoch=epoch, number=1)
        count.settle()
        (failed, *_) = count.said("rollback")
        assert failed.tuple
        assert names.setdefault(number, failed.tuple) == failed.tuple
        count.start(epoch=epoch + 1)
        count.settle()
        count.reports.clear()
    assert len(set(names.values())) == 2


class Mute:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


def test_a_tuple_that_only_cloudpickle_can_pickle_keeps_its_name(count: ByHand) -> None:
    class Local:
        """Its repr has its address."""

    values = cloudpickle.dumps([[Local()]])
    names = set()
    for epoch in (1, 2, 3):
        kept = [pickle.loads(values) for _ in range(epoch)]  # so that addresses differ
        bad = tuple_batch(src_task=1, dest_task=COUNT, streams=["default"], count=1, values=values)
        count.received([bad], epoch=epoch, number=1)
        count.settle()
        (failed, *_) = count.said("rollback")
        names.add(failed.tuple)
        count.start(epoch=epoch + 1)
        count.settle()
        count.reports.clear()
        del kept
    assert len(names) == 1


def test_a_tuple_whose_key_has_no_repr_is_named_as_well(count: ByHand) -> None:
    count.received([batch([Mute()])], number=1)
    count.settle()
    (failed, *_) = count.said("rollback")
    assert failed.tuple
    assert "with key <tuple, whose repr raises ValueError>" in failed.reason


@pytest.mark.parametrize("error", ERRORS)
def test_an_exception_that_cannot_be_shown_is_a_rollback_that_names_its_tuple_and_its_class(
    count: ByHand, error: type[Exception]
) -> None:
    def process(tup: Any) -> None:
        raise error

    count.user.process = process
    count.received([batch([1])], number=1)
    count.settle()
    (failed, *_) = count.said("rollback")
    assert failed.tuple
    assert "with key (1,)" in failed.reason
    assert error.__name__ in failed.reason
    assert len(failed.reason) < 5000


@pytest.mark.parametrize("error", ERRORS)
def test_an_exception_in_pre_save_that_cannot_be_shown_is_a_rollback(error: type[Exception]) -> None:
    plan = plan_of()
    spout = ByHand(plan, 1, Stored(plan))
    spout.start()
    spout.settle()

    def pre_save(checkpoint_id: str) -> None:
        raise error

    spout.user.pre_save = pre_save
    spout.order(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1, epoch=1))
    spout.settle()
    (failed, *_) = spout.said("rollback")
    assert error.__name__ in failed.reason


def test_a_newer_restore_overtakes_one_that_is_loading(count: ByHand) -> None:
    count.loads_by_itself = False
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT]))
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=3, tasks=[COUNT]))
    count.load()
    count.load()
    count.settle()
    assert (count.gateway.phase, count.gateway.epoch) == (RESTORED, 3)


def test_a_tuple_that_can_never_be_sent_is_named_and_set_aside(count: ByHand) -> None:
    def emitting(hand: ByHand) -> None:
        def process(tup: Tuple) -> None:
            number = tup["number"]
            hand.user.emit([Lock() if number == 2 else number])
            hand.user.ack(tup)

        hand.user.process = process

    emitting(count)
    count.received([batch([1, 2, 3])], number=1)
    count.now_s += 1
    count.settle()
    (failed, *_) = count.said("rollback")
    assert failed.tuple
    assert "component 'count'" in failed.reason
    assert "field 'number' cannot be serialized: lock" in failed.reason
    letters = [checkpoint_pb2.SetAside(tuple=failed.tuple, reason=failed.reason)]
    count.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT], set_aside=letters))
    count.settle()
    count.order(resume=checkpoint_pb2.ResumeTasks(epoch=2, incarnations={COUNT: INCARNATION}))
    emitting(count)
    count.received([batch([1, 2, 3])], epoch=2, number=1)
    for _ in range(3):
        count.now_s += 1
        count.settle()
    assert not count.said("rollback")
    rows = [
        row
        for epoch, each in count.queues.sent
        if epoch == 2 and each.kind == DATA and each.dest_task == SINK
        for row in decode_tuples(each.body).deserialized(pickle.loads)
    ]
    assert [row for row in rows if len(row) == 1] == [[1], [3]]
    letter, _ = [row for row in rows if len(row) == 3]  # for each of the two tasks that it was for
    assert letter[:2] == ["component 'count'", None]


def test_a_tuple_of_a_spout_that_can_never_be_sent_is_set_aside_and_the_others_come() -> None:
    plan = plan_of(spouts=2)
    spout = ByHand(plan, 1, Stored(plan))

    def emit_three() -> None:
        spout.settle()
        user, emit = spout.user, spout.user.emit
        user.limit = 3
        user.emit = lambda values, **how: emit([Lock()] if values == [2] else values, **how)
        for _ in range(3):
            spout.now_s += 1
            spout.settle()

    spout.start()
    emit_three()
    (failed, *_) = spout.said("rollback")
    assert failed.tuple
    assert "component 'numbers'" in failed.reason
    assert "field 'number' cannot be serialized: lock" in failed.reason
    letters = [checkpoint_pb2.SetAside(tuple=failed.tuple, reason=failed.reason)]
    spout.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[1], set_aside=letters))
    spout.settle()
    spout.order(resume=checkpoint_pb2.ResumeTasks(epoch=2, incarnations={1: INCARNATION}))
    emit_three()
    assert not spout.said("rollback")
    assert sent(spout, COUNT, epoch=2) == [0, 1]
