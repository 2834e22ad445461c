"""Keys as a checkpoint has them."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pickle
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from heronpy.errors import TupleError
from heronpy.hashing import encode_key

_EXACT = frozenset((type(None), int, str, bytes))
_LIKE_THEIR_FIELDS: set[type] = set()
"""Dataclasses of which one was equal to its copy: so are others, if their fields are."""
_COMPARED: dict[type, tuple[str, Sequence[str]]] = {}
"""Name of dataclasses that were seen, and of what is compared of them: to find that out takes long."""
_EQUAL_UNLESS_NAN = frozenset(
    (bool, float, decimal.Decimal, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID)
)


def key_bytes(key: Any) -> bytes:
    """A key as bytes, equal for equal keys: that of `encode_key`, for all types that have a stable hash.

    Raises:
        TupleError: its type has none.
    """
    if type(key) not in _COMPARED:
        try:
            return encode_key(key)
        except TypeError:
            pass
    return encode_key(_plain(key))


def comes_back(key: Any) -> bool:
    """Whether `decode_key` of its bytes gives this very key, type and all, and not only one that is equal."""
    kind = type(key)
    if kind in _EXACT:
        return True
    if kind is float:
        return key == key and not key.is_integer()
    return kind is tuple and all(map(comes_back, key))


def check_lasting(key: Any) -> None:
    """Refuse a key that a restore would not find again.

    What is stored under one would be there twice after it was written twice, and again after it was deleted.

    Raises:
        TupleError: its type has no stable hash, or it is not equal to its own copy: it has nan in it, or its class no
            `__eq__`.
    """
    kind = type(key)
    if kind in _EXACT or (kind is tuple and _EXACT.issuperset(map(type, key))):
        return
    key_bytes(key)
    if _equals_its_copy(key):
        return
    try:
        copy = pickle.loads(pickle.dumps(key, pickle.HIGHEST_PROTOCOL))
    except BaseException:  # that is found, and named, where it is written
        return
    if copy == key and hash(copy) == hash(key):
        if kind in _COMPARED:
            _LIKE_THEIR_FIELDS.add(kind)
    else:
        raise TupleError(
            f"a {type(key).__qualname__} cannot be a key if it is not equal to its own copy: nan is not, nor what has "
            "it in it, nor objects of a class without __eq__() and __hash__()"
        )


def _equals_its_copy(key: Any) -> bool:
    """Whether that is known by its type, as of nearly all keys: making a copy of each takes microseconds."""
    kind = type(key)
    if kind in _EXACT:
        return True
    if kind in _EQUAL_UNLESS_NAN:
        return bool(key == key)
    if issubclass(kind, tuple) and (kind.__eq__, kind.__hash__) == (tuple.__eq__, tuple.__hash__):  # a named one, too
        return all(map(_equals_its_copy, key))
    if kind in _LIKE_THEIR_FIELDS:
        return all(_equals_its_copy(getattr(key, name)) for name in _COMPARED[kind][1])
    return issubclass(kind, enum.Enum)


def _plain(key: Any) -> Any:
    """A key of plain types, another one for each key that is another."""
    if type(key) in _EXACT:
        return key
    if (compared := _COMPARED.get(type(key))) is not None:
        return ("\0dataclass", compared[0], *[_plain(getattr(key, name)) for name in compared[1]])
    if isinstance(key, (tuple, list)):
        return tuple(map(_plain, key))
    if isinstance(key, (frozenset, set)):
        return frozenset(map(_plain, key))
    try:
        encode_key(key)
    except TypeError:
        return _tagged(key)
    return key


def _tagged(key: Any) -> Any:
    kind = type(key)
    of_class = f"{kind.__module__}.{kind.__qualname__}"
    stable_key = getattr(key, "__stable_key__", None)
    if stable_key is not None:
        return ("\0stable", of_class, _plain(stable_key()))
    if isinstance(key, enum.Enum):
        return ("\0enum", of_class, key.name)
    if is_dataclass(key):
        _COMPARED[kind] = of_class, [field.name for field in fields(key) if field.compare]
        return _plain(key)
    if isinstance(key, fractions.Fraction):
        return ("\0fraction", key.numerator, key.denominator)
    if isinstance(key, complex):
        return _plain(key.real) if key.imag == 0 else ("\0complex", _plain(key.real), _plain(key.imag))
    if isinstance(key, datetime.timedelta):
        return ("\0timedelta", key // datetime.timedelta(microseconds=1))
    if isinstance(key, datetime.time):
        return ("\0time", _time_us(key), key.utcoffset() is not None)
    if isinstance(key, Mapping):
        return ("\0mapping", frozenset((_plain(k), _plain(v)) for k, v in key.items()))
    if hasattr(key, "tolist"):
        return _plain(key.tolist())
    raise TupleError(f"a {kind.__qualname__} cannot be a key: use text, numbers, or give the class a __stable_key__()")


def _time_us(time: datetime.time) -> int:
    us = ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond
    offset = time.utcoffset()
    return us if offset is None else us - offset // datetime.timedelta(microseconds=1)
