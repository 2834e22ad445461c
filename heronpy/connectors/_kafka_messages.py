"""What a message of Kafka means."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from heronpy.connectors._kafka_registry import RegistryFormat
from heronpy.errors import ConfigError, HeronError
from heronpy.shown import said

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes | None]


class KafkaMessage(NamedTuple):
    """A message as a whole: what `KafkaTopic(whole=True)` reads, and what `KafkaSink` writes as it is."""

    value: Any
    key: Any = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int | None = None
    """When it was made, in ms since the epoch; None, where one is written: now."""
    partition: int | None = None
    """None, where one is written: by its key."""
    offset: int | None = None
    """Does not matter where one is written."""


def _text(data: bytes) -> str:
    return data.decode()


def _json(data: bytes) -> Any:
    return msgspec.json.decode(data)


_DECODERS: Final[dict[str, Decode]] = {"bytes": bytes, "json": _json, "text": _text}


def _encode_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("it is not bytes")
    return value


def _encode_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("it is not text")
    return value.encode()


_ENCODERS: Final[dict[str, Encode]] = {"bytes": _encode_bytes, "json": msgspec.json.encode, "text": _encode_text}


def decoder(given: str | Decode, who: str, topic: str, field: str) -> Decode:
    """The function of a format's name, or the user's own, for `key` or `value` of a topic's messages.

    Raises:
        ConfigError: no such format.
    """
    found: Decode = _found(given, _DECODERS, who, topic, field)
    return found


def encoder(given: str | Encode, who: str, topic: str, field: str) -> Encode:
    """As `decoder`."""
    found: Encode = _found(given, _ENCODERS, who, topic, field)
    return found


def _found(given: Any, known: dict[str, Any], who: str, topic: str, field: str) -> Any:
    if isinstance(given, RegistryFormat):
        return given.of(topic, field)
    if callable(given):
        return given
    if given not in known:
        raise ConfigError(f"{who}: a format is one of {', '.join(known)} or a function, not {given!r}")
    return known[given]


class Decoder:
    """Messages as elements."""

    def __init__(self, value: Decode, key: Decode, *, whole: bool) -> None:
        self._value = value
        self._key = key
        self._whole = whole

    def decode(self, message: Any) -> Any:
        """The element. No value (a tombstone) is None.

        Raises:
            ValueError: malformed; says why.
            HeronError: a schema registry does not answer, or its configuration is wrong.
        """
        data = message.value()
        value = None if data is None else _decoded(self._value, data, "value")
        if not self._whole:
            return value
        data = message.key()
        key = None if data is None else _decoded(self._key, data, "key")
        return KafkaMessage(
            value, key, _headers(message), message.timestamp()[1], message.partition(), message.offset()
        )


_headers_of = operator.methodcaller("headers")


def _headers(message: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Raises ValueError if a name is no text."""
    # Then the client returns names that are null pointers, which end the process, and leaves an exception set besides:
    # a plain call of its method may overlook that.
    try:
        return tuple(_headers_of(message) or ())
    except (SystemError, ValueError) as e:
        message.set_headers([])
        raise ValueError(f"its headers are malformed: {said(e.__cause__ or e)}") from e


def _decoded(decode: Decode, data: bytes, what: str) -> Any:
    try:
        return decode(data)
    except HeronError:
        raise
    except Exception as e:  # it may be the user's own
        raise ValueError(f"its {what} is malformed: {said(e)}") from e


def shown(message: Any) -> dict[str, Any]:
    """A message as a dead letter has it: as text, with escapes for what is none."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="backslashreplace")

    try:
        headers = {name: text(value) for name, value in _headers(message)}
    except ValueError:
        headers = {}
    return {"key": text(message.key()), "value": text(message.value()), "headers": headers}
