"""The ring of pending roots: every root ends once, and the bookkeeping never contradicts itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heronpy.instance.task import CAPACITY_MIN, Finished, RootRing
from heronpy.wire import SEQUENCE_MASK

SECOND = 1_000_000_000


def start(ring: RootRing, count: int, now_ns: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Start roots with one copy each. Returns their roots and ids."""
    sequences = np.arange(ring.next, ring.next + count, dtype=np.int64)
    ids = np.random.default_rng(1).integers(1, 2**63, count, dtype=np.uint64)
    done = ring.commit(count, [int(s) for s in sequences], [(sequences, ids)], now_ns)
    assert done.count == 0
    return ring.roots(sequences), ids


def test_a_root_is_done_when_its_only_tuple_is_acked() -> None:
    ring = RootRing(7, keep_ids=True, first=100)
    roots, ids = start(ring, 3)
    done = ring.ack(roots[1:2], ids[1:2], 5)
    assert (list(done.message_ids), done.latencies_ns.tolist(), ring.pending) == ([101], [5], 2)


def test_a_tree_is_done_when_every_id_was_seen_twice() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    roots, ids = start(ring, 1)
    child = np.array([12345], dtype=np.uint64)
    assert ring.ack(roots, ids ^ child, 1).count == 0
    assert ring.ack(roots, child, 2).count == 1


def test_a_root_without_any_copy_is_done_at_once() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    done = ring.commit(2, ["a", "b"], [], 0)
    assert (list(done.message_ids), ring.pending) == (["a", "b"], 0)


def test_acks_for_an_earlier_life_of_the_task_change_nothing() -> None:
    old, new = RootRing(7, keep_ids=True), RootRing(7, keep_ids=True)
    roots, ids = start(old, 10)
    start(new, 10)
    assert new.ack(roots, ids, 1).count == 0
    assert new.fail(roots, 1).count == 0
    assert new.pending == 10


def test_a_failed_root_ends_once_and_late_acks_are_ignored() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    roots, ids = start(ring, 2)
    assert list(ring.fail(np.repeat(roots[:1], 3), 1).message_ids) == [0]
    assert ring.ack(roots, ids, 2).message_ids == [1]
    assert ring.pending == 0
    ring.check_invariants()


def test_a_timeout_ends_the_old_and_spares_the_young() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    start(ring, 5, now_ns=0)
    start(ring, 5, now_ns=10 * SECOND)
    assert list(ring.expire(5 * SECOND, 11 * SECOND).message_ids) == [0, 1, 2, 3, 4]
    assert ring.pending == 5
    assert ring.expire(5 * SECOND, 11 * SECOND).count == 0


def test_reset_timeout_begins_anew() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    roots, ids = start(ring, 3, now_ns=0)
    ring.reset_timeout(roots[1:2], 10 * SECOND)
    assert list(ring.expire(5 * SECOND, 11 * SECOND).message_ids) == [0, 2]
    assert ring.pending == 1
    assert list(ring.ack(roots[1:2], ids[1:2], 12 * SECOND).message_ids) == [1]
    ring.check_invariants()


def test_a_root_whose_timeout_begins_anew_has_been_on_its_way_since_it_was_emitted() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    roots, ids = start(ring, 2, now_ns=SECOND)
    for at_s in (10, 20):
        ring.reset_timeout(roots, at_s * SECOND)
    assert ring.ack(roots[:1], ids[:1], 25 * SECOND).latencies_ns.tolist() == [24 * SECOND]
    assert ring.expire(21 * SECOND, 30 * SECOND).latencies_ns.tolist() == [29 * SECOND]


