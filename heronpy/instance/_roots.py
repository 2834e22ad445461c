"""Acking: which roots of a spout task are still on their way.

Acking by XOR: a tuple tree is done when every id was XOR-ed in twice (once when the tuple was emitted, once when it was
acked), so its value is 0 again (seed: Storm's "Guaranteeing Message Processing"). Ids are random, so a value that is
0 by accident is a matter of 2**-64.

The roots of a spout task are numbered, so the trees need no hash map: they live in a ring of arrays indexed by the
sequence number, and a whole batch of acks is applied by a few numpy calls (about 10 ns per ack). A root's number may
wrap at 2**44; inside, numbers only grow.

Expiry sweeps the ring from its oldest root instead of keeping a deadline per tree: emission times grow with the
numbers, so a sweep stops at the first root that is young. Price: a timeout may fire up to one sweep late.

A few roots that stay pending much longer than the others ("stragglers", e.g. one lost tuple among millions) must not
keep the ring from advancing: when the ring is full and mostly done, they move to a dictionary. When it is full of
pending roots it grows.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from heronpy.wire import SEQUENCE_BITS, SEQUENCE_MASK

U64s = NDArray[np.uint64]
CAPACITY_MIN: Final = 1 << 12


class _Straggler(Struct):
    value: int
    emitted_ns: int
    since_ns: int
    """When its timeout began."""
    message_id: Any
    stream: int


class Finished(Struct, frozen=True):
    """Roots that are done, one way or another."""

    message_ids: Sequence[Any]
    """The user's ids, in the order of emission; empty unless they are kept (`keep_ids=False`)."""
    latencies_ns: NDArray[np.int64]
    """How long each was on its way."""
    streams: NDArray[np.uint16]
    """What each was emitted on, as the number that `commit` got; 0 for all if it got none."""

    @property
    def count(self) -> int:
        return len(self.latencies_ns)


