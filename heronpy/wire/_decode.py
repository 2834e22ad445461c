"""Reading the messages of the data plane: lengths and counts are checked here, once, and nowhere else.

Bodies come from authenticated peers, so a malformed one is a bug, not an attack; but one must not end a task, nor make
it allocate what a four-byte field says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from heronpy.errors import HeronError
from heronpy.proto import stmgr_pb2
from heronpy.wire._batches import U16, U32, U64

U64s = NDArray[np.uint64]
NO_ROOTS: U64s = np.zeros(0, dtype=np.uint64)


class MalformedBatch(HeronError):
    """A batch contradicts itself, or is none."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """A decoded TupleBatch; its values are still serialized."""

    src_task: int
    count: int
    streams: Sequence[str]
    """The streams of the tuples; nearly always one."""
    stream_indexes: NDArray[np.uint16] | None
    """For each tuple the index in `streams`; None if there is only one."""
    values: bytes
    part_sizes: Sequence[int]
    """Where `values` was serialized in several parts: the bytes of each."""
    ids: U64s
    """One edge id for each root; empty if nothing is tracked."""
    roots: U64s
    offsets: NDArray[np.int64] | None
    """Where each tuple's roots begin, count + 1 entries; None if each has exactly one, or nothing is tracked."""

    def deserialized(self, deserialize: Callable[[bytes], list[Any]]) -> list[Any]:
        """The values of every tuple, given what reads one part of them."""
        if not self.part_sizes:
            return deserialize(self.values)
        values: list[Any] = []
        start = 0
        for size in self.part_sizes:
            values += deserialize(self.values[start : start + size])
            start += size
        return values

    def without_first(self, count: int) -> Tuples:
        """The batch without its first tuples, `values` as they are. Of untracked tuples only."""
        assert not len(self.roots), "tuples whose trees are tracked are not executed again one by one"
        indexes = None if self.stream_indexes is None else self.stream_indexes[count:]
        return replace(self, count=max(0, self.count - count), stream_indexes=indexes)


@dataclass(frozen=True, slots=True)
class Roots:
    """A decoded RootBatch."""

    roots: U64s
    values: U64s
    """What to XOR into each root's tree; empty unless they are acks."""


def decode_tuples(body: bytes) -> Tuples:
    """Decode the body of a DATA batch.

    `count` is only as true as its sender: compare it with the number of deserialized values before allocating by it.

    Raises:
        MalformedBatch: lengths and counts contradict each other.
    """
    message = _parsed(stmgr_pb2.TupleBatch, body)
    count = message.count
    ids, roots = _array(message.ids, U64, "ids"), _array(message.roots, U64, "roots")
    if len(ids) != len(roots):
        raise MalformedBatch(f"a batch of tuples has {len(ids)} ids and {len(roots)} roots")
    offsets = None
    if message.root_counts:
        counts = _array(message.root_counts, U32, "root_counts")
        if len(counts) != count or int(counts.sum(dtype=np.uint64)) != len(roots):
            raise MalformedBatch(f"a batch of {count} tuples has root counts that do not add up to {len(roots)} roots")
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
    elif len(roots) not in (0, count):
        raise MalformedBatch(f"a batch of {count} tuples has {len(roots)} roots")
    streams: Sequence[str] = (message.stream,)
    indexes = None
    if message.streams:
        streams = tuple(message.streams)
        indexes = _array(message.stream_indexes, U16, "stream_indexes")
        if len(indexes) != count or (count and int(indexes.max()) >= len(streams)):
            raise MalformedBatch(f"a batch of {count} tuples has {len(indexes)} indexes of {len(streams)} streams")
    values, sizes = message.values, _array(message.part_sizes, U32, "part_sizes").tolist()
    if sizes and sum(sizes) != len(values):
        raise MalformedBatch(f"a batch of tuples has {len(values)} bytes of values in parts of {sum(sizes)}")
    return Tuples(message.src_task, count, streams, indexes, values, sizes, ids, roots, offsets)


def decode_roots(body: bytes, *, with_values: bool) -> Roots:
    """Decode the body of an ACK (`with_values`), FAIL or RESET_TIMEOUT batch.

    Raises:
        MalformedBatch: lengths contradict each other.
    """
    message = _parsed(stmgr_pb2.RootBatch, body)
    roots = _array(message.roots, U64, "roots")
    values = _array(message.values, U64, "values") if with_values else NO_ROOTS
    if with_values and len(values) != len(roots):
        raise MalformedBatch(f"a batch of acks has {len(roots)} roots and {len(values)} values")
    return Roots(roots, values)


def decode_control(body: bytes) -> stmgr_pb2.ControlBatch:
    """Decode the body of a CONTROL batch.

    Raises:
        MalformedBatch: it is none.
    """
    return _parsed(stmgr_pb2.ControlBatch, body)  # type: ignore[no-any-return]  # _parsed returns what it is given


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise MalformedBatch(f"a batch is not a {kind.DESCRIPTOR.name}: {error}") from error


def _array(data: bytes, dtype: np.dtype[Any], field: str) -> NDArray[Any]:
    if len(data) % dtype.itemsize:
        raise MalformedBatch(f"{field} has {len(data)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(data, dtype=dtype)
