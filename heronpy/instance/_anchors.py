"""Anchoring: the edge ids and roots of the tuples that a bolt emitted.

A tuple that is emitted with anchors becomes a child in the trees of all of them. For each anchor, and each root of it,
a random edge id is drawn and XOR-ed into both the anchor's account for that root (sent when the anchor is acked) and
the child's id for that root. So two anchors may share a root, and a tree closes only when all of its tuples are acked.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from heronpy.api.tuple import Tuple
from heronpy.errors import TupleError
from heronpy.instance._ids import generator
from heronpy.instance._inbatch import InBatch, Index, U64s

_index_of = operator.attrgetter("index_")
_origin_of = operator.attrgetter("origin_")
_TUPLES_ONLY = {Tuple}


ANCHORS_MAX = 1 << 20
"""Most anchors of one tuple: with one root each, their ids fill a quarter of the largest message."""


def as_anchors(anchors: Any) -> tuple[Tuple, ...]:
    """The anchors given to an emit, whatever they were collected in.

    Raises:
        TupleError: they are not collection of received tuples, or too many.
    """
    try:
        found = tuple(anchors)
    except TypeError:
        raise TupleError(f"emit() takes a list of tuples as anchors, not {anchors!r:.60}") from None
    for anchor in found:
        if type(anchor) is not Tuple:
            hint = "; anchors=[tup], not anchors=tup" if type(anchors) is Tuple else ""
            raise TupleError(f"an anchor must be a tuple that was received, not {anchor!r:.60}{hint}")
    if len(found) > ANCHORS_MAX:
        raise TupleError(f"a tuple can have {ANCHORS_MAX} anchors, not {len(found)}")
    return found


class Anchors:
    """Ids and roots of one edge's tuples: flat arrays, and how many entries each tuple has (None: one each)."""

    __slots__ = ("_counts", "_ids", "_roots", "_starts")

    def __init__(self, ids: U64s, roots: U64s, counts: Index | None) -> None:
        self._ids, self._roots, self._counts = ids, roots, counts
        self._starts = None if counts is None else np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])

    def part(self, start: int, stop: int) -> tuple[U64s | None, U64s | None, Index | None]:
        """Ids, roots and root counts of the tuples from `start` to `stop`; all None if none of them is tracked."""
        if self._starts is None or self._counts is None:
            return self._ids[start:stop], self._roots[start:stop], None
        low, high = int(self._starts[start]), int(self._starts[stop])
        if low == high:
            return None, None, None
        return self._ids[low:high], self._roots[low:high], self._counts[start:stop]


def anchored(tags: Sequence[Any]) -> Anchors | None:
    """Draw the edge ids of one edge's tuples and note them at their anchors.

    Args:
        tags: for each tuple what it is anchored to: None, a Tuple, or a sequence of Tuples.

    Returns:
        None if no tuple is tracked.
    """
    if set(map(type, tags)) == _TUPLES_ONLY:
        origins = set(map(_origin_of, tags))
        if len(origins) == 1:
            return _of_one_batch(next(iter(origins)), np.fromiter(map(_index_of, tags), np.int64, len(tags)))
    return anchored_to_many(tags)


def _of_one_batch(origin: Any, index: Index) -> Anchors | None:
    """The usual case: every tuple has one anchor, and all anchors came in the same batch."""
    if not isinstance(origin, InBatch) or not origin.tracked:
        return None
    positions, counts = origin.positions(index)
    ids = generator.random_raw(len(positions))
    origin.add_children(positions, ids)
    return Anchors(ids, origin.roots[positions], counts)


def anchored_to_many(tags: Sequence[Any]) -> Anchors | None:
    """Any mixture. Collects (tuple, anchor) pairs by batch, then combines the ids of each (tuple, root) pair."""
    pairs: dict[InBatch, tuple[list[int], list[int]]] = {}
    for number, tag in enumerate(tags):
        for anchor in (tag,) if type(tag) is Tuple else tag or ():
            origin = anchor.origin_
            if isinstance(origin, InBatch) and origin.tracked:
                numbers, index = pairs.setdefault(origin, ([], []))
                numbers.append(number)
                index.append(anchor.index_)
    children: list[Index] = []
    roots: list[U64s] = []
    ids: list[U64s] = []
    for origin, (numbers, index) in pairs.items():
        positions, counts = origin.positions(np.array(index, dtype=np.int64))
        drawn = generator.random_raw(len(positions))
        origin.add_children(positions, drawn)
        child = np.array(numbers, dtype=np.int64)
        children.append(child if counts is None else np.repeat(child, counts))
        roots.append(origin.roots[positions])
        ids.append(drawn)
    if not children:
        return None
    child, root, edge = np.concatenate(children), np.concatenate(roots), np.concatenate(ids)
    if not len(child):
        return None
    order = np.lexsort((root, child))
    child, root, edge = child[order], root[order], edge[order]
    first = np.concatenate([[True], (child[1:] != child[:-1]) | (root[1:] != root[:-1])])
    starts = np.flatnonzero(first)
    counts = np.bincount(child[starts], minlength=len(tags)).astype(np.int64)
    return Anchors(np.bitwise_xor.reduceat(edge, starts), root[starts], counts)
