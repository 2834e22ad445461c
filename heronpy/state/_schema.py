"""What a state is called, how its values become bytes, and how values of an older version become new ones."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import msgspec

from heronpy.checkpoints import Kind as Kind
from heronpy.checkpoints import StateEntry
from heronpy.errors import ConfigError
from heronpy.state._arrow_tables import decode_table, encode_table

_PICKLE_PROTOCOL: Final = 5


@dataclass(frozen=True, slots=True)
class Codec:
    """Values to bytes and back."""

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]
    """Of any buffer."""


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, _PICKLE_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions and classes that cannot be imported by name. What cloudpickle writes is read by pickle.
        return bytes(cloudpickle.dumps(value, _PICKLE_PROTOCOL))


CODECS: Final = {
    codec.name: codec
    for codec in (
        Codec("pickle", _pickled, pickle.loads),
        Codec("msgpack", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode),
        Codec("arrow", encode_table, decode_table),
    )
}
"""`pickle` takes what cloudpickle takes. `msgpack` takes plain values, also of other languages; a tuple comes back as a
list. `arrow` takes tables of PyArrow, also for other languages. Ints, floats, text and bytes are as they are in all."""


READ_BACK_BYTES_MAX: Final = 1 << 20
"""Of a sample. A larger one would stop the task for too long."""


def check_reads_back(codec: Codec, value: Any, data: bytes) -> None:
    """Check that a codec can read what it has written. Not whether pickle brings back an equal value: who could tell?

    Args:
        codec: That of the state.
        value: What was encoded.
        data: What became of it.

    Raises:
        ValueError: msgpack brings back something else, a dict for a dataclass, say.
        Exception: what decoding raises.
    """
    found = codec.decode(data)
    if codec.name == "msgpack" and not _same(value, found):
        raise ValueError(f"msgpack brings back {type(found).__qualname__} {found!r:.80}: use pickle, or plain values")


def _same(value: Any, found: Any) -> bool:
    """Whether it is the same, where a tuple comes back as a list."""
    if isinstance(value, (list, tuple)):
        return (
            type(value) in (list, tuple)
            and type(found) is list
            and len(value) == len(found)
            and all(map(_same, value, found))
        )
    if type(value) is not type(found):
        return False
    if type(value) is dict:
        return value.keys() == found.keys() and all(_same(each, found[key]) for key, each in value.items())
    return bool(value == found or value != value)  # NaN is not equal to itself


@dataclass(frozen=True, slots=True)
class Schema:
    """Name, codec and version of a state."""

    name: str
    kind: Kind
    codec: str = "pickle"
    """`pickle`, `msgpack` or `arrow`."""
    version: int = 1
    """Raise it when the form of the values changes."""
    migrate: Callable[[int, Any], Any] | None = None
    """`migrate(old_version, value)`: a value of this version. Called when a value of an older one is restored."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ConfigError(f"state {self.name!r}: no codec {self.codec!r}; there are {', '.join(CODECS)}")
        if self.codec == "arrow" and importlib.util.find_spec("pyarrow") is None:
            raise ConfigError(f"state {self.name!r}: codec 'arrow' needs PyArrow: pip install 'heron-engine[spark]'")
        if type(self.version) is not int or self.version < 0:
            raise ConfigError(f"state {self.name!r}: the version must be a number from 0, not {self.version!r}")
        try:
            self.entry()
        except ValueError as e:
            raise ConfigError(f"state {self.name[:40]!r}: {e}") from None

    def entry(self) -> StateEntry:
        """As an object names it."""
        return StateEntry(self.name, self.kind, self.codec, self.version)
