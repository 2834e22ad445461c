"""When a task takes its snapshot, and what of its inputs belongs into it."""

from __future__ import annotations

from heronpy.instance.checkpoints import (
    Alignment,
    CompleteSnapshot,
    Deliver,
    Effect,
    FailSnapshot,
    InputBatch,
    Snapshot,
    SnapshotNow,
)

A, B, BACK = 1, 2, 3


def batch(source: int, data: bytes = b"x") -> InputBatch:
    return InputBatch(source, data)


class Task:
    """Alignment with two inputs, or others, and what it has asked for since the last look."""

    def __init__(self, *inputs: int, back: tuple[int, ...] = (), log_bytes_max: int = 100) -> None:
        self.alignment = Alignment(
            inputs or (A, B), back, set_aside_bytes_max=10, log_bytes_max=log_bytes_max, timeout_s=2.0
        )

    def after(self, *steps: list[Effect]) -> list[Effect]:
        self.alignment.check_invariants()
        return [effect for effects in steps for effect in effects]

    def gets(self, source: int, data: bytes = b"x") -> list[Effect]:
        return self.after(self.alignment.received(batch(source, data)))

    def marked(self, source: int, checkpoint: int = 1, now_s: float = 0.0) -> list[Effect]:
        return self.after(self.alignment.marked(source, checkpoint, now_s))

    def goes_unaligned(self, *unexecuted: InputBatch) -> list[Effect]:
        assert self.after(self.alignment.time_passed(2.0)) == [SnapshotNow(1)]
        return self.after(self.alignment.snapshot_taken(1, unexecuted))


def complete(checkpoint: int, *log: InputBatch) -> CompleteSnapshot:
    return CompleteSnapshot(checkpoint, log)


def test_without_a_checkpoint_everything_is_delivered() -> None:
    assert Task().gets(A) == [Deliver(batch(A))]


def test_batches_behind_a_marker_are_set_aside_until_the_others_have_come() -> None:
    task = Task()
    assert task.marked(A) == []
    assert task.gets(A, b"late") == []
    assert task.gets(B) == [Deliver(batch(B))]
    assert task.alignment.set_aside_bytes == 4
    assert task.marked(B) == [Snapshot(1), Deliver(batch(A, b"late")), complete(1)]
    assert task.gets(A) == [Deliver(batch(A))]


def test_a_task_without_inputs_takes_its_snapshot_when_the_checkpoint_begins() -> None:
    task = Task()
    assert task.after(task.alignment.begun(1, 0.0)) == [], "one with inputs waits for its markers"
    alone = Alignment(())
    assert alone.begun(1, 0.0) == [Snapshot(1), complete(1)]
    assert alone.begun(1, 0.0) == []


def test_a_marker_that_comes_twice_or_of_an_older_or_aborted_checkpoint_changes_nothing() -> None:
    task = Task()
    task.marked(A, 3)
    assert task.marked(A, 3) == []
    assert task.marked(B, 2) == []
    assert task.marked(B, 3) == [Snapshot(3), complete(3)]
    assert task.marked(B, 3) == []
    task.after(task.alignment.aborted(4))
    assert task.marked(A, 4) == []
    assert task.gets(A) == [Deliver(batch(A))]


def test_a_marker_of_a_task_that_is_no_input_changes_nothing() -> None:
    task = Task()
    assert task.marked(9) == []
    assert task.alignment.in_progress == 0


def test_a_newer_checkpoint_lets_go_of_the_older_one() -> None:
    task = Task()
    task.marked(A, 1)
    task.gets(A, b"between")
    assert task.marked(A, 2) == [FailSnapshot(1, "checkpoint 2 has begun"), Deliver(batch(A, b"between"))]
    assert task.gets(A, b"behind") == []
    assert task.marked(B, 2) == [Snapshot(2), Deliver(batch(A, b"behind")), complete(2)]


def test_an_aborted_checkpoint_lets_go_of_what_was_set_aside() -> None:
    task = Task()
    task.marked(A)
    task.gets(A)
    assert task.after(task.alignment.aborted(1)) == [FailSnapshot(1, "it was aborted"), Deliver(batch(A))]
    assert task.marked(B) == []


def test_nobody_waits_for_an_input_that_has_ended() -> None:
    task = Task()
    task.marked(A)
    assert task.after(task.alignment.ended(B, 0.0)) == [Snapshot(1), complete(1)]
    assert task.marked(A, 2) == [Snapshot(2), complete(2)]


def test_a_checkpoint_that_began_before_the_last_input_ended_is_taken() -> None:
    task = Task()
    task.after(task.alignment.begun(1, 0.0), task.alignment.ended(A, 0.0))
    assert task.after(task.alignment.ended(B, 0.0)) == [Snapshot(1), complete(1)]


