"""Minutes of metrics in the Topology Master: exact whatever restarts, is lost, is repeated or comes late."""

from __future__ import annotations

import traceback
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.config import TmasterConfig
from heronpy.errors import UsageError
from heronpy.metricsmgr.parts import Accumulator
from heronpy.proto import metrics_pb2, tmaster_pb2
from heronpy.tmaster.parts import MINUTE_MS, MINUTES, Metrics, Rule, answer_metrics, class_name, rule_of

COUNTER, GAUGE, MEAN = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.GAUGE, metrics_pb2.Metric.MEAN
BEGIN_MS = 1_700_000_040_000  # a full minute
BEGIN_S = BEGIN_MS // 1000
EMITTED = "__emit-count/default"


class Instance:
    """A process that reports now and then."""

    def __init__(
        self, metrics: Metrics, *, n: int = 1, life: int = 1, started_ms: int = BEGIN_MS, component: str = "word"
    ) -> None:
        self._metrics = metrics
        self.id = f"container_1_{component}_{n}"
        self._process = Accumulator(source=self.id, component=component, container=1, pid=life, started_ms=started_ms)

    def makes(self, now_ms: int, *metrics: metrics_pb2.Metric) -> metrics_pb2.MetricsReport:
        self._process.collected(metrics)
        return self._process.report(now_ms)

    def reports(self, now_ms: int, *metrics: metrics_pb2.Metric) -> None:
        self._metrics.add(self.makes(now_ms, *metrics), now_ms / 1000, now_ms)


def kept(*, started_ms: int = BEGIN_MS, series_max: int = 1000) -> Metrics:
    return Metrics(TmasterConfig(series_max=series_max), 5.0, started_ms)


def counter(value: float, name: str = EMITTED) -> metrics_pb2.Metric:
    return metrics_pb2.Metric(name=name, value=value, kind=COUNTER)


def gauge(value: float, name: str = "temperature") -> metrics_pb2.Metric:
    return metrics_pb2.Metric(name=name, value=value, kind=GAUGE)


def mean(*values: float, name: str = "__execute-latency/word/default") -> metrics_pb2.Metric:
    total = sum(values)
    return metrics_pb2.Metric(name=name, value=total / len(values), kind=MEAN, sum=total, count=len(values))


def ask(metrics: Metrics, now_ms: int, /, **request: Any) -> tmaster_pb2.MetricsReply:
    metrics.history.check_invariants()
    return answer_metrics(metrics.history, tmaster_pb2.MetricsRequest(**request), now_ms)


def value(metrics: Metrics, now_ms: int, /, **request: Any) -> float:
    (series,) = ask(metrics, now_ms, **request).series
    return series.value


