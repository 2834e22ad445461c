"""What a bolt reports to spouts while it waits: how many tuples it holds.

A bolt that collects tuples before it acks any (a window, a join, a batch for a database) gets no more when the spouts
have reached the limit of what may be pending. From outside that looks like a slow bolt; only the bolt knows that it has
nothing to do. See `_pending.py` for what a spout makes of it. Costs nothing while the bolt is busy.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import stmgr_pb2
from heronpy.wire import SEQUENCE_BITS, control_batch

QUIET_NS: Final = 100_000_000
"""A bolt that got nothing for so long waits."""
EVERY_NS: Final = 200_000_000
BATCHES: Final = 16
"""Roots of so many batches show which spouts there are."""


class HoldingReports:
    """Says when to report, and to whom. Pure."""

    wait_s: Final = EVERY_NS / 1e9
    """How long a bolt that holds tuples may sleep."""

    def __init__(self, task_id: int) -> None:
        self._task_id = task_id
        self._recent: deque[NDArray[np.uint64]] = deque(maxlen=BATCHES)
        self._quiet_since_ns = 0
        self._fresh = False
        self._next_ns = 0

    def received(self, roots: NDArray[np.uint64]) -> None:
        """Note a batch of tracked tuples."""
        self._recent.append(roots)
        self._fresh = True

    def due(self, held: int, now_ns: int) -> list[stmgr_pb2.Batch]:
        """The reports to send now. Called when the bolt has nothing to execute.

        Args:
            held: tuples that were taken up and are neither acked nor failed.
            now_ns: the time.
        """
        if self._fresh:
            self._fresh = False
            self._quiet_since_ns = now_ns
        if now_ns - self._quiet_since_ns < QUIET_NS or now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + EVERY_NS
        spouts = np.unique(np.concatenate(list(self._recent)) >> np.uint64(SEQUENCE_BITS)).tolist()
        return [control_batch(self._task_id, spout, held=held) for spout in spouts]
