"""Metrics under the names by which Apache Heron's clients ask for them. Pure.

Heron's bolts count twice, under `<source>/<stream>` and under `<stream>`; here they count once, under the first, and
the second is added up when it is asked for. Heron's instances report `__jvm-*`; here the same question is answered
with what Python has:

    __jvm-uptime-secs                       __uptime-secs
    __jvm-thread-count, -fd-count, -fd-limit    the same of __py-*
    __jvm-process-cpu-time-nanos            user and system CPU time, in ns
    __jvm-process-cpu-load                  cores in use: by minute, and since the start
    __jvm-memory-used-mb, -heap-mb-used     physical memory
    __jvm-memory-mb-total, -heap-mb-max, -heap-mb-committed    what the packing plan grants the instance
    __jvm-gc-collection-time-ms, -count     those of Python's collector of cycles

A name that was reported under itself is never replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heronpy.config import MIB
from heronpy.proto import metrics_pb2, tmaster_pb2

Minutes = dict[int, float]

_CPU = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
_MEMORY = "__py-physical-memory-byte"
_UPTIME = "__uptime-secs"
_BY_INPUT = (
    "__execute-count",
    "__execute-latency",
    "__execute-time-ns",
    "__process-latency",
    "__ack-count",
    "__fail-count",
    "__fail-latency",
)
"""What a bolt counts by source and stream."""


@dataclass(frozen=True, slots=True)
class HeronName:
    """How a name of Heron's is answered."""

    patterns: tuple[str, ...]
    """What to ask the Topology Master for."""
    matches: Callable[[str], bool]
    """Whether a reported metric is a part of the answer."""
    combined: Callable[[Sequence[tmaster_pb2.MetricSeries], float], tmaster_pb2.MetricSeries]
    """The answer for one instance: of its series, and of the megabytes that it may use."""


def heron_name(name: str, *, is_bolt: bool) -> HeronName | None:
    """How to answer a name that is Heron's and not ours; None for every other name."""
    base, _, stream = name.partition("/")
    if is_bolt and base in _BY_INPUT and stream and "/" not in stream and not stream.endswith("*"):

        def of_the_stream(found: str) -> bool:
            return found.startswith(f"{base}/") and found.partition("/")[2].partition("/")[2] == stream

        return HeronName((f"{base}/*",), of_the_stream, lambda series, _: _sum(series))
    return _PROCESS.get(name)


def answered(
    reply: tmaster_pb2.MetricsReply,
    asked: Sequence[str],
    names: Mapping[str, HeronName],
    memory_mb: Mapping[str, float],
) -> None:
    """Add the answers for names of Heron's to a reply, and take out what was only fetched for them.

    Args:
        reply: To what was asked for and the patterns of `names`. Changed.
        asked: The names that the caller asked for.
        names: Those of Heron's among them.
        memory_mb: What each instance may use, by its id.
    """
    made = []
    reported = {series.name for series in reply.series}
    for name, heron in names.items():
        if name in reported:
            continue
        parts = sorted((s for s in reply.series if heron.matches(s.name)), key=lambda s: (s.component, s.instance))
        for (component, instance), group in itertools.groupby(parts, key=lambda s: (s.component, s.instance)):
            answer = heron.combined(list(group), memory_mb.get(instance, 0.0))
            answer.component, answer.instance, answer.name = component, instance, name
            made.append(answer)
    kept = [series for series in reply.series if _wanted(series.name, asked)]
    added = {series.name for series in made}
    unknown = [name for name in reply.unknown_metrics if name in asked and name not in added]
    del reply.series[:]
    reply.series.extend([*kept, *made])
    del reply.unknown_metrics[:]
    reply.unknown_metrics.extend(unknown)


def _wanted(name: str, asked: Iterable[str]) -> bool:
    return any(name.startswith(a[:-1]) if a.endswith("*") else name == a for a in asked)


def _sum(series: Sequence[tmaster_pb2.MetricSeries], factor: float = 1.0) -> tmaster_pb2.MetricSeries:
    """Counters and gauges added up; of means the mean by weight (by minute, which has no weights, the plain one)."""
    kind = series[0].kind
    minutes: dict[int, list[float]] = {}
    for one in series:
        for minute, value in one.minutes.items():
            minutes.setdefault(minute, []).append(value)
    if kind == metrics_pb2.Metric.MEAN:
        weight = sum(one.weight or 1.0 for one in series)
        value = sum(one.value * (one.weight or 1.0) for one in series) / weight
        by_minute = {minute: sum(values) / len(values) for minute, values in minutes.items()}
        return tmaster_pb2.MetricSeries(kind=kind, value=value, weight=weight, minutes=by_minute)
    by_minute = {minute: sum(values) * factor for minute, values in minutes.items()}
    return tmaster_pb2.MetricSeries(kind=kind, value=sum(one.value for one in series) * factor, minutes=by_minute)


def _load(series: Sequence[tmaster_pb2.MetricSeries], _memory_mb: float) -> tmaster_pb2.MetricSeries:
    """Cores in use: the growth of CPU time, by minute, and since the start."""
    cpu = _sum([one for one in series if one.name in _CPU] or series[:1])
    uptime_s = sum(one.value for one in series if one.name == _UPTIME)
    rates = {
        now: (cpu.minutes[now] - cpu.minutes[before]) / (now - before)
        for before, now in itertools.pairwise(sorted(cpu.minutes))
        if cpu.minutes[now] >= cpu.minutes[before]  # else it was started again in between
    }
    return tmaster_pb2.MetricSeries(kind=cpu.kind, value=cpu.value / uptime_s if uptime_s else 0.0, minutes=rates)


def _granted(series: Sequence[tmaster_pb2.MetricSeries], memory_mb: float) -> tmaster_pb2.MetricSeries:
    one = series[0]
    return tmaster_pb2.MetricSeries(kind=one.kind, value=memory_mb, minutes=dict.fromkeys(one.minutes, memory_mb))


def _same(*names: str, factor: float = 1.0) -> HeronName:
    return HeronName(names, lambda name: name in names, lambda series, _: _sum(series, factor))


_MEMORY_GRANTED = HeronName((_MEMORY,), lambda name: name == _MEMORY, _granted)
_MEMORY_USED = _same(_MEMORY, factor=1 / MIB)
_PROCESS: Mapping[str, HeronName] = {
    "__jvm-uptime-secs": _same(_UPTIME),
    "__jvm-thread-count": _same("__py-thread-count"),
    "__jvm-fd-count": _same("__py-fd-count"),
    "__jvm-fd-limit": _same("__py-fd-limit"),
    "__jvm-process-cpu-time-nanos": _same(*_CPU, factor=1e9),
    "__jvm-process-cpu-load": HeronName((*_CPU, _UPTIME), lambda name: name in (*_CPU, _UPTIME), _load),
    "__jvm-memory-used-mb": _MEMORY_USED,
    "__jvm-memory-heap-mb-used": _MEMORY_USED,
    "__jvm-memory-mb-total": _MEMORY_GRANTED,
    "__jvm-memory-heap-mb-max": _MEMORY_GRANTED,
    "__jvm-memory-heap-mb-committed": _MEMORY_GRANTED,
    "__jvm-gc-collection-time-ms": _same("__py-gc-collection-time-ms"),
    "__jvm-gc-collection-count": _same("__py-gc-collection-count"),
}
