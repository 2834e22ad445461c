"""The Metrics Manager: collects from every process of its container, exports, and forwards to the Topology Master."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from heronpy.address import join_address
from heronpy.errors import DamagedStateError, ReadFailedError
from heronpy.files import replace_file
from heronpy.health import OVER_RAM_METRIC, RECENT_RESTARTS_METRIC, RESTART_WINDOW_S, RESTARTS_METRIC
from heronpy.host import EXECUTOR, HostProcess, read_pids
from heronpy.metricsmgr._accumulator import Accumulator
from heronpy.metricsmgr._ledger import Ledger, SourceSnapshot
from heronpy.metricsmgr._outbox import Outbox
from heronpy.metricsmgr._pace import pauses
from heronpy.metricsmgr._process import other_process_metrics, process_metrics
from heronpy.metricsmgr._reporter import PUBLISH_TIMEOUT_MIN_S, SOCKET_NAME
from heronpy.metricsmgr._scrape import PrometheusEndpoint
from heronpy.metricsmgr._sinks import Sinks
from heronpy.proto import loglevels_pb2, metrics_pb2, metrics_pb2_grpc, state_pb2, tmaster_pb2_grpc
from heronpy.rpc import CONTROL_BYTES_MAX, UnixServer, channel, listen
from heronpy.runtime import PARENT_ENV, Launch, LevelSwitch, essential, until_one_ends
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, follow, opened, records

log = logging.getLogger(__name__)

ADDRESS_FILE = "prometheus.address"
SOURCES_MAX = 1024
"""Most processes of one container."""
BATCH_REPORTS = 16
"""Reports per message to the Topology Master, which keeps the message well below the transport's limit."""
STALE_INTERVALS = 3
"""A source that is silent for longer, and not in the packing plan, is not exported any more."""
LAST_FORWARD_S = 1.0


