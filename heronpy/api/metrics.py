"""Metrics of the user's own, registered with `context.register_metric(name, metric, time_bucket_in_sec)`.

Not locked: update them where the engine calls you, which is where it reads them. From threads of your own, use
`heronpy.api.global_metrics`.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any


class IMetric:
    """Something that is read and reset once per time bucket."""

    def get_value_and_reset(self) -> Any:
        """The value since the last call: a number, or a dict of numbers by key. None is not reported."""
        raise NotImplementedError(f"{type(self).__name__} does not implement get_value_and_reset()")


class CountMetric(IMetric):
    """A counter."""

    def __init__(self) -> None:
        self.value: float = 0

    def incr(self, to_add: float = 1) -> None:
        """Add to the counter."""
        self.value += to_add

    def get_value_and_reset(self) -> float:
        value, self.value = self.value, 0
        return value


class MultiCountMetric(IMetric):
    """A counter per key."""

    def __init__(self) -> None:
        self.value: dict[str, CountMetric] = {}

    def add_key(self, key: str) -> None:
        """Report this key even before its first count."""
        self.incr(key, to_add=0)

    def incr(self, key: str, to_add: float = 1) -> None:
        """Add to the key's counter."""
        counter = self.value.get(key)
        if counter is None:
            counter = self.value[key] = CountMetric()
        counter.incr(to_add)

    def get_value_and_reset(self) -> dict[str, float]:
        return {key: counter.get_value_and_reset() for key, counter in list(self.value.items())}


class IReducer:
    """Makes one value of many."""

    def init(self) -> None:
        """Begin a new time bucket."""
        raise NotImplementedError(f"{type(self).__name__} does not implement init()")

    def reduce(self, value: Any) -> None:
        """Take one value in."""
        raise NotImplementedError(f"{type(self).__name__} does not implement reduce()")

    def extract(self) -> Any:
        """The bucket's value; None when there is nothing to report."""
        raise NotImplementedError(f"{type(self).__name__} does not implement extract()")


class MeanReducer(IReducer):
    """The mean; None for an empty bucket."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0

    def init(self) -> None:
        self.sum = 0.0
        self.count = 0

    def reduce(self, value: float) -> None:
        self.sum += float(value)
        self.count += 1

    def extract(self) -> float | None:
        return self.sum / self.count if self.count else None


class ReducedMetric(IMetric):
    """A reduced value."""

    def __init__(self, reducer_cls: Callable[[], IReducer]) -> None:
        self.reducer = reducer_cls()
        self.reducer.init()

    def update(self, value: Any) -> None:
        """Take one value in."""
        self.reducer.reduce(value)

    def get_value_and_reset(self) -> Any:
        value = self.reducer.extract()
        self.reducer.init()
        return value


class MultiReducedMetric(IMetric):
    """A reduced value per key."""

    def __init__(self, reducer: Callable[[], IReducer]) -> None:
        self.value: dict[str, ReducedMetric] = {}
        self.reducer = reducer

    def add_key(self, key: str) -> None:
        """Report this key even before its first value."""
        if key not in self.value:
            self.value[key] = ReducedMetric(self.reducer)

    def update(self, key: str, value: Any) -> None:
        """Take one value of the key in."""
        self.add_key(key)
        self.value[key].update(value)

    def get_value_and_reset(self) -> dict[str, Any]:
        return {key: metric.get_value_and_reset() for key, metric in list(self.value.items())}


class AssignableMetrics(IMetric):
    """A value that stays until it is set again."""

    def __init__(self, init_val: Any) -> None:
        self.value = init_val

    def update(self, value: Any) -> None:
        """Set the value."""
        self.value = value

    def get_value_and_reset(self) -> Any:
        return self.value


class MultiAssignableMetrics(IMetric):
    """A value per key that stays until it is set again."""

    def __init__(self) -> None:
        self.map: dict[str, AssignableMetrics] = {}

    def update(self, key: str, value: Any) -> None:
        """Set the key's value."""
        if key in self.map:
            self.map[key].update(value)
        else:
            self.map[key] = AssignableMetrics(value)

    def get_value_and_reset(self) -> dict[str, Any]:
        return {key: metric.get_value_and_reset() for key, metric in list(self.map.items())}


