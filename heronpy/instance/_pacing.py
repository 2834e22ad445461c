"""When a task sends what it has emitted and acked.

A frame costs about as much CPU as a hundred tuples, in each of the processes that it passes. So frames are filled, but
no tuple waits needlessly:

- idle (nothing more to do): at once after a quiet time, and every `QUIET_SHARE` of the drain interval while tuples
  trickle;
- busy: after the drain interval, if there is a decent batch for each destination. If there is not, because there are
  many destinations or the CPU is shared by many processes, small frames would only make it worse: then up to
  `BUSY_INTERVALS` drain intervals. A busy bolt has a queue before it, so the wait is small beside the queue's.
- a source whose single calls are slow counts as neither: it gets the drain interval exactly.

And when a spout that has nothing to emit is asked again: after a hundredth of the time for which it has had nothing, so
that what comes at last waits for a hundredth of that longer at the most. Asked every millisecond for ever, a spout of a
quiet source takes several per cent of a core.
"""

from __future__ import annotations

from typing import Final

QUIET_SHARE: Final = 0.4
BUSY_INTERVALS: Final = 20
DECENT_TUPLES: Final = 4096
"""Tuples for one destination that make a frame worth its price."""
ACK_TASKS_MAX: Final = 8
"""Acks go to the tasks of spouts. For so many of them a busy bolt waits until there is a decent batch for each."""
IDLE_SHARE: Final = 100


RAMP_ROUND_NS: Final = 10_000_000
RAMP_FIRST_TUPLES: Final = 8
RAMP_GROWTH: Final = 1.25
RAMP_OVER_TUPLES: Final = 10_000


class Ramp:
    """How much a spout emits after it was held, or has begun. Pure.

    Until it is notified again, because its destination is slow, milliseconds pass, in which it could emit more than
    the destination executes in seconds. So it emits little at first, and a quarter more in each round, up to full speed
    after a third of a second: what it has emitted too much is then at most about what fitted in.
    """

    __slots__ = ("_allowed", "_left", "_next_ns")

    def __init__(self) -> None:
        self._allowed: float = RAMP_FIRST_TUPLES / RAMP_GROWTH
        self._left = 0
        self._next_ns = 0

    @property
    def over(self) -> bool:
        return self._allowed > RAMP_OVER_TUPLES

    def room(self, now_ns: int) -> int:
        """How many tuples may be sent now."""
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + RAMP_ROUND_NS
            self._allowed *= RAMP_GROWTH
            self._left = int(self._allowed)
        return self._left

    def sent(self, tuples: int) -> None:
        """So many were sent."""
        self._left -= tuples

    def wait_s(self, now_ns: int) -> float:
        """How long until more may be sent."""
        return max(0, self._next_ns - now_ns) / 1e9


class Pacing:
    """Pure: asked with the time, answers how long to wait."""

    __slots__ = ("_busy_ns", "_drain_ns", "_last_ns", "_quiet_ns", "_since_ns")

    def __init__(self, drain_interval_ms: float) -> None:
        self._drain_ns = int(drain_interval_ms * 1e6)
        self._quiet_ns = int(self._drain_ns * QUIET_SHARE)
        self._busy_ns = self._drain_ns * BUSY_INTERVALS
        self._last_ns = 0
        self._since_ns = 0

    def waits_since(self, now_ns: int) -> None:
        """Something was emitted, and nothing waited before it."""
        self._since_ns = now_ns

    def sent(self, now_ns: int) -> None:
        """Everything was sent."""
        self._last_ns = self._since_ns = now_ns

    def idle_ns(self, now_ns: int) -> int:
        """How long a task with nothing more to do waits before it sends; 0 or less: it sends now."""
        return self._last_ns + self._quiet_ns - now_ns

    def drained(self, now_ns: int) -> bool:
        """The oldest has waited for the drain interval."""
        return now_ns - self._since_ns >= self._drain_ns

    def busy_due(self, now_ns: int, tuples: int, destinations: int) -> bool:
        """Whether a task with more to do sends now; asked when `drained`."""
        return tuples >= DECENT_TUPLES * destinations or now_ns - self._since_ns >= self._busy_ns


class IdlePause:
    """Pure: how long a spout that has nothing to emit is left alone."""

    __slots__ = ("_max_ns", "_min_ns", "_since_ns")

    def __init__(self, min_ms: float, max_ms: float) -> None:
        self._min_ns = int(min_ms * 1e6)
        self._max_ns = max(self._min_ns, int(max_ms * 1e6))
        self._since_ns = 0

    def emitted(self) -> None:
        """It had something."""
        self._since_ns = 0

    def pause_ns(self, now_ns: int) -> int:
        """It has nothing, again."""
        if not self._since_ns:
            self._since_ns = now_ns
        return min(max(self._min_ns, (now_ns - self._since_ns) // IDLE_SHARE), self._max_ns)
