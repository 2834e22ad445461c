"""What the history of a large topology costs: `python tests/bench/metric_history.py [instances] [metrics]`.

Fills three hours and prints memory, the time to take reports in, and the time to answer.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from simulated_instances import SimulatedInstances

from heronpy.config import TmasterConfig
from heronpy.proto import tmaster_pb2
from heronpy.tmaster.parts import MINUTE_MS, MINUTES, Metrics, answer_metrics


def rss_mb() -> float:
    with open("/proc/self/statm", "rb") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 1e6


def main(instances: int, metrics: int) -> None:
    begin_ms = 1_700_000_000_000
    kept = Metrics(TmasterConfig(), 5.0, begin_ms)
    simulated = SimulatedInstances(instances, metrics, started_ms=begin_ms)
    reports = list(simulated.reports(begin_ms))
    before_mb, spent_s = rss_mb(), 0.0
    for minute in range(MINUTES):
        for report in simulated.reports(begin_ms + minute * MINUTE_MS):
            data = report.SerializeToString()
            start = time.process_time()
            received = type(report).FromString(data)
            kept.add(received, minute * 60.0, begin_ms + minute * MINUTE_MS)
            spent_s += time.process_time() - start
    print(f"{instances} instances x {metrics} metrics x {MINUTES} minutes, {len(reports)} reports a round")
    print(f"memory {rss_mb() - before_mb:.0f} MB; {spent_s / instances / MINUTES * 1e6:.0f} us per report")
    now_ms = begin_ms + (MINUTES - 1) * MINUTE_MS + 30_000
    for label, request in {
        "by component, all metrics, 3 h": tmaster_pb2.MetricsRequest(
            component="word", interval_s=10_800, by_component=True
        ),
        "by component, all metrics, 10 min": tmaster_pb2.MetricsRequest(
            component="word", interval_s=600, by_component=True
        ),
        "by component, all metrics, all time": tmaster_pb2.MetricsRequest(
            component="word", interval_s=-1, by_component=True
        ),
        "by component, one metric, minutely 3 h": tmaster_pb2.MetricsRequest(
            component="word", metrics=["__emit-count/stream1"], minutely=True, by_component=True
        ),
        "by instance, one metric, 3 h": tmaster_pb2.MetricsRequest(
            component="word", metrics=["__emit-count/stream1"], interval_s=10_800
        ),
        "by instance, all metrics, 10 min": tmaster_pb2.MetricsRequest(component="word", interval_s=600),
        "by instance, one metric, minutely 3 h": tmaster_pb2.MetricsRequest(
            component="word", metrics=["__emit-count/stream1"], minutely=True
        ),
        "by component, all metrics, minutely 3 h": tmaster_pb2.MetricsRequest(
            component="word", minutely=True, by_component=True
        ),
    }.items():
        start = time.perf_counter()
        reply = answer_metrics(kept.history, request, now_ms)
        size = len(reply.SerializeToString())
        print(
            f"{(time.perf_counter() - start) * 1e3:7.1f} ms  {label}: {len(reply.series)} series, {size / 1e3:.0f} KB"
        )


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:] or ("1000", "60")))