def minutes(metrics: Metrics, now_ms: int, /, **request: Any) -> dict[int, float]:
    (series,) = ask(metrics, now_ms, minutely=True, **request).series
    return {(start_s - BEGIN_S) // 60: number for start_s, number in sorted(series.minutes.items())}


def test_a_counter_is_summed_by_minute_by_interval_and_for_all_time() -> None:
    metrics = kept()
    instance = Instance(metrics)
    for minute in range(5):
        instance.reports(BEGIN_MS + minute * MINUTE_MS, counter(10 + minute))
    now_ms = BEGIN_MS + 4 * MINUTE_MS + 30_000
    assert minutes(metrics, now_ms) == {0: 10, 1: 11, 2: 12, 3: 13, 4: 14}
    assert value(metrics, now_ms, interval_s=60) == 13 + 14, "both minutes that the last 60 seconds are in"
    assert value(metrics, now_ms, interval_s=-1) == value(metrics, now_ms, interval_s=10_800) == 60
    assert minutes(metrics, now_ms, start_s=BEGIN_S + 60, end_s=BEGIN_S + 150) == {1: 11, 2: 12}


def test_a_mean_is_weighted_by_its_measurements() -> None:
    metrics = kept()
    one, two = Instance(metrics, n=1), Instance(metrics, n=2)
    one.reports(BEGIN_MS, mean(1, 1, 1, 1, 1, 1))
    one.reports(BEGIN_MS + MINUTE_MS, mean(9, 9))
    two.reports(BEGIN_MS + MINUTE_MS, mean(100))
    now_ms = BEGIN_MS + MINUTE_MS
    (series,) = ask(metrics, now_ms, interval_s=600, by_component=True).series
    assert (series.value, series.weight) == ((6 + 18 + 100) / 9, 9)
    assert minutes(metrics, now_ms, by_component=True) == {0: 1, 1: 118 / 3}
    assert value(metrics, now_ms, instances=[one.id]) == 24 / 8


def test_of_a_gauge_the_last_value_of_each_minute_is_kept() -> None:
    metrics = kept()
    instance = Instance(metrics)
    instance.reports(BEGIN_MS, gauge(1))
    instance.reports(BEGIN_MS + 5000, gauge(2))
    instance.reports(BEGIN_MS + 2 * MINUTE_MS, gauge(7))
    now_ms = BEGIN_MS + 5 * MINUTE_MS
    assert minutes(metrics, now_ms) == {0: 2, 2: 7}
    assert value(metrics, now_ms, start_s=BEGIN_S, end_s=BEGIN_S + 119) == 2
    assert not ask(metrics, now_ms, interval_s=60).series, "no value in that time"


def test_gauges_of_instances_are_aggregated_by_their_names() -> None:
    metrics = kept()
    for n, number in enumerate((10.0, 30.0), start=1):
        Instance(metrics, n=n).reports(
            BEGIN_MS,
            gauge(number),
            gauge(number, "__py-physical-memory-byte"),
            gauge(number, "__uptime-secs"),
            gauge(number, "lookup/p99"),
            gauge(number, "lookup/min"),
        )
    reply = ask(metrics, BEGIN_MS, by_component=True)
    assert {s.name: s.value for s in reply.series} == {
        "temperature": 20,
        "__py-physical-memory-byte": 40,
        "__uptime-secs": 30,
        "lookup/p99": 30,
        "lookup/min": 10,
    }


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("__py-fd-limit", Rule.MAX),
        ("__gateway-in-stream-queue-expected-capacity", Rule.MAX),
        ("__py-generation-1-collection-threshold", Rule.MAX),
        ("__pending-acked-count", Rule.SUM),
        ("__gateway-in-stream-queue-size", Rule.SUM),
        ("lookup/p50", Rule.AVERAGE),
        ("lookup/p999", Rule.MAX),
        ("lookup/mean", Rule.AVERAGE),
        ("users-online", Rule.AVERAGE),
    ],
)
def test_the_rule_for_a_gauge_goes_by_its_name(name: str, rule: Rule) -> None:
    assert rule_of(name) is rule


def test_a_restarted_process_continues_in_the_minute() -> None:
    metrics = kept()
    Instance(metrics, life=1).reports(BEGIN_MS, counter(10))
    Instance(metrics, life=2, started_ms=BEGIN_MS + 20_000).reports(BEGIN_MS + 30_000, counter(4))
    assert minutes(metrics, BEGIN_MS + 30_000) == {0: 14}


def test_a_late_report_of_an_ended_life_is_counted_where_it_belongs() -> None:
    metrics = kept()
    old = Instance(metrics, life=1)
    old.reports(BEGIN_MS, counter(10), gauge(1))
    late = old.makes(BEGIN_MS + 50_000, counter(5), gauge(2))
    new = Instance(metrics, life=2, started_ms=BEGIN_MS + 60_000)
    new.reports(BEGIN_MS + 70_000, counter(1), gauge(3))
    metrics.add(late, 80.0, BEGIN_MS + 80_000)
    assert minutes(metrics, BEGIN_MS + 80_000, metrics=[EMITTED]) == {0: 15, 1: 1}
    assert value(metrics, BEGIN_MS + 80_000, metrics=["temperature"]) == 3


def test_a_repeated_or_overtaken_report_changes_nothing() -> None:
    metrics = kept()
    instance = Instance(metrics)
    first = instance.makes(BEGIN_MS, counter(10))
    second = instance.makes(BEGIN_MS + MINUTE_MS, counter(5))
    for report in (second, first, second):
        metrics.add(report, 0.0, BEGIN_MS + MINUTE_MS)
    assert value(metrics, BEGIN_MS + MINUTE_MS, interval_s=600) == 15


def test_a_restarted_topology_master_knows_totals_and_has_no_past() -> None:
    instance = Instance(kept())
    before = instance.makes(BEGIN_MS + 3_000, counter(1000))
    assert before.sequence == 1
    restarted = kept(started_ms=BEGIN_MS + 10 * MINUTE_MS)
    restarted.add(instance.makes(BEGIN_MS + 10 * MINUTE_MS, counter(500)), 0.0, BEGIN_MS + 10 * MINUTE_MS)
    restarted.add(instance.makes(BEGIN_MS + 11 * MINUTE_MS, counter(7)), 0.0, BEGIN_MS + 11 * MINUTE_MS)
    now_ms = BEGIN_MS + 11 * MINUTE_MS
    assert value(restarted, now_ms) == 1507
    assert minutes(restarted, now_ms) == {11: 7}


