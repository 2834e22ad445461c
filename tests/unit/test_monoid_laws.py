"""Monoids: results, the laws, and what finds a monoid that breaks them."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import subprocess
import sys
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import ConfigError
from heronpy.streamlet import Count, HyperLogLog, Max, Mean, Min, Monoid, MonoidOf, SetUnion, Sum, TopK
from heronpy.streamlet.values import decode_value, encode_value
from heronpy.testing import check_monoid

NUMBERS = st.integers(-(10**20), 10**20) | st.decimals(
    allow_nan=False, allow_infinity=False, places=2, min_value=-999, max_value=999
)
TEXT = st.text(max_size=3)
BOTH = st.fixed_dictionaries({"n": st.integers()}, optional={"who": TEXT, "other": TEXT})


@pytest.mark.parametrize(
    ("monoid", "values"),
    [
        (Sum(), NUMBERS),
        (Count(), TEXT),
        (Min(), st.floats()),
        (Max(), st.floats()),
        (Max(), st.tuples(TEXT, st.integers())),
        (Mean(), st.integers()),
        (SetUnion(), TEXT | st.integers() | st.tuples(TEXT, st.integers()) | st.dates()),
        (TopK(2), st.integers()),
        (TopK(3, key=len), TEXT),
        (HyperLogLog(7), TEXT | st.integers() | st.binary(max_size=3) | st.booleans()),
        (MonoidOf(n=Mean(), who=SetUnion()), BOTH),
    ],
    ids=repr,
)
def test_a_monoid_keeps_the_laws(monoid: Monoid, values: Any) -> None:
    check_monoid(monoid, values)


def test_sums_of_floats_keep_the_laws_approximately() -> None:
    floats = st.floats(min_value=0, max_value=1e9)
    check_monoid(Sum(), floats, equal=lambda a, b: math.isclose(a, b, rel_tol=1e-9))
    with pytest.raises(AssertionError, match="breaks a law"):
        check_monoid(Sum(), [0.1, 0.2, 0.3])


def test_a_list_of_values_is_enough_for_a_check() -> None:
    check_monoid(Sum(), [1, 2, 3])


class AverageOfAverages(Monoid):
    def lift(self, value: float) -> float:
        return value

    def merge(self, a: float, b: float) -> float:
        return (a + b) / 2


class Last(Monoid):
    def lift(self, value: int) -> int:
        return value

    def merge(self, a: int, b: int) -> int:
        return b


class Greedy(Monoid):
    def lift(self, value: int) -> list[int]:
        return [value]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        b.extend(a)
        b.sort()
        return b


class Forgetful(Sum):
    def decode(self, data: bytes) -> int:
        return 0


class AddsTwice(Sum):
    def add(self, acc: int, value: int) -> int:
        return acc + 2 * value


@pytest.mark.parametrize(
    ("monoid", "law"),
    [
        (AverageOfAverages(), r"merge\(merge\(a, b\), c\) is merge\(a, merge\(b, c\)\) with a of \[0\], b of \[0\]"),
        (Last(), r"merge\(a, b\) is merge\(b, a\) with a of \[0\], b of \[1\]"),
        (Greedy(), "leaves b as it is"),
        (Forgetful(), "decode"),
        (AddsTwice(), "one by one"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Monoid) else "",
)
def test_what_is_no_monoid_is_found_with_an_example(monoid: Monoid, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_monoid(monoid, st.integers(min_value=0, max_value=100))


def test_without_hypothesis_examples_are_random_with_a_seed_that_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    check_monoid(Sum(), [1, 2, 3])
    assert "seed" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="breaks a law"):
        check_monoid(AverageOfAverages(), [1, 2, 3])


def of(monoid: Monoid, *values: Any) -> Any:
    acc = monoid.lift(values[0])
    for value in values[1:]:
        acc = monoid.add(acc, value)
    return monoid.result(monoid.decode(monoid.encode(acc)))


def test_results_are_what_their_names_say() -> None:
    assert of(Sum(), 2**70, 1) == 2**70 + 1
    assert of(Sum(), decimal.Decimal("0.10"), decimal.Decimal("0.20")) == decimal.Decimal("0.30")
    assert of(Count(), "a", None, 3) == 3
    assert of(Min(), 3, 1, 2) == 1
    assert of(Max(), "b", "c", "a") == "c"
    assert of(Mean(), 1, 2, 6) == 3
    assert of(SetUnion(), "b", "a", "b") == {"a", "b"}
    assert of(TopK(2), 1, 5, 3, 5) == [5, 5]
    assert of(TopK(2, key=lambda bid: bid["price"]), {"price": 1}, {"price": 3}, {"price": 2}) == [
        {"price": 3},
        {"price": 2},
    ]
    assert of(MonoidOf(price=Mean(), who=SetUnion()), {"price": 1, "who": "a"}, {"price": 3, "x": 1}) == {
        "price": 2,
        "who": {"a"},
    }


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("monoid", [Sum(), Mean()], ids=["sum", "mean"])
def test_integers_of_numpy_are_added_as_ints(kind: Any, monoid: Monoid) -> None:
    most = int(np.iinfo(kind).max)
    for values in ([kind(most), kind(most), 1], [1, kind(most), kind(1)]):
        added = functools.reduce(monoid.add, values[1:], monoid.lift(values[0]))
        merged = functools.reduce(monoid.merge, map(monoid.lift, values))
        assert monoid.result(added) == monoid.result(merged) == of(monoid, *map(int, values))


@pytest.mark.parametrize(
    "monoid",
    [Sum(), Min(), Max(), Mean(), TopK(2), TopK(2, key=lambda value: value), SetUnion()],
    ids=["sum", "min", "max", "mean", "top", "top by key", "set"],
)
def test_a_value_that_does_not_fit_is_refused_and_changes_nothing(monoid: Monoid) -> None:
    # Also as the first of its key: kept, it would keep out all others, or fail wherever the view is read.
    odd: Any = [] if isinstance(monoid, SetUnion) else None
    with pytest.raises(TypeError):
        monoid.lift(odd)
    acc = monoid.lift(1)
    with pytest.raises(TypeError):
        monoid.add(acc, odd)
    assert monoid.result(monoid.add(acc, 1)) == of(monoid, 1, 1)


def test_a_nan_is_no_extreme_while_there_are_numbers() -> None:
    assert of(Min(), math.nan, 1.0) == of(Max(), 1.0, math.nan) == 1.0
    assert math.isnan(of(Max(), math.nan))


def test_equal_sets_are_stored_as_equal_bytes() -> None:
    assert SetUnion().encode({"a", "b", 1}) == SetUnion().encode({1, "b", "a"})


def test_different_values_are_estimated_well_and_equal_ones_count_once() -> None:
    monoid = HyperLogLog()
    assert of(monoid, 1, 1.0, True, "1", b"1", decimal.Decimal(1), "", 2**70) == 5
    assert abs(of(monoid, *(f"user-{n}" for n in range(20_000))) / 20_000 - 1) < 0.05


def test_a_sketch_counts_the_values_that_another_process_has_seen_once() -> None:
    code = (
        "import sys; from heronpy.streamlet import HyperLogLog\n"
        "m = HyperLogLog(); acc = m.lift('a')\n"
        "for v in ['b', 3, b'x', ('t', 1)]: m.add(acc, v)\n"
        "sys.stdout.buffer.write(m.encode(acc))"
    )
    data = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=300).stdout
    monoid = HyperLogLog()
    acc = monoid.decode(data)
    for value in ["a", "b", 3, b"x", ("t", 1)]:
        acc = monoid.add(acc, value)
    assert monoid.result(acc) == 5


def test_estimates_do_not_depend_on_where_values_were_merged() -> None:
    monoid = HyperLogLog(8)
    whole = monoid.lift(0)
    left, right = monoid.lift(0), monoid.lift(0)
    for value in range(2000):
        whole = monoid.add(whole, value)
        left, right = monoid.add(right, value), left
    assert monoid.result(whole) == monoid.result(monoid.merge(left, right))


@pytest.mark.parametrize("make", [lambda: TopK(0), lambda: HyperLogLog(3), MonoidOf, lambda: MonoidOf(a=Sum)])  # type: ignore[arg-type]  # wrong on purpose
def test_impossible_monoids_are_refused(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.dates()
    | st.timedeltas()
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_accumulators_come_back_as_what_they_were(value: Any) -> None:
    back = decode_value(encode_value(value))
    assert back == value
    assert type(back) is type(value)


def test_an_accumulator_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(TypeError, match="object cannot be kept in a view"):
        Sum().encode([object()])
    with pytest.raises(ValueError, match="not an encoded value"):
        decode_value(b"\xc1")
    assert decode_value(encode_value({uuid.UUID(int=1): {1, (2, "\udcff")}})) == {uuid.UUID(int=1): {1, (2, "\udcff")}}
