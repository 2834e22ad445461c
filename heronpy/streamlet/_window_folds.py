"""What window bolts keep of the elements of a window.

The innermost fold reduces or joins. Around it, where windows have no times of their own or evict elements, is one that
keeps times: it takes (time in ms, what the inner fold takes), and shows (first time, last time, the inner result).

Where tuples are held until they have left their last window, they are kept with what came in them.
"""

from __future__ import annotations

import bisect
import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from heronpy.api import Tuple
from heronpy.windows import Fold, Reduce

_TIME = itemgetter(0)


class HeldFold(Fold):
    """A fold that knows the tuples in its accumulators."""

    @abstractmethod
    def tuples(self, acc: Any) -> Iterable[Tuple]:
        """The tuples that are held."""

    @abstractmethod
    def part(self, acc: Any) -> Any:
        """What a user can make sense of, for a report of what could not be shown."""


class ReducedValues(Reduce, HeldFold):
    """A reduction of values, where no tuples are held."""

    def tuples(self, acc: Any) -> Iterable[Tuple]:
        return ()

    def part(self, acc: Any) -> Any:
        return acc


class HeldValues(HeldFold):
    """A reduction of values with their tuples: (value, tuple) in, [value, tuple, tuple, …] kept."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self.lift = list  # type: ignore[method-assign,assignment]  # the pair as a list, without a call in between

    def lift(self, value: tuple[Any, Tuple]) -> list[Any]:
        raise AssertionError("replaced by list")

    def add(self, acc: list[Any], value: tuple[Any, Tuple]) -> list[Any]:
        acc[0] = self._function(acc[0], value[0])
        acc.append(value[1])
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a[0] = self._function(a[0], b[0])
        a += b[1:]
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        made = [functools.reduce(self._function, [acc[0] for acc in accs])]
        for acc in accs:
            made += acc[1:]
        return made

    def tuples(self, acc: list[Any]) -> Iterable[Tuple]:
        return acc[1:]

    def part(self, acc: list[Any]) -> Any:
        return acc[0]


_Sides = tuple[list[Any], list[Any]]


class Sides(HeldFold):
    """Left and right values: (side, value, tuple or None) in, two lists of (value, tuple or None) kept."""

    def lift(self, value: tuple[int, Any, Any]) -> _Sides:
        return self.add(([], []), value)

    def add(self, acc: _Sides, value: tuple[int, Any, Any]) -> _Sides:
        acc[value[0]].append(value[1:])
        return acc

    def merge(self, a: _Sides, b: _Sides) -> _Sides:
        for mine, others in zip(a, b, strict=True):
            mine += others
        return a

    def combine(self, accs: Sequence[_Sides]) -> _Sides:
        lefts, rights = ([pair for acc in accs for pair in acc[side]] for side in (0, 1))
        return lefts, rights

    def tuples(self, acc: _Sides) -> Iterable[Tuple]:
        return (tup for side in acc for _, tup in side if tup is not None)

    def part(self, acc: _Sides) -> Any:
        return acc


class Dated(HeldFold):
    """The times of the first and the last element beside an inner accumulator: [first, last, that] kept."""

    def __init__(self, fold: HeldFold) -> None:
        self._fold = fold

    def lift(self, value: tuple[int, Any]) -> list[Any]:
        return [value[0], value[0], self._fold.lift(value[1])]

    def add(self, acc: list[Any], value: tuple[int, Any]) -> list[Any]:
        acc[2] = self._fold.add(acc[2], value[1])  # may raise, and then nothing has changed
        acc[0], acc[1] = min(acc[0], value[0]), max(acc[1], value[0])
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a[2] = self._fold.merge(a[2], b[2])
        a[0], a[1] = min(a[0], b[0]), max(a[1], b[1])
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        inner = self._fold.combine([acc[2] for acc in accs])
        return [min(acc[0] for acc in accs), max(acc[1] for acc in accs), inner]

    def result(self, acc: list[Any]) -> tuple[int, int, Any]:
        return acc[0], acc[1], self._fold.result(acc[2])

    def tuples(self, acc: list[Any]) -> Iterable[Tuple]:
        return self._fold.tuples(acc[2])

    def part(self, acc: list[Any]) -> Any:
        return self._fold.part(acc[2])


_Evicting = tuple[list[Any], list[Any]]


class Evicting(HeldFold):
    """The latest elements, which an inner fold folds for each pane: ([(time, element), …], evicted ones) kept.

    They are in the order of their times, those of equal times in that of their arrival. Of evicted ones only the tuples
    count, so where none are held they are forgotten.
    """

    def __init__(self, fold: HeldFold, count: int | None, span_ms: int | None, *, holds: bool) -> None:
        """Take the inner fold, and what is kept: so many elements, those less than this older than the last, or both.

        Args:
            fold: the inner fold.
            count: keep so many.
            span_ms: keep those that are less than this older than the latest.
            holds: whether tuples are held until they are released.
        """
        self._fold, self._count, self._span_ms, self._holds = fold, count, span_ms, holds

    def lift(self, value: tuple[int, Any]) -> _Evicting:
        return [value], []

    def add(self, acc: _Evicting, value: tuple[int, Any]) -> _Evicting:
        bisect.insort_right(acc[0], value, key=_TIME)
        self._evict(acc)
        return acc

    def merge(self, a: _Evicting, b: _Evicting) -> _Evicting:
        kept, evicted = a
        kept += b[0]
        kept.sort(key=_TIME)
        evicted += b[1]
        self._evict(a)
        return a

    def combine(self, accs: Sequence[_Evicting]) -> _Evicting:
        made: _Evicting = ([], [])
        for acc in accs:
            made = self.merge(made, acc)
        return made

    def result(self, acc: _Evicting) -> tuple[int, int, Any]:
        kept, fold = acc[0], self._fold
        inner = fold.lift(kept[0][1])
        for _, element in kept[1:]:
            inner = fold.add(inner, element)
        return kept[0][0], kept[-1][0], fold.result(inner)

    def tuples(self, acc: _Evicting) -> Iterable[Tuple]:
        fold = self._fold
        return (tup for part in acc for _, element in part for tup in fold.tuples(fold.lift(element)))

    def part(self, acc: _Evicting) -> Any:
        return [self._fold.part(self._fold.lift(element)) for _, element in acc[0]]

    def _evict(self, acc: _Evicting) -> None:
        kept, evicted = acc
        leaving = 0 if self._count is None else max(0, len(kept) - self._count)
        if self._span_ms is not None:
            leaving = max(leaving, bisect.bisect_right(kept, kept[-1][0] - self._span_ms, key=_TIME))
        if leaving:
            if self._holds:
                evicted += kept[:leaving]
            del kept[:leaving]


__all__ = ["Dated", "Evicting", "HeldFold", "HeldValues", "ReducedValues", "Sides"]
