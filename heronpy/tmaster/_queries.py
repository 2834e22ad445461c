"""What `GetMetrics` answers: a piece of the history, by instance or by component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from heronpy.errors import UsageError
from heronpy.proto import tmaster_pb2
from heronpy.tmaster._aggregation import Rule, grouped_gauges, rule_of
from heronpy.tmaster._history import COUNTER, GAUGE, MEAN, MINUTE_MS, MINUTES, ComponentHistory, History
from heronpy.tmaster._series import Floats, Ints, SeriesSpace

INTERVAL_MAX_S = MINUTES * 60
VALUES_MAX = 500_000
"""Most numbers in one reply, which is some 20 MB; more are refused."""
SKETCH_VALUES = 16
"""A distribution counts as so many of them: most have some dozen buckets, of a byte or two."""
_MINUTE_S = MINUTE_MS // 1000


@dataclass(frozen=True, slots=True)
class _Time:
    first: int
    last: int
    """Minutes since the epoch, both inclusive."""
    all_time: bool
    minutely: bool


def answer(history: History, request: tmaster_pb2.MetricsRequest, now_ms: int) -> tmaster_pb2.MetricsReply:
    """The reply to a request.

    Raises:
        UsageError: the reply would be too large.
    """
    history.advance(now_ms)
    time = _time(request, now_ms)
    reply = tmaster_pb2.MetricsReply(interval_s=-1)
    if not time.all_time:
        reply.start_s = max(time.first * _MINUTE_S, history.started_ms // 1000)
        reply.end_s = min((time.last + 1) * _MINUTE_S, now_ms // 1000)
        reply.interval_s = max(0, reply.end_s - reply.start_s)
    wanted = [request.component] if request.component else sorted(history.components)
    values = 0
    for name in wanted:
        component = history.components.get(name)
        if component is None:
            reply.unknown_component = True
            continue
        for space, kind, slots in _selected(component, request):
            count = len(np.unique(space.name_of(slots))) if request.by_component else len(slots)
            if kind == MEAN and request.sketches and request.by_component:
                count *= SKETCH_VALUES
            values += count * (time.last - time.first + 1 if time.minutely else 1)
            if values > VALUES_MAX:
                raise UsageError(
                    f"more than {VALUES_MAX:,} values of {name or 'all components'}: "
                    "ask for fewer metrics or instances, or for less time"
                )
            series = _Series(component, name, space, kind, slots, time)
            found = series.by_component() if request.by_component else series.by_instance()
            reply.series.extend(series.with_sketches(found) if request.sketches and request.by_component else found)
    _note_unknown(history, request, wanted, reply)
    return reply


def _time(request: tmaster_pb2.MetricsRequest, now_ms: int) -> _Time:
    now = now_ms // MINUTE_MS
    oldest = now - MINUTES + 1
    if request.start_s or request.end_s:
        end_s = request.end_s or now_ms // 1000
        return _Time(max(oldest, request.start_s // _MINUTE_S), min(now, end_s // _MINUTE_S), False, request.minutely)
    all_time = not 0 < request.interval_s <= INTERVAL_MAX_S
    if all_time:
        return _Time(oldest, now, not request.minutely, request.minutely)
    first = (now_ms // 1000 - request.interval_s) // _MINUTE_S
    return _Time(max(oldest, first), now, False, request.minutely)


def _selected(
    component: ComponentHistory, request: tmaster_pb2.MetricsRequest
) -> Iterator[tuple[SeriesSpace, int, Ints]]:
    sources = None
    if request.instances:
        known = [component.sources[i].number for i in request.instances if i in component.sources]
        sources = np.array(known, dtype=np.int64)
    for kind, space in component.spaces.items():
        names = None
        if request.metrics:
            matching = [n for n, name in enumerate(space.names) if _matches(name, request.metrics)]
            names = np.array(matching, dtype=np.int64)
        slots = space.select(sources, names)
        if len(slots):
            yield space, kind, slots


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def _note_unknown(
    history: History, request: tmaster_pb2.MetricsRequest, wanted: Iterable[str], reply: tmaster_pb2.MetricsReply
) -> None:
    components = [history.components[name] for name in wanted if name in history.components]
    instances = {id for c in components for id in c.sources}
    metrics = {name for c in components for space in c.spaces.values() for name in space.names}
    reply.unknown_instances.extend(i for i in request.instances if i not in instances)
    reply.unknown_metrics.extend(m for m in request.metrics if not m.endswith("*") and m not in metrics)


class _Series:
    """The series of one kind of one component, over a time."""

    def __init__(
        self, component: ComponentHistory, name: str, space: SeriesSpace, kind: int, slots: Ints, time: _Time
    ) -> None:
        self._component, self._name, self._space, self._kind = component, name, space, kind
        self._slots, self._time = slots, time
        self._sources = space.source_of(slots)

    def by_instance(self) -> Iterator[tmaster_pb2.MetricSeries]:
        names, ids = self._space.names, self._component.ids
        everything: list[tmaster_pb2.MetricSeries | None] = [None] * len(self._slots)
        owners, name_numbers = self._sources.tolist(), self._space.name_of(self._slots).tolist()
        for n, value, weight in _present(*self._reduced(self._numbers())):
            everything[n] = self._message(ids[owners[n]], names[name_numbers[n]], value, weight)
        if self._time.minutely:
            for minute, numbers in self._each():
                for n, value, _ in _present(*self._reduced(numbers)):
                    if (series := everything[n]) is not None:
                        series.minutes[minute * _MINUTE_S] = value
        return (series for series in everything if series is not None)

    def by_component(self) -> Iterator[tmaster_pb2.MetricSeries]:
        numbers, groups = np.unique(self._space.name_of(self._slots), return_inverse=True)
        names = [self._space.names[n] for n in numbers.tolist()]
        rules = [rule_of(name) for name in names]
        everything: dict[int, tmaster_pb2.MetricSeries] = {
            n: self._message("", names[n], value, weight)
            for n, value, weight in _present(*self._grouped(self._numbers(), groups, rules))
        }
        if self._time.minutely:
            for minute, there in self._each():
                for n, value, _ in _present(*self._grouped(there, groups, rules)):
                    if n in everything:
                        everything[n].minutes[minute * _MINUTE_S] = value
        return iter(everything.values())

    def with_sketches(self, found: Iterable[tmaster_pb2.MetricSeries]) -> Iterator[tmaster_pb2.MetricSeries]:
        """The same series, those of latencies with their distributions."""
        sketches, time = self._component.sketches, self._time
        for series in found:
            if self._kind == MEAN:
                sketch = (
                    sketches.all_time(series.name)
                    if time.all_time
                    else sketches.merged(series.name, time.first, time.last)
                )
                if sketch.count:
                    series.sketch.CopyFrom(sketch.to_proto())
                if time.minutely:
                    for minute, each in sketches.minutes(series.name, time.first, time.last).items():
                        series.minute_sketches[minute * _MINUTE_S].CopyFrom(each.to_proto())
            yield series

    def _message(self, instance: str, name: str, value: float, weight: float) -> tmaster_pb2.MetricSeries:
        return tmaster_pb2.MetricSeries(
            component=self._name,
            instance=instance,
            name=name,
            kind=self._kind,  # type: ignore[arg-type]  # an enum's number
            value=value,
            weight=weight,
        )

    def _numbers(self) -> Floats:
        """Width by slots, over the whole time; NaN for counters of a source that reported nothing in it."""
        first, last = self._time.first, self._time.last
        if self._time.all_time:
            return self._space.all_time(self._slots)
        if self._kind == GAUGE:
            return self._space.latest(self._slots, first, last)
        numbers = self._space.summed(self._slots, first, last)
        if self._kind == COUNTER:
            numbers[:, ~self._component.reported_in(first, last)[self._sources]] = np.nan
        return numbers

    def _each(self) -> Iterator[tuple[int, Floats]]:
        for minute, numbers in self._space.each(self._slots, self._time.first, self._time.last):
            if self._kind == COUNTER:
                numbers[:, ~self._component.reported_in(minute, minute)[self._sources]] = np.nan
            yield minute, numbers

    def _reduced(self, numbers: Floats) -> tuple[Floats, Floats]:
        """A value (NaN: none) and a weight for each slot."""
        if self._kind != MEAN:
            return numbers[0], np.zeros(numbers.shape[1])
        sums, counts = numbers
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / counts, counts

    def _grouped(self, numbers: Floats, groups: Ints, rules: list[Rule]) -> tuple[Floats, Floats]:
        """A value (NaN: none) and a weight for each group of slots."""
        size = len(rules)
        if self._kind == GAUGE:
            return grouped_gauges(numbers[0], groups, rules), np.zeros(size)
        there = ~np.isnan(numbers[0])
        # Typed here: bincount of nothing gives integers, whatever its weights.
        sums = [np.bincount(groups[there], weights=row[there], minlength=size) for row in numbers]
        summed = np.array(sums, dtype=np.float64)
        if self._kind == COUNTER:
            summed[0, np.bincount(groups[there], minlength=size) == 0] = np.nan
        return self._reduced(summed)


def _present(values: Floats, weights: Floats) -> Sequence[tuple[int, float, float]]:
    there = np.flatnonzero(~np.isnan(values))
    return list(zip(there.tolist(), values[there].tolist(), weights[there].tolist(), strict=True))
