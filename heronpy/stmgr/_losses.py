"""What fails at once when an instance dies. Pure.

A tuple that waited for the instance is taken out of its outbox. A tuple that the instance had received is gone, too,
unless it was acked. It cannot be known which were without work for every tuple; but the frames are at hand as bytes
when they are written, and keeping the latest costs an append. The instance's data-in queue bounds what it had not
begun. So the roots of that many bytes fail: those whose trees are complete are unknown to their spouts by then, those
that were acked here and wait for others are replayed needlessly. What an instance held for longer, e.g. in a window,
times out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heronpy.proto import stmgr_pb2
from heronpy.wire import DATA, FAIL, SEQUENCE_BITS, MalformedBatch, decode_tuples, root_batch


def is_tracked(batch: stmgr_pb2.Batch) -> bool:
    """Whether a batch holds tracked tuples. One that cannot be read is for its receiver to report."""
    try:
        return batch.kind == DATA and len(decode_tuples(batch.body).roots) > 0
    except MalformedBatch:
        return False


def fails_of(batches: Iterable[stmgr_pb2.Batch]) -> list[stmgr_pb2.Batch]:
    """Batches that fail the roots of the tracked ones, each root once, for each of their spouts."""
    found = [decode_tuples(batch.body).roots for batch in batches if is_tracked(batch)]
    if not found:
        return []
    roots = np.unique(np.concatenate(found))
    tasks = roots >> np.uint64(SEQUENCE_BITS)
    return [root_batch(FAIL, int(task), roots[tasks == task]) for task in np.unique(tasks)]
