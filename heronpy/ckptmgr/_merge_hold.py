"""Merges wait while tasks restore: they take the CPU and the disk that everybody waits for then.

The Topology Master says so again and again while a restore lasts, each time for some seconds; if it dies, the merge
goes on. A merge waits for a bounded time in all, so a topology that rolls back for ever still merges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

HOLD_MAX_S: Final = 60.0
"""So long one merge waits, in all."""


class MergeHold:
    """Who holds calls from the event loop, who merges waits in a thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, changed: threading.Condition | None = None) -> None:
        """Nothing holds merges."""
        self._clock = clock
        self._changed = changed or threading.Condition()
        self._until_s = clock()
        self._left_s = HOLD_MAX_S

    def hold(self, for_s: float) -> None:
        """Have merges wait from now on for so long; 0: they go on."""
        with self._changed:
            self._until_s = self._clock() + for_s
            self._changed.notify_all()

    def begin(self) -> None:
        """A merge begins."""
        with self._changed:
            self._left_s = HOLD_MAX_S

    def wait(self) -> None:
        """Between two parts of a merge: return when nothing holds it, or it has waited long enough."""
        with self._changed:
            while (for_s := min(self._until_s - (began_s := self._clock()), self._left_s)) > 0:
                self._changed.wait(for_s)
                self._left_s -= self._clock() - began_s


__all__ = ["HOLD_MAX_S", "MergeHold"]
