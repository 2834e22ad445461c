"""What all engines have in common."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Protocol

from heronpy.windows._effects import Effect, FoldFailed, Pane, Timing
from heronpy.windows._folds import Fold
from heronpy.windows._spans import FOREVER, NEVER, Span
from heronpy.windows._triggers import AfterCount, AfterProcessingTime, AfterWatermark, Repeated, Windowing

NOTHING: Sequence[Effect] = ()
_Refused = tuple[tuple[Any, Exception], ...]
_NONE_REFUSED: _Refused = ()


class SavedWatermark(Protocol):
    """Where a watermark is kept."""

    value: Any


class WindowEngine(ABC):
    """The windows of all keys of one task: elements and watermarks in, panes out. See the package.

    `state` is all that there is to know, a plain value for each key; everything else here is an index of it, made anew
    from a restored state.
    """

    def __init__(
        self, windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
    ) -> None:
        """Begin with a state.

        Args:
            windowing: the windows.
            fold: what is kept of their elements.
            state: where the values of keys are kept; a dict without it. What it has is gone on with.
            watermark: how far time had come when `state` was saved.
        """
        self.windowing = windowing
        self.fold = fold
        self.state: MutableMapping[Any, Any] = {} if state is None else state
        self.watermark = watermark
        """How far time has come."""
        self._now_ms = NEVER
        trigger = windowing.trigger
        self._watermarked = isinstance(trigger, AfterWatermark)
        self._early: Repeated | None = trigger.early if isinstance(trigger, AfterWatermark) else trigger
        self._late: Repeated = trigger.late if isinstance(trigger, AfterWatermark) else trigger
        self._lateness_ms = windowing.lateness_ms
        self._watermark_state: SavedWatermark | None = None
        self._overdue: list[Effect] = []

    def __len__(self) -> int:
        """Number of keys that have anything."""
        return len(self.state)

    @abstractmethod
    def add(self, key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
        """An element came.

        Args:
            key: its key; must be hashable.
            value: what is folded.
            time_ms: its time.
            now_ms: processing time, of any clock; what goes back is taken for standing still.

        Raises:
            Exception: whatever the fold or the key's hash raises. An element of one window is in none then.
        """

    def advance(self, watermark: int, now_ms: int = 0) -> Iterator[Effect]:
        """Time has come this far; a watermark that goes back changes nothing, unless nothing is ever late.

        Go through all effects before the next call: they are made as they are asked for.
        """
        self._clock(now_ms)
        if watermark > self.watermark or (watermark < self.watermark and self._lateness_ms == FOREVER):
            self.watermark = watermark
            if self._watermark_state is not None:
                self._watermark_state.value = watermark
        if self._overdue:
            assert self._watermark_state is not None
            overdue, self._overdue, self._watermark_state.value = self._overdue, [], self.watermark
            return itertools.chain(overdue, self._due())
        return self._due()

    @abstractmethod
    def flush(self) -> Iterator[Effect]:
        """A pane of whatever is new, because nothing comes for now. Nothing is closed: that, the watermark does.

        What comes later for windows that do not accumulate makes panes with only what is new then. Windows by number
        wait until they are full.
        """

    def keep_watermark(self, saved: SavedWatermark, overdue: list[Effect]) -> None:
        """Keep the watermark there from now on, and what the next `advance` is to begin with until that has come."""
        self._watermark_state, self._overdue = saved, overdue
        saved.value = [self.watermark, *overdue] if overdue else self.watermark

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError if index and state contradict each other. For tests."""

    @abstractmethod
    def _due(self) -> Iterator[Effect]:
        """What is due at `watermark` and `_now_ms`."""

    def _saved(self) -> Iterable[tuple[Any, Any]]:
        """What the state has, to be indexed: reading state by key would make all of it dirty, and keep it in memory."""
        peek: Callable[[], Iterable[tuple[Any, Any]]] | None = getattr(self.state, "peek", None)
        return self.state.items() if peek is None else peek()

    def _clock(self, now_ms: int) -> int:
        if now_ms > self._now_ms:
            if self._now_ms == NEVER:
                self._hasten(now_ms + max(delay_of(self._early) or 0, delay_of(self._late) or 0))
            self._now_ms = now_ms
        return self._now_ms

    def _hasten(self, latest_ms: int) -> None:
        """No timer can be due later than this: what a state has that is was set by a clock that was ahead."""

    def _too_late(self, end_ms: int) -> bool:
        """Whether a window has closed."""
        return self._lateness_ms != FOREVER and end_ms + self._lateness_ms <= self.watermark

    def _pane(
        self, key: Any, span: Span, accs: Sequence[Any], timing: Timing, released: tuple[Any, ...]
    ) -> Pane | FoldFailed:
        fold, refused = self.fold, _NONE_REFUSED
        try:
            acc = accs[0] if len(accs) == 1 else fold.combine(accs)
        except Exception:  # found one by one
            acc, refused = self._fitting(accs)
        try:
            value = fold.result(acc)
        except Exception as error:
            return FoldFailed(key, span, tuple(accs), error, released)
        return Pane(key, span, value, timing, released, refused)

    def _fitting(self, accs: Sequence[Any]) -> tuple[Any, _Refused]:
        """The accumulator of those that fit with those before them, and the others."""
        made, refused = accs[0], []
        for acc in accs[1:]:
            try:
                made = self.fold.combine([made, acc])
            except Exception as error:
                refused.append((acc, error))
        return made, tuple(refused)


def reached(rule: Repeated | None, count: int) -> bool:
    """Whether so many new elements are enough for a pane."""
    return type(rule) is AfterCount and count >= rule.count


def delay_of(rule: Repeated | None) -> int | None:
    """After how long there is a pane; None: not because of time."""
    return rule.delay_ms if type(rule) is AfterProcessingTime else None


__all__ = ["NOTHING", "WindowEngine", "delay_of", "reached"]
