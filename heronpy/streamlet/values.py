"""Accumulators as bytes that come back as what they were: msgpack, with types that it has no word for as extensions."""

from __future__ import annotations

import datetime
import decimal
import numbers
import operator
import uuid
from typing import Any

import msgspec

_INT, _TUPLE, _SET, _FROZENSET, _PAIRS, _DECIMAL, _DATETIME, _DATE, _DURATION, _UUID, _SURROGATES = range(20, 31)
_SCALARS = frozenset({int, float, str, bytes, bool, type(None)})
_MICROSECOND = datetime.timedelta(microseconds=1)

_pack = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext


def encode_value(value: Any) -> bytes:
    """A value as bytes.

    Takes None, bool, int, float, str, bytes, Decimal, datetime, date, timedelta, UUID, and lists, tuples, sets,
    frozensets and dicts of these. Subclasses (NamedTuple, IntEnum, numpy's numbers) come back as the plain type.
    Equal sets have equal bytes.

    Raises:
        TypeError: another type; one line.
    """
    if type(value) in _SCALARS:
        try:
            return _pack(value)
        except (OverflowError, UnicodeEncodeError):
            pass  # an int of more than 64 bits, or lone surrogates
    return _pack(_tree(value))


def decode_value(data: bytes) -> Any:
    """What `encode_value` was given.

    Raises:
        ValueError: these bytes are not value.
    """
    try:
        return _unpack(data)
    except (msgspec.MsgspecError, decimal.InvalidOperation, OverflowError) as e:
        raise ValueError(f"not an encoded value: {bytes(data[:40])!r} ({e})") from e


def _tree(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is str:
        return _scalar(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [_tree(part) for part in value]
    if isinstance(value, tuple):
        return _Ext(_TUPLE, _pack([_tree(part) for part in value]))
    if isinstance(value, dict):
        return _dict(value)
    if isinstance(value, (set, frozenset)):
        code = _SET if isinstance(value, set) else _FROZENSET
        return _Ext(code, _pack(sorted(encode_value(part) for part in value)))
    return _rarer(value)


def _rarer(value: Any) -> Any:
    if isinstance(value, str):
        return _scalar(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, list):
        return [_tree(part) for part in value]
    if isinstance(value, numbers.Integral):
        return _scalar(operator.index(value))
    if isinstance(value, decimal.Decimal):
        return _Ext(_DECIMAL, str(value).encode())
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return float(value)
    if isinstance(value, datetime.datetime):
        return _Ext(_DATETIME, value.isoformat().encode())
    if isinstance(value, datetime.date):
        return _Ext(_DATE, value.isoformat().encode())
    if isinstance(value, datetime.timedelta):
        return _Ext(_DURATION, encode_value(value // _MICROSECOND))  # may need more than 64 bits
    if isinstance(value, uuid.UUID):
        return _Ext(_UUID, value.bytes)
    raise TypeError(
        f"{type(value).__name__} cannot be kept in a view: give the monoid its own encode() and decode(), "
        "or use plain values, lists, tuples, sets and dicts"
    )


def _scalar(value: int | str) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return _Ext(_SURROGATES, value.encode("utf-8", "surrogatepass"))
        return value
    if -(1 << 63) <= value < 1 << 64:
        return value
    return _Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _dict(value: dict[Any, Any]) -> Any:
    if all(type(key) is str and key.isascii() for key in value):
        return {key: _tree(part) for key, part in value.items()}
    return _Ext(_PAIRS, _pack([[_tree(key), _tree(part)] for key, part in value.items()]))


def _ext(code: int, packed: memoryview) -> Any:
    data = bytes(packed)
    if code == _INT:
        return int.from_bytes(data, "big", signed=True)
    if code == _TUPLE:
        return tuple(_unpack(data))
    if code == _SET:
        return set(map(_unpack, _unpack(data)))
    if code == _FROZENSET:
        return frozenset(map(_unpack, _unpack(data)))
    if code == _PAIRS:
        return dict(_unpack(data))
    if code == _DECIMAL:
        return decimal.Decimal(data.decode())
    if code == _DATETIME:
        return datetime.datetime.fromisoformat(data.decode())
    if code == _DATE:
        return datetime.date.fromisoformat(data.decode())
    if code == _DURATION:
        return _unpack(data) * _MICROSECOND
    if code == _UUID:
        return uuid.UUID(bytes=data)
    if code == _SURROGATES:
        return data.decode("utf-8", "surrogatepass")
    raise ValueError(f"a type {code} that this version does not know")


_unpack = msgspec.msgpack.Decoder(ext_hook=_ext).decode
