"""What every metrics sink must do, as tests.

A sink of your own passes the kit like this:

    class TestMine(SinkKit):
        @pytest.fixture
        def target(self, tmp_path):
            return Target(MySink, {"directory": str(tmp_path)}, lambda: values_in(tmp_path))

`values` returns what others can see of the sink: the value that arrived last for each (instance, metric's name).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heronpy.metricsmgr.sinks import ExceptionRecord, IMetricsSink, MetricInfo, MetricKind, MetricsRecord, SinkContext
from heronpy.testing._eventually import eventually

Values = Mapping[tuple[str, str], float]
EMITTED = "__emit-count/default"
WITHIN_S = 120.0


@dataclass(frozen=True)
class Target:
    """A sink, and a look at what it has written."""

    make: Callable[[], IMetricsSink]
    config: Mapping[str, Any]
    values: Callable[[], Values]
    name_of: Callable[[str], str] = field(default=lambda name: name)
    """How a metric's name looks there."""


def record(number: float, *, instance: str = "container_1_word_1", name: str = EMITTED, n: int = 0) -> MetricsRecord:
    """What an instance reports: a counter and a gauge."""
    return MetricsRecord(
        topology="words",
        component="word",
        instance=instance,
        container=1,
        time_ms=1_700_000_000_000 + n,
        metrics=(MetricInfo(name, number, MetricKind.COUNTER), MetricInfo("temperature", -1.5, MetricKind.GAUGE)),
        exceptions=(ExceptionRecord("Traceback ...\nValueError: ä\n", 1, 2, 3),),
    )


class SinkKit:
    """Tests for any sink; a subclass has the fixture `target`."""

    @pytest.fixture
    def context(self, tmp_path: Path) -> SinkContext:
        return SinkContext("words", 1, "the-sink", tmp_path / "log-files")

    @pytest.fixture
    def sink(self, target: Target, context: SinkContext) -> Iterator[IMetricsSink]:
        sink = target.make()
        sink.init(target.config, context)
        yield sink
        sink.close()

    async def test_a_record_is_seen_after_a_flush(self, sink: IMetricsSink, target: Target) -> None:
        sink.process_record(record(3))
        sink.flush()
        await seen(target, {("container_1_word_1", EMITTED): 3.0, ("container_1_word_1", "temperature"): -1.5})

    async def test_the_last_value_counts(self, sink: IMetricsSink, target: Target) -> None:
        for n in range(1, 4):
            sink.process_record(record(n, n=n))
            if n != 2:
                sink.flush()
        await seen(target, {("container_1_word_1", EMITTED): 3.0})

    async def test_instances_are_told_apart(self, sink: IMetricsSink, target: Target) -> None:
        for n in range(1, 4):
            sink.process_record(record(n, instance=f"container_1_word_{n}"))
        sink.flush()
        await seen(target, {(f"container_1_word_{n}", EMITTED): float(n) for n in range(1, 4)})

    async def test_large_counts_and_small_fractions_are_exact(self, sink: IMetricsSink, target: Target) -> None:
        for n, number in enumerate((2.0**53 - 1, 1e-9, 0.1)):
            sink.process_record(record(number, instance=f"container_1_word_{n}"))
        sink.flush()
        await seen(target, {("container_1_word_0", EMITTED): 2.0**53 - 1, ("container_1_word_2", EMITTED): 0.1})

    async def test_any_name_and_any_value_are_survived(self, sink: IMetricsSink, target: Target) -> None:
        for n, name in enumerate(("wörter pro minute", "a b\nc", "", "x" * 5000, "../../etc")):
            sink.process_record(record(n, name=name))
        for number in (float("nan"), float("inf")):
            sink.process_record(record(number, instance="container_1_word_2"))
        sink.process_record(record(7, instance="container_1_word_3"))
        sink.flush()
        await seen(target, {("container_1_word_3", EMITTED): 7.0})

    def test_flushing_nothing_is_harmless(self, sink: IMetricsSink) -> None:
        sink.flush()
        sink.flush()

    def test_close_leaves_no_thread(self, target: Target, context: SinkContext) -> None:
        before = set(threading.enumerate())
        sink = target.make()
        sink.init(target.config, context)
        sink.process_record(record(1))
        sink.flush()
        sink.close()
        assert not [t for t in set(threading.enumerate()) - before if t.is_alive() and not t.daemon]

    async def test_a_new_sink_continues_where_a_closed_one_was(self, target: Target, context: SinkContext) -> None:
        for n in range(2):
            sink = target.make()
            sink.init(target.config, context)
            sink.process_record(record(n, instance=f"container_1_word_{n}"))
            sink.flush()
            sink.close()
        await seen(target, {("container_1_word_0", EMITTED): 0.0, ("container_1_word_1", EMITTED): 1.0})


async def seen(target: Target, expected: Values) -> None:
    """Wait until others can see these values."""

    def check() -> None:
        values = target.values()
        wanted = {(instance, target.name_of(name)): value for (instance, name), value in expected.items()}
        assert {key: values.get(key) for key in wanted} == wanted

    await eventually(check, within_s=WITHIN_S)
