"""The outbox of a link: bounded in bytes, in order, with two water marks."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.config import StmgrConfig
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._outbox import BATCH_OVERHEAD_BYTES, HARD_LIMIT, Outbox

HIGH, LOW, FRAME = 10_000, 4_000, 2_000


class Watched:
    """An outbox, and what it has told."""

    def __init__(self) -> None:
        config = StmgrConfig(outbox_bytes_high=HIGH, outbox_bytes_low=LOW, frame_bytes=FRAME)
        self.told: list[str] = []
        self.outbox = Outbox(
            "container_1_slow_3", config, lambda _: self.told.append("high"), lambda _: self.told.append("low")
        )

    def put(self, *sizes: int) -> None:
        for size in sizes:
            self.outbox.put(batch(size))
            self.outbox.check_invariants()


def batch(size: int, number: int = 0) -> stmgr_pb2.Batch:
    return stmgr_pb2.Batch(dest_task=number, body=b"x" * size)


def wakes(outbox: Outbox, drained: int) -> bool:
    """Whether somebody who waits for room at the hard limit goes on after `drained` batches have left."""

    async def run() -> bool:
        waiting = asyncio.create_task(outbox.has_room())
        for _ in range(drained):
            outbox.sent(await outbox.next())
        for _ in range(3):
            await asyncio.sleep(0)
        done = waiting.done()
        waiting.cancel()
        return done

    return asyncio.run(run())


async def test_marks_are_told_once_when_they_are_crossed() -> None:
    watched = Watched()
    watched.put(*[1000] * 9)
    assert watched.told == []
    watched.put(1000, 1000)
    assert watched.told == ["high"]
    taken = []
    while watched.outbox.bytes >= LOW:
        assert watched.told == ["high"]
        taken = await watched.outbox.next()
        watched.outbox.sent(taken)
        watched.outbox.check_invariants()
    assert watched.told == ["high", "low"]
    assert taken
    watched.put(HIGH)
    assert watched.told == ["high", "low", "high"]


async def test_what_is_being_sent_still_counts() -> None:
    watched = Watched()
    watched.put(HIGH)
    taken = await watched.outbox.next()
    assert (len(watched.outbox), watched.outbox.bytes) == (0, HIGH + BATCH_OVERHEAD_BYTES)
    assert watched.told == ["high"]
    watched.outbox.sent(taken)
    assert watched.outbox.bytes == 0
    assert watched.told == ["high", "low"]


@given(st.lists(st.integers(0, 3 * FRAME), max_size=60))
def test_batches_leave_in_order_and_about_a_frame_at_a_time(sizes: list[int]) -> None:
    async def run() -> None:
        watched = Watched()
        for number, size in enumerate(sizes):
            watched.outbox.put(batch(size, number))
        left: list[int] = []
        while len(watched.outbox):
            taken = await watched.outbox.next()
            assert sum(len(b.body) for b in taken) <= FRAME or len(taken) == 1
            left += [b.dest_task for b in taken]
            watched.outbox.sent(taken)
            watched.outbox.check_invariants()
        assert left == list(range(len(sizes)))
        assert watched.outbox.bytes == 0
        assert watched.told in ([], ["high", "low"])

    asyncio.run(run())


async def test_waiting_for_a_batch_ends_when_there_is_one() -> None:
    watched = Watched()
    waiting = asyncio.create_task(watched.outbox.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    watched.put(5)
    assert len(await waiting) == 1


@pytest.mark.parametrize(("drained", "goes_on"), [(0, False), (1, True)])
def test_senders_are_held_at_the_hard_limit_only(drained: int, goes_on: bool) -> None:
    watched = Watched()
    watched.put(HARD_LIMIT * HIGH - 2000)
    assert not watched.outbox.full
    assert wakes(watched.outbox, 0)
    watched.put(2000)
    assert watched.outbox.full
    assert wakes(watched.outbox, drained) == goes_on


async def test_tiny_batches_count_too() -> None:
    watched = Watched()
    watched.put(*[0] * (HIGH // BATCH_OVERHEAD_BYTES + 1))
    assert watched.told == ["high"]


async def test_an_empty_outbox_is_an_outbox() -> None:
    watched = Watched()
    assert len(watched.outbox) == 0
    watched.outbox.sent([])
    watched.outbox.check_invariants()
