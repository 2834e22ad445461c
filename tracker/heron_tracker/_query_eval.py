"""What a metrics query means: time series in, time series out.

A value is a list of lines. A line is a map of minutes to numbers that belongs to an instance, or to none:

- TS gives a line for every instance of the component, also for those without values.
- A constant is one line of no instance with a value in every minute of the time that is asked for.
- SUM, MAX and PERCENTILE make one line of no instance from all lines of all their arguments, minute by minute, of
  those that have a value there.
- DIVIDE, MULTIPLY and SUBTRACT work minute by minute where both sides have a value. Lines of instances meet the lines
  of the same instance on the other side; a line of no instance meets every line. Where the divisor is 0, or the result
  is not a finite number, there is no value.
- DEFAULT gives every line a value in every minute. RATE is the change per minute since the value before.

Two sides of instances of which none is on both sides have an empty result, as in Heron.

The client decides how much is calculated, so every query has a budget: of points (one number in one minute of one
line), because each costs about 100 bytes while it is needed, and of time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heron_tracker._query_parse import Call, Node, Number, Series
from heronpy.errors import UsageError

MINUTE_S = 60
_Lines = Sequence["Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers by the start of their minute, of one instance or (None) of no one in particular."""

    instance: str | None
    data: Mapping[int, float] = field(default_factory=dict)


class Budget:
    """How much one query may still calculate. Raises UsageError when it is used up."""

    def __init__(self, points: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._points = points
        self._left = points
        self._clock = clock
        self._seconds = seconds
        self._end_s = clock() + seconds

    def spend(self, points: int) -> None:
        """Take account of points before they are made.

        Raises:
            UsageError: more than there are, or the time is over.
        """
        self._left -= points
        if self._left < 0:
            raise UsageError(
                f"the query calculates more than {self._points:,} values (functions × instances × minutes): "
                "ask for less time, fewer instances or a simpler expression"
            )
        if self._clock() > self._end_s:
            raise UsageError(f"the query takes more than {self._seconds:g} s: ask for less")


def minutes(start_s: int, end_s: int) -> range:
    """The starts of the minutes from the one of `start_s` to the one of `end_s`."""
    return range(start_s - start_s % MINUTE_S, end_s + 1, MINUTE_S)


def evaluate(
    node: Node, fetched: Mapping[Series, _Lines], during: Sequence[int], budget: Budget | None = None
) -> list[Line]:
    """Evaluate a query.

    Args:
        node: What `parse` returned.
        fetched: For every TS of the query, a line for each of its instances.
        during: The minutes that are asked for.
        budget: How much it may calculate; None: without limit.

    Raises:
        UsageError: the budget is used up.
    """
    # The numbers of the minutes are made once, and shared by all lines.
    return _Evaluation(fetched, list(during), budget or Budget(1 << 62, math.inf)).lines(node)


class _Evaluation:
    def __init__(self, fetched: Mapping[Series, _Lines], minutes: list[int], budget: Budget) -> None:
        self._fetched = fetched
        self._minutes = minutes
        self._budget = budget

    def lines(self, node: Node) -> list[Line]:
        match node:
            case Number(value=value):
                self._budget.spend(len(self._minutes))
                return [Line(None, dict.fromkeys(self._minutes, value))]
            case Series():
                return list(self._fetched[node])
            case Call(function="DEFAULT", arguments=(Number(value=value), inner)):
                lines = self.lines(inner)
                self._budget.spend(len(lines) * len(self._minutes))
                filled = dict.fromkeys(self._minutes, value)
                return [Line(line.instance, {**filled, **line.data}) for line in lines]
            case Call(function="PERCENTILE", arguments=(Number(value=percent), *rest)):
                return self._fold(rest, lambda found: _percentile(found, percent))
            case Call(function="RATE", arguments=(inner,)):
                lines = self.lines(inner)
                self._spend_on(lines)
                return [Line(line.instance, _rate(line.data)) for line in lines]
            case Call(function=function, arguments=arguments):
                if function in _FOLDS:
                    return self._fold(arguments, _FOLDS[function])
                left, right = self.lines(arguments[0]), self.lines(arguments[1])
                return self._combine(left, right, _PAIRS[function])
        raise AssertionError(f"no such node: {node!r}")

    def _spend_on(self, lines: Iterable[Line]) -> None:
        self._budget.spend(sum(len(line.data) for line in lines))

    def _fold(self, arguments: Iterable[Node], function: Callable[[list[float]], float]) -> list[Line]:
        by_minute: dict[int, list[float]] = {}
        for argument in arguments:
            lines = self.lines(argument)
            self._spend_on(lines)
            for line in lines:
                for minute, value in line.data.items():
                    by_minute.setdefault(minute, []).append(value)
        return [Line(None, _finite({minute: function(found) for minute, found in by_minute.items()}))]

    def _combine(self, left: _Lines, right: _Lines, function: Callable[[float, float], float]) -> list[Line]:
        partners: dict[str | None, list[Line]] = {}
        for line in right:
            partners.setdefault(line.instance, []).append(line)
        result = []
        for a in left:
            for b in right if a.instance is None else [*partners.get(a.instance, ()), *partners.get(None, ())]:
                self._budget.spend(len(a.data))
                data = {minute: function(value, b.data[minute]) for minute, value in a.data.items() if minute in b.data}
                result.append(Line(a.instance if a.instance is not None else b.instance, _finite(data)))
        return result


def _sum(found: list[float]) -> float:
    try:
        return math.fsum(found)
    except OverflowError:
        return math.inf


_FOLDS: dict[str, Callable[[list[float]], float]] = {"SUM": _sum, "MAX": max}
_PAIRS: dict[str, Callable[[float, float], float]] = {
    "DIVIDE": lambda a, b: a / b if b else math.nan,
    "MULTIPLY": lambda a, b: a * b,
    "SUBTRACT": lambda a, b: a - b,
}


def _percentile(found: list[float], percent: float) -> float:
    return sorted(found)[int(percent * (len(found) - 1) / 100)]


def _rate(data: Mapping[int, float]) -> dict[int, float]:
    times = sorted(data)
    return _finite(
        {now: (data[now] - data[before]) * MINUTE_S / (now - before) for before, now in itertools.pairwise(times)}
    )


def _finite(data: Mapping[int, float]) -> dict[int, float]:
    return {minute: value for minute, value in data.items() if math.isfinite(value)}
