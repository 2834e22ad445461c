"""What every process reports about itself, by Heron's names. Read from /proc and rusage: no call takes long."""

from __future__ import annotations

import gc
import os
import resource
import time

from heronpy.proto import metrics_pb2

_PAGE_BYTES = resource.getpagesize()


def started_ms() -> int:
    """When this process started, in ms since the epoch, as the kernel knows it."""
    # Field 22 of /proc/self/stat, in clock ticks since boot; the command in field 2 may contain spaces.
    with open("/proc/self/stat", "rb") as f:
        ticks = int(f.read().rpartition(b")")[2].split()[19])
    since_boot_s = ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s)) * 1000)


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
