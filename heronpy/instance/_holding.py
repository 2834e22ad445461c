"""What a bolt reports to spouts while it waits: how many tuples it holds.

A bolt that collects tuples before it acks any (a window, a join, a batch for a database) gets no more when the spouts
have reached the limit of what may be pending. From outside that looks like a slow bolt; only the bolt knows that it has
nothing to do. See `_pending.py` for what a spout makes of it. Costs nothing while the bolt is busy.

What windows hold does not time out while their task lives: a replay would only be in them once more. Where a spout has
reached the limit, and they wait for what it keeps back, it does: they would wait for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from heronpy.instance._inbatch import OPEN, InBatch, root_batches
from heronpy.proto import stmgr_pb2
from heronpy.wire import RESET_TIMEOUT, SEQUENCE_BITS, control_batch

QUIET_NS: Final = 100_000_000
"""A bolt that got nothing for so long waits."""
EVERY_NS: Final = 200_000_000
BATCHES: Final = 16
"""So many are looked at together for whose they are: for each alone that would cost as much as its tuples."""
RENEWALS_PER_TIMEOUT: Final = 4


class HoldingReports:
    """Says when to report, and to whom. Pure."""

    wait_s: Final = EVERY_NS / 1e9
    """How long a bolt that holds tuples may sleep."""

    def __init__(self, task_id: int) -> None:
        self._task_id = task_id
        self._recent: list[NDArray[np.uint64]] = []
        """Roots of batches that were not looked at."""
        self._spouts: set[int] = set()
        """Tasks that may have emitted what is held. Each is to know that its limit keeps back the rest."""
        self._quiet_since_ns = 0
        self._fresh = False
        self._next_ns = 0

    def received(self, roots: NDArray[np.uint64]) -> None:
        """Note a batch of tracked tuples."""
        self._recent.append(roots)
        self._fresh = True
        if len(self._recent) >= BATCHES:
            self._look()

    def nothing_held(self) -> None:
        """All that came is acked or failed."""
        self._recent.clear()
        self._spouts.clear()

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
        self._look()
        return [control_batch(self._task_id, spout, held=held) for spout in sorted(self._spouts)]

    def _look(self) -> None:
        if self._recent:
            tasks = (np.concatenate(self._recent) >> np.uint64(SEQUENCE_BITS)).astype(np.int64)
            self._spouts.update(np.flatnonzero(np.bincount(tasks)).tolist())  # np.unique sorts
            self._recent.clear()


class TimeoutRenewals:
    """Begins the timeouts of tuples anew that a task holds. Pure."""

    def __init__(self, task_id: int, timeout_ns: int) -> None:
        self._task_id = task_id
        self._every_ns = timeout_ns // RENEWALS_PER_TIMEOUT
        self._next_ns = 0
        self._batches: deque[Sequence[InBatch]] = deque()
        """The origins of each batch."""

    def __len__(self) -> int:
        """Batches that are kept: less than two for each with a tuple that is not settled."""
        return len(self._batches)

    def received(self, origins: Sequence[InBatch]) -> None:
        """Note a batch of tracked tuples. Two others are looked at, so that those that are settled do not pile up."""
        for _ in range(min(2, len(self._batches))):
            others = self._batches.popleft()
            if len(_open_roots(others)):
                self._batches.append(others)
        self._batches.append(origins)

    def due(self, now_ns: int) -> list[stmgr_pb2.Batch]:
        """The renewals to send now: of tuples that have been here for a while."""
        if now_ns < self._next_ns:
            return []
        self._next_ns = now_ns + self._every_ns
        held: list[NDArray[np.uint64]] = []
        for _ in range(len(self._batches)):
            origins = self._batches.popleft()
            roots = _open_roots(origins)
            if len(roots):
                self._batches.append(origins)
                if now_ns - origins[0].began_ns >= self._every_ns:
                    held.append(roots)
        renewals = [*root_batches(RESET_TIMEOUT, [(roots, None) for roots in held])]
        for batch in renewals:
            batch.src_task = self._task_id
        return renewals


def _open_roots(origins: Sequence[InBatch]) -> NDArray[np.uint64]:
    """The roots of the tuples of a batch that are neither acked nor failed; each is of one of the origins."""
    first = origins[0]
    if len(origins) == 1:  # nearly always, and nearly always all of them
        still_open = first.marks.count(OPEN)
        if still_open in (0, first.count):
            return first.roots if still_open else first.roots[:0]
    marks = np.array([np.frombuffer(origin.marks, dtype=np.uint8) for origin in origins])
    return first.roots_of(np.flatnonzero((marks == OPEN).all(axis=0)))