def test_counts_of_a_long_silence_are_spread_over_it_in_whole_numbers() -> None:
    metrics = kept()
    instance = Instance(metrics)
    instance.reports(BEGIN_MS, counter(1), counter(1, "rare"))
    instance.reports(BEGIN_MS + 4 * MINUTE_MS, counter(10), counter(1, "rare"))
    now_ms = BEGIN_MS + 4 * MINUTE_MS
    assert minutes(metrics, now_ms, metrics=[EMITTED]) == {0: 1, 1: 2, 2: 3, 3: 2, 4: 3}
    assert minutes(metrics, now_ms, metrics=["rare"]) == {0: 1, 1: 0, 2: 0, 3: 0, 4: 1}


def test_minutes_are_dropped_after_three_hours() -> None:
    metrics = kept()
    instance = Instance(metrics)
    for minute in range(MINUTES + 20):
        instance.reports(BEGIN_MS + minute * MINUTE_MS, counter(1))
    now_ms = BEGIN_MS + (MINUTES + 19) * MINUTE_MS
    assert minutes(metrics, now_ms) == dict.fromkeys(range(20, MINUTES + 20), 1)
    assert value(metrics, now_ms) == MINUTES + 20
    assert not minutes_of_a_silent_topology(metrics, now_ms + MINUTES * MINUTE_MS)


def minutes_of_a_silent_topology(metrics: Metrics, now_ms: int) -> list[tmaster_pb2.MetricSeries]:
    return list(ask(metrics, now_ms, interval_s=10_800).series)


def test_a_process_that_was_silent_in_a_time_has_no_value_in_it_rather_than_zero() -> None:
    metrics = kept()
    alive, dead = Instance(metrics, n=1), Instance(metrics, n=2)
    dead.reports(BEGIN_MS, counter(3))
    for minute in range(4):
        alive.reports(BEGIN_MS + minute * MINUTE_MS, counter(0))
    now_ms = BEGIN_MS + 3 * MINUTE_MS
    assert minutes(metrics, now_ms, instances=[alive.id]) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert minutes(metrics, now_ms, instances=[dead.id]) == {0: 3}
    (only,) = ask(metrics, now_ms, interval_s=60).series
    assert (only.instance, only.value) == (alive.id, 0)


def test_a_component_that_was_silent_in_a_time_has_no_value_in_it() -> None:
    metrics = kept()
    dead = Instance(metrics)
    dead.reports(BEGIN_MS, counter(3))
    now_ms = BEGIN_MS + 30 * MINUTE_MS
    assert not ask(metrics, now_ms, interval_s=600, by_component=True).series
    assert value(metrics, now_ms, interval_s=-1, by_component=True) == 3


def test_metrics_are_chosen_by_name_prefix_instance_and_component() -> None:
    metrics = kept()
    for component in ("word", "count", "__stmgr__"):
        for n in (1, 2):
            Instance(metrics, n=n, component=component).reports(
                BEGIN_MS, counter(n), counter(n, "__ack-count/default"), gauge(n)
            )

    def found(**request: Any) -> set[tuple[str, str]]:
        return {(s.instance, s.name) for s in ask(metrics, BEGIN_MS, **request).series}

    assert len(found()) == 18
    assert found(component="word", metrics=[EMITTED, "temp*"], instances=["container_1_word_2"]) == {
        ("container_1_word_2", EMITTED),
        ("container_1_word_2", "temperature"),
    }
    assert {i for i, _ in found(component="__stmgr__")} == {"container_1___stmgr___1", "container_1___stmgr___2"}


def test_what_is_not_known_is_named() -> None:
    metrics = kept()
    Instance(metrics).reports(BEGIN_MS, counter(1))
    reply = ask(metrics, BEGIN_MS, component="word", instances=["container_1_word_9"], metrics=["nonsense", "non*"])
    assert (list(reply.unknown_instances), list(reply.unknown_metrics)) == (["container_1_word_9"], ["nonsense"])
    assert not reply.series
    assert ask(metrics, BEGIN_MS, component="nobody").unknown_component


def test_the_reply_says_which_time_it_covers() -> None:
    metrics = kept()
    Instance(metrics).reports(BEGIN_MS, counter(1))
    now_ms = BEGIN_MS + 90_000
    reply = ask(metrics, now_ms, interval_s=600)
    assert (reply.start_s, reply.end_s, reply.interval_s) == (BEGIN_S, BEGIN_S + 90, 90)
    assert ask(metrics, now_ms, interval_s=10_801).interval_s == -1