def test_one_lost_tuple_among_millions_costs_no_memory() -> None:
    ring = RootRing(7, keep_ids=True, first=0)
    lost, _ = start(ring, 1)
    for _ in range(100):
        roots, ids = start(ring, CAPACITY_MIN // 2)
        assert ring.ack(roots, ids, 1).count == CAPACITY_MIN // 2
    assert ring._capacity <= 2 * CAPACITY_MIN
    assert ring.pending == 1
    assert list(ring.fail(lost, 1).message_ids) == [0]
    ring.check_invariants()


def test_the_ring_grows_when_it_is_full_of_pending_roots() -> None:
    ring = RootRing(7, keep_ids=True, first=3)
    roots, ids = start(ring, 5 * CAPACITY_MIN)
    more, more_ids = start(ring, CAPACITY_MIN)
    ring.check_invariants()
    assert ring.ack(roots, ids, 1).count == 5 * CAPACITY_MIN
    assert ring.ack(more, more_ids, 1).count == CAPACITY_MIN
    ring.check_invariants()


@pytest.mark.parametrize("first", [SECOND, SEQUENCE_MASK - 2, SEQUENCE_MASK + 1])
def test_sequence_numbers_wrap(first: int) -> None:
    ring = RootRing(7, keep_ids=True, first=first)
    roots, ids = start(ring, 8)
    assert (roots >> np.uint64(44) == 7).all()
    assert ring.ack(roots, ids, 1).count == 8
    ring.check_invariants()


STREAMS = 3


def ended(found: Finished, roots: list[int]) -> None:
    """Exactly these roots have ended, and each was emitted on the stream that the ring says."""
    assert sorted(found.message_ids) == sorted(roots)
    assert found.streams.tolist() == [root % STREAMS for root in found.message_ids]


class RingMachine(RuleBasedStateMachine):
    """The ring against a dictionary of trees."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = RootRing(3, keep_ids=True, keep_streams=True, first=SEQUENCE_MASK - 5000)
        self.trees: dict[int, tuple[int, int]] = {}
        """By root: value and time of emission."""
        self.ids_of: dict[int, int] = {}
        """Message id (here the root) by sequence number."""
        self.now_ns = 0
        self.random = random.Random(1)

    @rule(count=st.sampled_from([1, 7, 500, 3000]), copies=st.integers(1, 3))
    def emit(self, count: int, copies: int) -> None:
        sequences = np.arange(self.ring.next, self.ring.next + count, dtype=np.int64)
        roots = self.ring.roots(sequences).tolist()
        edges = []
        values = dict.fromkeys(roots, 0)
        for _ in range(copies):
            ids = np.array([self.random.getrandbits(64) for _ in roots], dtype=np.uint64)
            edges.append((sequences, ids))
            for root, number in zip(roots, ids.tolist(), strict=True):
                values[root] ^= number
        streams = [root % STREAMS for root in roots]
        assert self.ring.commit(count, roots, edges, self.now_ns, streams).count == 0
        self.trees.update({root: (value, self.now_ns) for root, value in values.items()})

    @rule(share=st.floats(0, 1), partly=st.booleans())
    def ack(self, share: float, partly: bool) -> None:
        chosen = [r for r in self.trees if self.random.random() < share]
        sent, done = [], []
        for root in chosen:
            value, since = self.trees[root]
            extra = self.random.getrandbits(63) if partly else 0
            sent.append(value ^ extra)
            if extra:
                self.trees[root] = extra, since
            else:
                done.append(root)
                del self.trees[root]
        order = self.random.sample(range(len(chosen)), len(chosen))
        roots = np.array([chosen[i] for i in order], dtype=np.uint64)
        values = np.array([sent[i] for i in order], dtype=np.uint64)
        ended(self.ring.ack(roots, values, self.now_ns), done)

    @rule(share=st.floats(0, 0.2))
    def fail(self, share: float) -> None:
        chosen = [r for r in self.trees if self.random.random() < share]
        for root in chosen:
            del self.trees[root]
        ended(self.ring.fail(np.array(chosen, dtype=np.uint64), self.now_ns), chosen)

    @rule(share=st.floats(0, 0.01))
    def reset(self, share: float) -> None:
        chosen = [r for r in self.trees if self.random.random() < share]
        for root in chosen:
            self.trees[root] = self.trees[root][0], self.now_ns
        self.ring.reset_timeout(np.array(chosen, dtype=np.uint64), self.now_ns)

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND
        old = [r for r, (_, since) in self.trees.items() if since < self.now_ns - 8 * SECOND]
        for root in old:
            del self.trees[root]
        ended(self.ring.expire(self.now_ns - 8 * SECOND, self.now_ns), old)

    @invariant()
    def agrees(self) -> None:
        assert self.ring.pending == len(self.trees)
        self.ring.check_invariants()


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@given(st.integers(1, 50))
def test_duplicate_acks_in_one_batch_end_a_root_once(count: int) -> None:
    ring = RootRing(1, keep_ids=True, first=0)
    roots, ids = start(ring, count)
    # An odd number of equal acks XORs to one; the root must be reported once all the same.
    assert ring.ack(np.repeat(roots, 3), np.repeat(ids, 3), 1).count == count
