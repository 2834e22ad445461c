"""A snapshot that is written keeps no batch waiting for long."""

from __future__ import annotations

from collections import deque

import pytest

from heronpy.instance.checkpoints import BETWEEN_SLICES_S, Snapshots, make_checkpoint_runner
from heronpy.instance.task import Command
from heronpy.proto import stmgr_pb2
from tests.unit.snapshot_kit import Hand, Stored, numbers, plan_of

KEYS = 200_000
"""Many slices."""
SLICE_S = 0.004
BATCH_S = 0.0001


class Counting:
    """A counting bolt that has to write a large state, its queue, and a clock that goes on with what it does."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slices = 0
        self.waits_s: list[float] = []
        self.waiting: deque[stmgr_pb2.Batch | Command] = deque()
        self.out_full = self.stale = False
        hand = Hand(Stored(plan_of()), 2)
        hand.user.counts.update(dict.fromkeys(range(KEYS), 1))
        snapshots = Snapshots(hand.task, hand.signal, hand.reports, 1, clock=lambda: self.now_s)
        written = hand.reports.written

        def slice_written(*args: object) -> None:
            self.slices += 1
            self.now_s += SLICE_S
            written(*args)  # type: ignore[arg-type]  # as they came

        hand.reports.written = slice_written  # type: ignore[method-assign]
        self.runner = make_checkpoint_runner(hand.task, self, hand.signal)
        self.runner.snapshots = snapshots
        snapshots.take(1)

    def take(self, timeout_s: float) -> stmgr_pb2.Batch | Command | None:
        if self.waiting:
            return self.waiting.popleft()
        if timeout_s > 0:
            self.waits_s.append(timeout_s)
        return None

    def done(self, batch: stmgr_pb2.Batch) -> None:
        self.now_s += BATCH_S

    def wait_out_room(self, timeout_s: float) -> None:
        raise AssertionError("there is always room")


@pytest.fixture
def counting() -> Counting:
    return Counting()


def test_batches_do_not_wait_for_a_slice_each(counting: Counting) -> None:
    counting.waiting.extend(numbers([1]) for _ in range(30))
    while counting.waiting:
        counting.runner.step()
    assert counting.slices == 1


def test_a_task_that_always_has_work_writes_for_half_of_its_time(counting: Counting) -> None:
    for _ in range(210):
        counting.waiting.append(numbers([1]))
        counting.runner.step()
    assert counting.slices in (5, 6)


def test_a_task_without_work_waits_for_some_between_two_slices(counting: Counting) -> None:
    for _ in range(10):
        counting.runner.step()
    assert counting.slices >= 9
    assert len(counting.waits_s) == 10
    assert max(counting.waits_s) <= BETWEEN_SLICES_S
