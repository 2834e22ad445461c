"""The sinks of one Metrics Manager: all that is configured, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from heronpy.config import SinkSpec, sinks_from_text
from heronpy.metricsmgr._ledger import Source
from heronpy.metricsmgr.sinks import (
    ExceptionRecord,
    MetricInfo,
    MetricKind,
    MetricsRecord,
    SinkContext,
    SinkRunner,
    sink_factory,
)
from heronpy.proto import metrics_pb2
from heronpy.runtime import Launch

log = logging.getLogger(__name__)

BUILT_IN = ("PrometheusSink", "TManagerSink")
"""Part of the Metrics Manager itself: they read its sums, and need no queue."""
STOP_S = 3.0


class Sinks:
    """The running sinks. `running()` is their life; outside of it nothing is taken."""

    def __init__(self, launch: Launch, container: int) -> None:
        specs = sinks_from_text(launch.config.metrics.sinks)
        self.prometheus: SinkSpec | None = next((s for s in specs if s.sink_class == "PrometheusSink"), None)
        self._topology = launch.topology
        self._runners: list[SinkRunner] = []
        self._reported: dict[str, int] = {}
        for spec in specs:
            if spec.sink_class not in BUILT_IN:
                context = SinkContext(launch.topology, container, spec.name, launch.log_dir(container))
                self._runners.append(SinkRunner(spec, context, sink_factory(spec.sink_class)))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the sinks for the duration of the block; at its end each may take what waits, for STOP_S together."""
        for runner in self._runners:
            runner.start()
        try:
            yield
        finally:
            ended = await asyncio.gather(*(asyncio.to_thread(r.stop, STOP_S) for r in self._runners))
            for runner, done in zip(self._runners, ended, strict=True):
                if not done:
                    log.warning("sink %s hangs, it is left behind", runner.name)

    def received(self, report: metrics_pb2.MetricsReport, source: Source) -> None:
        """Pass a report on, with the sums of its source."""
        if not self._runners:
            return
        record = MetricsRecord(
            topology=self._topology,
            component=source.component,
            instance=source.id,
            container=source.container,
            time_ms=report.time_ms,
            metrics=(
                *(MetricInfo(name, value, MetricKind.COUNTER) for name, value in source.totals().items()),
                *(MetricInfo(name, value, MetricKind.GAUGE) for name, value in source.latest.items()),
            ),
            exceptions=tuple(
                ExceptionRecord(e.stacktrace, e.first_time_ms, e.last_time_ms, e.count) for e in report.exceptions
            ),
        )
        for runner in self._runners:
            runner.offer(record)

    def collect(self) -> list[metrics_pb2.Metric]:
        """What the sinks took, dropped and failed since the last call."""
        metrics: list[metrics_pb2.Metric] = []
        for runner in self._runners:
            for what, count in (
                ("record", runner.processed),
                ("dropped-record", runner.dropped),
                ("failure", runner.failures),
            ):
                name = f"__sink-{what}-count/{runner.name}"
                metrics.append(metrics_pb2.Metric(name=name, value=count - self._reported.get(name, 0)))
                self._reported[name] = count
        return metrics
