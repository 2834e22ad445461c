"""Turning values into bytes and back. `topology.serializer.classname` chooses the class."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import msgspec


class IHeronSerializer:
    """What a serializer must do. One object serves one instance, from one thread."""

    def initialize(self, config: Mapping[str, Any] | None = None) -> None:
        """Called once, before anything else, with the component's configuration."""

    def serialize(self, obj: Any) -> bytes:
        """The bytes of `obj`. The engine passes whole batches: a list of lists of values."""
        raise NotImplementedError(f"{type(self).__name__} does not implement serialize()")

    def deserialize(self, input_str: bytes) -> Any:
        """The object whose bytes these are."""
        raise NotImplementedError(f"{type(self).__name__} does not implement deserialize()")


class PythonSerializer(IHeronSerializer):
    """Any Python object: pickle, and cloudpickle for what pickle refuses (lambdas, classes made in functions)."""

    def serialize(self, obj: Any) -> bytes:
        try:
            return pickle.dumps(obj, protocol=5)
        except (pickle.PicklingError, TypeError, AttributeError):
            # Here, because every instance imports this module, and few meet such a value.
            import cloudpickle

            by_value: bytes = cloudpickle.dumps(obj, protocol=5)
            return by_value

    def deserialize(self, input_str: bytes) -> Any:
        return pickle.loads(input_str)


class MsgpackSerializer(IHeronSerializer):
    """MessagePack, for streams that other languages read: plain data only, and tuples come back as lists."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder()

    def serialize(self, obj: Any) -> bytes:
        return self._encoder.encode(obj)

    def deserialize(self, input_str: bytes) -> Any:
        return self._decoder.decode(input_str)


default_serializer = PythonSerializer()
"""The serializer of configuration values and custom groupings."""
