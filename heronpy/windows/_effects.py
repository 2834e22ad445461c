"""What an engine answers with. The owner emits, acks, counts or logs it."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from heronpy.windows._spans import Span


class Timing(enum.Enum):
    """When a pane fires, seen from its window."""

    EARLY = "early"
    """Before the watermark has passed the window's end: more will come."""
    ON_TIME = "on time"
    """As the watermark passes the window's end."""
    LATE = "late"
    """After it."""


class Pane(msgspec.Struct, frozen=True, gc=False):
    """A result of one window of one key."""

    key: Any
    span: Span
    value: Any
    """The fold's result."""
    timing: Timing
    released: tuple[Any, ...] = ()
    """Accumulators that are in no window any more."""
    refused: tuple[tuple[Any, Exception], ...] = ()
    """Accumulators of the window that do not fit with those before them, and why not: the value is of the others."""


class Late(msgspec.Struct, frozen=True):
    """An element that came after all of its windows were closed."""

    key: Any
    value: Any
    time_ms: int


class Placed(msgspec.Struct, frozen=True):
    """The element is in so many accumulators, which are released one by one. Only said where it is not one."""

    times: int


class FoldFailed(msgspec.Struct, frozen=True):
    """The fold cannot show what a window has: it has no result."""

    key: Any
    span: Span
    accs: tuple[Any, ...]
    """What it has."""
    error: Exception
    released: tuple[Any, ...] = ()
    """As of a pane."""


class Closed(msgspec.Struct, frozen=True):
    """A window is closed, and there was nothing new since its last pane."""

    key: Any
    span: Span
    released: tuple[Any, ...]
    """As of a pane."""


Effect = Pane | Late | Placed | FoldFailed | Closed


class EffectErrors:
    """What user code raises while effects are carried out that are due at once, and are due only once.

    Where the task goes on after an error (`topology.exception.policy: fail`), the other effects are carried out, too.
    """

    __slots__ = ("_first", "_goes_on", "_others")

    def __init__(self, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._first: Exception | None = None
        self._others = 0

    def add(self, error: Exception) -> None:
        """Keep an error of one effect until all are carried out; raise it if the task does not go on after it."""
        if not self._goes_on:
            raise error
        if self._first is None:
            self._first = error
        else:
            self._others += 1

    def raise_first(self) -> None:
        """All are carried out: raise the first error, which says how many others there were."""
        error, others, self._first, self._others = self._first, self._others, None, 0
        if error is None:
            return
        if others:
            error.add_note(f"and {others} more of the windows that were due with this one")
        raise error


__all__ = ["Closed", "Effect", "EffectErrors", "FoldFailed", "Late", "Pane", "Placed", "Timing"]
