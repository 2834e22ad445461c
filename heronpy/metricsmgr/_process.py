"""What every process reports about itself, by Heron's names. Read from /proc and rusage: no call takes long."""

from __future__ import annotations

import gc
import os
import resource
import time

from heronpy.proto import metrics_pb2

_PAGE_BYTES = resource.getpagesize()


def process_metrics(started_ms: int) -> list[metrics_pb2.Metric]:
    """CPU seconds, resident bytes, garbage collector counts, threads, file descriptors and uptime, all gauges."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as f:
        resident_pages = int(f.read().split()[1])
    values = {
        "__py-user-cpu-time-secs": usage.ru_utime,
        "__py-sys-cpu-time-secs": usage.ru_stime,
        "__py-physical-memory-byte": resident_pages * _PAGE_BYTES,
        **{f"__py-generation-{n}-count": count for n, count in enumerate(gc.get_count(), start=1)},
        "__py-thread-count": len(os.listdir("/proc/self/task")),
        "__py-fd-count": len(os.listdir("/proc/self/fd")) - 1,  # without the one that lists them
        "__uptime-secs": max(0.0, time.time() - started_ms / 1000),
    }
    return [metrics_pb2.Metric(name=name, value=value, kind=metrics_pb2.Metric.GAUGE) for name, value in values.items()]
