"""Keys as bytes: equal keys have equal bytes, in every process and on every machine.

Numbers are what makes this more than msgpack: 1 == 1.0 == True == Decimal(1) is one key in Python, so it is one here,
and comes back as the int 1. A NamedTuple is its plain tuple, a member of a str or int Enum is its value, an aware
datetime is its instant (it comes back in UTC). So `decode_key(encode_key(key)) == key`, with two exceptions, where
Python has no usable equality: nan is one key, and a list is the tuple of its elements.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import operator
import uuid
from typing import Any

import msgspec

_INT, _DECIMAL, _FROZENSET, _INSTANT, _NAIVE, _DATE, _UUID, _SURROGATES = range(1, 9)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NAIVE_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST, _LAST = datetime.datetime.min - _NAIVE_EPOCH, datetime.datetime.max - _NAIVE_EPOCH
_MICROSECOND = datetime.timedelta(microseconds=1)
_DECIMAL_EXPONENT_MAX = 4000  # a larger one makes an integer of megabytes

_pack = msgspec.msgpack.Encoder().encode


def encode_key(key: Any) -> bytes:
    """A key as bytes, the same for equal keys.

    Takes None, bool, int, float, str, bytes, datetime, date, Decimal, UUID, and tuples, lists and frozensets of these.

    Raises:
        TypeError: another type; one line.
    """
    if type(key) is str:
        try:
            return _pack(key)
        except UnicodeEncodeError:
            pass  # lone surrogates, as in names of files that are not UTF-8
    return _pack(_plain(key))


def decode_key(data: bytes) -> Any:
    """The key that `encode_key` was given, or one equal to it.

    Raises:
        ValueError: these bytes are not key.
    """
    try:
        key = _unpack(data)
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError) as e:
        raise ValueError(f"not an encoded key: {bytes(data[:40])!r} ({e})") from e
    return _tuples(key) if type(key) is list else key


def _plain(key: Any) -> Any:
    """What msgpack has a canonical form for."""
    kind = type(key)
    if kind is str:
        return _text(key)
    if kind is int:
        return _integer(key)
    if key is None or kind is bytes:
        return key
    if kind is float:
        return _float(key)
    if isinstance(key, (tuple, list)):
        return [_plain(part) for part in key]
    return _rarer(key)


def _rarer(key: Any) -> Any:
    if isinstance(key, str):
        return _text(str.__str__(key))
    if isinstance(key, (bytes, bytearray)):
        return bytes(key)
    if isinstance(key, (frozenset, set)):
        return msgspec.msgpack.Ext(_FROZENSET, _pack(sorted(encode_key(part) for part in key)))
    if isinstance(key, numbers.Integral):  # bool, IntEnum, numpy's
        return _integer(operator.index(key))
    if isinstance(key, decimal.Decimal):
        return _decimal(key)
    if isinstance(key, numbers.Real) and not isinstance(key, numbers.Rational):
        return _float(float(key))
    if isinstance(key, datetime.datetime):
        return _datetime(key)
    if isinstance(key, datetime.date):
        return msgspec.msgpack.Ext(_DATE, _pack(key.toordinal()))
    if isinstance(key, uuid.UUID):
        return msgspec.msgpack.Ext(_UUID, key.bytes)
    raise TypeError(f"a {type(key).__name__} cannot be a key: use text, numbers, bytes, times or tuples of these")


def _text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return msgspec.msgpack.Ext(_SURROGATES, text.encode("utf-8", "surrogatepass"))
    return text


def _integer(number: int) -> Any:
    if -(1 << 63) <= number < 1 << 64:
        return number
    return msgspec.msgpack.Ext(_INT, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def _float(number: float) -> Any:
    if number.is_integer():
        return _integer(int(number))
    return math.nan if math.isnan(number) else number  # one nan: bits that differ mean nothing


def _decimal(number: decimal.Decimal) -> Any:
    if number.is_nan():
        return math.nan
    if number.is_infinite():
        return float(number)
    if abs(number.adjusted()) > _DECIMAL_EXPONENT_MAX and number:
        raise TypeError(f"a Decimal of exponent {number.adjusted()} cannot be a key")
    if number == number.to_integral_value():
        return _integer(int(number))
    if decimal.Decimal(float(number)) == number:
        return float(number)
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    assert isinstance(exponent, int)  # finite
    shorter = text.rstrip("0")
    return msgspec.msgpack.Ext(
        _DECIMAL, f"{'-' * sign}{shorter.lstrip('0')}E{exponent + len(text) - len(shorter)}".encode()
    )


def _datetime(key: datetime.datetime) -> msgspec.msgpack.Ext:
    if key.utcoffset() is None:
        return msgspec.msgpack.Ext(_NAIVE, _pack((key.replace(tzinfo=None) - _NAIVE_EPOCH) // _MICROSECOND))
    since_epoch = key - _EPOCH
    if not _FIRST <= since_epoch <= _LAST:
        raise TypeError(f"{key} cannot be a key: in UTC it is not within the years 1 to 9999")
    return msgspec.msgpack.Ext(_INSTANT, _pack(since_epoch // _MICROSECOND))


def _ext(code: int, packed: memoryview) -> Any:
    data = bytes(packed)
    if code == _INT:
        return int.from_bytes(data, "big", signed=True)
    if code == _DECIMAL:
        return decimal.Decimal(data.decode())
    if code == _FROZENSET:
        return frozenset(map(decode_key, _unpack(data)))
    if code == _INSTANT:
        return _EPOCH + _unpack(data) * _MICROSECOND
    if code == _NAIVE:
        return _NAIVE_EPOCH + _unpack(data) * _MICROSECOND
    if code == _DATE:
        return datetime.date.fromordinal(_unpack(data))
    if code == _UUID:
        return uuid.UUID(bytes=data)
    if code == _SURROGATES:
        return data.decode("utf-8", "surrogatepass")
    raise ValueError(f"a type {code} that this version does not know")


_unpack = msgspec.msgpack.Decoder(ext_hook=_ext).decode


def _tuples(parts: list[Any]) -> tuple[Any, ...]:
    return tuple([_tuples(part) if type(part) is list else part for part in parts])