class RootRing:
    """The pending roots of one spout task."""

    def __init__(self, task: int, *, keep_ids: bool, keep_streams: bool = False, first: int | None = None) -> None:
        """Start with nothing pending.

        Args:
            task: the spout's task id.
            keep_ids: whether message ids are kept and returned.
            keep_streams: whether the streams of roots are kept and returned.
            first: first sequence number. Random by default, so that acks for an earlier incarnation match none.
        """
        self.base = self.next = secrets.randbits(SEQUENCE_BITS - 1) if first is None else first
        self.pending = 0
        self._task_bits = task << SEQUENCE_BITS
        self._keep_ids = keep_ids
        self._keep_streams = keep_streams
        self._stragglers: dict[int, _Straggler] = {}
        self._allocate(CAPACITY_MIN)

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._value: U64s = np.zeros(capacity, dtype=np.uint64)
        self._live = np.zeros(capacity, dtype=np.bool_)
        self._since: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self._last: NDArray[np.int64] = np.zeros(capacity, dtype=np.int64)
        self._ids: list[Any] = [None] * capacity if self._keep_ids else []
        self._stream: NDArray[np.uint16] = np.zeros(capacity if self._keep_streams else 0, dtype=np.uint16)

    def roots(self, sequences: NDArray[np.int64]) -> U64s:
        """The wire form of sequence numbers."""
        return (sequences.astype(np.uint64) & np.uint64(SEQUENCE_MASK)) | np.uint64(self._task_bits)

    def commit(
        self,
        count: int,
        message_ids: Sequence[Any],
        edges: Sequence[tuple[NDArray[np.int64], U64s]],
        now_ns: int,
        streams: Sequence[int] = (),
    ) -> Finished:
        """Start `count` new roots, numbered from `next`, with all their copies. Call before sending any of them.

        Args:
            count: number of new roots.
            message_ids: their `count` ids (ignored without `keep_ids`).
            edges: for each destination the sequence numbers of its tuples and their random ids, same length each.
            now_ns: the time of emission.
            streams: their `count` streams, as numbers (ignored without `keep_streams`).

        Returns:
            The roots that are done at once, because there is no copy.
        """
        if self.next + count - self.base > self._capacity:
            self._make_room(count)
        mask = self._capacity - 1
        start = self.next & mask
        end = start + count
        for low, high, offset in (
            ((start, end, 0),)
            if end <= self._capacity
            else ((start, self._capacity, 0), (0, end - self._capacity, self._capacity - start))
        ):
            self._live[low:high] = True
            self._value[low:high] = 0
            self._since[low:high] = now_ns
            if self._keep_ids:
                self._ids[low:high] = message_ids[offset : offset + high - low]
            if self._keep_streams:
                self._stream[low:high] = streams[offset : offset + high - low]
        first, self.next = self.next, self.next + count
        self.pending += count
        for sequences, ids in edges:
            np.bitwise_xor.at(self._value, sequences & mask, ids)
        new = np.arange(first, self.next, dtype=np.int64)
        return self._finish(new[self._value[new & mask] == 0], now_ns)

    def ack(self, roots: U64s, values: U64s, now_ns: int) -> Finished:
        """Apply a batch of acks. Returns the roots whose trees are done by it."""
        sequences, live = self._sequences(roots)
        late = NOTHING
        if not live.all():
            late = self._ack_stragglers(sequences[~live], values[~live], now_ns)
            sequences, values = sequences[live], values[live]
            if not len(sequences):
                return late
        index = sequences & (self._capacity - 1)
        np.bitwise_xor.at(self._value, index, values)
        return _joined(late, self._finish(self._distinct(sequences[self._value[index] == 0]), now_ns))

    def fail(self, roots: U64s, now_ns: int) -> Finished:
        """Give up roots that a bolt failed. Returns those that were pending."""
        sequences, live = self._sequences(roots)
        late = self._drop_stragglers(sequences[~live].tolist(), now_ns)
        return _joined(late, self._finish(self._distinct(sequences[live]), now_ns))

    def reset_timeout(self, roots: U64s, now_ns: int) -> None:
        """Let the roots' timeout begin anew. They move to the stragglers, where the order of times does not matter."""
        sequences, live = self._sequences(roots)
        for sequence in sequences[~live].tolist():
            if (straggler := self._stragglers.get(sequence)) is not None:
                straggler.since_ns = now_ns
        self._set_aside(self._distinct(sequences[live]), now_ns)

    def expire(self, before_ns: int, now_ns: int) -> Finished:
        """Give up every root that was emitted before `before_ns`. Returns them."""
        late = self._drop_stragglers([s for s, v in self._stragglers.items() if v.since_ns < before_ns], now_ns)
        mask = self._capacity - 1
        at = self.base
        expired: list[NDArray[np.int64]] = []
        while at < self.next:
            window = np.arange(at, min(at + CAPACITY_MIN, self.next), dtype=np.int64)
            index = window & mask
            old = self._since[index] < before_ns
            expired.append(window[old & self._live[index]])
            if not old.all():
                break
            at = int(window[-1]) + 1
        self._advance(at)
        return _joined(late, self._finish(np.concatenate(expired), now_ns)) if expired else late

    def check_invariants(self) -> None:
        """Raise AssertionError if the bookkeeping contradicts itself. For tests."""
        assert 0 <= self.next - self.base <= self._capacity
        window = np.arange(self.base, self.next, dtype=np.int64) & (self._capacity - 1)
        assert self.pending == int(self._live[window].sum()) + len(self._stragglers)
        assert int(self._live.sum()) == int(self._live[window].sum()), "a live slot outside of the window"
        assert all(s < self.next for s in self._stragglers)

    def _sequences(self, roots: U64s) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Sequence numbers of roots, and which of them are pending in the ring (not done, and no stragglers)."""
        ahead = ((roots - np.uint64(self.base & SEQUENCE_MASK)) & np.uint64(SEQUENCE_MASK)).astype(np.int64)
        half = 1 << (SEQUENCE_BITS - 1)
        ahead[ahead >= half] -= 1 << SEQUENCE_BITS  # older than base
        sequences = ahead + self.base
        inside = (ahead >= 0) & (ahead < self.next - self.base)
        return sequences, inside & self._live[sequences & (self._capacity - 1)]

    def _distinct(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """Each sequence number once, in linear time (np.unique sorts: 50 ns a root)."""
        index = sequences & (self._capacity - 1)
        at = np.arange(len(sequences))
        self._last[index] = at
        distinct: NDArray[np.int64] = sequences[self._last[index] == at]
        return distinct

    def _finish(self, sequences: NDArray[np.int64], now_ns: int) -> Finished:
        """Mark live roots as done."""
        if not len(sequences):
            return NOTHING
        index = sequences & (self._capacity - 1)
        self._live[index] = False
        self.pending -= len(sequences)
        ids: list[Any] = []
        if self._keep_ids:
            slots = index.tolist()
            ids = [self._ids[i] for i in slots]
            for i in slots:
                self._ids[i] = None
        return Finished(ids, now_ns - self._since[index], self._streams_at(index))

    def _streams_at(self, index: NDArray[np.int64]) -> NDArray[np.uint16]:
        return self._stream[index] if self._keep_streams else np.zeros(len(index), dtype=np.uint16)

    def _advance(self, to: int) -> None:
        """Move the base over roots that are done, at most to `to`."""
        mask = self._capacity - 1
        while self.base < to:
            window = np.arange(self.base, min(self.base + CAPACITY_MIN, to), dtype=np.int64)
            live = self._live[window & mask]
            if live.any():
                self.base += int(live.argmax())
                return
            self.base = int(window[-1]) + 1

    def _make_room(self, count: int) -> None:
        self._advance(self.next)
        if self.next + count - self.base <= self._capacity:
            return
        in_ring = self.pending - len(self._stragglers)
        if in_ring < self._capacity // 8 and count <= self._capacity // 2:
            # Nearly empty, yet stretched over the whole ring: the oldest half steps aside.
            to = self.next + count - self._capacity // 2
            window = np.arange(self.base, min(to, self.next), dtype=np.int64)
            self._set_aside(window[self._live[window & (self._capacity - 1)]], None)
            self.base = min(to, self.next)
            return
        self._grow(max(2 * self._capacity, 1 << (self.next + count - self.base - 1).bit_length()))

    def _set_aside(self, sequences: NDArray[np.int64], since_ns: int | None) -> None:
        """Move live roots to the stragglers, with a new time if one is given."""
        for sequence in sequences.tolist():
            i = sequence & (self._capacity - 1)
            emitted_ns = int(self._since[i])
            self._stragglers[sequence] = _Straggler(
                int(self._value[i]),
                emitted_ns,
                emitted_ns if since_ns is None else since_ns,
                self._ids[i] if self._keep_ids else None,
                int(self._stream[i]) if self._keep_streams else 0,
            )
            self._live[i] = False
            if self._keep_ids:
                self._ids[i] = None

    def _grow(self, capacity: int) -> None:
        window = np.arange(self.base, self.next, dtype=np.int64)
        old = window & (self._capacity - 1)
        value, live, since, ids = self._value[old], self._live[old], self._since[old], self._ids
        streams = self._streams_at(old)
        self._allocate(capacity)
        new = window & (capacity - 1)
        self._value[new], self._live[new], self._since[new] = value, live, since
        if self._keep_streams:
            self._stream[new] = streams
        if self._keep_ids:
            for i, j in zip(old.tolist(), new.tolist(), strict=True):
                self._ids[j] = ids[i]

    def _ack_stragglers(self, sequences: NDArray[np.int64], values: U64s, now_ns: int) -> Finished:
        done: list[int] = []
        for sequence, value in zip(sequences.tolist(), values.tolist(), strict=True):
            straggler = self._stragglers.get(sequence)
            if straggler is not None:
                straggler.value ^= value
                if straggler.value == 0:
                    done.append(sequence)
        # A value may pass through 0 more than once only by accident; asking again costs nothing.
        return self._drop_stragglers([s for s in dict.fromkeys(done) if self._stragglers[s].value == 0], now_ns)

    def _drop_stragglers(self, sequences: Sequence[int], now_ns: int) -> Finished:
        if not sequences or not self._stragglers:
            return NOTHING
        gone = [self._stragglers.pop(s) for s in dict.fromkeys(sequences) if s in self._stragglers]
        self.pending -= len(gone)
        return Finished(
            [g.message_id for g in gone] if self._keep_ids else [],
            np.array([now_ns - g.emitted_ns for g in gone], dtype=np.int64),
            np.array([g.stream for g in gone], dtype=np.uint16),
        )


NOTHING: Final = Finished((), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint16))


def _joined(first: Finished, second: Finished) -> Finished:
    if not first.count:
        return second
    if not second.count:
        return first
    return Finished(
        [*first.message_ids, *second.message_ids],
        np.concatenate([first.latencies_ns, second.latencies_ns]),
        np.concatenate([first.streams, second.streams]),
    )
