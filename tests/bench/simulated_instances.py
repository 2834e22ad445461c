"""Many instances that report to a Topology Master, as far as it can tell: reports as real processes make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heronpy.metricsmgr.parts import BATCH_REPORTS, Accumulator
from heronpy.proto import metrics_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.security import Security, container_identity

COUNTER, GAUGE, MEAN = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.GAUGE, metrics_pb2.Metric.MEAN


class SimulatedInstances:
    """`count` instances of one component with `metrics` metrics each: a third counters, means and gauges.

    In every round each counter grows by 1 + its number, each mean gets two measurements of 5 and 7, each gauge is set
    to the round's number.
    """

    def __init__(self, count: int, metrics: int, *, component: str = "word", started_ms: int) -> None:
        self.ids = [f"container_{1 + n // 10}_{component}_{n + 1}" for n in range(count)]
        self.rounds = 0
        self._counters = [f"__emit-count/stream{n}" for n in range(metrics // 3)]
        self._means = [f"__execute-latency/source/stream{n}" for n in range(metrics // 3)]
        self._gauges = [f"__gateway-{n}-queue-size" for n in range(metrics - 2 * (metrics // 3))]
        self._processes = [
            Accumulator(source=id, component=component, container=1 + n // 10, pid=1000 + n, started_ms=started_ms)
            for n, id in enumerate(self.ids)
        ]

    def total(self, counter: int) -> int:
        """What each instance's counter has reached."""
        return self.rounds * (1 + counter)

    def reports(self, now_ms: int) -> Iterator[metrics_pb2.MetricsReport]:
        """One more round, a report of every instance."""
        self.rounds += 1
        metrics = [metrics_pb2.Metric(name=c, value=1 + n, kind=COUNTER) for n, c in enumerate(self._counters)]
        metrics += [metrics_pb2.Metric(name=m, value=6, kind=MEAN, sum=12, count=2) for m in self._means]
        metrics += [metrics_pb2.Metric(name=g, value=self.rounds, kind=GAUGE) for g in self._gauges]
        for process in self._processes:
            process.collected(metrics)
            yield process.report(now_ms)

    async def report_to(self, target: str, security: Security, now_ms: int) -> None:
        """One more round, sent to a Topology Master as Metrics Managers send it."""
        waiting = list(self.reports(now_ms))
        async with channel(target, security, container_identity(0)) as to_tmaster:
            publish: Any = tmaster_pb2_grpc.TmasterStub(to_tmaster).PublishMetrics
            for n in range(0, len(waiting), BATCH_REPORTS):
                batch = metrics_pb2.MetricsReports(reports=waiting[n : n + BATCH_REPORTS])
                await publish(batch, metadata=security.metadata, timeout=120, wait_for_ready=True)
