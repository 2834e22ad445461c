"""Watermarks that tasks send to those after them: how far event time has come.

A watermark w of a task says that it will send no element of a time before w, as far as it knows. Sources and event-time
nodes make them: the latest time seen, less the lateness that is allowed. A task's is the least of its upstream tasks'
(Akidau et al., MillWheel, VLDB 2013, §4). A source that has ended, or is idle, holds up no other: its watermark is END,
until data comes. So watermarks may go back; an element behind the watermark is late, not lost.

A watermark arrives after every element that its task emitted before it: it travels as a control batch, which keeps its
place among the tuples for each task (`proto/heronpy/proto/stmgr.proto`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from heronpy.windows._spans import END, NEVER
from heronpy.windows._watermarks import MAX_ADVANCE_MS, EventClock

REPEAT_MS = 1000
"""A watermark that stays as it is is sent again so often: a task that was started anew has received none, and what was
on its way to it, or through a Stream Manager that died, is lost. Watermarks are not replayed."""


class Clock(EventClock):
    """The event time of one source or event-time node in one task.

    Who sees an element calls `observe`, unless its time is not later than `latest_ms`, and sets `fresh`. An element
    with a time far in the future is kept: it waits in its window until time comes there, and makes no other late.
    """

    __slots__ = ("_idle_ms", "_lateness_ms", "_seen_at_ms", "fresh")

    def __init__(self, lateness_ms: int, idle_ms: int, now_ms: int) -> None:
        """Begin with nothing seen.

        Args:
            lateness_ms: how far elements may be out of order.
            idle_ms: after how long without elements it holds up no other.
            now_ms: the time of any clock that only goes forward.
        """
        super().__init__(MAX_ADVANCE_MS)
        self._lateness_ms = lateness_ms
        self._idle_ms = idle_ms
        self._seen_at_ms = now_ms
        self.fresh = False
        """There was an element since `watermark` was asked for."""

    def watermark(self, now_ms: int, *, ended: bool = False) -> int:
        """How far event time has come."""
        if self.fresh:
            self.fresh = False
            self._seen_at_ms = now_ms
        elif ended or now_ms - self._seen_at_ms >= self._idle_ms:
            return END
        if ended:
            return END
        return NEVER if self.latest_ms == NEVER else self.latest_ms - self._lateness_ms

    def paused(self, for_ms: int) -> None:
        """For so long the source was not asked, so this was no silence."""
        self._seen_at_ms += for_ms


class SplitClocks:
    """The event time of a source that reads several splits in turn, as the partitions of a topic.

    Each has a clock of its own: after a pause the partition that is read first would make all others late. Idle is only
    who had nothing then: to go once through all splits may take longer than the idle time. Splits are read in turn, so
    who had nothing in a whole round was asked; a round ends when a split gives for the second time, or none does.
    """

    def __init__(self, make: Callable[[], Clock]) -> None:
        """Take what makes a clock that has seen nothing."""
        self._make = make
        self._clocks: dict[str, Clock] = {}
        self._round = 0
        self._gave: dict[str, int] = {}
        """In which round each split has given something the last time, or was there for the first time."""

    def read(self, split: str | None) -> None:
        """A read has returned elements of a split; None: all were asked, and had none."""
        if split is None or self._gave.get(split) == self._round:
            self._round += 1
        if split is not None:
            self._gave[split] = self._round

    def kept_back(self, splits: Iterable[str]) -> None:
        """These were not asked, so this is no silence of theirs."""
        for split in splits:
            self.of(split).fresh = True

    def of(self, split: str) -> Clock:
        """The clock of a split."""
        if (clock := self._clocks.get(split)) is None:
            clock = self._clocks[split] = self._make()
        return clock

    def watermark(self, splits: Iterable[str], now_ms: int) -> int:
        """How far event time has come in all of these splits; one without elements holds it up until it is idle."""
        low = END
        for split in splits:
            clock = self.of(split)
            if self._gave.setdefault(split, self._round) > self._round - 2:
                clock.fresh = True
            low = min(low, clock.watermark(now_ms))
        return low

    def paused(self, for_ms: int) -> None:
        """As of each clock."""
        for clock in self._clocks.values():
            clock.paused(for_ms)


class Upstream:
    """The watermarks of the tasks before this one."""

    __slots__ = ("_marks", "low")

    def __init__(self, tasks: Iterable[int]) -> None:
        """Nothing is known of any of them yet."""
        self._marks = dict.fromkeys(tasks, NEVER)
        self.low = min(self._marks.values(), default=END)
        """The least of all."""

    def __contains__(self, task: int) -> bool:
        return task in self._marks

    def follow(self, tasks: Collection[int]) -> None:
        """These are the tasks now. Of new ones nothing is known yet; those that are gone are not waited for."""
        if self._marks.keys() != set(tasks):
            self._marks = {task: self._marks.get(task, NEVER) for task in tasks}
            self.low = min(self._marks.values(), default=END)

    def mark(self, task: int, watermark: int) -> None:
        """A task has sent its watermark."""
        self._marks[task] = watermark
        self.low = min(self._marks.values())


class Sent:
    """Which watermark was sent last, and when: they are sent when they change, and not too often, but now and then."""

    __slots__ = ("_at_ms", "_every_ms", "last")

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms
        self._at_ms = NEVER
        self.last: int | None = None
        """None: nothing yet. NEVER is sent, too: it takes back what an earlier life of the task has said."""

    def ready(self, now_ms: int) -> bool:
        """Whether the last was sent long enough ago for another."""
        return now_ms - self._at_ms >= self._every_ms

    def due(self, watermark: int, now_ms: int, *, hurry: bool = False) -> bool:
        """Whether to send this one now; if so it counts as sent. `hurry`: also if the last was just sent."""
        age_ms = now_ms - self._at_ms
        if age_ms < REPEAT_MS and (watermark == self.last or (not hurry and age_ms < self._every_ms)):
            return False
        self.last, self._at_ms = watermark, now_ms
        return True


__all__ = ["REPEAT_MS", "Clock", "Sent", "SplitClocks", "Upstream"]
