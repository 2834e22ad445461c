"""Storm's windows: the last elements, by number or by time, looked at every so many elements or so much time.

These windows are handed out with their elements, and with what came and went since the one before, so the elements
are kept; those that no window to come can have leave at once. Time is the arrival's, and then elements are in order, or
the element's own, and then they are settled in the order of their times as the watermark passes them.

The state is a list; see the constants below. An entry is (time, element); entries are in order.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from heronpy.errors import ConfigError

ENTRIES, SETTLED, FIRST, AFTER, SINCE, LAST, GONE = 0, 1, 2, 3, 4, 5, 6
# entries; how many of them have had their say; where the last window begins and ends among them; elements settled since
# it, where windows slide by number; the end up to which windows were looked at, where by time; elements of the last
# window that are entries no more.
TIME, ELEMENT = 0, 1
_time = itemgetter(TIME)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of elements."""

    value: int

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 1:
            raise ConfigError(f"a count of elements must be a whole number above 0, not {self.value!r}")


@dataclass(frozen=True, slots=True)
class Duration:
    """A time, in the unit of the elements' times."""

    value: float

    def __post_init__(self) -> None:
        if (
            isinstance(self.value, bool)
            or not isinstance(self.value, (int, float))
            or not 0 < self.value < float("inf")
        ):
            raise ConfigError(f"a duration must be a number above 0, not {self.value!r}")


class Evaluated(msgspec.Struct, frozen=True):
    """A window is due."""

    start: float
    """Inclusive. Of a window by number, the time of its first element."""
    end: float
    """Exclusive."""
    elements: list[Any]
    """In the order of their times."""
    new: list[Any]
    """Those that were not in the window before it."""
    gone: list[Any]
    """Those of the window before it that are not in it."""


class Expired(msgspec.Struct, frozen=True):
    """Elements that no window to come can have."""

    elements: list[Any]


