"""The metrics of one task.

The task thread adds to running sums; the gateway thread reads them at every report and sends the differences. So
neither waits for the other, and a report never tears a number. User metrics are read and reset in the task thread,
which is the one that updates them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heronpy.proto import metrics_pb2
from heronpy.shown import encodable, said, shown
from heronpy.sketch import BUCKETS, Sketch, bucket_of, buckets_of

log = logging.getLogger(__name__)

Counts = NDArray[np.int64]

COUNTER = metrics_pb2.Metric.COUNTER
GAUGE = metrics_pb2.Metric.GAUGE
MEAN = metrics_pb2.Metric.MEAN
SKETCHED = ("__complete-latency/", "__execute-latency/", "__process-latency/")
"""Latencies in ns whose percentiles are known; those of a bolt are of its batches, weighed by their tuples."""


class UserMetric(Protocol):
    """Heron's IMetric."""

    def get_value_and_reset(self) -> Any: ...


@dataclass(slots=True)
class _Registered:
    name: str
    metric: UserMetric
    every_s: float
    next_s: float


class TaskMetrics:
    """Counters, means and gauges by Heron's names; user metrics by theirs."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._gauges: dict[str, float] = {}
        self._queued: dict[str, tuple[int, int, int]] = {}
        self._sketches: dict[str, Counts] = {}
        self._reported_sketches: dict[str, Counts] = {}
        self._reported_counts: dict[str, float] = {}
        self._reported_sums: dict[str, tuple[float, int]] = {}
        self._user: list[_Registered] = []

    def add(self, name: str, count: float) -> None:
        """Add to a counter. Task thread only."""
        self._counts[name] = self._counts.get(name, 0) + count

    def mean(self, name: str, total: float, count: int, each: NDArray[np.int64] | None = None) -> None:
        """Add `count` measurements that sum to `total`. Task thread only.

        Args:
            name: Heron's name. Of those in SKETCHED the distribution is kept, too.
            total: the sum of the measurements.
            count: how many there are.
            each: every one of them; None: all are taken to be as large as their mean.
        """
        if not count:
            return
        old_total, old_count = self._sums.get(name, (0.0, 0))
        self._sums[name] = (old_total + total, old_count + count)
        if name.startswith(SKETCHED):
            counts = self._sketches.get(name)
            if counts is None:
                counts = self._sketches[name] = np.zeros(BUCKETS, dtype=np.int64)
            if each is None:
                counts[bucket_of(total / count)] += count
            else:
                np.add.at(counts, buckets_of(each), 1)

    def queued(self, stream: str, tuples: int, size: int, took_ns: int) -> None:
        """Note tuples that were serialized, `size` bytes in `took_ns`, and go out on a stream. Task thread only."""
        old_tuples, old_size, old_ns = self._queued.get(stream, (0, 0, 0))
        self._queued[stream] = old_tuples + tuples, old_size + size, old_ns + took_ns

    def gauge(self, name: str, value: float) -> None:
        """Set a value."""
        self._gauges[name] = value

    def register(self, name: str, metric: UserMetric, time_bucket_in_sec: float) -> None:
        """Report a user metric every `time_bucket_in_sec` seconds as `name`, or `name/key` if it has several values."""
        every_s = max(float(time_bucket_in_sec), 0.001)
        if name.startswith("__"):  # of the engine's own, by a component that takes the place of another
            self._user = [each for each in self._user if each.name != name]
        self._user.append(_Registered(name, metric, every_s, time.monotonic() + every_s))

    def forget_user(self) -> None:
        """Report no more what a component has registered that is replaced; what the engine has (`__…`) stays."""
        self._user = [each for each in self._user if each.name.startswith("__")]

    def poll_user(self, now_s: float, *, final: bool = False) -> None:
        """Read the user metrics that are due, all of them if `final`. Task thread only."""
        for user in self._user:
            if final or now_s >= user.next_s:
                user.next_s = now_s + user.every_s
                self._take(user.name, user.metric)

    def _take(self, name: str, metric: UserMetric) -> None:
        try:
            value = metric.get_value_and_reset()
            counts = hasattr(metric, "incr")  # CountMetric and MultiCountMetric, also the user's own kinds of them
            counted_keys = getattr(metric, "counted_keys", ())
            numbers = [*value.items()] if isinstance(value, Mapping) else [("", value)]
        except Exception as e:  # the user's code; an unknown number is not a reason to end their task
            log.warning("user metric %s cannot be read: %s", name, said(e))
            return
        for key, number in numbers:
            try:
                full = encodable(f"{name}/{key}" if key else name)
                if counts or key in counted_keys:
                    self.add(full, float(number))
                elif number is not None:
                    self.gauge(full, float(number))
            except Exception:
                log.warning("user metric %s: the value of %s is not a number: %s", name, shown(key), shown(number))

    def collect(self) -> Iterator[metrics_pb2.Metric]:
        """What happened since the last call. Gateway thread only."""
        counts, sums = dict(self._counts), dict(self._sums)
        for stream, (tuples, size, took_ns) in dict(self._queued).items():
            counts[f"__data-tuple-added-to-outgoing-queue/{stream}"] = tuples
            counts[f"__tuple-serialization-time-ns/{stream}"] = took_ns
            sums[f"__av-tuple-serialization-time-ns/{stream}"] = took_ns, tuples
            sums[f"__average-tuple-size-added-queue/{stream}"] = size, tuples
        for name, count in counts.items():
            new = count - self._reported_counts.get(name, 0)
            self._reported_counts[name] = count
            yield metrics_pb2.Metric(name=name, value=new, kind=COUNTER)
        for name, (total, number) in sums.items():
            old_total, old_number = self._reported_sums.get(name, (0.0, 0))
            self._reported_sums[name] = (total, number)
            if number > old_number:
                new, count = total - old_total, number - old_number
                metric = metrics_pb2.Metric(name=name, value=new / count, kind=MEAN, sum=new, count=count)
                if name in self._sketches:
                    metric.sketch.CopyFrom(self._new_sketch(name).to_proto())
                yield metric
        for name, value in dict(self._gauges).items():
            yield metrics_pb2.Metric(name=name, value=value, kind=GAUGE)

    def _new_sketch(self, name: str) -> Sketch:
        counts = self._sketches[name].copy()
        new = counts - self._reported_sketches[name] if name in self._reported_sketches else counts
        self._reported_sketches[name] = counts
        return Sketch.of_dense(new.tolist())

    def total(self, name: str) -> float:
        """A counter's sum since the start."""
        return self._counts.get(name, 0)
