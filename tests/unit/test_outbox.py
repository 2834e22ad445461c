"""The outbox of a link: accounted in bytes, in order, and never behind what goes round a cycle."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heronpy.config import StmgrConfig
from heronpy.proto import stmgr_pb2
from heronpy.stmgr import Outbox
from heronpy.stmgr.events import DeleteSpill, ReadSpill, WriteSpill

HIGH, LOW, FRAME = 10_000, 4_000, 2_000
OVERHEAD = 64
CONFIG = StmgrConfig(outbox_bytes_high=HIGH, outbox_bytes_low=LOW, frame_bytes=FRAME)


def batch(size: int, number: int = 0) -> stmgr_pb2.Batch:
    return stmgr_pb2.Batch(dest_task=number, body=b"x" * size)


@given(st.lists(st.integers(0, 3 * FRAME), max_size=60))
def test_batches_leave_in_order_and_about_a_frame_at_a_time(sizes: list[int]) -> None:
    outbox = Outbox("container_1_slow_3", CONFIG)
    for number, size in enumerate(sizes):
        outbox.put(batch(size, number))
    left: list[int] = []
    while len(outbox):
        taken, spill = outbox.take()
        assert spill == []
        assert sum(len(b.body) for b in taken) <= FRAME or len(taken) == 1
        outbox.check_invariants()
        left += [b.dest_task for b in taken]
        assert outbox.written() == taken
        outbox.check_invariants()
    assert left == list(range(len(sizes)))
    assert outbox.bytes == 0


def test_frames_of_a_link_may_be_shorter_than_configured() -> None:
    outbox = Outbox("bolt", CONFIG)
    outbox.frame_bytes = FRAME // 2
    for number in range(10):
        outbox.put(batch(400, number))
    assert len(outbox.take()[0]) == 2


def test_what_is_being_written_still_counts() -> None:
    outbox = Outbox("container_1_slow_3", CONFIG)
    outbox.put(batch(HIGH))
    outbox.take()
    assert (len(outbox), outbox.bytes) == (0, HIGH + OVERHEAD)
    outbox.written()
    assert outbox.bytes == 0


def test_tiny_batches_count_too() -> None:
    outbox = Outbox("container_1_slow_3", CONFIG)
    for _ in range(10):
        outbox.put(batch(0))
    assert outbox.bytes == 10 * OVERHEAD


def test_feedback_and_the_rest_take_turns() -> None:
    outbox = Outbox("container_1_slow_3", CONFIG)
    for number in range(3):
        outbox.put(batch(FRAME, number))
        outbox.put_feedback(batch(FRAME, 10 + number))
    left = []
    while len(outbox):
        left += [b.dest_task for b in outbox.take()[0]]
        outbox.written()
    assert left == [0, 10, 1, 11, 2, 12]


def test_a_peer_that_takes_no_feedback_gets_the_rest() -> None:
    outbox = Outbox("stmgr-2", CONFIG)
    outbox.put_feedback(batch(10, 1))
    outbox.feedback_paused = True
    assert len(outbox) == 0
    outbox.put(batch(10, 2))
    assert [b.dest_task for b in outbox.take()[0]] == [2]
    outbox.written()
    outbox.feedback_paused = False
    assert [b.dest_task for b in outbox.take()[0]] == [1]


def test_what_is_withdrawn_leaves_the_account_and_the_rest_in_order() -> None:
    outbox = Outbox("container_1_slow_3", CONFIG)
    for number in range(6):
        outbox.put(batch(100, number))
        outbox.put_feedback(batch(100, number))
    withdrawn = outbox.withdraw(lambda b: b.dest_task % 2 == 0)
    outbox.check_invariants()
    assert [b.dest_task for b in withdrawn] == [0, 2, 4, 0, 2, 4]
    assert outbox.bytes == outbox.feedback_bytes == 3 * (100 + OVERHEAD)
    assert [b.dest_task for b in outbox.take()[0]] == [1, 3, 5]


class FeedbackOnADisk(RuleBasedStateMachine):
    """Feedback is put and taken while a disk writes, fails and reads at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox("container_1_loop_2", CONFIG)
        self.queue = self.outbox.feedback
        self.expected: deque[int] = deque()
        self.next = 0
        self.disk: dict[int, bytes] = {}
        self.work: deque[WriteSpill | ReadSpill | DeleteSpill] = deque()
        self.failed: list[int] = []

    @rule(sizes=st.lists(st.integers(0, 2 * FRAME), min_size=1, max_size=20))
    def put(self, sizes: list[int]) -> None:
        for size in sizes:
            self.work += self.outbox.put_feedback(batch(size, self.next))
            self.expected.append(self.next)
            self.next += 1

    @precondition(lambda self: len(self.outbox))
    @rule()
    def take(self) -> None:
        taken, effects = self.outbox.take()
        self.work += effects
        assert [b.dest_task for b in taken] == [self.expected.popleft() for _ in taken]
        self.outbox.written()

    @precondition(lambda self: self.work)
    @rule(fails=st.booleans())
    def disk_works(self, fails: bool) -> None:
        effect = self.work.popleft()
        if isinstance(effect, WriteSpill):
            if fails:
                self.failed.append(effect.segment)
            else:
                self.disk[effect.segment] = effect.data
                self.work += self.queue.written(effect.segment)
        elif isinstance(effect, ReadSpill):
            self.work += self.queue.read(effect.segment, self.disk.pop(effect.segment))
        else:
            self.disk.pop(effect.segment, None)

    @precondition(lambda self: self.failed)
    @rule()
    def failed_writes_are_tried_again(self) -> None:
        self.work += self.queue.rewrite(self.failed.pop())

    @rule()
    def is_purged(self) -> None:
        self.work += self.outbox.clear()
        self.expected.clear()

    @invariant()
    def holds(self) -> None:
        self.outbox.check_invariants()
        assert len(self.queue) <= len(self.expected)

    def teardown(self) -> None:
        """Everything comes out, in order, and nothing stays on the disk."""
        while self.work or self.failed or len(self.outbox):
            if self.work:
                self.disk_works(fails=False)
            elif self.failed:
                self.failed_writes_are_tried_again()
            else:
                self.take()
        assert not self.expected
        assert not self.disk
        assert self.outbox.feedback_bytes == 0


TestFeedbackOnADisk = FeedbackOnADisk.TestCase
TestFeedbackOnADisk.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
