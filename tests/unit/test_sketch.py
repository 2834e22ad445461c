"""Sketches of latencies: quantiles within 1.6 %, whatever is merged in whichever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.sketch import BUCKETS, HIGHEST_NS, LOWEST_NS, QUANTILES, Sketch, bucket_of, buckets_of, edge_ns

latencies = st.lists(st.integers(LOWEST_NS, HIGHEST_NS - 1), min_size=1, max_size=300)


def sketch(ns: list[int]) -> Sketch:
    return Sketch.of_dense(np.bincount(buckets_of(np.array(ns, dtype=np.int64)), minlength=BUCKETS).tolist())


@given(latencies)
def test_quantiles_are_within_two_percent_of_the_exact_ones(ns: list[int]) -> None:
    exact = np.quantile(ns, QUANTILES, method="lower")
    assert sketch(ns).quantiles_ns() == pytest.approx(exact, rel=1 / 64)


@given(latencies, latencies)
def test_merged_sketches_are_the_sketch_of_all(one: list[int], other: list[int]) -> None:
    merged = sketch(one)
    merged.merge(sketch(other))
    whole = sketch([*one, *other])
    assert merged.dense() == whole.dense()
    assert whole.since(sketch(one)).dense() == sketch(other).dense()
    assert Sketch.from_proto(whole.to_proto()).dense() == whole.dense()


@given(st.integers(0, HIGHEST_NS * 2))
def test_one_latency_has_the_same_bucket_as_in_an_array(ns: int) -> None:
    found = int(buckets_of(np.array([ns]))[0])
    assert bucket_of(ns) == found
    if LOWEST_NS <= ns < HIGHEST_NS:
        assert edge_ns(found) <= ns < edge_ns(found + 1)


def test_counts_below_a_bound_are_those_of_the_values() -> None:
    counted = sketch([2_000_000] * 3 + [80_000_000] * 2)
    assert counted.below([1e6, 5e6, 1e8]) == [0, 3, 5]


def test_an_empty_sketch_has_no_quantiles() -> None:
    assert Sketch().quantiles_ns() is None
    assert Sketch().below([1e6]) == [0]
