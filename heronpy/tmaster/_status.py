"""What `GetStatus` answers, from the state, the metrics and the exceptions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from heronpy.config import TmasterConfig
from heronpy.health import Health, RestartLog
from heronpy.metricsmgr import Ledger, Source
from heronpy.plan import ContainerPacking, InstancePacking, StmgrLocation
from heronpy.proto import metrics_pb2, tmaster_pb2
from heronpy.tmaster._exceptions import ExceptionLog
from heronpy.tmaster._state import State

if TYPE_CHECKING:
    from heronpy.tmaster._history import History

SOURCES_MAX = 20_000
"""Most processes whose metrics are kept."""
STALE_INTERVALS = 3
"""The rates of a source that is silent for longer are 0."""


class Metrics:
    """The topology's metrics and exceptions, as far as its Topology Master has seen them.

    Args:
        config: how much is kept.
        interval_s: how often processes report.
        started_ms: since when it listens.
    """

    def __init__(self, config: TmasterConfig, interval_s: float, started_ms: int) -> None:
        self.exceptions = ExceptionLog(config.exceptions_max)
        self.ledger = Ledger(sources_max=SOURCES_MAX, forgotten=lambda source: self.history.forget(source))
        self.restarts = RestartLog()
        self.reported = False
        """Whether there was any report."""
        self.prometheus: dict[str, str] = {}
        """Where the endpoint of a Metrics Manager is, by its id."""
        self._interval_s = interval_s
        self._series_max, self._started_ms = config.series_max, started_ms

    @functools.cached_property
    def history(self) -> History:
        """The numbers by minute."""
        # Not before there is a number: the arrays take numpy, whose import would be a third of what it takes to become
        # the active Topology Master, for which everybody waits.
        from heronpy.tmaster._history import History

        return History(series_max=self._series_max, started_ms=self._started_ms)

    def answer(self, request: tmaster_pb2.MetricsRequest, now_ms: int) -> tmaster_pb2.MetricsReply:
        """A piece of the history.

        Raises:
            UsageError: the reply would be too large.
        """
        from heronpy.tmaster._queries import answer  # here for the same reason

        return answer(self.history, request, now_ms)

    def add(self, report: metrics_pb2.MetricsReport, now_s: float, now_ms: int) -> None:
        """Take in a report, at a time on the monotonic and on the wall clock."""
        self.reported = True
        self.exceptions.add(report)
        delta = self.ledger.add(report, now_s)
        if delta is not None:
            self.history.add(delta, now_ms)
            if report.component == "__executor__":
                for name, value in delta.gauges.items():
                    self.restarts.observe(name, value, now_s)

    def rates(self, source: Source, now_s: float) -> dict[str, float]:
        """Counters per second, now."""
        rates = source.rates()
        if now_s - source.received_s > STALE_INTERVALS * self._interval_s:
            return dict.fromkeys(rates, 0.0)
        return rates


def status(
    state: State, metrics: Metrics, health: Health, *, pid: int, started_ms: int, now_s: float
) -> tmaster_pb2.StatusReply:
    """The whole topology, by the packing in force (the wanted one before there is a plan)."""
    packing = state.plan.packing if state.plan is not None else state.packing
    located = {s.id: s for s in state.plan.stmgrs} if state.plan is not None else {}
    return tmaster_pb2.StatusReply(
        topology=state.logical.name,
        state=state.runtime.name,
        ready=state.ready,
        plan_version=state.plan.version if state.plan is not None else 0,
        tmaster_started_ms=started_ms,
        tmaster_pid=pid,
        stmgrs=[_stmgr(state, metrics, c, located.get(c.stmgr_id)) for c in packing.containers],
        instances=[_instance(state, metrics, c, i, now_s) for c in packing.containers for i in c.instances],
        exceptions=metrics.exceptions.to_proto(),
        health=health.to_proto(),
        restarts=metrics.restarts.totals,
        recent_restarts=metrics.restarts.recent(now_s),
        prometheus={
            container: metrics.prometheus[f"metricsmgr-{container}"]
            for container in (0, *(c.id for c in packing.containers))
            if f"metricsmgr-{container}" in metrics.prometheus
        },
    )


def _stmgr(
    state: State, metrics: Metrics, container: ContainerPacking, planned: StmgrLocation | None
) -> tmaster_pb2.StmgrStatus:
    registered = state.stmgrs.get(container.stmgr_id)
    location = registered.location if registered is not None else planned
    status = tmaster_pb2.StmgrStatus(registered=registered is not None)
    if location is not None:
        status.location.CopyFrom(location.to_proto())
    else:
        status.location.id, status.location.container = container.stmgr_id, container.id
    source = metrics.ledger.get(container.stmgr_id)
    if source is not None:
        status.latest.update(source.latest)
        status.totals.update(source.totals())
    return status


def _instance(
    state: State, metrics: Metrics, container: ContainerPacking, instance: InstancePacking, now_s: float
) -> tmaster_pb2.InstanceStatus:
    id = instance.instance_id(container.id)
    stmgr = state.stmgrs.get(container.stmgr_id)
    status = tmaster_pb2.InstanceStatus(
        id=id,
        component=instance.component,
        task_id=instance.task_id,
        container=container.id,
        attached=stmgr is not None and id in stmgr.attached,
    )
    source = metrics.ledger.get(id)
    if source is not None:
        status.pid, status.started_ms = source.pid, source.started_ms
        status.totals.update(source.totals())
        status.latest.update(source.latest)
        status.rates.update(metrics.rates(source, now_s))
    return status
