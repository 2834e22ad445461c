"""A received batch of tuples, and what became of each.

`InBatch` is the origin that all tuples of a batch share (see `heronpy.api.tuple`). User code marks tuples as acked or
failed by writing a byte; ids and roots stay packed arrays until a flush turns all marks since the last one into a few
batches of acks with numpy. A tuple that is held back (joins, windows) keeps its batch alive, and may be acked any time
later, by any thread.

A batch with tuples of several streams has an `InBatch` for each stream, over the same arrays.

Ids and roots are flat arrays with one entry for each root of each tuple ("position"). Nearly always a tuple has one
root, and its position is its index; offsets exist only in batches where that is not so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from heronpy.wire import ACK, SEQUENCE_BITS, Tuples, root_batch

ROOTS_MAX: Final = 1 << 16
"""Most roots in a batch of acks or fails: one MiB. A window may ack millions of tuples at once."""

OPEN: Final = 0
ACKED: Final = 1
FAILED: Final = 2

U64s = NDArray[np.uint64]
Index = NDArray[np.int64]


class InBatch:
    """Origin of the tuples of one stream in a received batch."""

    __slots__ = (
        "_children",
        "_offsets",
        "_settled",
        "began_ns",
        "component",
        "count",
        "dirty",
        "failed",
        "fields",
        "ids",
        "marks",
        "roots",
        "stream",
        "task",
    )

    def __init__(self, tuples: Tuples, component: str, stream: str, fields: Sequence[str]) -> None:
        self.component = component
        self.stream = stream
        self.task = tuples.src_task
        self.fields = fields
        self.count = tuples.count
        self.marks = bytearray(tuples.count)
        """What became of each tuple: OPEN, ACKED or FAILED. User code's ack() and fail() write here."""
        self.failed: set[int] | None = None
        """Indexes of the tuples that were failed: an ack that comes later overwrites the mark, but does not count."""
        self.began_ns = 0
        """When the task took it up."""
        self.dirty = False
        """Marked since the last flush; then it is among those to settle."""
        self.ids, self.roots, self._offsets = tuples.ids, tuples.roots, tuples.offsets
        self._children: U64s | None = None
        self._settled: NDArray[np.bool_] | None = None

    @property
    def tracked(self) -> bool:
        """Whether any of the tuples belongs to a tree."""
        return len(self.ids) > 0

    def tuple_id(self, index: int) -> int:
        if not self.tracked:
            return 0
        if self._offsets is None:
            return int(self.ids[index])
        position, end = self._offsets[index], self._offsets[index + 1]
        return int(self.ids[position]) if position < end else 0

    def positions(self, index: Index) -> tuple[Index, Index | None]:
        """Positions of the roots of the tuples at `index`, and how many each has (None: one each)."""
        if self._offsets is None:
            return (index, None) if self.tracked else (index[:0], np.zeros(len(index), dtype=np.int64))
        starts = self._offsets[index]
        counts = self._offsets[index + 1] - starts
        # start, start + 1, … of every tuple, laid one after the other
        ends = np.cumsum(counts)
        return np.arange(int(counts.sum())) + np.repeat(starts - (ends - counts), counts), counts

    def add_children(self, positions: Index, ids: U64s) -> None:
        """Note the edge ids of tuples that were emitted with these tuples as anchors."""
        if self._children is None:
            self._children = np.zeros(len(self.ids), dtype=np.uint64)
        np.bitwise_xor.at(self._children, positions, ids)

    def settle(self) -> tuple[Index, Index, int]:
        """Indexes of the tuples that were acked, and failed, since the last call; and how many were acked after fail.

        The first of ack() and fail() wins. A second ack is ignored.
        """
        self.dirty = False  # before the marks are read: a mark that is written later sets it again
        marks = np.frombuffer(self.marks, dtype=np.uint8)
        contradicted = 0
        if self.failed:
            marks = marks.copy()
            failed_at = np.fromiter(self.failed.copy(), dtype=np.int64)
            late = failed_at[marks[failed_at] == ACKED].tolist()
            contradicted = len(late)
            for index in late:
                self.marks[index] = FAILED  # else it would be counted with every flush
            marks[failed_at] = FAILED
        if self._settled is None:
            self._settled = np.zeros(self.count, dtype=np.bool_)
        else:
            marks = np.where(self._settled, OPEN, marks)
        acked, failed = np.flatnonzero(marks == ACKED), np.flatnonzero(marks == FAILED)
        self._settled[acked] = True
        self._settled[failed] = True
        return acked, failed, contradicted

    def spoil(self, index: int) -> bool:
        """Settle a tuple as failed. Returns whether it was not settled before."""
        if self._settled is None:
            self._settled = np.zeros(self.count, dtype=np.bool_)
        was_open = not self._settled[index]
        self._settled[index] = True
        self.marks[index] = FAILED
        return was_open

    def ack_values(self, index: Index) -> tuple[U64s, U64s]:
        """For each root of the tuples at `index`: the root, and what to XOR into its tree."""
        positions, _ = self.positions(index)
        values = self.ids[positions]
        if self._children is not None:
            values = values ^ self._children[positions]
        return self.roots[positions], values

    def roots_of(self, index: Index) -> U64s:
        """The roots of the tuples at `index`."""
        return self.roots[self.positions(index)[0]]


def per_origin(tuples: Tuples, origins: Sequence[InBatch], start: int, stop: int) -> list[tuple[InBatch, int]]:
    """How many of the tuples from `start` to `stop` are of each origin."""
    if tuples.stream_indexes is None:
        return [(origins[0], stop - start)]
    counts = np.bincount(tuples.stream_indexes[start:stop]).tolist()
    return [(origin, count) for origin, count in zip(origins, counts, strict=False) if count]


def root_batches(kind: Any, parts: Sequence[tuple[U64s, U64s | None]]) -> Iterator[Any]:
    """Batches for each spout task that owns some of the roots.

    Args:
        kind: ACK, FAIL or RESET_TIMEOUT.
        parts: roots, and for ACK the values to XOR.
    """
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return
    roots = parts[0][0] if len(parts) == 1 else np.concatenate([r for r, _ in parts])
    values: U64s | None = None
    if kind == ACK:
        values = parts[0][1] if len(parts) == 1 else np.concatenate([v for _, v in parts if v is not None])
    tasks = roots >> np.uint64(SEQUENCE_BITS)
    if (tasks == tasks[0]).all():
        yield from _cut(kind, int(tasks[0]), roots, values)
        return
    for task in np.unique(tasks):
        mine = tasks == task
        yield from _cut(kind, int(task), roots[mine], None if values is None else values[mine])


def _cut(kind: Any, task: int, roots: U64s, values: U64s | None) -> Iterator[Any]:
    for start in range(0, len(roots), ROOTS_MAX):
        part = slice(start, start + ROOTS_MAX)
        yield root_batch(kind, task, roots[part], None if values is None else values[part])
