"""What is kept of the elements of a window."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.errors import ConfigError


class Fold(ABC):
    """Turns elements into accumulators, and merges those. Accumulators must be plain values: they are state.

    Merging must be associative, and not depend on the order of elements where results must not. `add` and `merge` that
    raise must leave the accumulator as it was.
    """

    @abstractmethod
    def lift(self, value: Any) -> Any:
        """The accumulator of one element."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """The accumulator of everything in `a` and then `b`. May change and return `a`; must leave `b` as it is."""

    def add(self, acc: Any, value: Any) -> Any:
        """`merge(acc, lift(value))`, where that can be had cheaper. May change and return `acc`."""
        return self.merge(acc, self.lift(value))

    def combine(self, accs: Sequence[Any]) -> Any:
        """The accumulator of everything in `accs`, of which there is at least one. Must leave them as they are."""
        if len(accs) == 1:
            return accs[0]
        made = copy.deepcopy(accs[0])
        for acc in accs[1:]:
            made = self.merge(made, acc)
        return made

    def result(self, acc: Any) -> Any:
        """What a pane shows of an accumulator. Must leave it as it is."""
        return acc


class Reduce(Fold):
    """`function(value, value) -> value` of all elements. It must return a new value, or one that cannot change."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.merge = self.add = function  # type: ignore[method-assign,assignment]  # saves a call

    def lift(self, value: Any) -> Any:
        return value

    def merge(self, a: Any, b: Any) -> Any:
        raise AssertionError("replaced by the function")

    def combine(self, accs: Sequence[Any]) -> Any:
        return functools.reduce(self.merge, accs)


class Collect(Fold):
    """All elements, in the order of their arrival within a slice."""

    def lift(self, value: Any) -> list[Any]:
        return [value]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(value)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a += b
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        return [value for acc in accs for value in acc]

    def result(self, acc: list[Any]) -> list[Any]:
        return acc.copy()


class KeepLast(Collect):
    """An evictor: of all elements, only the last `count`."""

    def __init__(self, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"KeepLast takes a number of elements above 0, not {count!r}")
        self.count = count

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(value)
        del acc[: -self.count]
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a += b
        del a[: -self.count]
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        return super().combine(accs)[-self.count :]


class KeepWithin(Collect):
    """An evictor: of all elements, only those less than `span_ms` older than the newest."""

    def __init__(self, span_ms: int, time_ms: Callable[[Any], int]) -> None:
        """Describe it.

        Args:
            span_ms: how much older than the newest an element may be.
            time_ms: the time of an element.
        """
        if isinstance(span_ms, bool) or not isinstance(span_ms, int) or span_ms < 1:
            raise ConfigError(f"KeepWithin takes a number of milliseconds above 0, not {span_ms!r}")
        self.span_ms = span_ms
        self.time_ms = time_ms

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self._kept([*acc, value])

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self._kept(a + b)

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        return self._kept(super().combine(accs))

    def _kept(self, values: list[Any]) -> list[Any]:
        times = [self.time_ms(value) for value in values]
        after = max(times) - self.span_ms
        return [value for value, time in zip(values, times, strict=True) if time > after]


__all__ = ["Collect", "Fold", "KeepLast", "KeepWithin", "Reduce"]