class MetricsManager(metrics_pb2_grpc.MetricsmgrServicer):
    """The Metrics Manager of one container, as a service."""

    def __init__(self, launch: Launch, container: int) -> None:
        self.started = asyncio.Event()
        self.prometheus_port = 0
        """Where Prometheus can scrape, once started; 0 if that is not configured."""
        self._prometheus_address = ""
        self._launch = launch
        self._container = container
        self._id = f"metricsmgr-{container}"
        self._interval_s = launch.config.metrics.interval_ms / 1000
        self._security = launch.security(self._id)
        self._ledger = Ledger(sources_max=SOURCES_MAX)
        self._ledger_lock = threading.Lock()  # Prometheus reads from a thread
        self._sinks = Sinks(launch, container)
        self._outbox = Outbox(sources_max=SOURCES_MAX)
        self._packed: frozenset[str] | None = None
        """Instances that the packing plan has here; None while it is not known."""
        self._tmaster: state_pb2.TmasterLocation | None = None
        self._log_levels: loglevels_pb2.LogLevels | None = None
        """Those that were changed; None while that is not known."""
        self._own_level = LevelSwitch(process=self._id, component="__metricsmgr__")
        self._started_ms = int(time.time() * 1000)
        self._own = Accumulator(
            source=self._id,
            component="__metricsmgr__",
            container=container,
            pid=os.getpid(),
            started_ms=self._started_ms,
        )
        # The executor only starts and watches processes; so that it stays that small, its child reports for it.
        self._executor_pid = os.getppid() if os.environ.get(PARENT_ENV) == str(os.getppid()) else 0
        self._executor: Accumulator | None = None
        """None until the executor could be looked at for the first time."""

    async def run(self) -> None:
        """Serve until cancelled. What waits for the Topology Master, or a sink, is sent once more before the end."""
        async with self._sinks.running(), self._prometheus():
            await self._serve()

    @contextlib.asynccontextmanager
    async def _prometheus(self) -> AsyncIterator[None]:
        spec = self._sinks.prometheus
        if spec is None:
            yield
            return
        endpoint = PrometheusEndpoint(
            self._launch, self._container, self._snapshot, self._security, options=spec.options
        )
        async with endpoint.serving():
            self.prometheus_port = endpoint.port
            self._prometheus_address = endpoint.address
            with _address_file(self._launch, self._container, endpoint.address):
                yield

    async def Publish(
        self, request: metrics_pb2.MetricsReport, context: grpc.aio.ServicerContext[Any, Any]
    ) -> metrics_pb2.PublishReply:
        """Take in a report. A repeated or overtaken one changes nothing. Answers with the log levels."""
        if not request.source:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a report without a source")
        self._received(request)
        return metrics_pb2.PublishReply(log_levels=self._log_levels)

    async def _serve(self) -> None:
        grpc_server = UnixServer(lambda: self._launch.socket_dir(self._container) / SOCKET_NAME, self._grpc_server)
        await grpc_server.start()
        prometheus = self._prometheus_address or "no"
        log.info("%s collects at %s, %s endpoint for Prometheus", self._id, SOCKET_NAME, prometheus)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(essential(self._follow_state()), name=f"{self._id}/state")
                tasks.create_task(essential(self._forward()), name=f"{self._id}/forward")
                tasks.create_task(essential(grpc_server.run()), name=f"{self._id}/socket")
                self.started.set()
        finally:
            await grpc_server.stop(grace=0.5)

    def _grpc_server(self, bind: str) -> grpc.aio.Server:
        made = listen(bind, "", self._security, message_bytes_max=CONTROL_BYTES_MAX).server
        metrics_pb2_grpc.add_MetricsmgrServicer_to_server(self, made)  # type: ignore[no-untyped-call]  # generated
        return made

    def _received(self, report: metrics_pb2.MetricsReport) -> None:
        with self._ledger_lock:
            new = self._ledger.add(report, time.monotonic())
            source = self._ledger.get(report.source)
            if new is not None and source is not None:
                self._sinks.received(report, source)
        if new is not None:
            self._outbox.add(report)

    def _snapshot(self) -> list[SourceSnapshot]:
        now_s = time.monotonic()
        with self._ledger_lock:
            for source in list(self._ledger):
                silent = now_s - source.received_s > STALE_INTERVALS * self._interval_s
                if silent and not self._expected(source.id, source.component):
                    self._ledger.forget(source.id)
            return [
                SourceSnapshot(s.id, s.component, s.container, s.totals(), dict(s.latest), s.histograms())
                for s in self._ledger
            ]

    def _expected(self, source: str, component: str) -> bool:
        return self._packed is None or source in self._packed or component.startswith("__")

    async def _follow_state(self) -> None:
        """Keep the Topology Master's address, the packing plan and the log levels up to date."""
        async with opened(self._launch.statemgr) as state:
            await until_one_ends(
                self._follow(state, Kind.LOGLEVELS, self._levels_changed),
                self._follow(state, Kind.TMASTERS, self._tmaster_changed),
                self._follow(state, Kind.PACKINGPLANS, self._packing_changed),
            )

    async def _follow(self, state: StateManager, kind: Kind, changed: Callable[[bytes | None], None]) -> None:
        async for value in follow(state, kind, self._launch.topology):
            changed(value)

    def _tmaster_changed(self, value: bytes | None) -> None:
        self._tmaster = records.readable(records.tmaster_location, self._launch.topology, value, before=self._tmaster)

    def _levels_changed(self, value: bytes | None) -> None:
        self._log_levels = records.readable(records.log_levels, self._launch.topology, value, before=self._log_levels)
        if self._log_levels is not None:
            self._own_level.follow(self._log_levels)

    def _packing_changed(self, value: bytes | None) -> None:
        if value is None:
            return
        try:
            packing = records.packing_plan(self._launch.topology, value)
        except DamagedStateError as e:
            log.error("%s; what was there before stands", e)
            return
        container = packing.container(self._container)
        instances = container.instances if container is not None else ()
        self._packed = frozenset(i.instance_id(self._container) for i in instances)

    async def _forward(self) -> None:
        try:
            for pause_s in pauses(self._interval_s):
                self._report_own()
                await self._forward_waiting(max(self._interval_s, PUBLISH_TIMEOUT_MIN_S))
                await asyncio.sleep(pause_s)
        finally:
            await self._forward_waiting(LAST_FORWARD_S)

    async def _forward_waiting(self, timeout_s: float) -> None:
        tmaster = self._tmaster
        if tmaster is None or not len(self._outbox):
            return
        waiting = self._outbox.take()
        target = join_address(tmaster.host, tmaster.port)
        try:
            async with channel(target, self._security, container_identity(0)) as to_tmaster:
                publish = tmaster_pb2_grpc.TmasterStub(to_tmaster).PublishMetrics  # type: ignore[no-untyped-call]  # generated
                while waiting:
                    await publish(
                        metrics_pb2.MetricsReports(
                            reports=waiting[:BATCH_REPORTS], prometheus=self._prometheus_address
                        ),
                        metadata=self._security.metadata,
                        timeout=timeout_s,
                        wait_for_ready=True,
                    )
                    waiting = waiting[BATCH_REPORTS:]
        except grpc.aio.AioRpcError as e:
            log.warning("the Topology Master does not take metrics, they wait: %s", e.code().name)
        finally:
            self._outbox.returned(waiting)

    def _report_own(self) -> None:
        dropped = metrics_pb2.Metric(
            name="__reports-dropped", value=self._outbox.dropped, kind=metrics_pb2.Metric.GAUGE
        )
        self._own.collected([*process_metrics(self._started_ms), *self._sinks.collect(), dropped])
        now_ms = int(time.time() * 1000)
        self._received(self._own.report(now_ms))
        if self._executor_pid and (report := self._executor_report(now_ms)):
            self._received(report)

    def _executor_report(self, now_ms: int) -> metrics_pb2.MetricsReport | None:
        """What is seen of the executor from outside; None if it is gone, or cannot be looked at now."""
        try:
            process = HostProcess.of(self._executor_pid)
            found = other_process_metrics(self._executor_pid)
        except OSError as e:
            log.warning("the executor is not reported: it cannot be looked at: %s", e)
            return None
        if process is None or not found:
            return None
        if self._executor is None:
            self._executor = Accumulator(
                source=f"executor-{self._container}",
                component="__executor__",
                container=self._container,
                pid=process.pid,
                started_ms=int(process.create_time * 1000),
            )
        self._executor.collected([*found, *self._restarts()])
        report = self._executor.report(now_ms)
        # The incarnation is the executor's and may be older than this process: its reports go on, they do not begin.
        report.sequence = now_ms
        return report

    def _restarts(self) -> Iterator[metrics_pb2.Metric]:
        """How often each process of this container was restarted, as its executor recorded it."""
        try:
            records = read_pids(self._launch.container_dir(self._container))
        except ReadFailedError as e:
            log.warning("restarts are not reported: %s", e)
            return
        for process, record in records.items():
            id = f"{process}-{self._container}" if process == EXECUTOR else process
            recent = record.restarts_within(RESTART_WINDOW_S, time.time())
            yield metrics_pb2.Metric(name=RESTARTS_METRIC + id, value=record.restarts, kind=metrics_pb2.Metric.GAUGE)
            yield metrics_pb2.Metric(name=RECENT_RESTARTS_METRIC + id, value=recent, kind=metrics_pb2.Metric.GAUGE)
            if record.restarts:
                over = record.over_ram_bytes
                yield metrics_pb2.Metric(name=OVER_RAM_METRIC + id, value=over, kind=metrics_pb2.Metric.GAUGE)


@contextlib.contextmanager
def _address_file(launch: Launch, container: int, address: str) -> Iterator[None]:
    path = launch.container_dir(container) / ADDRESS_FILE
    replace_file(path, f"{address}\n", durable=False)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