class TestUnaligned:
    def test_after_a_timeout_the_rest_is_logged_and_nothing_waits(self) -> None:
        task = Task()
        task.gets(B, b"queued")
        task.marked(A)
        task.gets(A, b"behind")
        assert task.after(task.alignment.time_passed(1.9)) == []
        rest = InputBatch(B, b"queued", skip=3)
        assert task.goes_unaligned(rest) == [Deliver(batch(A, b"behind"))]
        assert task.gets(B, b"before") == [Deliver(batch(B, b"before"))]
        assert task.gets(A) == [Deliver(batch(A))]
        assert task.marked(B) == [complete(1, rest, batch(B, b"before"))]

    def test_a_snapshot_that_missed_nothing_is_complete_by_itself_though_the_task_did_not_wait(self) -> None:
        task = Task()
        task.marked(A)
        task.gets(A, b"behind")
        assert task.goes_unaligned() == [Deliver(batch(A, b"behind"))]
        (effect,) = task.marked(B)
        assert effect == complete(1)
        assert isinstance(effect, CompleteSnapshot)
        assert not effect.unaligned, "another number of tasks can restore it"

    def test_more_than_the_bound_set_aside_ends_the_waiting(self) -> None:
        task = Task()
        task.marked(A)
        assert task.gets(A, b"0123456789") == []
        assert task.gets(A) == [SnapshotNow(1)]

    def test_what_comes_before_the_snapshot_is_taken_is_sorted_by_its_markers(self) -> None:
        task = Task()
        task.marked(A)
        task.alignment.time_passed(2.0)
        assert task.gets(B, b"before") == []
        assert task.marked(B) == []
        assert task.gets(B, b"behind") == []
        assert task.after(task.alignment.snapshot_taken(1, ())) == [
            Deliver(batch(B, b"before")),
            Deliver(batch(B, b"behind")),
            complete(1, batch(B, b"before")),
        ]

    def test_the_inputs_are_held_when_the_task_does_not_answer(self) -> None:
        task = Task()
        task.marked(A)
        task.gets(A, b"01234567890")
        assert task.alignment.full
        task.after(task.alignment.snapshot_taken(1, ()))
        assert not task.alignment.full

    def test_a_snapshot_that_was_taken_too_late_does_not_count(self) -> None:
        task = Task()
        task.marked(A)
        task.alignment.time_passed(2.0)
        task.gets(B)
        assert task.after(task.alignment.aborted(1)) == [FailSnapshot(1, "it was aborted"), Deliver(batch(B))]
        assert task.after(task.alignment.snapshot_taken(1, ())) == []

    def test_a_log_that_is_too_large_fails_the_checkpoint_and_loses_nothing(self) -> None:
        task = Task(log_bytes_max=3)
        task.marked(A)
        task.goes_unaligned()
        assert task.gets(B, b"four") == [
            Deliver(batch(B, b"four")),
            FailSnapshot(1, "more than 3 bytes came before the markers of 2"),
        ]


class TestCycles:
    def test_the_head_of_a_cycle_logs_the_back_edge_until_its_marker_has_come_round(self) -> None:
        task = Task(A, BACK, back=(BACK,))
        assert task.gets(BACK, b"early") == [Deliver(batch(BACK, b"early"))]
        assert task.marked(A) == [Snapshot(1)]
        assert task.gets(BACK, b"round") == [Deliver(batch(BACK, b"round"))]
        assert task.gets(A) == [Deliver(batch(A))]
        assert task.marked(BACK) == [complete(1, batch(BACK, b"round"))]

    def test_a_back_edge_whose_marker_comes_first_is_set_aside(self) -> None:
        task = Task(A, BACK, back=(BACK,))
        task.marked(BACK)
        assert task.gets(BACK, b"behind") == []
        assert task.marked(A) == [Snapshot(1), Deliver(batch(BACK, b"behind")), complete(1)]

    def test_a_cycle_that_nobody_feeds_begins_by_itself(self) -> None:
        task = Task(BACK, back=(BACK,))
        assert task.after(task.alignment.begun(1, 0.0)) == [Snapshot(1)]
        assert task.marked(BACK) == [complete(1)]

    def test_a_back_edge_does_not_time_out(self) -> None:
        task = Task(A, BACK, back=(BACK,))
        task.marked(A)
        assert task.alignment.due_s is None

    def test_a_restore_delivers_the_log_first(self) -> None:
        task = Task(A, BACK, back=(BACK,))
        assert task.after(task.alignment.restored([batch(BACK, b"round")])) == [Deliver(batch(BACK, b"round"))]
