"""The client side: a process reports to the Metrics Manager of its container."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import grpc.aio
from msgspec import Struct

from heronpy.metricsmgr._accumulator import Accumulator
from heronpy.metricsmgr._pace import pauses
from heronpy.metricsmgr._process import process_metrics
from heronpy.proto import metrics_pb2, metrics_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch, LevelSwitch

log = logging.getLogger(__name__)

SOCKET_NAME = "metricsmgr.sock"
PUBLISH_TIMEOUT_MIN_S = 2.0
"""However short the interval is: on a busy machine an answer may take longer."""


class Reported(Struct):
    """What a process has reported since its start."""

    reports: int = 0
    size: int = 0
    """Bytes."""
    metrics: int = 0
    exceptions: int = 0

    def add(self, report: metrics_pb2.MetricsReport) -> None:
        self.reports += 1
        self.size += report.ByteSize()
        self.metrics += len(report.metrics)
        self.exceptions += len(report.exceptions)


class Reporter:
    """Reports what `collect` returns, and the process's own metrics, every `metrics.interval_ms`.

    Nothing is lost while the process lives: reports carry running sums, so one that did not arrive is made good by
    the next. What is kept is bounded, however long the Metrics Manager is away.

    The answers carry the log levels that were changed at run time, and this process takes its own. This way they also
    reach an instance whose queues are full, because its user code blocks.

    Args:
        launch: the topology.
        container: whose Metrics Manager gets the reports.
        source: instance id, stmgr id, …: unique in the topology.
        component: the user's component, or `__stmgr__`, `__executor__`, …
        collect: returns counters since its last call, gauges and means. Called in the event loop.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        container: int,
        source: str,
        component: str,
        collect: Callable[[], Iterable[metrics_pb2.Metric]],
    ) -> None:
        self._interval_s = launch.config.metrics.interval_ms / 1000
        self._target = f"unix:{launch.socket_dir(container) / SOCKET_NAME}"
        self._security = launch.security(source)
        self._component = component
        self._collect = collect
        # Not the process's start: two reporters of one process, one after the other, are two lives.
        self._started_ms = _now_ms()
        self._accumulator = Accumulator(
            source=source, component=component, container=container, pid=os.getpid(), started_ms=self._started_ms
        )
        self._levels = LevelSwitch(process=source, component=component)
        self._reachable = True
        self.reported = Reported()

    async def run(self) -> None:
        """Report at once, soon again, and then every interval, until cancelled.

        An unreachable Metrics Manager is waited for.
        """
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        async with channel(self._target, self._security) as to_metricsmgr:
            publish = metrics_pb2_grpc.MetricsmgrStub(to_metricsmgr).Publish  # type: ignore[no-untyped-call]  # generated
            for pause_s in pauses(self._interval_s):
                await self._report(publish, max(self._interval_s, PUBLISH_TIMEOUT_MIN_S))
                next_s = max(next_s + pause_s, loop.time())
                await asyncio.sleep(next_s - loop.time())

    async def flush(self, timeout_s: float) -> bool:
        """Report once more, before the process ends. False if that was not possible in time."""
        async with channel(self._target, self._security) as to_metricsmgr:
            publish = metrics_pb2_grpc.MetricsmgrStub(to_metricsmgr).Publish  # type: ignore[no-untyped-call]  # generated
            return await self._report(publish, timeout_s)

    def exception(self, stacktrace: str, logging: str = "") -> None:
        """Report an exception with the next report. Thread-safe; the same stack counts up.

        Args:
            stacktrace: the traceback as text.
            logging: what the user's code had logged, if that is known.
        """
        self._accumulator.raised(stacktrace, logging, _now_ms())

    async def _report(self, publish: Any, timeout_s: float) -> bool:
        report = self._next_report()
        try:
            reply = await publish(report, metadata=self._security.metadata, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as e:
            self._accumulator.failed(report)
            if self._reachable:
                log.warning("no Metrics Manager at %s, reports wait: %s", self._target, e.code().name)
            self._reachable = False
            return False
        except asyncio.CancelledError:
            self._accumulator.failed(report)
            raise
        self._accumulator.sent(report)
        self.reported.add(report)
        if reply.HasField("log_levels"):
            self._levels.follow(reply.log_levels)
        if not self._reachable:
            log.info("the Metrics Manager is back")
        self._reachable = True
        return True

    def _next_report(self) -> metrics_pb2.MetricsReport:
        self._accumulator.collected(self._collect())
        self._accumulator.collected(process_metrics(self._started_ms, self._component))
        return self._accumulator.report(_now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)
