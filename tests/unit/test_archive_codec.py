"""The codec "columns": what comes out equals what went in, and what cannot is refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.archive.decode import decode
from heronpy.archive.element_types import SchemaMismatch, infer, merge, narrow
from heronpy.archive.encode import encode
from heronpy.archive.id_hash import hash_of, hash_sum, id_hashes

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), text, st.binary(max_size=5)
)
fields = st.one_of(st.sampled_from(["a", "b", "a/b", "~", "", "é"]), text)


def values_of(depth: int) -> st.SearchStrategy[Any]:
    if not depth:
        return scalars
    inner = values_of(depth - 1)
    return st.one_of(inner, st.lists(inner, max_size=3), st.dictionaries(fields, inner, max_size=3))


def same(left: Any, right: Any) -> bool:
    """Equal, in type too: 1 is neither 1.0 nor True, nan is nan, -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (left == right and math.copysign(1, left * right) >= 0)
    return bool(left == right)


def fitting(rows: list[Any]) -> list[Any]:
    """The longest beginning of rows that have a type together."""
    element = "null"
    for count, row in enumerate(rows):
        try:
            element = merge(element, infer([row]))
            encode([*rows[:count], row], element)
        except SchemaMismatch:
            return rows[:count]
    return rows


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(values_of(3), st.dictionaries(fields, values_of(2), max_size=4)), max_size=6))
def test_any_elements_come_back_as_they_were(rows: list[Any]) -> None:
    rows = fitting(rows)
    element = infer(rows)
    assert same(decode(encode(rows, element), element), rows)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, 1, 2.5, [], [1], {}, {"x": 1}]))))
def test_missing_fields_none_and_ints_among_floats_are_kept_apart(rows: list[Any]) -> None:
    rows = fitting(rows)
    element = infer(rows)
    assert same(decode(encode(rows, element), element), rows)


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        ([{"a": 1}, {"a": 2}], set()),
        ([{"a": None}, {"a": 2}], set()),
        ([{}, {"a": 2}], {"absent"}),
        ([{"a": {"x": 1}}, {"a": None}], set()),
        ([{"a": {"x": 1}}, {"a": {}}], {"absent"}),
        ([{"a": [1, 2.5]}], {"ints"}),
        ([{"a": 1.5}, {"a": 1.0}], set()),
        ([1, 2.5, None], {"ints"}),
        ([{}, {}], set()),
    ],
)
def test_only_rows_that_need_it_cost_a_column(rows: list[Any], notes: set[str]) -> None:
    columns = encode(rows, infer(rows))
    assert columns.keys() - {"value"} == notes
    assert same(decode(columns, infer(rows)), rows)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (("k", 1), "the element is a tuple"),
        ({"a": {"b": (1,)}}, "field 'a.b' is a tuple"),
        ({"a": [{"b": {1}}]}, r"field 'a\[\].b' is a set"),
        ({"a": np.float64(1)}, "field 'a' is a float64"),
        ({1: 2}, "has the key 1: keys must be str"),
        ({"a": 2**63}, "field 'a' is an int beyond 64 bits"),
        ({"a": "\ud800"}, "field 'a' has text with a lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        ({"a": [1, "x"]}, r"field 'a\[\]' is int and str"),
        ([1.5, 2**60 + 1], "has an int that no float can hold"),
        ({str(number): 1 for number in range(3000)}, "more than 2000 different keys"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(value: Any, reason: str) -> None:
    with pytest.raises(SchemaMismatch, match=reason):
        encode([value], infer([value]))


def test_nesting_is_bounded() -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    with pytest.raises(SchemaMismatch, match="deeper than 24 levels"):
        infer([value])


@pytest.mark.parametrize(
    ("old", "new", "merged"),
    [
        ("null", "int", "int"),
        ("int", "null", "int"),
        ("int", "float", "float"),
        ({"dict": {"a": "int"}}, {"dict": {"b": "str"}}, {"dict": {"a": "int", "b": "str"}}),
        ({"list": "null"}, {"list": {"dict": {}}}, {"list": {"dict": {}}}),
    ],
)
def test_types_learn(old: Any, new: Any, merged: Any) -> None:
    assert merge(old, new) == merged
    assert narrow(merged, new) in (new, merged)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bool", "int", "the element was bool before and is int now"),
        ({"dict": {"a": {"list": "int"}}}, {"dict": {"a": {"list": "str"}}}, r"field 'a\[\]' was int before"),
        ({"dict": {"a": "str"}}, {"dict": {"a": {"dict": {}}}}, "field 'a' was str before and is dict now"),
    ],
)
def test_a_type_that_changes_is_refused_with_field_old_and_new(old: Any, new: Any, reason: str) -> None:
    with pytest.raises(SchemaMismatch, match=reason):
        merge(old, new)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=20), st.integers(0, 5))
def test_a_hash_is_of_the_id_alone(ids: list[str], begin: int) -> None:
    hashes = id_hashes(pa.array(ids, pa.string())).tolist()
    assert hashes == [hash_of(id_) for id_ in ids]
    assert len(set(hashes)) == len(set(ids))
    assert id_hashes(pa.array(ids, pa.string()).slice(begin)).tolist() == hashes[begin:]


def test_hashes_are_the_same_for_ever() -> None:
    assert [hash_of(id_) for id_ in ("", "a", "orders-12345")] == [
        0,
        -5436950502807814150,
        -3331674487286147199,
    ]


def test_hashes_of_similar_ids_spread() -> None:
    hashes = id_hashes(pa.array([f"file.csv:{row}" for row in range(200_000)], pa.string()))
    assert len(np.unique(hashes)) == 200_000
    buckets = np.bincount(hashes.view(np.uint64) % np.uint64(64), minlength=64)
    assert buckets.min() > 0.9 * 200_000 / 64
    assert hash_sum(hashes[::-1].copy()) == hash_sum(hashes)
