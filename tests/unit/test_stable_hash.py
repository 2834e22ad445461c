"""Equal keys have equal hashes, in every process."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.errors import TupleError
from heronpy.hashing import key_group, key_groups, stable_hash

Pair = namedtuple("Pair", "a b")


class Text(str):
    pass


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


UTC = datetime.UTC
GOLDEN_WORD, GOLDEN_NUMBER = 13812126360980578805, 1716623506685013753
EAST = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, decimal.Decimal(1), fractions.Fraction(1), np.int64(1), np.float32(1), Number.ONE],
        ["word", Text("word"), np.str_("word")],
        [b"x", bytearray(b"x"), memoryview(b"x")],
        [(1, "a"), [1.0, "a"], Pair(1, "a")],
        [{1, 2}, frozenset([2, 1])],
        [{"a": 1, "b": 2}, {"b": 2.0, "a": True}],
        [datetime.datetime(2024, 1, 1, 12, tzinfo=UTC), datetime.datetime(2024, 1, 1, 14, tzinfo=EAST)],
        [0.0, -0.0, 0],
        [float("nan"), float("nan")],
    ],
)
def test_equal_values_meet(equal: list[Any]) -> None:
    assert len({stable_hash(value) for value in equal}) == 1


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(values, values)
def test_whatever_is_equal_has_equal_hashes(left: Any, right: Any) -> None:
    if left == right:
        assert stable_hash(left) == stable_hash(right)
    assert 0 <= stable_hash(left) < 1 << 64


def test_hashes_are_the_same_in_a_process_with_another_salt_and_in_the_next_release() -> None:
    code = (
        "from heronpy.hashing import stable_hash as h\n"
        "print(h('word'), h(12345), h((1, 'a', None, b'x')), h(2.5), h({'k': [1, 2]}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77"},
        timeout=300,
    ).stdout.split()
    here = [stable_hash(v) for v in ("word", 12345, (1, "a", None, b"x"), 2.5, {"k": [1, 2]})]
    assert [int(n) for n in out] == here
    # Written down: a release that changes them would send the keys of running topologies to other tasks.
    assert here[:2] == [GOLDEN_WORD, GOLDEN_NUMBER]


@dataclass(frozen=True)
class Spot:
    x: str
    y: int
    note: str = field(default="", compare=False)


def test_a_dataclass_has_the_hash_of_its_name_and_of_what_is_compared() -> None:
    for _ in range(2):  # the class is known the second time
        assert stable_hash(Spot("x", 1, "noted")) == stable_hash(Spot("x", 1)) == stable_hash(["Spot", "x", 1])
    assert stable_hash(Spot("x", 2)) != stable_hash(Spot("x", 1))


def test_keys_spread_evenly() -> None:
    counts = np.bincount([stable_hash(f"word{n}") % 8 for n in range(8000)], minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150


def test_an_object_without_a_stable_hash_is_refused_by_name() -> None:
    class Opaque:
        pass

    with pytest.raises(TupleError, match="Opaque"):
        stable_hash(Opaque())


def test_a_class_can_name_its_key() -> None:
    class User:
        def __init__(self, name: str, visits: int) -> None:
            self.name, self.visits = name, visits

        def __stable_key__(self) -> str:
            return self.name

    assert stable_hash(User("ann", 1)) == stable_hash(User("ann", 9))
    assert stable_hash(Colour.RED) == stable_hash(Colour.RED)


class Named(str):
    def __stable_key__(self) -> int:
        return 7


@pytest.mark.parametrize(
    "values",
    [[], ["a", "é", ""], ["a", "\ud800"], ["a", Named("b")], [Named("a"), Named("b")], ["a", 1, 1.0, (1, "x"), None]],
    ids=["none", "text", "half a pair", "text and a subclass", "a subclass", "all kinds"],
)
def test_many_at_once_have_the_groups_of_each(values: list[Any]) -> None:
    many = 1 << 30
    assert key_groups(values, many) == [key_group(value, many) for value in values]
