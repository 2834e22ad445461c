"""How many tuple trees a spout may have on their way.

`topology.max.spout.pending` sets a number. Without it the engine finds one: as many as were acked during the last
`WINDOW_NS`. By Little's law (pending = rate x latency) that lets the number grow as long as a tree takes less time than
the window, and keeps the time a tuple waits in queues near the window when the topology is saturated, whatever its
rate. A bolt of 1 ms a tuple gets a few hundred pending, one of 1 us a few hundred thousand.

Tuples that a bolt holds on purpose, for a window, look just like tuples that wait in queues. Where a bolt says that it
holds them (`topology.component.holds.tuples`; windows, where they are in no checkpoint), the limit is `HELD`, and only
backpressure bounds what waits in queues.
A bolt that does not say so, and collects more tuples than the limit before it acks any, would never get them. So bolts
report what they hold while their own queue is empty; when nothing is acked between two reports of one task the limit
grows, and does not shrink below that again for as long as there are such reports. Not between those of two tasks: with
many of them that is shorter than the time after which a slow bolt sends its acks.
"""

from __future__ import annotations

from typing import Final

WINDOW_NS: Final = 250_000_000
PENDING_MIN: Final = 1000
PENDING_MAX: Final = 1 << 20
HELD: Final = 1_000_000
RESUME_PART: Final = 8
REPORTED_NS: Final = 1_000_000_000
"""A report is of so long at most: bolts that wait repeat it more often."""
FORGET_HELD_NS: Final = 60_000_000_000
"""After so long without a report the limit follows the acks alone again."""


class PendingLimit:
    """A fixed limit, or one that follows the rate of acks."""

    def __init__(self, fixed: int | None) -> None:
        self.fixed = fixed is not None
        self.limit = fixed if fixed is not None else PENDING_MIN
        self._acked = 0
        self._acked_ever = 0
        self._since_ns = 0
        self._reached = False
        self._least = PENDING_MIN
        self._held_at_ns = 0
        self._acked_at_report: dict[int, int] = {}
        """How many were acked ever, at the last report of each task."""
        self._starved = False
        self._advised = False

    def acked(self, count: int) -> None:
        """Note acks."""
        self._acked += count
        self._acked_ever += count

    def held(self, task: int, component: str, count: int, pending: int, now_ns: int) -> tuple[int, str | None]:
        """A bolt has nothing to execute, and holds tuples without acking them.

        Args:
            task: the bolt's.
            component: the bolt's.
            count: how many it holds.
            pending: trees on their way.
            now_ns: the time.

        Returns:
            For how long the limit has kept back what the bolt waits for, since the report before this one in ns; and
            what the user should know, None if there is nothing new.
        """
        since_ns, self._held_at_ns = now_ns - self._held_at_ns, now_ns
        progressed = self._acked_at_report.get(task) != self._acked_ever
        self._acked_at_report[task] = self._acked_ever
        before, self._starved = self._starved, self._at_limit(pending) and not progressed
        if not self._starved:
            return 0, None
        return min(since_ns, REPORTED_NS) if before else 0, self._advice(component, count)

    def starves(self, now_ns: int) -> bool:
        """Whether bolts wait for what the limit keeps back."""
        return self._starved and now_ns - self._held_at_ns < REPORTED_NS

    def _at_limit(self, pending: int) -> bool:
        return pending + self.limit // RESUME_PART >= self.limit

    def _advice(self, component: str, count: int) -> str | None:
        if self.limit >= PENDING_MAX:
            return None
        if self.fixed:
            if self._advised:
                return None
            self._advised = True
            return (
                f"{component} holds {count} tuples and waits for more, and topology.max.spout.pending = {self.limit} "
                "keeps them back: set it higher"
            )
        self._least = self.limit = min(2 * self.limit, PENDING_MAX)
        return (
            f"{component} holds {count} tuples and waits for more: up to {self.limit} may be pending now; set "
            "topology.component.holds.tuples for it to have that from the beginning"
        )

    def room(self, pending: int, now_ns: int) -> int:
        """How many more trees may be started: none from when the limit is reached until a part of it is free again."""
        if not self.fixed and now_ns - self._since_ns >= WINDOW_NS:
            elapsed = now_ns - self._since_ns
            if now_ns - self._held_at_ns >= FORGET_HELD_NS:
                self._least = PENDING_MIN
            self.limit = min(max(self._acked * WINDOW_NS // elapsed, self._least), PENDING_MAX)
            self._acked, self._since_ns = 0, now_ns
        room = self.limit - pending
        if room <= 0:
            self._reached = True
        elif self._reached:
            if room < self.limit // RESUME_PART:
                return 0
            self._reached = False
        return room
