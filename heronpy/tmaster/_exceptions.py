"""The exceptions of a topology, one entry per source and group: equal but for numbers and ids in the message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from heronpy.metricsmgr import Life, exception_group, life_of
from heronpy.proto import metrics_pb2, tmaster_pb2

LIVES_MAX = 8
_CLASS = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
_GROUP_FRAME = re.compile(r"^[ |+-]*(?=Traceback|Exception Group Traceback)|^  [|+] ?")


@dataclass(slots=True)
class _Entry:
    component: str
    first_time_ms: int
    last_time_ms: int
    logging: str
    stacktrace: str
    """Of the latest of them."""
    counts: dict[Life, int] = field(default_factory=dict)
    """Of each life of the source; the sum of those before LIVES_MAX is under (0, 0)."""


class ExceptionLog:
    """De-duplicated and bounded: the entry that was longest silent is evicted."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: dict[tuple[str, str], _Entry] = {}

    def add(self, report: metrics_pb2.MetricsReport) -> None:
        """Take in a report's exceptions. Their counts are sums since the source started: repeats change nothing."""
        for exception in report.exceptions:
            key = (report.source, exception_group(exception.stacktrace))
            entry = self._entries.pop(key, None) or _Entry(
                report.component,
                exception.first_time_ms,
                exception.last_time_ms,
                exception.logging,
                exception.stacktrace,
            )
            if exception.last_time_ms >= entry.last_time_ms:
                entry.stacktrace = exception.stacktrace
            entry.last_time_ms = max(entry.last_time_ms, exception.last_time_ms)
            entry.logging = exception.logging or entry.logging
            life = life_of(report)
            entry.counts[life] = max(entry.counts.get(life, 0), exception.count)
            _fold(entry.counts)
            self._entries[key] = entry
        while len(self._entries) > self._entries_max:
            del self._entries[next(iter(self._entries))]

    def to_proto(self) -> list[tmaster_pb2.NamedException]:
        """All entries, the latest last."""
        return [
            tmaster_pb2.NamedException(
                source=source,
                component=entry.component,
                group=group,
                report=metrics_pb2.ExceptionReport(
                    stacktrace=entry.stacktrace,
                    first_time_ms=entry.first_time_ms,
                    last_time_ms=entry.last_time_ms,
                    count=sum(entry.counts.values()),
                    logging=entry.logging,
                ),
            )
            for (source, group), entry in self._entries.items()
        ]


def _fold(counts: dict[Life, int]) -> None:
    while len(counts) > LIVES_MAX + 1:
        oldest = next(life for life in counts if life != (0, 0))
        counts[0, 0] = counts.get((0, 0), 0) + counts.pop(oldest)


def class_name(stacktrace: str) -> str:
    """The class of the error that a traceback ends with, e.g. `ValueError`; `unknown` if that is not a traceback.

    The line with the class is the first one after the frames that is not indented; what follows it belongs to its
    message. Of a chain of errors the last one counts, of a group the group.
    """
    name, frames = "", False
    for raw in stacktrace.splitlines():
        line = _GROUP_FRAME.sub("", raw)
        if line.startswith(("Traceback (", "Exception Group Traceback (")):
            frames = True
        elif frames and line and not line[0].isspace():
            found = _CLASS.match(line)
            name, frames = found[0] if found else "unknown", False
            if raw != line:
                break  # of a group: its members' tracebacks follow
    return name or "unknown"


def summary(exceptions: Iterable[tmaster_pb2.NamedException]) -> list[tmaster_pb2.ExceptionClass]:
    """One entry per class of error, the most frequent first."""
    classes: dict[str, tmaster_pb2.ExceptionClass] = {}
    for exception in exceptions:
        name, report = class_name(exception.report.stacktrace), exception.report
        entry = classes.setdefault(
            name, tmaster_pb2.ExceptionClass(class_name=name, first_time_ms=report.first_time_ms)
        )
        entry.first_time_ms = min(entry.first_time_ms, report.first_time_ms)
        entry.last_time_ms = max(entry.last_time_ms, report.last_time_ms)
        entry.count += report.count
    return sorted(classes.values(), key=lambda c: (-c.count, c.class_name))


def matching_exceptions(
    entries: Iterable[tmaster_pb2.NamedException], request: tmaster_pb2.ExceptionsRequest
) -> list[tmaster_pb2.NamedException]:
    """Those of a component and of instances; of all where the request names none."""
    instances = frozenset(request.instances)
    return [
        e
        for e in entries
        if (not request.component or e.component == request.component) and (not instances or e.source in instances)
    ]
