"""Keys as bytes: equal keys have equal bytes, others do not, and they come back."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import subprocess
import sys
import uuid
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.stores import decode_key, encode_key, key_label
from heronpy.streamlet import KeyedWindow, Window


class Place(NamedTuple):
    row: int
    name: str


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    ONE = 1


class Name(str):
    __slots__ = ()


UTC_NOON = datetime.datetime(2014, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "keys",
    [
        (1, 1.0, True, decimal.Decimal("1.00"), np.int64(1), np.float64(1)),
        (0, 0.0, -0.0, False, decimal.Decimal("-0")),
        (0.5, decimal.Decimal("0.50"), np.float32(0.5)),
        (decimal.Decimal("0.1"), decimal.Decimal("0.10"), decimal.Decimal("1E-1")),
        (10**30, decimal.Decimal("1E30")),
        (math.inf, decimal.Decimal("Infinity")),
        ("red", Colour.RED, Name("red")),
        (3, Level.HIGH),
        ((1, "a"), Place(1, "a"), (1.0, Name("a"))),
        (("k", (0, 60)), KeyedWindow("k", Window(0.0, 60.0))),
        (frozenset({1, "a"}), frozenset({"a", 1.0})),
        (UTC_NOON, UTC_NOON.astimezone(datetime.timezone(datetime.timedelta(hours=2)))),
    ],
    ids=lambda keys: type(keys[0]).__name__,  # the order in which a set is printed differs between processes
)
def test_equal_keys_have_equal_bytes(keys: tuple[Any, ...]) -> None:
    assert len({encode_key(key) for key in keys}) == 1
    assert decode_key(encode_key(keys[0])) == keys[0]


@pytest.mark.parametrize("bits", [0x7FF8000000000000, 0xFFF8000000000001])
def test_every_nan_is_one_key(bits: int) -> None:
    nan = np.uint64(bits).view(np.float64)
    assert encode_key(nan) == encode_key(math.nan) == encode_key(decimal.Decimal("nan"))


KEYS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-5, 5).map(float)
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9)
    | st.text(max_size=3)
    | st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), max_size=2)
    | st.binary(max_size=3)
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.dates()
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)


@given(KEYS)
def test_keys_come_back(key: Any) -> None:
    assert decode_key(encode_key(key)) == key


@given(KEYS, KEYS)
def test_bytes_are_equal_exactly_if_keys_are(one: Any, other: Any) -> None:
    assert (encode_key(one) == encode_key(other)) == (one == other)


def test_a_list_is_the_tuple_of_its_elements() -> None:
    assert encode_key([1, ["a"]]) == encode_key((1, ("a",)))
    assert decode_key(encode_key([1, ["a"]])) == (1, ("a",))


def test_bytes_do_not_depend_on_the_process() -> None:
    key = (1, "a", frozenset({"x", "y", "z", 3}), UTC_NOON, uuid.UUID(int=7))
    code = (
        "import datetime, uuid; from heronpy.stores import encode_key\n"
        "noon = datetime.datetime(2014, 3, 1, 12, tzinfo=datetime.UTC)\n"
        "print(encode_key((1, 'a', frozenset({'x', 'y', 'z', 3}), noon, uuid.UUID(int=7))).hex())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, timeout=300, text=True
    ).stdout
    assert found.strip() == encode_key(key).hex()


@pytest.mark.parametrize("key", [object(), {"a": 1}, Plain.ONE, Fraction(1, 3), 1j, (1, [object()]), lambda: 1])
def test_other_types_are_refused_in_one_line(key: Any) -> None:
    with pytest.raises(TypeError, match="cannot be a key") as error:
        encode_key(key)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("bound", "hours"), [(datetime.datetime.min, 1), (datetime.datetime.max, -1)])
def test_an_instant_that_cannot_come_back_in_utc_is_refused(bound: datetime.datetime, hours: int) -> None:
    assert decode_key(encode_key(bound.replace(tzinfo=datetime.UTC))) == bound.replace(tzinfo=datetime.UTC)
    with pytest.raises(TypeError, match="cannot be a key"):
        encode_key(bound.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=hours))))


def test_a_decimal_with_a_huge_exponent_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(TypeError, match="exponent"):
        encode_key(decimal.Decimal("1E999999"))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xa5ab", b"\x01\x02", b"\xd4\x7fx", b"\xd4\x06\x00", b"\xd4\x07x"])
def test_other_bytes_are_no_key(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an encoded key"):
        decode_key(data)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("word", "word"),
        ("two\nlines", r"'two\nlines'"),
        ("", "''"),
        (7, "7"),
        (("a", 1), "(a, 1)"),
        (KeyedWindow("a", Window(1393675200.0, 1393675260.0)), "a 2014-03-01T12:00:00Z/2014-03-01T12:01:00Z"),
        (Window(0.0, 0.25), "1970-01-01T00:00:00Z/1970-01-01T00:00:00.250Z"),
        (UTC_NOON, "2014-03-01T12:00:00+00:00"),
        (None, "None"),
    ],
)
def test_labels_are_for_people(key: Any, label: str) -> None:
    assert key_label(key) == label
