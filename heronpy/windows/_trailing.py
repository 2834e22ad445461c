"""Storm's windows: the last elements, by number or by time, looked at every so many elements or so much time.

These windows are handed out with their elements, and with what came and went since the one before, so the elements
are kept; those that no window to come can have leave at once. Time is the arrival's, and then elements are in order, or
the element's own, and then they are settled in the order of their times as the watermark passes them.

Elements are in one list in the order of their times. What has left the windows stays at its beginning as long as the
next window has to say that it is gone; everything else is said by positions in the list. So a checkpoint needs each
element once, and a few numbers (`_saved_elements.py`).
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
from heronpy.windows._durable import check_kept
from heronpy.windows._saved_elements import ELEMENT, TIME, Row, SavedElements
from heronpy.windows._spans import NEVER

_time = itemgetter(TIME)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of elements."""

    value: int

    def __str__(self) -> str:
        return f"{self.value} elements"

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < 1:
            raise ConfigError(f"a count of elements must be a whole number above 0, not {self.value!r}")


@dataclass(frozen=True, slots=True)
class Duration:
    """A time, in the unit of the elements' times."""

    value: float

    def __str__(self) -> str:
        return f"a duration of {self.value:g}"

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
        saved: SavedElements | None = None,
    ) -> None:
        """Begin with nothing, or with what is saved.

        Args:
            length: how many elements a window has, or of how long a time.
            slide: how many elements are between two windows, or how long a time.
            event_time: whether elements come in any order of their times, and are settled by watermarks. Otherwise
                their times are those of their arrival.
            fires_empty: also windows without elements; of a stretch that was missed, only the last.
            first_end: the end of the first window that slides by time; a multiple of the slide without it.
            saved: where the elements are kept besides.

        Raises:
            ConfigError: a slide that is longer than the window.
            CheckpointError: what is saved is of other windows.
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
        self._kept = f"windows of {length} every {slide} by time of {'event' if event_time else 'arrival'}"
        self._fires_empty = fires_empty
        self._eager = not event_time and (self._by_count or self._slides_by_count)
        self._saved = saved
        self._rows: list[Row] = []
        self._expired = 0
        """So many of them at the beginning no window to come can have."""
        self._gone = (0, 0)
        """Where those begin and end that were in the window that was said last, and are in the last one no more."""
        self._first = self._after = 0
        """Where the last window begins and ends."""
        self._settled = 0
        """So many have had their say."""
        self._since = 0
        """Elements settled since the last window, where windows slide by number."""
        self._last: float | None = None if first_end is None else first_end - self._slide
        """The end up to which windows were looked at, where by time."""
        self._latest = float(NEVER)
        """Of times of arrival; a clock that goes back stands still."""
        if saved is not None and saved.marks is not None:
            self._rows = saved.rows
            positions, self._since, self._last, self._latest, *kept = saved.marks
            check_kept(saved.component, kept[0] if kept else None, self._kept)  # older versions have saved none
            self._expired, self._gone, self._first, self._after, self._settled = positions
        self._origin = 0 if self._last is None else self._last % self._slide

    def __len__(self) -> int:
        """Number of elements that windows to come may have."""
        return len(self._rows) - self._expired

    @property
    def entries(self) -> list[tuple[float, Any]]:
        """These elements, with their times, in the order of those."""
        return [(row[TIME], row[ELEMENT]) for row in self._rows[self._expired :]]

    @property
    def reached(self) -> float:
        """How late it was, by times of arrival, as far as these windows know."""
        return self._latest if self._last is None else max(self._latest, self._last)

    def save(self) -> None:
        """Bring what is saved up to date, for a snapshot."""
        assert self._saved is not None
        positions = (self._expired, self._gone, self._first, self._after, self._settled)
        self._saved.marks = (positions, self._since, self._last, self._latest, self._kept)
        self._saved.save()

    def add(self, element: Any, time: float) -> Sequence[Evaluated | Expired]:
        """An element came. By event time, it must not be behind the last watermark."""
        rows, saved = self._rows, self._saved
        if not self._event_time:
            time = self._latest = max(self._latest, time)
        row = (time, element, 0 if saved is None else saved.add(time, element))
        if not rows or time >= rows[-1][TIME]:
            rows.append(row)
        else:
            bisect.insort_right(rows, row, lo=self._settled, key=_time)
        if not self._eager:
            return ()
        if self._by_count and self._slides_by_count and self._since + 1 < self._slide:
            self._since += 1
            self._settled += 1
            return ()  # nothing expires but after a window
        effects: list[Evaluated | Expired] = []
        if self._slides_by_count:
            self._settle_by_count(len(rows), effects)
            self._expire(time, effects)
        elif len(self) > self._length:
            self._expire(time, effects)
        return effects

    def advance(self, time: float) -> list[Evaluated | Expired]:
        """Time, by the watermark or the clock, has come this far."""
        effects: list[Evaluated | Expired] = []
        if not self._slides_by_count:
            self._settle_by_time(time, effects)
        elif self._event_time:
            self._settle_by_count(self._before(time), effects)
        self._expire(time, effects)
        return effects

    def waiting(self) -> list[tuple[float, Any]]:
        """What windows that slide by number have had no window for yet, with its times; nothing of others."""
        rows = self._rows[max(self._expired, self._settled - self._since) :] if self._slides_by_count else []
        return [(row[TIME], row[ELEMENT]) for row in rows]

    def finish(self) -> bool:
        """Let go of everything, unless there will be windows with something new without more elements."""
        waits = self._after if self._by_count else self._expired
        if not self._slides_by_count and waits < len(self._rows):
            return False
        if self._saved is not None:
            self._saved.remove(self._rows)
            self._saved.forget()
        self._rows = []
        return True

    def _before(self, time: float) -> int:
        """Where the first row of a time or later is."""
        return bisect.bisect_left(self._rows, time, lo=self._expired, key=_time)

    def _settle_by_count(self, until: int, effects: list[Evaluated | Expired]) -> None:
        for position in range(self._settled + 1, until + 1):
            self._since += 1
            if self._since == self._slide:
                self._since = 0
                self._evaluate(position, self._rows[position - 1][TIME] + 1, effects)
        self._settled = max(self._settled, until)

    def _settle_by_time(self, time: float, effects: list[Evaluated | Expired]) -> None:
        while (end := self._next_end(time)) is not None:
            after = self._before(end)
            self._last, self._settled = end, after
            self._evaluate(after, end, effects)
            self._expire(end, effects)
        passed = self._grid_end(time) - self._slide
        if not self._fires_empty and (self._last is None or self._last < passed):
            self._last = passed
        self._settled = max(self._settled, self._before(time))

    def _next_end(self, time: float) -> float | None:
        """The end of the next window that is due; None if there is none."""
        following = None if self._last is None else self._last + self._slide
        if self._fires_empty and following is not None:
            if not len(self) and following <= time:
                following += (time - following) // self._slide * self._slide
            return following if following <= time else None
        waits_from = self._after if self._by_count else self._expired
        if waits_from >= len(self._rows):
            return None
        end = self._grid_end(self._rows[waits_from][TIME])
        if following is not None and following > end:
            end = following
        return end if end <= time else None

    def _grid_end(self, time: float) -> float:
        """The end of the first window that slides by time and may have an element of `time`."""
        return time - (time - self._origin) % self._slide + self._slide

    def _evaluate(self, after: int, end: float, effects: list[Evaluated | Expired]) -> None:
        rows, after_before = self._rows, self._after
        if self._by_count:
            first = max(self._expired, after - int(self._length))
        else:
            first = min(after, self._before(end - self._length))
        self._leave(first)
        self._first, self._after = first, after
        if first == after and not self._fires_empty:
            return
        gone = [row[ELEMENT] for row in rows[slice(*self._gone)]]
        start = end - self._length if not self._by_count else rows[first][TIME] if first < after else end
        elements = [row[ELEMENT] for row in rows[first:after]]
        effects.append(Evaluated(start, end, elements, elements[max(0, after_before - first) :], gone))
        self._gone = (0, 0)

    def _leave(self, first: int) -> None:
        """What was in the last window and is before `first` is gone."""
        until = min(first, self._after)
        if until > self._first:
            gone_from, gone_to = self._gone
            assert gone_from == gone_to or gone_to == self._first
            self._gone = (self._first if gone_from == gone_to else gone_from, until)

    def _expire(self, time: float, effects: list[Evaluated | Expired]) -> None:
        """Let go of what no window can have whose end comes after `time`."""
        rows = self._rows
        if self._by_count and self._slides_by_count:
            until = self._settled + (self._slide - self._since) - self._length
        elif self._by_count:
            everything = not self._event_time and rows and rows[-1][TIME] < self._following(time)
            until = (len(rows) if everything else self._settled) - self._length
        else:
            until = self._before((time + 1 if self._slides_by_count else self._following(time)) - self._length)
        number = min(int(until), len(rows))
        if number > self._expired:
            effects.append(Expired([row[ELEMENT] for row in rows[self._expired : number]]))
            self._leave(number)
            self._first, self._after = max(self._first, number), max(self._after, number)
            self._expired, self._settled = number, max(self._settled, number)
        self._forget()

    def _forget(self) -> None:
        """Drop rows of which nothing is to be said any more."""
        gone_from, gone_to = self._gone
        number = self._expired if gone_from == gone_to else min(self._expired, gone_from)
        if not number:
            return
        if self._saved is not None:
            self._saved.remove(self._rows[:number])
        del self._rows[:number]
        self._gone = (gone_from - number, gone_to - number) if gone_from < gone_to else (0, 0)
        self._expired -= number
        self._first -= number
        self._after -= number
        self._settled -= number

    def _following(self, time: float) -> float:
        """The end of the first window that is still to be looked at."""
        if self._last is not None:
            return self._last + self._slide
        return self._grid_end(self._rows[self._expired][TIME] if len(self) else time)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests."""
        rows, (gone_from, gone_to) = self._rows, self._gone
        assert all(a[TIME] <= b[TIME] for a, b in itertools.pairwise(rows))
        assert 0 <= self._expired <= self._settled <= len(rows)
        assert self._first <= self._after <= self._settled
        assert 0 <= gone_from <= gone_to <= self._first
        assert not self._expired or gone_from == 0 < gone_to
        assert 0 <= self._since < self._slide or not self._slides_by_count


__all__ = ["Count", "Duration", "Evaluated", "Expired", "TrailingWindows"]
