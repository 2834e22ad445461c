"""What every process reports about itself, by Heron's names. Read from /proc and rusage: no call takes long."""

from __future__ import annotations

import gc
import logging
import os
import resource
import time

from heronpy.proto import metrics_pb2

log = logging.getLogger(__name__)

_PAGE_BYTES = resource.getpagesize()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Collections:
    """Counts the garbage collector's runs and the time they take, from the first `process_metrics` on."""

    def __init__(self) -> None:
        self.count = 0
        self.spent_ns = 0
        self._began_ns = 0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        # Called in the thread that happens to collect; there is never more than one collection at a time.
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        elif self._began_ns:
            self.count += 1
            self.spent_ns += time.perf_counter_ns() - self._began_ns


_collections = _Collections()


_NATIVE_COMPONENTS = {"__stmgr__", "__tmaster__"}
_NATIVE_NAMES = {
    "__py-user-cpu-time-secs": ("__process/__cpu_user_usec", 1e6),
    "__py-sys-cpu-time-secs": ("__process/__cpu_system_usec", 1e6),
    "__uptime-secs": ("__process/__uptime_sec", 1),
    "__py-physical-memory-byte": ("__process/__mem_used_bytes", 1),
}
"""Heron's Stream Manager and Topology Master are not Python processes, and have these names and units."""


def process_metrics(started_ms: int, component: str = "") -> list[metrics_pb2.Metric]:
    """This process: CPU seconds, resident bytes, garbage collection, threads, file descriptors, uptime; all gauges.

    Those of `__stmgr__` and `__tmaster__` have Heron's names for these, too: `__process/__cpu_user_usec`, …
    What cannot be read, for want of file descriptors say, is left out with a warning: a metric must not end a process.
    """
    if _collections not in gc.callbacks:
        gc.callbacks.append(_collections)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values = {
        "__py-user-cpu-time-secs": usage.ru_utime,
        "__py-sys-cpu-time-secs": usage.ru_stime,
        **{f"__py-generation-{n}-count": count for n, count in enumerate(gc.get_count(), start=1)},
        **{f"__py-generation-{n}-collection-threshold": t for n, t in enumerate(gc.get_threshold(), start=1)},
        "__py-gc-collection-count": _collections.count,
        "__py-gc-collection-time-ms": _collections.spent_ns / 1e6,
        "__py-fd-limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "__uptime-secs": max(0.0, time.time() - started_ms / 1000),
    }
    try:
        values |= _from_proc("self")
        values["__py-fd-count"] -= 1  # without the one that lists them
    except OSError as e:
        log.warning("memory, threads and file descriptors of this process are not reported: %s", e)
    if component in _NATIVE_COMPONENTS:
        known = [(name, *native) for name, native in _NATIVE_NAMES.items() if name in values]
        values |= {native: values[name] * factor for name, native, factor in known}
    return _gauges(values)


def other_process_metrics(pid: int) -> list[metrics_pb2.Metric]:
    """Another process of this user, by the same names, as far as they can be seen from outside; empty if it is gone.

    Raises:
        OSError: it cannot be looked at now, for want of file descriptors say.
    """
    try:
        values = _from_proc(str(pid))
        with open(f"/proc/{pid}/stat", "rb") as f:
            # Fields 14, 15 and 22; the name in parentheses before them may contain anything.
            fields = f.read().rpartition(b")")[2].split()
        with open("/proc/uptime", "rb") as f:
            up_s = float(f.read().split()[0])
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        return []
    values["__py-user-cpu-time-secs"] = int(fields[11]) / _TICKS_PER_S
    values["__py-sys-cpu-time-secs"] = int(fields[12]) / _TICKS_PER_S
    values["__uptime-secs"] = max(0.0, up_s - int(fields[19]) / _TICKS_PER_S)
    return _gauges(values)


def _from_proc(pid: str) -> dict[str, float]:
    with open(f"/proc/{pid}/statm", "rb") as f:
        resident_pages = int(f.read().split()[1])
    return {
        "__py-physical-memory-byte": resident_pages * _PAGE_BYTES,
        "__py-thread-count": len(os.listdir(f"/proc/{pid}/task")),
        "__py-fd-count": len(os.listdir(f"/proc/{pid}/fd")),
    }


def _gauges(values: dict[str, float]) -> list[metrics_pb2.Metric]:
    return [metrics_pb2.Metric(name=name, value=value, kind=metrics_pb2.Metric.GAUGE) for name, value in values.items()]