class TrailingWindows:
    """The windows of one task. Storm's eight combinations are those of `length` and `slide`.

    Of windows that slide by time, those without elements are passed over, and of those with the last so many elements
    the ones that would be equal to the one before them; `fires_empty` changes that for the former.
    """

    def __init__(
        self,
        length: Count | Duration,
        slide: Count | Duration,
        *,
        event_time: bool = False,
        fires_empty: bool = False,
        first_end: float | None = None,
        state: list[Any] | None = None,
    ) -> None:
        """Begin with a state.

        Args:
            length: how many elements a window has, or of how long a time.
            slide: how many elements are between two windows, or how long a time.
            event_time: whether elements come in any order of their times, and are settled by watermarks. Otherwise
                their times are those of their arrival.
            fires_empty: also windows without elements; of a stretch that was missed, only the last.
            first_end: the end of the first window that slides by time; a multiple of the slide without it.
            state: what is gone on with.
        """
        if type(length) is type(slide) and slide.value > length.value:
            raise ConfigError(
                f"a window's slide ({slide.value:g}) must not be longer than its length ({length.value:g}): "
                "elements between two windows would be in none"
            )
        self._length, self._slide = length.value, slide.value
        self._by_count = isinstance(length, Count)
        self._slides_by_count = isinstance(slide, Count)
        self._event_time = event_time
        self._fires_empty = fires_empty
        self._origin = 0 if first_end is None else first_end % self._slide
        last = None if first_end is None else first_end - self._slide
        self.state: list[Any] = [[], 0, 0, 0, 0, last, []] if state is None else state
        """A plain value."""
        self.entries: list[tuple[float, Any]] = self.state[ENTRIES]
        """The elements that are kept, with their times. Not to be changed."""
        self._eager = not event_time and (self._by_count or self._slides_by_count)

    def __len__(self) -> int:
        """Number of elements that are kept."""
        return len(self.entries)

    def add(self, element: Any, time: float) -> Sequence[Evaluated | Expired]:
        """An element came. By event time, it must not be behind the last watermark."""
        entries = self.entries
        if not entries or time >= entries[-1][TIME]:
            entries.append((time, element))
        elif self._event_time:
            bisect.insort_right(entries, (time, element), lo=self.state[SETTLED], key=_time)
        else:
            entries.append((entries[-1][TIME], element))  # a clock that went back stands still
        if not self._eager:
            return ()
        effects: list[Evaluated | Expired] = []
        if self._slides_by_count:
            self._settle_by_count(len(entries), effects)
            self._expire(entries[-1][TIME], effects)
        elif len(entries) > self._length:
            self._expire(entries[-1][TIME], effects)
        return effects

    def advance(self, time: float) -> list[Evaluated | Expired]:
        """Time, by the watermark or the clock, has come this far."""
        effects: list[Evaluated | Expired] = []
        if not self._slides_by_count:
            self._settle_by_time(time, effects)
        elif self._event_time:
            self._settle_by_count(bisect.bisect_left(self.state[ENTRIES], time, key=_time), effects)
        self._expire(time, effects)
        return effects

    def _settle_by_count(self, until: int, effects: list[Evaluated | Expired]) -> None:
        state = self.state
        for position in range(state[SETTLED] + 1, until + 1):
            state[SINCE] += 1
            if state[SINCE] == self._slide:
                state[SINCE] = 0
                self._evaluate(position, state[ENTRIES][position - 1][TIME] + 1, effects)
        state[SETTLED] = max(state[SETTLED], until)

    def _settle_by_time(self, time: float, effects: list[Evaluated | Expired]) -> None:
        state = self.state
        while (end := self._next_end(time)) is not None:
            after = bisect.bisect_left(state[ENTRIES], end, key=_time)
            state[LAST], state[SETTLED] = end, after
            self._evaluate(after, end, effects)
            self._expire(end, effects)
        passed = self._grid_end(time) - self._slide
        if not self._fires_empty and (state[LAST] is None or state[LAST] < passed):
            state[LAST] = passed
        state[SETTLED] = max(state[SETTLED], bisect.bisect_left(state[ENTRIES], time, key=_time))

    def _next_end(self, time: float) -> float | None:
        """The end of the next window that is due; None if there is none."""
        entries, last = self.state[ENTRIES], self.state[LAST]
        following = None if last is None else last + self._slide
        if self._fires_empty and following is not None:
            if not entries and following <= time:
                following += (time - following) // self._slide * self._slide
            return following if following <= time else None
        waits_from = self.state[AFTER] if self._by_count else 0
        if waits_from >= len(entries):
            return None
        end = self._grid_end(entries[waits_from][TIME])
        if following is not None and following > end:
            end = following
        return end if end <= time else None

    def _grid_end(self, time: float) -> float:
        """The end of the first window that slides by time and may have an element of `time`."""
        return time - (time - self._origin) % self._slide + self._slide

    def _evaluate(self, after: int, end: float, effects: list[Evaluated | Expired]) -> None:
        state = self.state
        entries, first_before, after_before = state[ENTRIES], state[FIRST], state[AFTER]
        if self._by_count:
            first = max(0, after - int(self._length))
        else:
            first = bisect.bisect_left(entries, end - self._length, hi=after, key=_time)
        gone = state[GONE] + [entry[ELEMENT] for entry in entries[first_before : min(first, after_before)]]
        state[FIRST], state[AFTER], state[GONE] = first, after, gone
        if first == after and not self._fires_empty:
            return
        state[GONE] = []
        start = end - self._length if not self._by_count else entries[first][TIME] if first < after else end
        elements = [entry[ELEMENT] for entry in entries[first:after]]
        new = elements[max(0, after_before - first) :]
        effects.append(Evaluated(start, end, elements, new, gone))

    def _expire(self, time: float, effects: list[Evaluated | Expired]) -> None:
        """Let go of what no window can have whose end comes after `time`."""
        state = self.state
        entries = state[ENTRIES]
        if self._by_count and self._slides_by_count:
            number = state[SETTLED] + (self._slide - state[SINCE]) - self._length
        elif self._by_count:
            everything = not self._event_time and entries and entries[-1][TIME] < self._following(time)
            number = (len(entries) if everything else state[SETTLED]) - self._length
        else:
            oldest = (time + 1 if self._slides_by_count else self._following(time)) - self._length
            number = bisect.bisect_left(entries, oldest, key=_time)
        number = min(int(number), len(entries))
        if number <= 0:
            return
        expired = [entry[ELEMENT] for entry in entries[:number]]
        state[GONE] += expired[state[FIRST] : state[AFTER]]
        del entries[:number]
        for index in (SETTLED, FIRST, AFTER):
            state[index] = max(0, state[index] - number)
        effects.append(Expired(expired))

    def _following(self, time: float) -> float:
        """The end of the first window that is still to be looked at."""
        entries, last = self.state[ENTRIES], self.state[LAST]
        if last is not None:
            return last + self._slide  # type: ignore[no-any-return]  # a number
        return self._grid_end(entries[0][TIME] if entries else time)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests."""
        entries, settled, first, after, since, _, _ = self.state
        assert all(a[TIME] <= b[TIME] for a, b in itertools.pairwise(entries))
        assert 0 <= first <= after <= settled <= len(entries)
        assert 0 <= since < self._slide or not self._slides_by_count


__all__ = ["Count", "Duration", "Evaluated", "Expired", "TrailingWindows"]
