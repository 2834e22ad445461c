"""Sinks: where a Metrics Manager sends what it collects, and how to write one of your own.

A sink is a class with Heron's four methods (`IMetricsSink`), named in a cluster's `metrics_sinks.yaml`. Each runs in a
thread and behind a bounded queue of its own: one that fails or hangs costs its own records, and no other sink's. It is
proven with `heronpy.testing.sinks_kit`.
"""

from heronpy.metricsmgr.sinks._file import FileSink
from heronpy.metricsmgr.sinks._graphite import GraphiteSink
from heronpy.metricsmgr.sinks._open import sink_factory
from heronpy.metricsmgr.sinks._runner import SinkRunner
from heronpy.metricsmgr.sinks._spi import (
    ExceptionRecord,
    IMetricsSink,
    MetricInfo,
    MetricKind,
    MetricsRecord,
    SinkContext,
)

__all__ = [
    "ExceptionRecord",
    "FileSink",
    "GraphiteSink",
    "IMetricsSink",
    "MetricInfo",
    "MetricKind",
    "MetricsRecord",
    "SinkContext",
    "SinkRunner",
    "sink_factory",
]
