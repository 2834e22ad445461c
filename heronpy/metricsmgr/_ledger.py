"""Sums of what many sources report, whatever is lost, repeated or overtaken on the way.

Counters travel as sums since the start of the reporting process, so a report replaces the one before it. A source (an
instance id) may live several times: the lives are told apart by start time and pid, not ordered by clocks, and the
source's total is the sum over its lives. Late reports of an ended life still find their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from heronpy.proto import metrics_pb2

LIVES_MAX = 8
"""Lives of a source that are told apart; those before them are one sum."""
NAMES_MAX = 4096
"""Most metric names of one source; more are dropped and counted."""
RATE_REPORTS = 4
"""A rate is taken over the time between this many reports."""

Life = tuple[int, int]
"""Start time in ms and pid of a process."""


def life_of(report: metrics_pb2.MetricsReport) -> Life:
    """Which life of its source a report is about."""
    return report.started_ms, report.pid


@dataclass(slots=True)
class _Sums:
    sequence: int
    counters: dict[str, float]


@dataclass(slots=True)
class Source:
    """One reporting process, over its lives."""

    id: str
    component: str
    container: int
    pid: int = 0
    started_ms: int = 0
    heard_s: float = 0.0
    """When the receiver last heard from it, on the receiver's clock."""
    latest: dict[str, float] = field(default_factory=dict)
    """Gauges and means of its present life, by name."""
    dropped: int = 0
    """Metrics dropped because there were more than NAMES_MAX names."""
    _lives: dict[Life, _Sums] = field(default_factory=dict)
    _folded: dict[str, float] = field(default_factory=dict)
    _history: deque[tuple[int, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=RATE_REPORTS))

    def totals(self) -> dict[str, float]:
        """Counters summed over all lives, by name."""
        totals = dict(self._folded)
        for sums in self._lives.values():
            for name, value in sums.counters.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def rates(self) -> dict[str, float]:
        """Counters per second over the last reports, by name. Empty before there are two."""
        if len(self._history) < 2:
            return {}
        (first_ms, first), (last_ms, last) = self._history[0], self._history[-1]
        if last_ms <= first_ms:  # the source's clock was set back
            return {}
        return {name: (value - first.get(name, 0.0)) * 1000 / (last_ms - first_ms) for name, value in last.items()}

    def add(self, report: metrics_pb2.MetricsReport, now_s: float) -> bool:
        """Take in a report. False if it says nothing new, because a later one of the same life was here."""
        life = life_of(report)
        sums = self._lives.get(life)
        if sums is not None and report.sequence <= sums.sequence:
            return False
        counters, latest = self._split(report)
        if sums is None:
            self._begin(life, report)
            sums = self._lives[life] = _Sums(0, {})
        sums.sequence, sums.counters = report.sequence, counters
        self.heard_s = now_s
        if life == (self.started_ms, self.pid):
            self.latest.update(latest)
            self._history.append((report.time_ms, counters))
        return True

    def _begin(self, life: Life, report: metrics_pb2.MetricsReport) -> None:
        self.component, self.container = report.component, report.container
        self.started_ms, self.pid = life
        self.latest = {}
        self._history.clear()
        if report.sequence == 1:  # everything in it happened since the start
            self._history.append((report.started_ms, {}))
        if len(self._lives) >= LIVES_MAX:
            oldest = next(iter(self._lives))
            for name, value in self._lives.pop(oldest).counters.items():
                self._folded[name] = self._folded.get(name, 0.0) + value

    def _split(self, report: metrics_pb2.MetricsReport) -> tuple[dict[str, float], dict[str, float]]:
        counters: dict[str, float] = {}
        latest: dict[str, float] = {}
        for metric in report.metrics[:NAMES_MAX]:
            (counters if metric.kind == metrics_pb2.Metric.COUNTER else latest)[metric.name] = metric.value
        self.dropped += max(0, len(report.metrics) - NAMES_MAX)
        return counters, latest


class Ledger:
    """All sources of a container, or of a topology."""

    def __init__(self, *, sources_max: int) -> None:
        self._sources_max = sources_max
        self._sources: dict[str, Source] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources.values())

    def get(self, source: str) -> Source | None:
        return self._sources.get(source)

    def add(self, report: metrics_pb2.MetricsReport, now_s: float) -> bool:
        """Take in a report. False if it says nothing new. The longest silent source makes room for a new one."""
        source = self._sources.get(report.source)
        if source is None:
            if len(self._sources) >= self._sources_max:
                self.forget(min(self._sources.values(), key=lambda s: s.heard_s).id)
            source = self._sources[report.source] = Source(report.source, report.component, report.container)
        return source.add(report, now_s)

    def forget(self, source: str) -> None:
        """Drop all that is known of a source."""
        self._sources.pop(source, None)

    def check_invariants(self) -> None:
        assert len(self._sources) <= self._sources_max
        for source in self._sources.values():
            assert 1 <= len(source._lives) <= LIVES_MAX
            assert (source.started_ms, source.pid) in source._lives
            assert all(len(sums.counters) <= NAMES_MAX for sums in source._lives.values())
