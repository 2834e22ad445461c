"""Snapshots of real tasks: what belongs to them, what is sent in which order, and what a restore makes of them."""

from __future__ import annotations

import contextlib
import gc
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import BasicBolt, Bolt, Spout, TopologyBuilder
from heronpy.checkpoints import NOTHING_SAVED, Block
from heronpy.config import InstanceConfig
from heronpy.errors import ConfigError, TupleError
from heronpy.instance.checkpoints import EpochEnded, RollbackNeeded
from heronpy.instance.task import SpoutTask, TaskCore, TaskFailed, make_task, settles_tuples
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from tests.unit.snapshot_kit import Hand, Stored, numbers, plan_of


@pytest.fixture
def stored() -> Stored:
    return Stored(plan_of())


def blocks() -> list[Block]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Block)]


def test_a_marker_comes_after_all_that_was_emitted_whatever_the_streams(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.emit(5)
    spout.checkpoint(1)
    spout.emit(2)
    spout.task.flush()
    assert spout.contents() == [(2, [0, 1, 2, 3, 4]), (2, "marker", 1), (2, [5, 6])]


def test_markers_go_to_every_reader(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.task.offer(numbers([7]))
    count.checkpoint(1)
    assert count.contents() == [(3, [7]), (4, [7]), (3, "marker", 1), (4, "marker", 1)]


def test_a_snapshot_has_what_was_executed_before_it(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.task.offer(numbers([1, 1, 2]))
    count.snapshots.take(1)
    count.task.offer(numbers([1, 3]))
    while count.snapshots.write():
        pass
    stored.commit(1)
    assert dict(Hand(stored, 2, 1).user.counts) == {1: 2, 2: 1}
    assert dict(count.user.counts) == {1: 3, 2: 1, 3: 1}


def test_only_what_has_changed_is_written_after_a_commit(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.task.offer(numbers(range(1000)))
    count.checkpoint(1)
    stored.commit(1)
    count.snapshots.commit(1)
    count.task.offer(numbers([1]))
    count.checkpoint(2)
    assert stored.refs[0].since == 1
    count.checkpoint(3)
    assert len(stored.refs) == 2, "what may be uncommitted is written again"
    stored.refs = stored.refs[1:]
    stored.commit(3)
    count.snapshots.commit(3)
    count.checkpoint(4)
    assert not stored.refs
    assert Hand(stored, 2, 3).user.counts[1] == 2


def test_a_repeated_marker_is_no_snapshot(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.checkpoint(2)
    count.contents()
    count.checkpoint(2)
    count.checkpoint(1)
    assert count.contents() == []


def test_a_newer_checkpoint_gives_up_one_that_is_not_written(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.task.offer(numbers([1]))
    count.snapshots.take(1)
    count.task.offer(numbers([1]))
    count.checkpoint(2)
    stored.commit(2)
    assert count.reports.said == [("taken", 1, 0), ("taken", 2, 0), ("written", 2)]
    assert dict(Hand(stored, 2, 2).user.counts) == {1: 2}


def test_nothing_is_written_while_the_checkpoint_manager_is_slow(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.snapshots.take(1)
    count.reports.unsaved_bytes = 1 << 30
    assert not count.snapshots.write()
    count.reports.unsaved_bytes = 0
    while count.snapshots.write():
        pass
    assert ("written", 1) in count.reports.said


def test_a_value_that_cannot_be_saved_fails_the_checkpoint_and_not_the_task(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.user.counts[5] = (each for each in ())
    count.checkpoint(1)
    ((_, _, reason),) = (said for said in count.reports.said if said[0] == "failed")
    assert "component 'count', state 'counts': the value of key 5" in reason
    count.user.counts[5] = 1
    count.checkpoint(2)
    stored.commit(2)
    assert dict(Hand(stored, 2, 2).user.counts) == {5: 1}


# A spout


def test_user_code_is_called_before_a_snapshot_and_after_its_commit(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.checkpoint(1)
    spout.snapshots.commit(1)
    assert spout.user.calls == ["init_state", "initialize", ("pre_save", "1"), ("post_save", "1")]
    assert spout.reports.said[-1] == ("committed", 1)


def test_a_tuple_is_acked_when_a_checkpoint_after_it_is_committed(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.emit(2)
    spout.checkpoint(1)
    spout.emit(1)
    acks = [call for call in spout.user.calls if call[0] == "ack"]
    assert acks == []
    spout.snapshots.commit(1)
    assert [call for call in spout.user.calls if call[0] == "ack"] == [("ack", 0), ("ack", 1)]


def test_a_held_or_deactivated_spout_takes_snapshots_and_emits_nothing(stored: Stored) -> None:
    spout = Hand(stored, 1)
    assert isinstance(spout.task, SpoutTask)
    spout.task.hold(True)
    spout.user.limit = 10
    spout.task.poll()
    spout.checkpoint(1)
    assert spout.contents() == [(2, "marker", 1)]
    spout.task.hold(False)
    spout.task.deactivate()
    spout.task.poll()
    spout.checkpoint(2)
    assert spout.contents() == [(2, "marker", 2)]
    spout.task.activate()
    spout.emit(1)
    spout.task.flush()
    assert spout.contents()[0][1][0] == 0


def test_a_spout_goes_on_at_its_position(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.emit(5)
    spout.checkpoint(1)
    stored.commit(1)
    spout.emit(5)
    again = Hand(stored, 1, 1)
    again.emit(1)
    again.task.flush()
    assert again.contents() == [(2, [5])]


def test_a_task_does_not_keep_what_was_read_of_a_checkpoint(stored: Stored) -> None:
    count = Hand(stored, 2)
    count.task.offer(numbers([1, 1, 2]))
    count.checkpoint(1)
    stored.commit(1)
    of_others = blocks()
    again = Hand(stored, 2, 1)
    assert dict(again.user.counts) == {1: 2, 2: 1}
    assert len(blocks()) == len(of_others)


# Failures


@pytest.mark.parametrize(
    ("number", "error", "reason"),
    [
        ("fail", RollbackNeeded, "a tuple of numbers:default with key .*, was failed"),
        ("raise", TaskFailed, "process()"),
    ],
)
def test_a_failed_tuple_is_a_rollback_and_no_snapshot_covers_it(
    stored: Stored, number: str, error: type[BaseException], reason: str
) -> None:
    count = Hand(stored, 2)
    with pytest.raises(error, match=reason.replace("()", "")):
        count.task.offer(numbers([1, number, 2]))
    with pytest.raises(EpochEnded):
        count.snapshots.take(1)
    assert ("taken", 1, 0) not in count.reports.said


def test_a_batch_that_cannot_be_read_is_a_rollback(stored: Stored) -> None:
    count = Hand(stored, 2)
    broken = numbers([1])
    broken.body = b"\xff"
    count.task.offer(broken)
    with pytest.raises(RollbackNeeded, match="a batch cannot be read"):
        count.snapshots.service()


def test_what_cannot_be_sent_is_in_no_snapshot(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.user.emit([lambda: (each for each in ())])
    spout.user.emit([(each for each in ())])
    with pytest.raises(TaskFailed):
        spout.snapshots.take(1)
    assert spout.reports.said == []


@pytest.mark.parametrize("hook", ["pre_save", "post_save"])
def test_an_error_of_a_hook_is_a_rollback(stored: Stored, hook: str) -> None:
    spout = Hand(stored, 1)

    def broken(checkpoint_id: str) -> None:
        raise ValueError(checkpoint_id)

    setattr(spout.user, hook, broken)
    if hook == "post_save":
        spout.checkpoint(1)
    step = spout.snapshots.commit if hook == "post_save" else spout.checkpoint
    with pytest.raises(TaskFailed, match=hook):
        step(1)
    assert ("committed", 1) not in spout.reports.said


def test_a_component_that_was_replaced_emits_no_more(stored: Stored) -> None:
    spout = Hand(stored, 1)
    spout.user.emit([1])
    spout.task.retire()
    assert spout.user.calls[-1] == "close"
    assert spout.contents() == []
    with pytest.raises(TupleError, match="another object has taken its place"):
        spout.user.emit([1])


# Between two tuples


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6),
    at=st.integers(0, 40),
)
def test_a_snapshot_between_two_tuples_and_what_it_does_not_cover_are_everything(
    batches: list[list[int]], at: int
) -> None:
    """Whichever tuple is in hand: the snapshot, and the batches that were not executed, make the same counts."""
    stored = Stored(plan_of())
    count = Hand(stored, 2)
    given = [numbers(batch) for batch in batches]
    executed = 0
    process = count.user.process
    done = 0
    covered: list[tuple[int, int]] = []

    def counted(tup: Any) -> None:
        nonlocal executed
        process(tup)
        executed += 1
        if executed == at:
            count.snapshots.take_now(1)

    count.user.process = counted
    if at == 0:
        count.snapshots.take(1)
        covered.append((0, 0))
    for batch in given:
        before = len(count.reports.said)
        count.task.offer(batch)
        covered += [(done, said[2]) for said in count.reports.said[before:] if said[0] == "taken"]
        done += 1
    if not covered:
        count.snapshots.take(1)
        covered.append((done, 0))
    while count.snapshots.write():
        pass
    stored.commit(1)
    ((first, skip),) = covered
    restored = Hand(stored, 2, 1)
    for batch in given[first:]:
        restored.task.offer(batch, skip)
        skip = 0
    assert dict(restored.user.counts) == dict(count.user.counts)


def test_a_snapshot_is_written_within_a_batch_and_not_only_after_it(stored: Stored) -> None:
    count = Hand(stored, 2)
    process = count.user.process
    said: list[list[str]] = []

    def counted(tup: Any) -> None:
        process(tup)
        said.append([each[0] for each in count.reports.said])
        if len(said) == 1:
            count.snapshots.take_now(1)
        elif "written" not in said[-1]:
            time.sleep(0.001)  # a slice that took long on a busy machine is followed by a pause as long

    count.user.process = counted
    count.task.offer(numbers(list(range(2000))))
    assert said[0] == []
    assert "written" in said[-1]
    assert not count.snapshots.writing


def test_a_batch_of_which_tuples_were_skipped_can_be_interrupted_again(stored: Stored) -> None:
    count = Hand(stored, 2)
    process = count.user.process

    def interrupting(tup: Any) -> None:
        process(tup)
        if tup["number"] == 3:
            count.snapshots.take_now(1)

    count.user.process = interrupting
    count.task.offer(numbers([0, 1, 2, 3, 4]), 2)
    assert ("taken", 1, 4) in count.reports.said
    assert dict(count.user.counts) == {2: 1, 3: 1, 4: 1}


# What a bolt holds


def holding(stored: Stored, values: list[Any]) -> tuple[Hand, list[Any]]:
    """A bolt that has executed some tuples and acked none."""
    count = Hand(stored, 2)
    held: list[Any] = []
    ack, count.user.ack = count.user.ack, held.append
    count.task.offer(numbers(values))
    count.user.ack = ack
    return count, held


def failures(hand: Hand) -> list[Any]:
    return [said for said in hand.reports.said if said[0] == "failed"]


def test_a_snapshot_waits_until_a_bolt_has_settled_what_it_executed(stored: Stored) -> None:
    count, held = holding(stored, [1, 2, 3])

    def another_thread(_seconds: float) -> None:
        assert not stored.refs
        assert ("marker", 1) not in [entry[1:] for entry in count.contents()]
        if held:
            count.user.ack(held.pop())

    count.pause = another_thread
    count.checkpoint(1)
    assert not held
    assert (3, "marker", 1) in count.contents()
    assert not failures(count)


def test_the_snapshot_of_a_bolt_that_goes_on_holding_tuples_fails_and_names_it(stored: Stored) -> None:
    count, held = holding(stored, [1, 2, 3])
    count.user.ack(held.pop())
    count.checkpoint(1)
    ((_, _, reason),) = failures(count)
    assert reason.startswith("component 'count' holds 2 tuples that it has neither acked nor failed")
    assert not any("marker" in entry for entry in count.contents())
    for tup in held:
        count.user.ack(tup)
    count.checkpoint(2)
    assert (3, "marker", 2) in count.contents()


def test_of_the_batch_in_hand_only_what_is_executed_has_to_be_settled(stored: Stored) -> None:
    count = Hand(stored, 2)
    process = count.user.process

    def snapshot_after_the_second(tup: Any) -> None:
        process(tup)
        if tup["number"] == 2:
            count.snapshots.take_now(1)

    count.user.process = snapshot_after_the_second
    count.task.offer(numbers([1, 2, 3, 4]))
    assert not failures(count)
    assert [entry for entry in count.contents() if entry[0] == 3] == [(3, [1, 2]), (3, "marker", 1)]


def test_a_bolt_without_an_ack_in_its_code_is_done_with_a_tuple_when_it_has_executed_it(stored: Stored) -> None:
    class Silent(Bolt):
        def process(self, tup: Any) -> None: ...

    class Acks(Silent):
        def process(self, tup: Any) -> None:
            self.later = lambda: self.ack(tup)

    class Inherits(Acks): ...

    assert [settles_tuples(cls) for cls in (Silent, Acks, Inherits, BasicBolt)] == [False, True, True, True]


# Spouts without a position


class Lossy(Spout):
    outputs = ("number",)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_spout_that_has_declared_no_state_does_not_begin_unless_that_is_allowed(
    allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    builder = TopologyBuilder("lossy")
    builder.add_spout("numbers", Lossy, 1)
    keys = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": allowed}
    builder.set_config(keys)
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    plan = PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())
    core = TaskCore(plan=plan, task_id=1, config=InstanceConfig(), send=lambda _: None, saved=NOTHING_SAVED)
    with contextlib.nullcontext() if allowed else pytest.raises(ConfigError, match="'numbers' keeps no position"):
        make_task(core).open()
    assert ("loses what is in flight" in caplog.text) is allowed
