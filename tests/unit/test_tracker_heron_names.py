"""Apache Heron's names of metrics, answered by ours."""

from __future__ import annotations

import pytest
from heron_tracker.parts import heron_name, heron_names_answered

from heronpy.proto import metrics_pb2
from heronpy.proto.tmaster_pb2 import MetricSeries, MetricsReply

A, B = "container_1_sums_1", "container_1_sums_2"
COUNTER, MEAN, GAUGE = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.MEAN, metrics_pb2.Metric.GAUGE


def series(
    name: str, instance: str, value: float, kind: int = COUNTER, weight: float = 0.0, **minutes: float
) -> MetricSeries:
    return MetricSeries(
        component="sums",
        instance=instance,
        name=name,
        kind=kind,  # type: ignore[arg-type]  # a number of the enumeration
        value=value,
        weight=weight,
        minutes={int(minute[1:]): found for minute, found in minutes.items()},
    )


def ask(asked: list[str], *reported: MetricSeries, unknown: tuple[str, ...] = ()) -> dict[str, dict[str, MetricSeries]]:
    names = {name: found for name in asked if (found := heron_name(name, is_bolt=True)) is not None}
    reply = MetricsReply(series=reported, unknown_metrics=unknown)
    heron_names_answered(reply, asked, names, {A: 512.0, B: 256.0})
    found: dict[str, dict[str, MetricSeries]] = {}
    for one in reply.series:
        found.setdefault(one.name, {})[one.instance] = one
    for name in reply.unknown_metrics:
        found[f"unknown {name}"] = {}
    return found


def test_a_bolts_count_of_a_stream_is_the_sum_over_its_sources() -> None:
    found = ask(
        ["__execute-count/default"],
        series("__execute-count/left/default", A, 3, m60=1, m120=2),
        series("__execute-count/right/default", A, 4, m120=4),
        series("__execute-count/right/errors", A, 100),
        series("__execute-count/left/default", B, 7),
        unknown=("__execute-count/default",),
    )
    assert found.keys() == {"__execute-count/default"}
    mine = found["__execute-count/default"]
    assert {id: one.value for id, one in mine.items()} == {A: 7, B: 7}
    assert dict(mine[A].minutes) == {60: 1, 120: 6}


def test_a_bolts_latency_of_a_stream_is_the_mean_by_weight() -> None:
    found = ask(
        ["__execute-latency/default"],
        series("__execute-latency/left/default", A, 10, MEAN, 1),
        series("__execute-latency/right/default", A, 20, MEAN, 3),
    )
    assert found["__execute-latency/default"][A].value == 17.5


def test_what_was_asked_for_beside_it_stays_and_what_was_not_goes() -> None:
    found = ask(
        ["__ack-count/default", "__ack-count/left/default", "__emit-count/*", "nothing"],
        series("__ack-count/left/default", A, 3),
        series("__ack-count/right/default", A, 4),
        series("__emit-count/default", A, 5),
        unknown=("nothing", "__ack-count/default"),
    )
    assert found.keys() == {
        "__ack-count/default",
        "__ack-count/left/default",
        "__emit-count/default",
        "unknown nothing",
    }


def test_a_name_that_was_reported_under_itself_is_not_replaced() -> None:
    found = ask(["__jvm-thread-count"], series("__jvm-thread-count", A, 9), series("__py-thread-count", A, 3))
    assert found["__jvm-thread-count"][A].value == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("__jvm-uptime-secs", 100),
        ("__jvm-process-cpu-time-nanos", 50e9),
        ("__jvm-process-cpu-load", 0.5),
        ("__jvm-memory-used-mb", 64),
        ("__jvm-memory-heap-mb-used", 64),
        ("__jvm-memory-mb-total", 512),
        ("__jvm-gc-collection-time-ms", 12),
        ("__jvm-fd-count", 8),
    ],
)
def test_names_of_a_jvm_are_answered_with_what_python_has(name: str, value: float) -> None:
    reported = [
        series("__uptime-secs", A, 100, GAUGE, m60=40, m120=100),
        series("__py-user-cpu-time-secs", A, 40, GAUGE, m60=10, m120=40),
        series("__py-sys-cpu-time-secs", A, 10, GAUGE, m60=4, m120=10),
        series("__py-physical-memory-byte", A, 64 << 20, GAUGE, m60=1 << 20),
        series("__py-gc-collection-time-ms", A, 12, GAUGE),
        series("__py-fd-count", A, 8, GAUGE),
    ]
    found = ask([name], *reported, unknown=(name,))
    assert found.keys() == {name}
    assert found[name][A].value == value
    if name == "__jvm-process-cpu-load":
        assert dict(found[name][A].minutes) == {120: 36 / 60}
    if name == "__jvm-memory-mb-total":
        assert dict(found[name][A].minutes) == {60: 512}


def test_other_names_are_left_alone() -> None:
    for name in ("even", "__jvm-nothing", "__execute-count/left/default", "__execute-count/*", "__emit-count/default"):
        assert heron_name(name, is_bolt=True) is None
    assert heron_name("__ack-count/default", is_bolt=False) is None
