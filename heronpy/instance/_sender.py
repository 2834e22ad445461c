"""From what was taken out of the pairs to batches: the same for spouts and bolts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heronpy.instance._core import TaskCore
from heronpy.instance._edges import Taken
from heronpy.instance._serializing import Part, Rejected
from heronpy.instance._tracking import Column
from heronpy.proto import stmgr_pb2
from heronpy.wire import control_batch, tuple_batch


def packed(
    core: TaskCore, taken: Taken, parts: Sequence[Part | Rejected], column: Column | None
) -> Iterator[stmgr_pb2.Batch]:
    """The batches of tuples for one task.

    Args:
        core: the sender's.
        taken: the tuples.
        parts: the same, serialized; those that were rejected are skipped.
        column: their ids and roots; None if they are not tracked.
    """
    for part in parts:
        if isinstance(part, Rejected):
            continue
        start, stop, data = part
        ids, roots, counts = (None, None, None) if column is None else column.part(start, stop)
        indexes = taken.stream_indexes
        yield tuple_batch(
            src_task=core.task_id,
            dest_task=taken.task,
            streams=taken.streams,
            stream_indexes=None if indexes is None else indexes[start:stop],
            count=stop - start,
            values=data,
            ids=ids,
            roots=roots,
            root_counts=counts,
        )


def markers(core: TaskCore, checkpoint: int) -> list[stmgr_pb2.Batch]:
    """The marker of a checkpoint for every task that reads this one; as `watermarks`."""
    return [control_batch(core.task_id, pair.task, marker=checkpoint) for pair in core.outputs.pairs]


def watermarks(core: TaskCore, watermark: int) -> list[stmgr_pb2.Batch]:
    """A watermark for every task that reads this one. Send them after everything that was emitted before."""
    return [control_batch(core.task_id, pair.task, watermark=watermark) for pair in core.outputs.pairs]
