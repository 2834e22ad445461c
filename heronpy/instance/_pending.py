"""How many tuple trees a spout may have on their way.

`topology.max.spout.pending` sets a number. Without it the engine finds one: as many as were acked during the last
`WINDOW_NS`. By Little's law (pending = rate x latency) that lets the number grow as long as a tree takes less time than
the window, and keeps the time a tuple waits in queues near the window when the topology is saturated, whatever its
rate. A bolt of 1 ms a tuple gets a few hundred pending, one of 1 us a few hundred thousand.

Tuples that a bolt holds on purpose, for a window, look just like tuples that wait in queues. Where a bolt says that it
holds them (`topology.component.holds.tuples`), the limit is `HELD`, and only backpressure bounds what waits in queues.
"""

from __future__ import annotations

from typing import Final

WINDOW_NS: Final = 250_000_000
PENDING_MIN: Final = 1000
PENDING_MAX: Final = 1 << 20
HELD: Final = 1_000_000
RESUME_PART: Final = 8


class PendingLimit:
    """A fixed limit, or one that follows the rate of acks."""

    def __init__(self, fixed: int | None) -> None:
        self.fixed = fixed is not None
        self.limit = fixed if fixed is not None else PENDING_MIN
        self._acked = 0
        self._since_ns = 0
        self._reached = False

    def acked(self, count: int) -> None:
        """Note acks."""
        self._acked += count

    def room(self, pending: int, now_ns: int) -> int:
        """How many more trees may be started: none from when the limit is reached until a part of it is free again."""
        if not self.fixed and now_ns - self._since_ns >= WINDOW_NS:
            elapsed = now_ns - self._since_ns
            self.limit = min(max(self._acked * WINDOW_NS // elapsed, PENDING_MIN), PENDING_MAX)
            self._acked, self._since_ns = 0, now_ns
        room = self.limit - pending
        if room <= 0:
            self._reached = True
        elif self._reached:
            if room < self.limit // RESUME_PART:
                return 0
            self._reached = False
        return room
