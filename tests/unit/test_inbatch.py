"""A received batch: what was acked and failed, and what is told to which spout task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.instance.task import ACKED, FAILED, OPEN, InBatch, root_batches
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, FAIL, SEQUENCE_BITS, U64, decode_tuples, tuple_batch


def u64(values: list[int]) -> Any:
    return np.array(values, dtype=np.uint64)


def batch_of(roots: list[list[int]], *, always_count: bool = False) -> InBatch:
    """A batch of tuples with these roots; the ids are 1, 2, …"""
    flat = [root for of_one in roots for root in of_one]
    counts = [len(of_one) for of_one in roots]
    batch = tuple_batch(
        src_task=3,
        dest_task=4,
        streams=["words"],
        count=len(roots),
        values=b"",
        ids=u64(list(range(1, len(flat) + 1))) if flat else None,
        roots=u64(flat) if flat else None,
        root_counts=None if set(counts) == {1} and not always_count else np.array(counts),
    )
    return InBatch(decode_tuples(batch.body), "source", "words", ("word",))


root = st.integers(1, 2**64 - 1)
trees = st.lists(st.lists(root, max_size=4), min_size=1, max_size=30)


@given(st.lists(st.sampled_from([OPEN, ACKED, FAILED, None]), max_size=200), st.integers(1, 8))
def test_a_tuple_ends_once_and_the_first_call_wins(calls: list[int | None], count: int) -> None:
    batch = batch_of([[n + 1] for n in range(count)])
    ended: dict[int, int] = {}
    marks: dict[int, int] = {}
    for number, call in enumerate(calls):
        index = number % count
        if call is None:  # a flush
            acked, failed, _ = batch.settle()
            new = {**dict.fromkeys(acked.tolist(), ACKED), **dict.fromkeys(failed.tolist(), FAILED)}
            assert new == {i: mark for i, mark in marks.items() if i not in ended}
            ended.update(new)
            marks.clear()
        elif call == ACKED:
            batch.marks[index] = ACKED
            marks.setdefault(index, ACKED)
        elif call == FAILED and not batch.marks[index]:
            batch.failed = batch.failed or set()
            batch.failed.add(index)
            batch.marks[index] = FAILED
            marks.setdefault(index, FAILED)


def test_an_ack_after_a_fail_is_counted_once() -> None:
    batch = batch_of([[1], [2], [3]])
    batch.failed = {0}
    batch.marks[0] = FAILED
    assert batch.settle()[2] == 0
    batch.marks[0] = ACKED
    assert batch.settle()[2] == 1
    for index in (1, 2):
        batch.marks[index] = ACKED
        acked, failed, late = batch.settle()
        assert (acked.tolist(), failed.tolist(), late) == ([index], [], 0)


@given(trees)
def test_positions_are_those_of_the_tuples_roots(roots: list[list[int]]) -> None:
    batch = batch_of(roots)
    index = np.arange(len(roots))[::2]
    positions, counts = batch.positions(index)
    assert batch.roots[positions].tolist() == [r for i in index.tolist() for r in roots[i]]
    assert (counts.tolist() if counts is not None else [1] * len(index)) == [len(roots[i]) for i in index.tolist()]
    flat = 0
    for i, of_one in enumerate(roots):
        assert batch.tuple_id(i) == (flat + 1 if of_one else 0)
        flat += len(of_one)


@given(trees)
def test_an_ack_carries_the_id_and_the_children_of_each_root(roots: list[list[int]]) -> None:
    batch = batch_of(roots, always_count=True)
    expected = list(range(1, sum(map(len, roots)) + 1))
    every = np.arange(len(roots))
    assert batch.ack_values(every)[1].tolist() == expected
    positions, _ = batch.positions(every)
    for child in (7 << 40, 9 << 40):
        batch.add_children(positions[::2], np.full(len(positions[::2]), child, dtype=np.uint64))
        expected[::2] = [value ^ child for value in expected[::2]]
    found, values = batch.ack_values(every)
    assert found.tolist() == [r for of_one in roots for r in of_one]
    assert values.tolist() == expected


def test_a_batch_without_ids_is_not_tracked() -> None:
    batch = batch_of([[], []])
    assert not batch.tracked
    assert batch.tuple_id(1) == 0
    assert [len(part) for part in batch.ack_values(np.arange(2))] == [0, 0]


def test_a_tuple_may_have_more_roots_than_fit_into_16_bits() -> None:
    batch = batch_of([[5], list(range(1, 70_001)), [6]])
    positions, counts = batch.positions(np.array([1, 2]))
    assert counts is not None
    assert counts.tolist() == [70_000, 1]
    assert batch.roots[positions[-1]] == 6


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 99), st.integers(1, 99)), max_size=60), st.integers(1, 7))
def test_every_root_goes_to_the_task_that_owns_it_in_bounded_batches(
    acks: list[tuple[int, int, int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.instance._inbatch.ROOTS_MAX", most)  # a smaller bound shows the same
        halves = [acks[: len(acks) // 2], acks[len(acks) // 2 :]]
        parts = [(u64([t << SEQUENCE_BITS | s for t, s, _ in half]), u64([v for _, _, v in half])) for half in halves]
        batches = list(root_batches(ACK, parts))
        fails = list(root_batches(FAIL, [(roots, None) for roots, _ in parts]))
    found: list[tuple[int, int, int]] = []
    for batch in batches:
        body = stmgr_pb2.RootBatch.FromString(batch.body)
        roots = np.frombuffer(body.roots, dtype=U64)
        assert 0 < batch.count == len(roots) <= most
        assert set((roots >> np.uint64(SEQUENCE_BITS)).tolist()) == {batch.dest_task}
        sequences = (roots & np.uint64((1 << SEQUENCE_BITS) - 1)).tolist()
        values = np.frombuffer(body.values, dtype=U64).tolist()
        found += [(batch.dest_task, s, v) for s, v in zip(sequences, values, strict=True)]
    assert sorted(found) == sorted(acks)
    assert sum(batch.count for batch in fails) == len(acks)
    assert all(not stmgr_pb2.RootBatch.FromString(batch.body).values for batch in fails)
