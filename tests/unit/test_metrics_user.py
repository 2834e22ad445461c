"""Metrics of the user's own: what a task reports of each kind, by name, kind and value."""

from __future__ import annotations

from typing import Any

import pytest
from hostile_objects import Silent
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import (
    AssignableMetrics,
    CountMetric,
    GaugeMetric,
    HistogramMetric,
    IMetric,
    MeanReducedMetric,
    MeterMetric,
    MultiAssignableMetrics,
    MultiCountMetric,
    MultiMeanReducedMetric,
    TimerMetric,
)
from heronpy.instance.task import TaskMetrics
from heronpy.proto import metrics_pb2

Kind = metrics_pb2.Metric.Kind


def reported(metric: IMetric) -> dict[str, tuple[str, float]]:
    """What a task reports of a metric that is registered as `m`."""
    metrics = TaskMetrics()
    metrics.register("m", metric, 1)
    metrics.poll_user(0, final=True)
    return {m.name: (Kind.Name(m.kind), m.value) for m in metrics.collect()}


def test_herons_metrics_are_reported_as_counters_and_gauges() -> None:
    count, multi_count = CountMetric(), MultiCountMetric()
    mean, multi_mean = MeanReducedMetric(), MultiMeanReducedMetric()
    value, values = AssignableMetrics(3), MultiAssignableMetrics()
    count.incr(5)
    multi_count.incr("a", 2)
    mean.update(1)
    mean.update(2)
    multi_mean.update("b", 4)
    values.update("c", 9)
    assert reported(count) == {"m": ("COUNTER", 5)}
    assert reported(multi_count) == {"m/a": ("COUNTER", 2)}
    assert reported(mean) == {"m": ("GAUGE", 1.5)}
    assert reported(multi_mean) == {"m/b": ("GAUGE", 4)}
    assert reported(value) == {"m": ("GAUGE", 3)}
    assert reported(values) == {"m/c": ("GAUGE", 9)}


def test_a_histogram_reports_percentiles_and_its_count_is_a_counter() -> None:
    histogram = HistogramMetric()
    for value in range(100, 0, -1):
        histogram.update(value)
    assert reported(histogram) == {
        "m/count": ("COUNTER", 100),
        "m/mean": ("GAUGE", 50.5),
        "m/min": ("GAUGE", 1),
        "m/max": ("GAUGE", 100),
        "m/p50": ("GAUGE", 50),
        "m/p95": ("GAUGE", 95),
        "m/p99": ("GAUGE", 99),
    }
    assert reported(histogram) == {"m/count": ("COUNTER", 0)}, "each time bucket begins anew"


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200), st.integers(1, 50))
def test_a_histogram_is_bounded_and_its_extremes_are_exact(values: list[float], sample_size: int) -> None:
    histogram = HistogramMetric(sample_size)
    for value in values:
        histogram.update(value)
    assert len(histogram._sample) <= sample_size
    result = histogram.get_value_and_reset()
    assert (result["count"], result["min"], result["max"]) == (len(values), min(values), max(values))
    assert result["min"] <= result["p50"] <= result["p95"] <= result["p99"] <= result["max"]
    assert result["mean"] == pytest.approx(sum(values) / len(values))


def test_every_value_has_the_same_chance_to_be_in_the_sample() -> None:
    first_half = 0
    for _ in range(200):
        histogram = HistogramMetric(10)
        for value in range(100):
            histogram.update(value)
        first_half += sum(v < 50 for v in histogram._sample)
    # 2000 draws of 1/2: 1000, with a standard deviation below 23.
    assert 850 < first_half < 1150


def test_a_timer_times_its_block_in_milliseconds_also_when_it_raises() -> None:
    timer = TimerMetric()
    with timer.time():
        pass
    with pytest.raises(ValueError, match="no"), timer.time():
        raise ValueError("no")
    values = timer.get_value_and_reset()
    assert values["count"] == 2
    assert 0 < values["max"] < 1000


def test_a_meter_counts_and_knows_its_rate() -> None:
    now_s = 0.0
    meter = MeterMetric(lambda: now_s)
    meter.mark(50)
    now_s = 5.0
    assert meter.get_value_and_reset() == {"count": 50, "m1_rate": 10}
    now_s = 10.0
    second = meter.get_value_and_reset()
    assert second["count"] == 0
    assert 9 < second["m1_rate"] < 10


def test_a_gauge_is_read_when_it_is_reported() -> None:
    queue = [1, 2, 3]
    assert reported(GaugeMetric(lambda: len(queue))) == {"m": ("GAUGE", 3)}
    assert reported(GaugeMetric(lambda: None)) == {}


def test_a_metric_that_cannot_be_read_does_not_end_the_task() -> None:
    def broken() -> float:
        raise RuntimeError("no connection")

    metrics, count = TaskMetrics(), CountMetric()
    metrics.register("broken", GaugeMetric(broken), 1)
    metrics.register("n", count, 1)
    count.incr()
    metrics.poll_user(0, final=True)
    assert [m.name for m in metrics.collect()] == ["n"]


class Nameless:
    """A key that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not to be shown")

    __repr__ = __str__


def test_a_key_that_cannot_be_shown_leaves_the_others() -> None:
    metric = MultiCountMetric()
    metric.incr("before", 1)
    metric.incr(Nameless(), 1)
    metric.incr("\udc80", 2)
    metric.incr("after", 3)
    assert reported(metric) == {
        "m/before": ("COUNTER", 1),
        "m/\\udc80": ("COUNTER", 2),
        "m/after": ("COUNTER", 3),
    }


@pytest.mark.parametrize("value", [10**400, Silent(), {"a": Silent()}, object(), [1]])
def test_a_value_that_is_no_number_is_not_reported(value: Any) -> None:
    assert reported(AssignableMetrics(value)) == {}
