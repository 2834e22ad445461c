"""Windows, and which of them a time belongs to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from heronpy.errors import ConfigError

NEVER = -(1 << 62)
"""Before all times: the watermark of which nothing is known, the beginning of the global window."""
END = 1 << 62
"""After all times: the watermark after which nothing comes, the end of the global window."""
FOREVER = END - NEVER
"""A lateness: nothing is ever too late."""


class Span(NamedTuple):
    """A window: from `start_ms` (inclusive) to `end_ms` (exclusive)."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows that follow one another on a grid: every element is in one."""

    size_ms: int
    """Length of a window."""
    offset_ms: int = 0
    """Where the grid begins, after the epoch."""

    def __post_init__(self) -> None:
        _above_zero("a window's length", self.size_ms)

    @property
    def slide_ms(self) -> int:
        """Time between two beginnings."""
        return self.size_ms

    @property
    def slice_ms(self) -> int:
        """All times of one slice of the grid are in the same windows."""
        return self.size_ms

    def starts(self, time_ms: int) -> range:
        """The beginnings of all windows that contain a time, earliest first."""
        start = time_ms - (time_ms - self.offset_ms) % self.size_ms
        return range(start, start + 1)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows that overlap, on a grid: every element is in `size_ms / slide_ms` of them, give or take one."""

    size_ms: int
    """Length of a window."""
    slide_ms: int
    """Time between two beginnings; not more than the length."""
    offset_ms: int = 0
    """Where the grid begins, after the epoch."""

    def __post_init__(self) -> None:
        _above_zero("a window's length", self.size_ms)
        _above_zero("a window's slide", self.slide_ms)
        if self.slide_ms > self.size_ms:
            raise ConfigError(
                f"a window's slide ({self.slide_ms} ms) must not be longer than its length ({self.size_ms} ms): "
                "elements between two windows would be in none"
            )

    @property
    def slice_ms(self) -> int:
        """All times of one slice of the grid are in the same windows."""
        return math.gcd(self.size_ms, self.slide_ms)

    def starts(self, time_ms: int) -> range:
        """The beginnings of all windows that contain a time, earliest first."""
        last = time_ms - (time_ms - self.offset_ms) % self.slide_ms
        count = -((time_ms - self.size_ms - last) // self.slide_ms)
        return range(last - (count - 1) * self.slide_ms, last + 1, self.slide_ms)


@dataclass(frozen=True, slots=True)
class Session:
    """Windows of activity: one ends when nothing came for `gap_ms`. Its span reaches to a gap after its last element.

    Two elements exactly a gap apart are in two sessions, because spans do not include their end.
    """

    gap_ms: int
    """How long a silence ends a session."""

    def __post_init__(self) -> None:
        _above_zero("a session's gap", self.gap_ms)


@dataclass(frozen=True, slots=True)
class Global:
    """One window of everything. Its trigger says when there is a result; the watermark `END` ends it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows of `length` elements in the order of arrival, one every `slide` elements. They have no times."""

    length: int
    """Elements of a window; the first ones of a key have fewer, if they slide."""
    slide: int
    """Elements between two windows; not more than the length."""

    def __post_init__(self) -> None:
        _above_zero("a window's length", self.length)
        _above_zero("a window's slide", self.slide)
        if self.slide > self.length:
            raise ConfigError(f"a window's slide ({self.slide}) must not be larger than its length ({self.length})")


Windows = Tumbling | Sliding | Session | Global | Counted
"""How elements are divided."""


def _above_zero(what: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigError(f"{what} must be a whole number above 0, not {value!r}")


__all__ = ["END", "FOREVER", "NEVER", "Counted", "Global", "Session", "Sliding", "Span", "Tumbling", "Windows"]
