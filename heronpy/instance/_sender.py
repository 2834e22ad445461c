"""From what was taken out of the pairs to batches: the same for spouts and bolts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
    for start, stop, values in _joined(parts, core.config.frame_bytes):
        ids, roots, counts = (None, None, None) if column is None else column.part(start, stop)
        indexes = taken.stream_indexes
        yield tuple_batch(
            src_task=core.task_id,
            dest_task=taken.task,
            streams=taken.streams,
            stream_indexes=None if indexes is None else indexes[start:stop],
            count=stop - start,
            values=values[0] if len(values) == 1 else b"".join(values),
            part_sizes=() if len(values) == 1 else [*map(len, values)],
            ids=ids,
            roots=roots,
            root_counts=counts,
        )


def _joined(parts: Iterable[Part | Rejected], bytes_max: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """Start, stop and parts of each batch: as many parts, one after the other, as fit into a frame."""
    start = stop = room = 0
    values: list[bytes] = []
    for part in parts:
        if isinstance(part, Rejected):
            continue
        if values and (part[0] != stop or len(part[2]) > room):
            yield start, stop, values
            values = []
        if not values:
            start, room = part[0], bytes_max
        stop = part[1]
        values.append(part[2])
        room -= len(part[2])
    if values:
        yield start, stop, values


def markers(core: TaskCore, checkpoint: int) -> list[stmgr_pb2.Batch]:
    """The marker of a checkpoint for every task that reads this one; as `watermarks`."""
    return [control_batch(core.task_id, pair.task, marker=checkpoint) for pair in core.outputs.pairs]


def watermarks(core: TaskCore, watermark: int) -> list[stmgr_pb2.Batch]:
    """A watermark for every task that reads this one. Send them after everything that was emitted before."""
    return [control_batch(core.task_id, pair.task, watermark=watermark) for pair in core.outputs.pairs]
