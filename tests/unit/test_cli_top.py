"""What `heron top` makes of a Topology Master's answers."""

from __future__ import annotations

import dataclasses
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heronpy.cli.parts import (
    COLUMNS,
    CPU,
    SPENT,
    UPTIME,
    Row,
    Snapshot,
    check_column,
    columns_for,
    cpu_of,
    held_shares,
    ordered_rows,
    shown_count,
    shown_megabytes,
    shown_milliseconds,
    snapshot,
    top_screen,
)
from heronpy.errors import UsageError
from heronpy.health import Health
from heronpy.proto import tmaster_pb2
from heronpy.sketch import Sketch, bucket_of

Series = tmaster_pb2.MetricSeries


def row(name: str, **values: object) -> Row:
    defaults = {f.name: 0.0 for f in dataclasses.fields(Row)} | {"tasks": 1, "attached": 1, "kind": "bolt"}
    return Row(**{**defaults, "name": name, "component": name, **values})  # type: ignore[arg-type]  # by name


def gauges(instance: str, spent: dict[int, float], up: dict[int, float]) -> list[Series]:
    return [
        Series(instance=instance, name=CPU[0], minutes=spent),
        Series(instance=instance, name=CPU[1], minutes=dict.fromkeys(spent, 0.0)),
        Series(instance=instance, name=UPTIME, minutes=up),
    ]


def test_cpu_is_what_was_spent_since_the_minute_before() -> None:
    assert cpu_of(gauges("a", {0: 10.0, 60: 40.0}, {0: 100.0, 60: 140.0})) == {"a": 0.75}


def test_cpu_of_a_young_process_and_of_one_that_was_started_again_is_since_its_start() -> None:
    assert cpu_of(gauges("young", {60: 5.0}, {60: 10.0})) == {"young": 0.5}
    assert cpu_of(gauges("again", {0: 90.0, 60: 1.0}, {0: 100.0, 60: 4.0})) == {"again": 0.25}


def test_cpu_is_not_that_of_a_whole_life_after_a_minute_without_its_gauges() -> None:
    user, system, up = gauges("a", {60: 500.0, 120: 530.0}, {0: 900.0, 60: 960.0, 120: 1020.0})
    assert cpu_of([user, system, up]) == {"a": 0.5}
    del user.minutes[60]
    assert cpu_of([user, system, up]) == {"a": 530.0 / 1020.0}


def test_cpu_of_a_process_that_says_nothing_is_not_known() -> None:
    assert cpu_of([]) == {}
    assert cpu_of(gauges("new", {60: 0.0}, {60: 0.0})) == {}


def test_the_share_of_backpressure_is_that_of_the_stream_manager_that_saw_most_of_it() -> None:
    history = tmaster_pb2.MetricsReply(
        interval_s=60,
        series=[Series(name=SPENT + "a", value=6000), Series(name=SPENT + "a", value=30_000), Series(name=CPU[0])],
    )
    assert held_shares(history) == {"a": 0.5}
    assert held_shares(tmaster_pb2.MetricsReply(interval_s=0, series=[Series(name=SPENT + "a", value=1)])) == {}


def test_percentiles_of_a_component_are_those_of_its_latency_over_all_streams() -> None:
    status = tmaster_pb2.StatusReply(instances=[instance("s_1", "s", {}, {}), instance("b_2", "b", {}, {})])
    series = []
    for component, name, ms in [
        ("s", "__complete-latency/default", 1),
        ("s", "__complete-latency/other", 9),
        ("b", "__execute-latency/s/default", 2),
        ("b", "__process-latency/s/default", 4),
    ]:
        one = Series(component=component, name=name)
        one.sketch.CopyFrom(Sketch(bucket_of(ms * 1e6), [10]).to_proto())
        series.append(one)
    latencies = tmaster_pb2.MetricsReply(series=series)
    spout, bolt = snapshot(frozenset("s"), status, tmaster_pb2.MetricsReply(), latencies).rows
    assert (spout.p50, spout.p99) == (pytest.approx(1, rel=0.02), pytest.approx(9, rel=0.02))
    assert bolt.p95 == pytest.approx(4, rel=0.02), "the process latency, not the execute latency"
    by_instance = snapshot(frozenset("s"), status, tmaster_pb2.MetricsReply(), latencies, by_instance=True)
    assert {(row.p50, row.p95, row.p99) for row in by_instance.rows} == {(None, None, None)}


def test_a_task_is_never_busy_for_more_than_100_percent_and_nothing_is_known_of_one_without_reports() -> None:
    status = tmaster_pb2.StatusReply(
        instances=[
            instance("s_1", "s", {}, {}),
            instance("b_2", "b", {"__execute-time-ns/s/default": 1.7e9}, {}),
            instance("b_3", "b", {"__execute-time-ns/s/default": 4e8}, {}),
        ]
    )
    spout, bolt = snapshot(frozenset("s"), status, tmaster_pb2.MetricsReply(), tmaster_pb2.MetricsReply()).rows
    assert bolt.capacity == 1.0
    assert (spout.capacity, spout.latency, spout.cpu, spout.memory, spout.pending) == (None,) * 5


def instance(id: str, component: str, rates: dict[str, float], latest: dict[str, float]) -> tmaster_pb2.InstanceStatus:
    return tmaster_pb2.InstanceStatus(id=id, component=component, attached=True, rates=rates, latest=latest)


