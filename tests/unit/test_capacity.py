"""The data-in queue's capacity: halved while too much waits, growing by steps while not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.config import InstanceConfig
from heronpy.instance.task import QueueCapacity, TimedCapacity

CONFIG = InstanceConfig(in_queue_bytes=8000, in_queue_bytes_expected=2000, frame_bytes=500)


def test_a_queue_that_never_drains_is_halved_down_to_a_frame() -> None:
    capacity = QueueCapacity(CONFIG)
    assert [capacity.observed(2001) for _ in range(6)] == [4000, 2000, 1000, 500, 500, 500]


def test_a_queue_that_drains_grows_again_by_steps() -> None:
    capacity = QueueCapacity(CONFIG)
    for _ in range(10):
        capacity.observed(9999)
    assert [capacity.observed(2000) for _ in range(9)] == [1500, 2500, 3500, 4500, 5500, 6500, 7500, 8000, 8000]


@given(st.lists(st.integers(0, 10**6), max_size=100), st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_capacity_is_never_below_what_a_batch_needs_nor_above_the_most(
    waiting: list[int], expected: int, frame_bytes: int
) -> None:
    config = InstanceConfig(in_queue_bytes=10**5, in_queue_bytes_expected=expected, frame_bytes=frame_bytes)
    capacity = QueueCapacity(config)
    for waits in waiting:
        before = capacity.bytes
        after = capacity.observed(waits)
        assert min(frame_bytes, expected) <= after <= 10**5
        assert after <= before if waits > expected else after >= before


def test_with_checkpoints_a_slow_task_has_a_second_before_it() -> None:
    capacity = TimedCapacity(InstanceConfig(in_queue_bytes=4 << 20))
    for second in range(20):
        capacity.observed(second * 200_000, 4 << 20, float(second))
    assert 190_000 < capacity.bytes < 210_000


def test_with_checkpoints_a_task_that_waits_for_more_is_given_more() -> None:
    capacity = TimedCapacity(InstanceConfig(in_queue_bytes=4 << 20))
    executed, now_s = 0, 0.0
    for _ in range(50):
        executed += capacity.observed(executed, 0, now_s)  # it executes all that fits, ten times a second
        now_s += 0.1
    assert capacity.bytes == 4 << 20


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=50))
def test_with_checkpoints_a_capacity_has_bounds(steps: list[tuple[int, int]]) -> None:
    capacity = TimedCapacity(InstanceConfig(in_queue_bytes=1 << 20))
    executed = 0
    for number, (done, waiting) in enumerate(steps):
        executed += done
        assert 8 << 10 <= capacity.observed(executed, waiting, number / 10) <= 1 << 20
