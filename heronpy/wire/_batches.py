"""Making the messages of the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import stmgr_pb2

DATA = stmgr_pb2.Batch.DATA
ACK = stmgr_pb2.Batch.ACK
FAIL = stmgr_pb2.Batch.FAIL
RESET_TIMEOUT = stmgr_pb2.Batch.RESET_TIMEOUT
CONTROL = stmgr_pb2.Batch.CONTROL

SEQUENCE_BITS = 44
"""A root is `task id << 44 | sequence`: 2**20 tasks, and 200 days of a million roots a second."""
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1

U64 = np.dtype("<u8")
U32 = np.dtype("<u4")
"""Of root counts: a window may emit a tuple that is anchored to more than 65,535 others. Of sizes, too."""
U16 = np.dtype("<u2")
"""Of stream indexes."""
RootArray = NDArray[np.uint64]


def tuple_batch(
    *,
    src_task: int,
    dest_task: int,
    streams: Sequence[str],
    count: int,
    values: bytes,
    part_sizes: Sequence[int] = (),
    stream_indexes: NDArray[np.integer[Any]] | None = None,
    ids: RootArray | None = None,
    roots: RootArray | None = None,
    root_counts: NDArray[np.integer[Any]] | None = None,
) -> stmgr_pb2.Batch:
    """`count` tuples of one task for one task, in the order of emit.

    Args:
        src_task: the sender.
        dest_task: the receiver.
        streams: the streams' ids.
        count: number of tuples.
        values: the serialized list of `count` value lists, or several such lists, one after the other.
        part_sizes: the bytes of each of these; empty if there is one.
        stream_indexes: the index in `streams` of each tuple's; None if there is only one.
        ids: one edge id a tuple; None when none of them is tracked.
        roots: the tuples' roots, one after the other.
        root_counts: how many roots each tuple has; None when each has exactly one.
    """
    body = stmgr_pb2.TupleBatch(src_task=src_task, count=count, values=values)
    if part_sizes:
        body.part_sizes = np.array(part_sizes, dtype=U32).tobytes()
    if stream_indexes is None:
        body.stream = streams[0]
    else:
        body.streams.extend(streams)
        body.stream_indexes = stream_indexes.astype(U16, copy=False).tobytes()
    if ids is not None and roots is not None:
        body.ids = ids.tobytes()
        body.roots = roots.tobytes()
        if root_counts is not None:
            body.root_counts = root_counts.astype(U32, copy=False).tobytes()
    data = body.SerializeToString()
    return stmgr_pb2.Batch(dest_task=dest_task, kind=DATA, count=count, body=data, src_task=src_task)


def root_batch(kind: Any, dest_task: int, roots: RootArray, values: RootArray | None = None) -> stmgr_pb2.Batch:
    """Acks (with what to XOR), fails or timeout resets of roots of the spout task `dest_task`."""
    body = stmgr_pb2.RootBatch(roots=roots.tobytes())
    if values is not None:
        body.values = values.tobytes()
    return stmgr_pb2.Batch(dest_task=dest_task, kind=kind, count=len(roots), body=body.SerializeToString())


def control_batch(
    src_task: int,
    dest_task: int,
    *,
    watermark: int | None = None,
    held: int | None = None,
    marker: int | None = None,
    ended: bool | None = None,
) -> stmgr_pb2.Batch:
    """One thing that a task says to another: a watermark, how many tuples it holds, a marker, or that it has ended."""
    body = stmgr_pb2.ControlBatch(src_task=src_task, watermark=watermark, held=held, marker=marker, ended=ended)
    return stmgr_pb2.Batch(dest_task=dest_task, kind=CONTROL, body=body.SerializeToString(), src_task=src_task)
