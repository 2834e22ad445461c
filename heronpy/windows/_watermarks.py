"""How far event time has come, derived from the times of elements.

A watermark w says that no element of a time before w is expected: the latest time seen, less the lag by which elements
may be out of order; of several inputs, the least (Akidau et al., MillWheel, VLDB 2013, §4).

An input whose tasks send watermarks is followed: it is where the least of them is, whatever the times of its elements,
and idle if all of them say `END`.

Three things must not spoil it. An input that is idle is not waited for. One that closes a cycle is ignored: what comes
round is made of what has been here, and would be waited for before it can be sent. And one element with a time far in
the future must not make all others late: a clock does not advance by more than a bound at once before the next element
confirms it, by not being behind. The element that was doubted is taken for an outlier, so a genuine gap in time costs
one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heronpy.windows._spans import END, NEVER

if TYPE_CHECKING:
    from heronpy.windows._in_band import Upstream

MAX_ADVANCE_MS = 24 * 3600 * 1000
"""What a clock believes of a single element."""


class EventClock:
    """The latest event time of one input, as far as it can be believed.

    On a hot path, `if time_ms > clock.latest_ms: clock.observe(time_ms)` saves most calls.
    """

    __slots__ = ("_doubted_at_ms", "_doubted_ms", "_max_advance_ms", "latest_ms")

    def __init__(self, max_advance_ms: int = MAX_ADVANCE_MS) -> None:
        self._max_advance_ms = max_advance_ms
        self._doubted_ms = NEVER
        self._doubted_at_ms = NEVER
        self.latest_ms = NEVER
        """`NEVER` until a second element confirms the first."""

    def observe(self, time_ms: int) -> bool:
        """An element came. Returns whether its time can be believed; False for an outlier, which moves nothing."""
        latest = self.latest_ms
        if time_ms <= latest:
            return True
        bound = self._max_advance_ms
        if latest != NEVER and time_ms - latest <= bound:
            self.latest_ms = time_ms
            return True
        doubted = self._doubted_ms
        if doubted != NEVER and self._doubted_at_ms == latest and time_ms >= doubted - bound:
            if time_ms - doubted <= bound:
                self.latest_ms, self._doubted_ms = max(time_ms, doubted), NEVER
            else:  # sparse elements: each confirms the one before it
                self.latest_ms = self._doubted_at_ms = doubted
                self._doubted_ms = time_ms
            return True
        self._doubted_ms, self._doubted_at_ms = time_ms, latest
        return latest == NEVER  # there is nothing yet that it could be compared with

    def saved(self) -> tuple[int, int, int]:
        """What there is to know."""
        return self.latest_ms, self._doubted_ms, self._doubted_at_ms

    def restore(self, latest_ms: int, doubted_ms: int, doubted_at_ms: int) -> None:
        """Go on with what was saved."""
        self.latest_ms, self._doubted_ms, self._doubted_at_ms = latest_ms, doubted_ms, doubted_at_ms


class Watermarks:
    """The watermark of several inputs: monotone, whatever elements and clocks do."""

    def __init__(
        self,
        inputs: Iterable[Hashable] = (),
        *,
        lag_ms: int = 0,
        idle_after_ms: int | None = None,
        max_advance_ms: int = MAX_ADVANCE_MS,
        now_ms: int = 0,
        ignored: Collection[Hashable] = (),
        followed: Mapping[Any, Upstream] = MappingProxyType({}),
    ) -> None:
        """Nothing is known yet.

        Args:
            inputs: those that are waited for from the beginning; others are from their first element on.
            lag_ms: by how much elements may be out of order.
            idle_after_ms: after how long without elements an input is not waited for; None: it always is.
            max_advance_ms: see the file.
            now_ms: processing time, of any clock; what goes back is taken for standing still.
            ignored: inputs whose elements do not move it, as those that close a cycle.
            followed: inputs with watermarks of their own, which the lag is subtracted from, too.
        """
        self._followed = {one: upstream for one, upstream in followed.items() if one not in ignored}
        self._ignored = frozenset(ignored)
        self._lag_ms = lag_ms
        self._idle_after_ms = idle_after_ms
        self._max_advance_ms = max_advance_ms
        self._now_ms = now_ms
        self._clocks: dict[Hashable, EventClock] = {}
        self._foremost = NEVER
        self._seen_at_ms: dict[Hashable, int] = {}
        self.outliers = 0
        """Elements that were too far in the future."""
        self.watermark = NEVER
        """The last one that `advance` returned."""
        for one in inputs:
            if one not in self._ignored:
                self._clocks[one] = EventClock(max_advance_ms)
                self._seen_at_ms[one] = now_ms

    def observe(self, source: Hashable, time_ms: int, now_ms: int = 0) -> bool:
        """An element of an input came. Returns False if it is an outlier, to be set aside."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        clock = self._clocks.get(source)
        if clock is None:
            if source in self._ignored:
                return True
            clock = self._clocks[source] = EventClock(self._max_advance_ms)
        self._seen_at_ms[source] = self._now_ms
        if time_ms <= clock.latest_ms or clock.observe(time_ms) or source in self._followed:
            return True
        self.outliers += 1
        return False

    def advance(self, now_ms: int = 0) -> int:
        """The watermark now. Of idle inputs only the foremost counts, and only while all are idle."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        awake = [self._reached(one, clock) for one, clock in self._clocks.items() if not self._idle(one)]
        low = min(awake) if awake else self.foremost
        if low != NEVER:
            self.watermark = max(self.watermark, low - self._lag_ms)
        return self.watermark

    @property
    def foremost(self) -> int:
        """The latest time of all inputs, also of those that other tasks have read."""
        return max([self._foremost, *(clock.latest_ms for clock in self._clocks.values())])

    def take_over(self, foremost: int) -> None:
        """This goes on with windows of tasks that had read so far: it counts while all inputs are idle."""
        self._foremost = foremost

    def saved(self) -> Any:
        """All that there is to know besides processing times, as a plain value."""
        return self.watermark, self.outliers, tuple((one, *clock.saved()) for one, clock in self._clocks.items())

    def restore(self, saved: Any) -> None:
        """Go on with what was saved; None: there is nothing."""
        if saved is None:
            return
        self.watermark, self.outliers, clocks = saved
        for one, *clock in clocks:
            if one not in self._ignored:
                self._clocks.setdefault(one, EventClock(self._max_advance_ms)).restore(*clock)
                self._seen_at_ms.setdefault(one, self._now_ms)

    @staticmethod
    def merged(saved: Sequence[Any]) -> Any:
        """What was saved of the same inputs in several places: what came farthest."""

        def reached(one: Any) -> tuple[int, int]:
            return one[0], max((latest for _, latest, *_ in one[2]), default=NEVER)

        return max((one for one in saved if one is not None), key=reached, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing is waited for."""
        return all(self._idle(one) for one in self._clocks)

    def _reached(self, source: Hashable, clock: EventClock) -> int:
        followed = self._followed.get(source)
        return clock.latest_ms if followed is None else followed.low

    def _idle(self, source: Hashable) -> bool:
        if (followed := self._followed.get(source)) is not None:
            return followed.low == END
        return self._idle_after_ms is not None and self._now_ms - self._seen_at_ms[source] >= self._idle_after_ms


__all__ = ["MAX_ADVANCE_MS", "EventClock", "Watermarks"]