def test_rows_are_sums_of_rates_and_weighted_means_of_latencies() -> None:
    status = tmaster_pb2.StatusReply(
        instances=[
            instance("s_1", "s", {"__emit-count/default": 30.0, "__emit-count/other": 5.0},
                     {"__pending-acked-count": 7}),
            instance("b_2", "b", {"__ack-count/s/default": 10.0, "__execute-time-ns/s/default": 9e8},
                     {"__process-latency/s/default": 2e6}),
            instance("b_3", "b", {"__ack-count/s/default": 30.0, "__execute-time-ns/s/default": 1e8},
                     {"__process-latency/s/default": 6e6}),
        ]
    )  # fmt: skip
    spout, bolt = snapshot(frozenset({"s"}), status, tmaster_pb2.MetricsReply(), tmaster_pb2.MetricsReply()).rows
    assert (spout.kind, spout.emit, spout.pending, spout.latency, spout.capacity) == ("spout", 35.0, 7.0, None, None)
    assert (bolt.kind, bolt.tasks, bolt.ack, bolt.latency, bolt.capacity) == ("bolt", 2, 40.0, 5.0, 0.9)
    single = snapshot(
        frozenset({"s"}), status, tmaster_pb2.MetricsReply(), tmaster_pb2.MetricsReply(), by_instance=True
    ).rows
    assert [(r.name, r.component, r.latency) for r in single[1:]] == [("b_2", "b", 2.0), ("b_3", "b", 6.0)]


def test_the_largest_is_first_and_what_is_not_known_last() -> None:
    rows = [row("a", cpu=None), row("b", cpu=0.1), row("c", cpu=2.0), row("d", cpu=0.1)]
    assert [r.name for r in ordered_rows(rows, "cpu")] == ["c", "b", "d", "a"]
    assert [r.name for r in ordered_rows(rows, "name")] == ["a", "b", "c", "d"]


def test_instances_are_in_the_order_of_their_tasks() -> None:
    rows = [row(f"container_1_b_{n}", component="b") for n in (10, 9, 2)]
    assert [r.name for r in ordered_rows(rows, "name")] == [f"container_1_b_{n}" for n in (2, 9, 10)]


def test_an_unknown_column_names_the_nearest() -> None:
    assert check_column("cpu") == "cpu"
    with pytest.raises(UsageError, match="did you mean 'capacity'"):
        check_column("capcity")


@given(st.integers(20, 200), st.sampled_from(COLUMNS))
def test_a_table_is_never_wider_than_the_terminal(width: int, sort: str) -> None:
    rows = [row("words", emit=123456.0, execute=99999.0, memory=3e9, cpu=1.5), row("count", ack=1e9, pending=50_000.0)]
    seen = Snapshot("RUNNING", True, Health.of([]), 0, rows, [("container_1_count_3", 0.5)])
    shown = io.StringIO()
    console = Console(file=shown, width=width, height=30, highlight=False)
    console.print(top_screen("words", seen, sort=sort, width=width, height=30, notes=["x" * 300]))
    lines = shown.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    if width >= 30:
        headings = next(line for line in lines if "emit/s" in line)
        assert "…" not in headings


def test_a_narrow_terminal_shows_what_matters_most_and_what_is_sorted_by() -> None:
    rows = [row("words")]
    assert columns_for(rows, 200, "cpu") == [c for c in COLUMNS if c != "name"]
    narrow = columns_for(rows, 40, "memory")
    assert {"emit", "execute", "memory"} <= set(narrow)
    assert "tasks" not in narrow


def test_a_narrow_terminal_does_without_empty_columns_first() -> None:
    assert "backpressure" not in columns_for([row("words")], 80, "cpu")
    assert "latency" in columns_for([row("words")], 80, "cpu")
    assert "backpressure" in columns_for([row("words", backpressure=0.5)], 80, "cpu")


def test_a_low_terminal_says_how_many_rows_it_leaves_out() -> None:
    seen = Snapshot("RUNNING", True, Health.of([]), 0, [row(f"r{n}") for n in range(30)], [])
    shown = io.StringIO()
    Console(file=shown, width=120, height=12).print(top_screen("words", seen, sort="cpu", width=120, height=12))
    lines = shown.getvalue().splitlines()
    assert len(lines) <= 12
    assert lines[-1].rstrip() == "and 24 more"


@given(st.floats(0, 9e11))
def test_counts_stay_short_and_close(value: float) -> None:
    text = shown_count(value)
    assert len(text) <= 7
    size = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
    assert float(text.rstrip("kMG")) * size == pytest.approx(value, rel=0.06, abs=0.06)


def test_numbers_for_people() -> None:
    assert [shown_count(n) for n in (None, 0, 3.14, 42, 999.4, 999.9, 12_345, 456_789, 2_500_000)] == [
        *("", "0", "3.1", "42", "999", "1.0k", "12.3k", "457k", "2.5M"),
    ]
    assert [shown_milliseconds(n) for n in (None, 0.0123, 1.234, 12.34, 1234.5)] == [
        "",
        "0.012",
        "1.23",
        "12.3",
        "1,234",
    ]
    assert [shown_megabytes(n) for n in (None, 64 * 2**20, 30 * 2**30)] == ["", "64M", "30.0G"]
