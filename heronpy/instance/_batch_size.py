"""How many tuples may wait at a task before they are sent, whatever the drain interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heronpy.config import InstanceConfig
from heronpy.proto import stmgr_pb2

START_TUPLES: Final = 256
EDGES_PER_BATCH: Final = 2
EDGES_MAX: Final = 64
FRAMES: Final = 4
"""All edges together may hold about this many frames."""

STAGE_TUPLES: Final = 512
STAGE_EDGE_TUPLES: Final = 64
STAGE_EDGES_MAX: Final = 32


def stage_tuples(edges: int) -> int:
    """After so many tuples their values are serialized: few enough for the caches, and enough for each edge.

    With very many edges there would be little for each, and for one edge batches are small anyway: then values are
    serialized when they are sent.
    """
    return max(STAGE_TUPLES, STAGE_EDGE_TUPLES * edges) if 1 < edges <= STAGE_EDGES_MAX else 1 << 30


class BatchSize:
    """Follows the size of the tuples, so that a task holds a few megabytes and not a number of tuples of any size."""

    __slots__ = ("_bytes", "_most", "tuples")

    def __init__(self, config: InstanceConfig, edges: int) -> None:
        """Start small. With many edges more tuples may wait, so that each edge gets a decent batch."""
        self._most = config.batch_tuples * max(1, min(EDGES_MAX, edges) // EDGES_PER_BATCH)
        self._bytes = FRAMES * config.frame_bytes
        self.tuples = min(START_TUPLES, self._most)

    def sent(self, batches: Sequence[stmgr_pb2.Batch]) -> None:
        """Learn from what was just sent."""
        count = size = 0
        for batch in batches:
            if batch.kind == stmgr_pb2.Batch.DATA:
                count += batch.count
                size += len(batch.body)
        if size:
            self.tuples = max(1, min(self._most, self._bytes * count // size, 4 * self.tuples))
