"""Anchoring: whatever is anchored to whatever, the ids of a tree XOR to zero."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_inbatch import batch_of

from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.instance.task import Anchors, InBatch, anchored, anchored_to_many


def accounts(batches: Sequence[InBatch]) -> dict[int, int]:
    """What the batches' tuples will report when they are acked, without their own ids: by root."""
    found: dict[int, int] = defaultdict(int)
    for batch in batches:
        if not batch.tracked:
            continue
        roots, values = batch.ack_values(np.arange(batch.count))
        for root, value, own in zip(roots.tolist(), values.tolist(), batch.ids.tolist(), strict=True):
            found[root] ^= value ^ own
    return found


def children(anchors: Anchors | None, count: int, cuts: Sequence[int] = ()) -> list[dict[int, int]]:
    """Root → id of each of `count` tuples, read in parts."""
    if anchors is None:
        return [{} for _ in range(count)]
    found: list[dict[int, int]] = []
    edges = sorted({0, count, *(cut for cut in cuts if cut < count)})
    for start, stop in itertools.pairwise(edges):
        ids, roots, counts = anchors.part(start, stop)
        if ids is None or roots is None:
            found += [{} for _ in range(start, stop)]
            continue
        position = 0
        for n in [1] * (stop - start) if counts is None else counts.tolist():
            mine = roots[position : position + n].tolist()
            assert len(set(mine)) == len(mine), "a root is named twice"
            found.append(dict(zip(mine, ids[position : position + n].tolist(), strict=True)))
            position += n
        assert position == len(ids) == len(roots)
    return found


@st.composite
def emissions(draw: st.DrawFn) -> tuple[list[list[list[int]]], list[list[tuple[int, int]]]]:
    """Roots of the tuples of some batches, and for each emitted tuple its anchors as (batch, index)."""
    shared = st.integers(1, 6)  # few roots, so that many tuples share one
    batches = draw(st.lists(st.lists(st.lists(shared, max_size=3, unique=True), min_size=1, max_size=6), max_size=3))
    known = [(b, i) for b, batch in enumerate(batches) for i in range(len(batch))]
    tags = draw(st.lists(st.lists(st.sampled_from(known), max_size=4) if known else st.just([]), max_size=12))
    return batches, tags


@given(emissions(), st.lists(st.integers(0, 12), max_size=3))
def test_the_ids_of_the_children_are_in_the_accounts_of_their_anchors(
    emitted: tuple[list[list[list[int]]], list[list[tuple[int, int]]]], cuts: list[int]
) -> None:
    roots, wanted = emitted
    batches = [batch_of(batch) for batch in roots]
    tags: list[Any] = []
    for anchors in wanted:
        tuples = [Tuple([], batches[b], i) for b, i in anchors]
        tags.append(None if not tuples else tuples[0] if len(tuples) == 1 else tuple(tuples))
    found = children(anchored(tags), len(tags), cuts)
    assert [set(child) for child in found] == [{r for b, i in anchors for r in roots[b][i]} for anchors in wanted]
    expected: dict[int, int] = defaultdict(int)
    for child in found:
        for root, id in child.items():
            expected[root] ^= id
    assert {r: v for r, v in accounts(batches).items() if v} == {r: v for r, v in expected.items() if v}


@given(
    st.lists(st.lists(st.integers(1, 6), max_size=3, unique=True), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
)
def test_the_fast_path_equals_the_general_one(roots: list[list[int]], chosen: list[int]) -> None:
    results = []
    for path in (anchored, anchored_to_many):
        batch = batch_of(roots)
        tags = [Tuple([], batch, i % len(roots)) for i in chosen]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("heronpy.instance._anchors.generator", np.random.SFC64(7))
            results.append((children(path(tags), len(tags)), accounts([batch])))
    assert results[0] == results[1]


def test_ticks_and_untracked_tuples_are_no_anchors() -> None:
    tick = TupleHelper.make_tick_tuple()
    untracked = Tuple([], batch_of([[]]), 0)
    assert anchored([tick, tick]) is None
    assert anchored([untracked, None, (tick, untracked)]) is None
    tracked = Tuple([], batch_of([[9]]), 0)
    found = children(anchored([tick, tracked, (untracked, tracked)]), 3)
    assert [set(child) for child in found] == [set(), {9}, {9}]


def test_a_tuple_anchored_twice_to_the_same_stays_in_balance() -> None:
    batch = batch_of([[9]])
    anchor = Tuple([], batch, 0)
    ((root, id),) = children(anchored([(anchor, anchor)]), 1)[0].items()
    assert accounts([batch]) == {root: id}


def test_one_tuple_may_be_anchored_to_a_whole_window() -> None:
    batch = batch_of([[n] for n in range(1, 70_001)])
    (child,) = children(anchored([tuple(Tuple([], batch, i) for i in range(70_000))]), 1)
    assert len(child) == 70_000
    assert accounts([batch]) == child
