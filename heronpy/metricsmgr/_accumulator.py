"""What a process has to report: counters summed since its start, gauges not yet sent, exceptions by group.

Nothing here is lost when a report is: the next one carries the same sums. That is why nothing has to be queued while
the Metrics Manager is away, and why this is bounded by the number of names and not by time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from msgspec import Struct

from heronpy.metricsmgr._exception_group import exception_group
from heronpy.metricsmgr._ledger import NAMES_MAX
from heronpy.proto import metrics_pb2
from heronpy.sketch import Sketch

EXCEPTIONS_MAX = 64
"""Groups of exceptions a process remembers; the one that was longest silent is evicted."""
STACK_CHARS_MAX = 16_000
DROPPED_NAME = "__metrics-dropped-count"
"""Counter: values not reported because there were too many names."""


class _Exception(Struct):
    stacktrace: str
    logging: str
    first_time_ms: int
    last_time_ms: int
    count: int = 1
    sent_count: int = 0


class _Mean(Struct):
    sum: float = 0.0
    count: int = 0
    sent_sum: float = 0.0
    sent_count: int = 0
    value: float = 0.0
    """Of the measurements that the last report was the first to have."""
    sketch: Sketch | None = None


class Accumulator:
    """Makes the reports of one process. `raised` may be called from any thread, the rest from one."""

    def __init__(self, *, source: str, component: str, container: int, pid: int, started_ms: int) -> None:
        self._source, self._component, self._container = source, component, container
        self._pid, self._started_ms = pid, started_ms
        self._sequence = 0
        self._counters: dict[str, float] = {}
        self._means: dict[str, _Mean] = {}
        self._unsent: dict[str, metrics_pb2.Metric] = {}
        self._exceptions: dict[str, _Exception] = {}
        self._exceptions_lock = threading.Lock()

    def collected(self, metrics: Iterable[metrics_pb2.Metric]) -> None:
        """Take in what was collected: counters and means since the last collection, gauges as they are."""
        for metric in metrics:
            if metric.kind == metrics_pb2.Metric.COUNTER:
                if metric.name in self._counters or len(self._counters) < NAMES_MAX // 2:
                    self._counters[metric.name] = self._counters.get(metric.name, 0.0) + metric.value
                    continue
            elif metric.kind == metrics_pb2.Metric.MEAN and metric.count:
                if metric.name in self._means or len(self._means) < NAMES_MAX // 4:
                    mean = self._means.setdefault(metric.name, _Mean())
                    mean.sum += metric.sum
                    mean.count += metric.count
                    if metric.HasField("sketch"):
                        mean.sketch = mean.sketch or Sketch()
                        mean.sketch.merge(Sketch.from_proto(metric.sketch))
                    continue
            elif metric.name in self._unsent or len(self._unsent) < NAMES_MAX // 4 - 1:
                self._unsent[metric.name] = metric
                continue
            self._counters[DROPPED_NAME] = self._counters.get(DROPPED_NAME, 0.0) + 1

    def raised(self, stacktrace: str, logging: str, now_ms: int) -> None:
        """Take in an exception; one of the same group as before counts up, and its stack is the group's now."""
        stacktrace, logging = stacktrace[-STACK_CHARS_MAX:], logging[-STACK_CHARS_MAX:]
        group = exception_group(stacktrace)
        with self._exceptions_lock:
            known = self._exceptions.pop(group, None)
            if known is None:
                if len(self._exceptions) >= EXCEPTIONS_MAX:
                    del self._exceptions[next(iter(self._exceptions))]
                known = _Exception(stacktrace, logging, now_ms, now_ms)
            else:
                known.count += 1
                known.stacktrace = stacktrace
                known.last_time_ms = now_ms
                known.logging = logging or known.logging
            self._exceptions[group] = known  # last in order: the last to be evicted

    def report(self, now_ms: int) -> metrics_pb2.MetricsReport:
        """The next report. Pass it to `sent` or `failed` when its fate is known."""
        self._sequence += 1
        gauges, self._unsent = self._unsent, {}
        with self._exceptions_lock:
            exceptions = [
                metrics_pb2.ExceptionReport(
                    stacktrace=e.stacktrace,
                    first_time_ms=e.first_time_ms,
                    last_time_ms=e.last_time_ms,
                    count=e.count,
                    logging=e.logging,
                )
                for e in self._exceptions.values()
                if e.count > e.sent_count
            ]
        metrics = [metrics_pb2.Metric(name=name, value=value) for name, value in self._counters.items()]
        metrics += (_mean_metric(name, mean) for name, mean in self._means.items())
        metrics += gauges.values()
        return metrics_pb2.MetricsReport(
            source=self._source,
            component=self._component,
            container=self._container,
            time_ms=now_ms,
            metrics=metrics,
            exceptions=exceptions,
            pid=self._pid,
            started_ms=self._started_ms,
            sequence=self._sequence,
        )

    def sent(self, report: metrics_pb2.MetricsReport) -> None:
        """The report arrived: its exceptions need not be sent again."""
        with self._exceptions_lock:
            for exception in report.exceptions:
                known = self._exceptions.get(exception_group(exception.stacktrace))
                if known is not None:
                    known.sent_count = max(known.sent_count, min(exception.count, known.count))

    def failed(self, report: metrics_pb2.MetricsReport) -> None:
        """The report may not have arrived: its gauges go with the next one, unless there are newer values."""
        gauges = {m.name: m for m in report.metrics if m.kind != metrics_pb2.Metric.COUNTER and not m.count}
        self._unsent = {**gauges, **self._unsent}

    def check_invariants(self) -> None:
        assert len(self._counters) + len(self._means) + len(self._unsent) <= NAMES_MAX
        assert all(m.sent_count <= m.count for m in self._means.values())
        assert len(self._exceptions) <= EXCEPTIONS_MAX
        assert all(0 <= e.sent_count <= e.count for e in self._exceptions.values())


def _mean_metric(name: str, mean: _Mean) -> metrics_pb2.Metric:
    if mean.count > mean.sent_count:
        mean.value = (mean.sum - mean.sent_sum) / (mean.count - mean.sent_count)
        mean.sent_sum, mean.sent_count = mean.sum, mean.count
    return metrics_pb2.Metric(
        name=name,
        value=mean.value,
        kind=metrics_pb2.Metric.MEAN,
        sum=mean.sum,
        count=mean.count,
        sketch=mean.sketch.to_proto() if mean.sketch is not None else None,
    )
