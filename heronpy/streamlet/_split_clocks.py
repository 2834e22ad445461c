"""The event time of a source that reads several splits in turn, as the partitions of a topic. Pure.

Each has a time of its own: after a pause the partition that is read first would make all others late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from heronpy.streamlet._watermark import Clock
from heronpy.windows import END


class SplitClocks:
    """A clock for each split."""

    def __init__(self, make: Callable[[], Clock]) -> None:
        """Take what makes a clock that has seen nothing."""
        self._make = make
        self._clocks: dict[str, Clock] = {}

    def of(self, split: str) -> Clock:
        """The clock of a split."""
        if (clock := self._clocks.get(split)) is None:
            clock = self._clocks[split] = self._make()
        return clock

    def watermark(self, splits: Iterable[str], now_ms: int) -> int:
        """How far event time has come in all of these splits; one without elements holds it up until it is idle."""
        return min((self.of(split).watermark(now_ms) for split in splits), default=END)

    def paused(self, for_ms: int) -> None:
        """As of each clock."""
        for clock in self._clocks.values():
            clock.paused(for_ms)
