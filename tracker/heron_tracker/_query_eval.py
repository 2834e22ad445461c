"""What a metrics query means: time series in, time series out.

A value is a list of lines. A line is a map of minutes to numbers that belongs to an instance, or to none:

- TS gives a line for every instance of the component, also for those without values.
- A constant is one line of no instance with a value in every minute of the time that is asked for.
- SUM, MAX and PERCENTILE make one line of no instance from all lines of all their arguments, minute by minute, of
  those that have a value there.
- DIVIDE, MULTIPLY and SUBTRACT work minute by minute where both sides have a value. Lines of instances meet the lines
  of the same instance on the other side; a line of no instance meets every line. Where the divisor is 0, or the result
  is no finite number, there is no value.
- DEFAULT gives every line a value in every minute. RATE is the change per minute since the value before.

Two sides of instances of which none is on both sides have an empty result, as in Heron.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from heron_tracker._query_parse import Call, Node, Number, Series

MINUTE_S = 60
_Lines = Sequence["Line"]


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers by the start of their minute, of one instance or (None) of no one in particular."""

    instance: str | None
    data: Mapping[int, float] = field(default_factory=dict)


def minutes(start_s: int, end_s: int) -> range:
    """The starts of the minutes from the one of `start_s` to the one of `end_s`."""
    return range(start_s - start_s % MINUTE_S, end_s + 1, MINUTE_S)


def evaluate(node: Node, fetched: Mapping[Series, _Lines], time: range) -> list[Line]:
    """Evaluate a query.

    Args:
        node: What `parse` returned.
        fetched: For every TS of the query, a line for each of its instances.
        time: The minutes that are asked for.
    """
    match node:
        case Number(value=value):
            return [Line(None, dict.fromkeys(time, value))]
        case Series():
            return list(fetched[node])
        case Call(function="DEFAULT", arguments=(Number(value=value), inner)):
            filled = dict.fromkeys(time, value)
            return [Line(line.instance, {**filled, **line.data}) for line in evaluate(inner, fetched, time)]
        case Call(function="PERCENTILE", arguments=(Number(value=percent), *rest)):
            return _fold([evaluate(inner, fetched, time) for inner in rest], lambda found: _percentile(found, percent))
        case Call(function="RATE", arguments=(inner,)):
            return [Line(line.instance, _rate(line.data)) for line in evaluate(inner, fetched, time)]
        case Call(function=function, arguments=arguments):
            values = [evaluate(inner, fetched, time) for inner in arguments]
            if function in _FOLDS:
                return _fold(values, _FOLDS[function])
            return _combine(values[0], values[1], _PAIRS[function])
    raise AssertionError(f"no such node: {node!r}")


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


def _fold(values: Sequence[_Lines], function: Callable[[list[float]], float]) -> list[Line]:
    by_minute: dict[int, list[float]] = {}
    for lines in values:
        for line in lines:
            for minute, value in line.data.items():
                by_minute.setdefault(minute, []).append(value)
    return [Line(None, _finite({minute: function(found) for minute, found in by_minute.items()}))]


def _combine(left: _Lines, right: _Lines, function: Callable[[float, float], float]) -> list[Line]:
    partners: dict[str | None, list[Line]] = {}
    for line in right:
        partners.setdefault(line.instance, []).append(line)
    result = []
    for a in left:
        for b in right if a.instance is None else [*partners.get(a.instance, ()), *partners.get(None, ())]:
            data = {minute: function(value, b.data[minute]) for minute, value in a.data.items() if minute in b.data}
            result.append(Line(a.instance if a.instance is not None else b.instance, _finite(data)))
    return result


def _rate(data: Mapping[int, float]) -> dict[int, float]:
    times = sorted(data)
    return _finite(
        {now: (data[now] - data[before]) * MINUTE_S / (now - before) for before, now in itertools.pairwise(times)}
    )


def _finite(data: Mapping[int, float]) -> dict[int, float]:
    return {minute: value for minute, value in data.items() if math.isfinite(value)}