def test_a_reply_that_would_be_too_large_is_refused() -> None:
    metrics = kept(series_max=10_000)
    for n in range(3):
        Instance(metrics, n=n).reports(BEGIN_MS, *(counter(1, f"n{i}") for i in range(1000)))
    with pytest.raises(UsageError, match="ask for fewer metrics"):
        ask(metrics, BEGIN_MS, minutely=True)
    assert len(ask(metrics, BEGIN_MS).series) == 3000


def test_series_beyond_the_limit_are_counted_and_cost_nothing() -> None:
    metrics = kept(series_max=10)
    for n in range(3):
        Instance(metrics, n=n).reports(BEGIN_MS, *(counter(1, f"n{i}") for i in range(6)))
    assert len(ask(metrics, BEGIN_MS).series) == 10
    assert metrics.history.dropped == 8
    source = metrics.ledger.get("container_1_word_2")
    assert source is not None
    assert len(source.totals()) == 6, "totals do not depend on the history"


def test_a_forgotten_process_leaves_nothing_to_the_one_that_gets_its_slots() -> None:
    metrics = kept(series_max=2)
    Instance(metrics, n=1).reports(BEGIN_MS, counter(5), gauge(5))
    metrics.ledger.forget("container_1_word_1")
    Instance(metrics, n=2).reports(BEGIN_MS + MINUTE_MS, counter(7), gauge(7))
    now_ms = BEGIN_MS + MINUTE_MS
    assert minutes(metrics, now_ms, metrics=[EMITTED]) == {1: 7}
    assert minutes(metrics, now_ms, metrics=["temperature"]) == {1: 7}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["report", "report", "lose", "repeat", "restart"]),
            st.integers(0, 2),
            st.integers(0, 100),
            st.integers(0, 59),
        ),
        max_size=40,
    )
)
def test_counters_agree_with_what_was_heard_whatever_happens_on_the_way(
    events: list[tuple[str, int, int, int]],
) -> None:
    metrics, now_ms = kept(), BEGIN_MS
    lives = [1, 1, 1]
    instances = [Instance(metrics, n=n) for n in range(3)]
    made: dict[tuple[str, int], int] = defaultdict(int)  # by life: counted so far
    heard: dict[tuple[str, int], int] = defaultdict(int)  # by life: the most that arrived
    sent: list[tuple[metrics_pb2.MetricsReport, int]] = []
    for what, n, count, seconds in events:
        now_ms += seconds * 1000
        key = (instances[n].id, lives[n])
        if what == "restart":
            lives[n] += 1
            instances[n] = Instance(metrics, n=n, life=lives[n], started_ms=now_ms)
        elif what in ("report", "lose"):
            made[key] += count
            sent.append((instances[n].makes(now_ms, counter(count)), made[key]))
        if what in ("report", "repeat") and sent:
            # A repeat is of any report before, also of one that was lost: it comes late, perhaps after newer ones.
            report, total = sent[-1] if what == "report" else sent[count % len(sent)]
            metrics.add(report, 0.0, now_ms)
            life = (report.source, report.pid)
            heard[life] = max(heard[life], total)
    expected: dict[str, int] = defaultdict(int)
    for (id, _), total in heard.items():
        expected[id] += total
    series = {s.instance: s for s in ask(metrics, now_ms, interval_s=10_800, minutely=True).series}
    assert {id: s.value for id, s in series.items()} == expected
    assert {s.instance: s.value for s in ask(metrics, now_ms, interval_s=-1).series} == expected
    assert {id: sum(s.minutes.values()) for id, s in series.items()} == expected
    assert all(v.is_integer() and v >= 0 for s in series.values() for v in s.minutes.values())


class Custom(Exception):
    """An error of a user."""


def _raised(error: BaseException, cause: BaseException | None = None) -> str:
    try:
        raise error from cause
    except BaseException as e:
        return "".join(traceback.format_exception(e))


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError("bad: one\nTypeError: not me"), "ValueError"),
        (KeyError(), "KeyError"),
        (Custom("own"), f"{__name__}.Custom"),
        (ExceptionGroup("several", [ValueError("inner")]), "ExceptionGroup"),
    ],
)
def test_an_exceptions_class_is_read_from_its_traceback(error: Exception, name: str) -> None:
    assert class_name(_raised(error)) == name


def test_of_a_chain_the_last_error_is_the_one() -> None:
    assert class_name(_raised(RuntimeError("after"), cause=ValueError("before"))) == "RuntimeError"


def test_what_is_no_traceback_has_an_unknown_class() -> None:
    assert class_name("it went wrong") == "unknown"
