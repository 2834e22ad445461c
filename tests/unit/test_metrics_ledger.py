"""Counters from a process to the Topology Master: never lost, never doubled, whatever happens on the way."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortages import no_descriptors

from heronpy.metricsmgr import Ledger
from heronpy.metricsmgr.parts import (
    DROPPED_NAME,
    EXCEPTIONS_MAX,
    LIVES_MAX,
    LIVES_WAITING_MAX,
    NAMES_MAX,
    Accumulator,
    Outbox,
    other_process_metrics,
    process_metrics,
)
from heronpy.proto import metrics_pb2
from heronpy.tmaster.parts import ExceptionLog

COUNTER, GAUGE = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.GAUGE


def counter(name: str, value: float) -> metrics_pb2.Metric:
    return metrics_pb2.Metric(name=name, value=value, kind=COUNTER)


def gauge(name: str, value: float) -> metrics_pb2.Metric:
    return metrics_pb2.Metric(name=name, value=value, kind=GAUGE)


def accumulator(life: int = 1, source: str = "container_1_word_1") -> Accumulator:
    return Accumulator(source=source, component="word", container=1, pid=100 + life, started_ms=life * 1000)


def test_a_report_that_arrives_twice_counts_once() -> None:
    process, ledger = accumulator(), Ledger(sources_max=4)
    process.collected([counter("n", 3)])
    report = process.report(1000)
    assert ledger.add(report, 0.0)
    assert not ledger.add(report, 0.1)
    source = ledger.get("container_1_word_1")
    assert source is not None
    assert source.totals() == {"n": 3}


def test_an_overtaken_report_changes_nothing() -> None:
    process, ledger = accumulator(), Ledger(sources_max=4)
    process.collected([counter("n", 3), gauge("g", 3)])
    overtaken = process.report(1000)
    process.collected([counter("n", 1), gauge("g", 4)])
    assert ledger.add(process.report(2000), 0.0)
    assert not ledger.add(overtaken, 0.1)
    source = ledger.get("container_1_word_1")
    assert source is not None
    assert (source.totals(), source.latest) == ({"n": 4}, {"g": 4})


def test_totals_continue_over_the_lives_of_an_instance() -> None:
    ledger = Ledger(sources_max=4)
    for life in range(1, 3 * LIVES_MAX):
        process = accumulator(life)
        process.collected([counter("n", 1), gauge("g", life)])
        ledger.add(process.report(life), float(life))
        ledger.check_invariants()
        source = ledger.get("container_1_word_1")
        assert source is not None
        assert source.totals() == {"n": life}
        assert (source.pid, source.started_ms) == (100 + life, life * 1000)
        assert source.latest == {"g": life}


def test_rates_are_taken_over_the_last_reports() -> None:
    process, ledger = accumulator(), Ledger(sources_max=4)
    for second in range(1, 10):
        process.collected([counter("n", 10 if second < 6 else 20)])
        ledger.add(process.report(1000 + second * 1000), float(second))
        source = ledger.get("container_1_word_1")
        assert source is not None
        if second == 1:
            assert source.rates() == {"n": 10.0}, "a new process counts from its start"
    assert source.rates() == {"n": 20.0}


def test_gauges_that_were_not_sent_go_with_the_next_report_unless_there_are_newer_ones() -> None:
    process = accumulator()
    process.collected([gauge("a", 1), gauge("b", 1)])
    lost = process.report(1)
    process.collected([gauge("b", 2)])
    process.failed(lost)
    assert {m.name: m.value for m in process.report(2).metrics} == {"a": 1, "b": 2}


def test_a_process_reports_a_bounded_number_of_names_and_counts_the_rest() -> None:
    process = accumulator()
    process.collected(counter(f"n{i}", 1) for i in range(NAMES_MAX))
    process.collected(gauge(f"g{i}", 1) for i in range(NAMES_MAX))
    process.check_invariants()
    report = process.report(1)
    assert len(report.metrics) <= NAMES_MAX
    dropped = next(m.value for m in report.metrics if m.name == DROPPED_NAME)
    assert dropped == 2 * NAMES_MAX - (len(report.metrics) - 1)


def test_the_same_exception_is_reported_with_its_count_and_only_until_it_has_arrived() -> None:
    process = accumulator()
    for now_ms in (5, 6, 7):
        process.raised("Traceback: boom", "", now_ms)
    lost = process.report(10)
    process.failed(lost)
    report = process.report(20)
    assert [(e.count, e.first_time_ms, e.last_time_ms) for e in report.exceptions] == [(3, 5, 7)]
    process.raised("Traceback: boom", "", 21)
    process.sent(report)
    assert [e.count for e in process.report(30).exceptions] == [4]
    for i in range(2 * EXCEPTIONS_MAX):
        process.raised(f"Traceback: {i}", "", i)
    process.check_invariants()


def test_the_exception_log_keeps_the_latest_and_counts_repeats_once() -> None:
    exceptions = ExceptionLog(entries_max=2)
    for life in (1, 2):
        process = accumulator(life)
        process.raised("boom", "", life)
        process.raised("boom", "", life + 10)
        report = process.report(life)
        exceptions.add(report)
        exceptions.add(report)
    process.raised("bang", "", 30)
    process.raised("crash", "", 31)
    exceptions.add(process.report(40))
    assert [(e.report.stacktrace, e.report.count) for e in exceptions.to_proto()] == [("bang", 1), ("crash", 1)]
    exceptions = ExceptionLog(entries_max=2)
    for life in (1, 2):
        process = accumulator(life)
        process.raised("boom", "", life)
        process.raised("boom", "", life + 10)
        exceptions.add(process.report(life))
    [entry] = exceptions.to_proto()
    assert (entry.report.count, entry.report.first_time_ms, entry.report.last_time_ms) == (4, 1, 12)


FATES = st.sampled_from(["arrives", "lost", "arrives, answer lost", "arrives twice", "overtaken"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), FATES, st.booleans()), max_size=40))
def test_totals_are_exact_whatever_happens_to_reports(steps: list[tuple[int, str, bool]]) -> None:
    process, ledger = accumulator(), Ledger(sources_max=2)
    overtaken: list[metrics_pb2.MetricsReport] = []
    life, expected = 1, 0.0
    for n, fate, restarts in steps:
        process.collected([counter("n", n)])
        expected += n
        report = process.report(1)
        if fate == "overtaken":
            overtaken.append(report)
        elif fate != "lost":
            ledger.add(report, 0.0)
        if fate == "arrives twice":
            ledger.add(report, 0.0)
        (process.failed if fate in ("lost", "arrives, answer lost") else process.sent)(report)
        while overtaken and fate == "arrives":
            ledger.add(overtaken.pop(), 0.0)
        if restarts and life < LIVES_MAX:
            ledger.add(process.report(1), 0.0)  # the flush before the end
            overtaken.clear()
            life += 1
            process = accumulator(life)
    process.collected([])
    ledger.add(process.report(1), 0.0)
    ledger.check_invariants()
    source = ledger.get("container_1_word_1")
    assert source is not None
    assert source.totals().get("n", 0.0) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["taken", "not taken", "taken, answer lost", "-"]), st.booleans()),
        max_size=40,
    )
)
def test_the_topology_master_gets_exact_totals_after_any_absence(steps: list[tuple[int, str, bool]]) -> None:
    outbox, tmaster = Outbox(sources_max=4), Ledger(sources_max=4)
    process, life, expected, waiting_lives = accumulator(), 1, 0.0, 1
    for n, fate, restarts in steps:
        process.collected([counter("n", n)])
        expected += n
        outbox.add(process.report(1))
        outbox.check_invariants()
        if fate != "-":
            batch = outbox.take()
            if fate.startswith("taken"):
                for report in batch:
                    tmaster.add(report, 0.0)
            if fate == "taken":
                waiting_lives = 0
            outbox.returned([] if fate == "taken" else batch)
        if restarts and waiting_lives < LIVES_WAITING_MAX - 1 and life < LIVES_MAX:
            life += 1
            waiting_lives += 1
            process = accumulator(life)
    process.collected([counter("n", 1)])
    outbox.add(process.report(1))
    for report in outbox.take():
        tmaster.add(report, 0.0)
    assert outbox.dropped == 0
    source = tmaster.get("container_1_word_1")
    assert source is not None
    assert source.totals()["n"] == expected + 1


def test_what_waits_for_the_topology_master_is_bounded() -> None:
    outbox = Outbox(sources_max=3)
    for life in range(1, 50):
        for source in range(5):
            outbox.add(accumulator(life, f"s{source}").report(1))
            outbox.check_invariants()
    assert outbox.dropped > 0


def test_the_ledger_forgets_the_longest_silent_source_when_it_is_full() -> None:
    ledger = Ledger(sources_max=2)
    for now_s, source in enumerate(["a", "b", "c"]):
        ledger.add(accumulator(source=source).report(1), float(now_s))
    assert {s.id for s in ledger} == {"b", "c"}


def test_a_report_of_many_metrics_costs_little() -> None:
    process, start_ms = accumulator(), int(time.time() * 1000)
    names = [f"__execute-count/component{i}/default" for i in range(200)]
    cpu_s = []
    for _ in range(30):
        metrics = [counter(name, 1.0) for name in names]
        before_s = time.thread_time()
        process.collected(metrics)
        process.collected(process_metrics(start_ms))
        report = process.report(1)
        report.SerializeToString()
        process.sent(report)
        cpu_s.append(time.thread_time() - before_s)
    assert sorted(cpu_s)[len(cpu_s) // 2] < 0.01, "1 ms where nothing else runs"


def test_a_process_reports_herons_names_about_itself() -> None:
    values = {m.name: m.value for m in process_metrics(int(time.time() * 1000) - 5000)}
    assert set(values) == {
        "__py-user-cpu-time-secs",
        "__py-sys-cpu-time-secs",
        "__py-physical-memory-byte",
        "__py-generation-1-count",
        "__py-generation-2-count",
        "__py-generation-3-count",
        "__py-generation-1-collection-threshold",
        "__py-generation-2-collection-threshold",
        "__py-generation-3-collection-threshold",
        "__py-gc-collection-count",
        "__py-gc-collection-time-ms",
        "__py-thread-count",
        "__py-fd-count",
        "__py-fd-limit",
        "__uptime-secs",
    }
    assert values["__py-physical-memory-byte"] > 1 << 20
    assert values["__py-thread-count"] >= 1
    assert 5 <= values["__uptime-secs"] < 305


def test_garbage_collections_are_counted_and_timed() -> None:
    before = {m.name: m.value for m in process_metrics(0)}
    gc.collect()
    after = {m.name: m.value for m in process_metrics(0)}
    assert after["__py-gc-collection-count"] >= before["__py-gc-collection-count"] + 1
    assert after["__py-gc-collection-time-ms"] > before["__py-gc-collection-time-ms"]


def test_another_process_is_seen_from_outside_until_it_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        values = {m.name: m.value for m in other_process_metrics(process.pid)}
        assert values["__py-thread-count"] == 1
        assert values["__py-physical-memory-byte"] > 0
        assert 0 <= values["__uptime-secs"] < 300
    finally:
        process.kill()
        process.wait(300)
        assert process.stdin is not None
        process.stdin.close()
    assert other_process_metrics(process.pid) == []


def test_a_process_that_cannot_be_looked_at_is_not_gone() -> None:
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        other_process_metrics(os.getpid())


def test_without_descriptors_a_process_reports_the_rest_about_itself(caplog: pytest.LogCaptureFixture) -> None:
    with no_descriptors():
        values = {m.name: m.value for m in process_metrics(int(time.time() * 1000) - 5000, "__stmgr__")}
    assert values["__process/__uptime_sec"] == pytest.approx(5.0, abs=1.0)
    assert values["__py-fd-limit"] == 1
    assert "__process/__mem_used_bytes" not in values
    assert "file descriptors of this process are not reported: [Errno 24] Too many open files" in caplog.text


@pytest.mark.parametrize("heavy", ["prometheus_client", "kazoo", "heronpy.statemgr"])
def test_importing_the_reporter_is_light(heavy: str) -> None:
    code = f"import sys, heronpy.metricsmgr; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
