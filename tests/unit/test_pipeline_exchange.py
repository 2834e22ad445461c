"""Where rows go, and which cannot go anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import TupleError
from heronpy.hashing import stable_hash
from heronpy.pipeline.exchange import divided


class Unstable:
    """Can be a key of a dict, but has another hash in each process."""


keys = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.tuples(st.integers(0, 3)))


def refuse(row: Any, error: Exception) -> None:
    raise AssertionError(row) from error


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_key_without_a_stable_hash_is_refused_however_many_partitions_there_are(count: int) -> None:
    rows: list[Any] = [("a", 1), ((1, "b"), 2), (Unstable(), 3), (None, 4), (2.5, 5)]
    refused: list[tuple[Any, Exception]] = []
    found = dict(divided(rows, count, lambda *it: refused.append(it)))
    assert sorted(number for some in found.values() for _, number in some) == [1, 2, 4, 5]
    ((row, error),) = refused
    assert row == rows[2]
    assert isinstance(error, TupleError)
    assert found.keys() <= set(range(count))


@given(st.lists(st.tuples(keys, st.integers())), st.integers(1, 5))
def test_rows_go_where_their_keys_belong_in_order(rows: list[tuple[Any, int]], count: int) -> None:
    found = dict(divided(rows, count, refuse))
    for partition in range(count):
        assert found.get(partition, []) == [row for row in rows if stable_hash(row[0]) % count == partition]
