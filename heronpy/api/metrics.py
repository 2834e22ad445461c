"""Metrics of the user's own, registered with `context.register_metric(name, metric, time_bucket_in_sec)`.

Not locked: update them where the engine calls you, which is where it reads them. From threads of your own, use
`heronpy.api.global_metrics`.
"""

from __future__ import annotations

from collections.abc import Callable
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


def MeanReducedMetric() -> ReducedMetric:  # Heron's name
    """A metric that reports the mean."""
    return ReducedMetric(MeanReducer)


def MultiMeanReducedMetric() -> MultiReducedMetric:  # Heron's name
    """A metric that reports the mean per key."""
    return MultiReducedMetric(MeanReducer)
