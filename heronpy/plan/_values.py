"""How configuration values travel in a definition.

Definitions are read by the CLI, the Topology Master, executors and Trackers, which serve several users and must run
nothing that a definition says, nor spend more memory on it than its size justifies. So plain values travel as text,
JSON or bytes. Every other object travels pickled, and only instances, which run the user's code anyway, unpickle it.

    value                                            in the message
    text; what Heron keeps as text                   value                           STRING_VALUE
    None, bool, int, float, list, dict of these      value: JSON                     JSON_VALUE (extension)
    bytes                                            serialized_value: as they are   BYTES_VALUE (extension)
    anything else: tuples, sets, objects, …          serialized_value: pickle        PYTHON_SERIALIZED_VALUE

JSON and not msgpack: its memory is bounded by its length, whatever lengths it claims to have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heronpy.proto import topology_pb2

DEPTH_MAX = 50
"""Deeper nested values travel pickled."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """A configuration value that is not plain: only instances, which have the user's code, unpickle it."""

    data: bytes = field(repr=False)


def key_value(key: str, value: Any, pickle: Callable[[Any], bytes]) -> topology_pb2.Config.KeyValue:
    """One configuration value as a message.

    Args:
        key: Its key.
        value: Any value. Numbers and booleans that are to be text, as Heron has them, are text already.
        pickle: Serializes what is not plain.
    """
    if type(value) is str:
        return topology_pb2.Config.KeyValue(key=key, value=value, type=topology_pb2.STRING_VALUE)
    if type(value) is bytes:
        return topology_pb2.Config.KeyValue(key=key, serialized_value=value, type=topology_pb2.BYTES_VALUE)
    if _is_plain(value, DEPTH_MAX):
        return topology_pb2.Config.KeyValue(key=key, value=json.dumps(value), type=topology_pb2.JSON_VALUE)
    return topology_pb2.Config.KeyValue(
        key=key, serialized_value=pickle(value), type=topology_pb2.PYTHON_SERIALIZED_VALUE
    )


def read_config(proto: topology_pb2.Config) -> dict[str, Any]:
    """Configuration values: plain ones as they are, all others as `Pickled`. Nothing is unpickled.

    A damaged value is `Pickled`, too: its user gets the error when using it.
    """
    return {kv.key: _value(kv) for kv in proto.kvs}


def as_plain(value: Any) -> Any:
    """The value with lists for tuples and dicts for other mappings: for keys whose values the engine itself reads."""
    if isinstance(value, Mapping):
        return {k: as_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(v) for v in value]
    return value


def _value(kv: topology_pb2.Config.KeyValue) -> Any:
    if kv.type == topology_pb2.JSON_VALUE:
        try:
            return json.loads(kv.value)
        except (ValueError, RecursionError):
            return Pickled(kv.SerializePartialToString())  # its text may not be UTF-8, its key missing
    if kv.type == topology_pb2.BYTES_VALUE:
        return kv.serialized_value
    return Pickled(kv.serialized_value) if kv.HasField("serialized_value") else kv.value


def _is_plain(value: Any, depth: int) -> bool:
    """Whether JSON gives back an equal value of the same types."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < 1 << 64  # longer ones are not read back by every reader of JSON
    if type(value) is list:
        return depth > 0 and all(_is_plain(v, depth - 1) for v in value)
    if type(value) is dict:
        return depth > 0 and all(type(k) is str and _is_plain(v, depth - 1) for k, v in value.items())
    return value is None or type(value) in (str, bool)