class HistogramMetric(IMetric):
    """How values are distributed: `count`, `mean`, `min`, `max`, `p50`, `p95` and `p99` of each time bucket.

    The percentiles are those of a sample: every value of the bucket has the same chance to be in it (Vitter's
    Algorithm R), so memory is bounded however many there are. `count`, `mean`, `min` and `max` are exact.

    Args:
        sample_size: most values that are kept.
    """

    counted_keys = frozenset({"count"})
    """Keys whose values are counts: they are summed over time and instances."""

    def __init__(self, sample_size: int = 1024) -> None:
        if sample_size < 1:
            raise ValueError(f"sample_size must be positive, not {sample_size}")
        self._sample_size = sample_size
        self._random = random.Random()
        self._min: float
        self._max: float
        self._begin()

    def update(self, value: float) -> None:
        """Take one value in."""
        number = float(value)
        self.count += 1
        self._sum += number
        self._min, self._max = min(self._min, number), max(self._max, number)
        if len(self._sample) < self._sample_size:
            self._sample.append(number)
        elif (place := self._random.randrange(self.count)) < self._sample_size:
            self._sample[place] = number

    def get_value_and_reset(self) -> dict[str, float]:
        """Only `count` for an empty bucket."""
        values: dict[str, float] = {"count": self.count}
        if self.count:
            ordered = sorted(self._sample)
            values |= {"mean": self._sum / self.count, "min": self._min, "max": self._max}
            values |= {f"p{q}": ordered[math.ceil(q / 100 * len(ordered)) - 1] for q in (50, 95, 99)}
        self._begin()
        return values

    def _begin(self) -> None:
        self.count = 0
        """Values of this bucket."""
        self._sum = 0.0
        self._min = math.inf
        self._max = -math.inf
        self._sample: list[float] = []


class TimerMetric(HistogramMetric):
    """How long something takes, in milliseconds: a histogram that is its own stopwatch.

    with timer.time():
        look_up(key)
    """

    @contextlib.contextmanager
    def time(self) -> Iterator[None]:
        """Time the block, also when it raises."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.update((time.perf_counter_ns() - began_ns) / 1e6)


class MeterMetric(IMetric):
    """How often something happens: `count`, and `m1_rate`, the rate per second weighted towards the last minute."""

    counted_keys = frozenset({"count"})

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s = clock()
        self._rate: float | None = None
        self.count: float = 0

    def mark(self, count: float = 1) -> None:
        """It happened."""
        self.count += count

    def get_value_and_reset(self) -> dict[str, float]:
        now_s = self._clock()
        passed_s = now_s - self._since_s
        if passed_s > 0:
            rate = self.count / passed_s
            weight = 1 - math.exp(-passed_s / 60)
            self._rate = rate if self._rate is None else self._rate + weight * (rate - self._rate)
        values, self.count, self._since_s = {"count": self.count}, 0, now_s
        return values if self._rate is None else {**values, "m1_rate": self._rate}


class GaugeMetric(IMetric):
    """A value that is asked for when it is reported.

    Args:
        read: returns it; called in the task's thread.
    """

    def __init__(self, read: Callable[[], float | None]) -> None:
        self._read = read

    def get_value_and_reset(self) -> float | None:
        return self._read()


def MeanReducedMetric() -> ReducedMetric:  # Heron's name
    """A metric that reports the mean."""
    return ReducedMetric(MeanReducer)


def MultiMeanReducedMetric() -> MultiReducedMetric:  # Heron's name
    """A metric that reports the mean per key."""
    return MultiReducedMetric(MeanReducer)
