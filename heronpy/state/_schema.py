"""What a state is called, how its values become bytes, and how values of an older version become new ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import msgspec

from heronpy.checkpoints import Kind as Kind
from heronpy.checkpoints import StateEntry
from heronpy.errors import ConfigError

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
    )
}
"""`pickle` takes what cloudpickle takes. `msgpack` takes plain values, also of other languages; a tuple comes back as a
list."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Name, codec and version of a state."""

    name: str
    kind: Kind
    codec: str = "pickle"
    """`pickle` or `msgpack`."""
    version: int = 1
    """Raise it when the form of the values changes."""
    migrate: Callable[[int, Any], Any] | None = None
    """`migrate(old_version, value)`: a value of this version. Called when a value of an older one is restored."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ConfigError(f"state {self.name!r}: no codec {self.codec!r}; there are {', '.join(CODECS)}")
        if type(self.version) is not int or self.version < 0:
            raise ConfigError(f"state {self.name!r}: the version must be a number from 0, not {self.version!r}")
        try:
            self.entry()
        except ValueError as e:
            raise ConfigError(f"state {self.name[:40]!r}: {e}") from None

    def entry(self) -> StateEntry:
        """As an object names it."""
        return StateEntry(self.name, self.kind, self.codec, self.version)
