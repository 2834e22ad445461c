"""A hash of values that never changes.

Fields grouping sends equal keys to the same task, whichever process, Python version or restart computes it. Python's
own `hash` is salted for text, so it cannot serve; hashing pickled bytes (as Heron does) separates equal values that
pickle differently. Here equal values have equal hashes: 1, 1.0, True and Decimal(1) meet, so do "a" and a str subclass
"a", (1, 2) and a namedtuple of it, {1, 2} and frozenset({2, 1}), one instant in two time zones.

Numbers use CPython's numeric hash, which is specified (modulo 2**61 - 1) and not salted. Text and bytes use CRC-32
through zlib: the fastest stable hash in the standard library; what it lacks in strength the final mixing makes up.
"""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from itertools import repeat
from numbers import Number
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from heronpy.errors import TupleError

if TYPE_CHECKING:
    import numpy as np

TEXT_SEED: Final = 0x5743
"""The CRC-32 of text begins with it."""
_MASK = (1 << 64) - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def mix(number: int) -> int:
    """Spread the bits of a 64-bit number over all of them (the finalizer of MurmurHash3)."""
    number &= _MASK
    number = ((number ^ (number >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    number = ((number ^ (number >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return number ^ (number >> 33)


def stable_hash(value: Any) -> int:
    """A 64-bit hash of `value`, equal for equal values in every process.

    Raises:
        TupleError: the type has no stable hash. A class of yours gets one by a method `__stable_key__()` that returns
            a value of a supported type.
    """
    return mix(_raw(value))


def stable_hashes(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """`stable_hash` of each, in a fraction of the time for text."""
    import numpy as np  # here: executors and the CLI hash nothing, and must stay small

    raw = _raw_texts(values)
    if raw is None:
        raw = np.array([_raw(value) & _MASK for value in values], dtype=np.uint64)
    raw = (raw ^ (raw >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    raw = (raw ^ (raw >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return raw ^ (raw >> np.uint64(33))


def _raw_texts(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.uint64]] | None:
    """`_raw` of each without running bytecode for it; None if not all are plain text."""
    import numpy as np

    if not {*map(type, values)} <= {str}:
        return None
    try:
        raw = np.fromiter(map(crc32, map(str.encode, values), repeat(TEXT_SEED)), dtype=np.uint64, count=len(values))
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return raw + np.uint64(0x100000000)


def text_crc(text: str) -> int:
    """32 bits, equal for equal text."""
    return crc32(str.encode(text, "utf-8", "surrogatepass"), TEXT_SEED)


def _raw(value: Any) -> int:
    kind = type(value)
    if kind is str:
        return crc32(value.encode("utf-8", "surrogatepass"), TEXT_SEED) + 0x100000000
    hasher = _EXACT.get(kind) or _OF_DATACLASS.get(kind)
    return hasher(value) if hasher is not None else _by_behaviour(value)


def _by_behaviour(value: Any) -> int:
    """The slow path: subclasses, and types known by what they can do."""
    key = getattr(value, "__stable_key__", None)
    if key is not None and not isinstance(value, type):
        return mix(_raw(key()) + 11)
    if isinstance(value, enum.Enum) and not isinstance(value, (int, str)):
        return mix(_raw(f"{type(value).__module__}.{type(value).__qualname__}.{value.name}") + 1)
    for kind, hasher in _BY_CLASS:
        if isinstance(value, kind):
            return hasher(value)
    if is_dataclass(value) and not isinstance(value, type):
        hasher = _OF_DATACLASS[type(value)] = _dataclass_hasher(type(value))
        return hasher(value)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return _raw(value.tolist())
    raise TupleError(
        f"a {type(value).__qualname__} cannot be a grouping key: its hash would differ between processes; "
        "use text, numbers, or give the class a method __stable_key__()"
    )


def _dataclass_hasher(kind: type) -> Callable[[Any], int]:
    # Once for each class: to find out what a value is like takes longer than to hash it.
    name, names = kind.__qualname__, [field.name for field in fields(kind) if field.compare]
    return lambda value: _sequence([name, *[getattr(value, each) for each in names]])


def _number(value: Any) -> int:
    # int, float, complex, Decimal, Fraction and numpy's numbers: equal numbers have equal hashes, by Python's rules.
    # NaN's hash depends on its address; all NaNs meet here.
    return hash(value) & _MASK if value == value else 0x7FF8


def _bytes(value: Any) -> int:
    return crc32(value, 0x4242) + 0x200000000


def _sequence(value: Sequence[Any]) -> int:
    number = len(value) + 0x300000000
    for item in value:
        number = mix(number * 31 + _raw(item))
    return number


def _set(value: Set[Any]) -> int:
    return (len(value) + 0x400000000 + sum(mix(_raw(item)) for item in value)) & _MASK


def _mapping(value: Mapping[Any, Any]) -> int:
    pairs = sum(mix(_raw(k) * 31 + mix(_raw(v))) for k, v in value.items())
    return (len(value) + 0x500000000 + pairs) & _MASK


def _datetime(value: datetime.datetime) -> int:
    if value.utcoffset() is None:
        return _sequence(["naive", value.toordinal(), _time_us(value.time())])
    return _number((value - _EPOCH) // datetime.timedelta(microseconds=1)) + 0x600000000


def _time_us(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _time(value: datetime.time) -> int:
    offset = value.utcoffset()
    if offset is None:
        return _sequence(["time", _time_us(value)])
    return _sequence(["aware", (_time_us(value) - offset // datetime.timedelta(microseconds=1)) % 86_400_000_000])


_EXACT: dict[type, Callable[[Any], int]] = {
    int: _number,
    float: _number,
    bool: _number,
    bytes: _bytes,
    tuple: _sequence,
    list: _sequence,
    type(None): lambda _: 0x700000000,
}

_OF_DATACLASS: dict[type, Callable[[Any], int]] = {}
"""Of those that were seen."""

_BY_CLASS: Sequence[tuple[Any, Callable[[Any], int]]] = (
    (str, lambda v: _raw(str.__str__(v))),
    (Number, _number),
    ((bytes, bytearray, memoryview), _bytes),
    (datetime.datetime, _datetime),
    (datetime.date, lambda v: _sequence(["date", v.toordinal()])),
    (datetime.time, _time),
    (datetime.timedelta, lambda v: _sequence(["delta", v // datetime.timedelta(microseconds=1)])),
    (uuid.UUID, lambda v: _sequence(["uuid", v.int])),
    ((tuple, list), _sequence),
    (Set, _set),
    (Mapping, _mapping),
)
