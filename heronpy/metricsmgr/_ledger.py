"""Sums of what many sources report, whatever is lost, repeated or overtaken on the way.

Counters travel as sums since the start of the reporting process, so a report replaces the one before it. A source (an
instance id) may live several times: the lives are distinguished by start time and pid, not ordered by clocks, and the
source's total is the sum over its lives. Late reports of an ended life still find their place.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from heronpy.proto import metrics_pb2
from heronpy.sketch import Sketch

LIVES_MAX = 8
"""Lives of a source that are distinguished; those before them are one sum."""
NAMES_MAX = 4096
"""Most metric names of one source; more are dropped and counted."""
RATE_REPORTS = 4
"""A rate is taken over the time between this many reports."""

Life = tuple[int, int]
"""Start time in ms and pid of a process."""


def life_of(report: metrics_pb2.MetricsReport) -> Life:
    """Which life of its source a report is about."""
    return report.started_ms, report.pid


Mean = tuple[float, int]
"""Sum and count of measurements."""


class Histogram(Struct):
    """The distribution of a latency: its sum in ns, and its measurements by bucket."""

    sum_ns: float = 0.0
    sketch: Sketch = field(default_factory=Sketch)

    def add(self, sum_ns: float, sketch: Sketch) -> None:
        self.sum_ns += sum_ns
        self.sketch.merge(sketch)


class Delta(Struct, frozen=True):
    """What a report says that was not known before."""

    source: str
    component: str
    counters: dict[str, float]
    """How much each has grown since the last report of this life; since its start, if this is the first seen."""
    means: dict[str, Mean]
    """The same for the sums and counts of means."""
    sketches: dict[str, Sketch]
    """The same for the distributions of latencies."""
    gauges: dict[str, float]
    """Values; none from a life that is not the source's present one."""
    first_of_life: bool
    """No report of this life was seen before: the counters go back to the life's start."""
    since_ms: int
    """The counters grew from then ..."""
    time_ms: int
    """... until then, on the source's clock."""


class _Sums(Struct):
    sequence: int
    counters: dict[str, float]
    means: dict[str, Mean]
    sketches: dict[str, Sketch]
    time_ms: int


class Source(Struct):
    """One reporting process, over its lives."""

    id: str
    component: str
    container: int
    pid: int = 0
    started_ms: int = 0
    received_s: float = 0.0
    """When the receiver last received from it, on the receiver's clock."""
    latest: dict[str, float] = field(default_factory=dict)
    """Gauges and means of its present life, by name."""
    dropped: int = 0
    """Metrics dropped because there were more than NAMES_MAX names."""
    _lives: dict[Life, _Sums] = field(default_factory=dict)
    _folded: dict[str, float] = field(default_factory=dict)
    _folded_histograms: dict[str, Histogram] = field(default_factory=dict)
    _history: deque[tuple[int, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=RATE_REPORTS))

    def totals(self) -> dict[str, float]:
        """Counters summed over all lives, by name."""
        totals = dict(self._folded)
        for sums in self._lives.values():
            for name, value in sums.counters.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def histograms(self) -> dict[str, Histogram]:
        """Latencies over all lives, by name."""
        found: dict[str, Histogram] = {}
        for name, folded in self._folded_histograms.items():
            found.setdefault(name, Histogram()).add(folded.sum_ns, folded.sketch)
        for sums in self._lives.values():
            _add_histograms(found, sums)
        return found

    def rates(self) -> dict[str, float]:
        """Counters per second over the last reports, by name. Empty before there are two."""
        if len(self._history) < 2:
            return {}
        (first_ms, first), (last_ms, last) = self._history[0], self._history[-1]
        if last_ms <= first_ms:  # the source's clock was set back
            return {}
        return {name: (value - first.get(name, 0.0)) * 1000 / (last_ms - first_ms) for name, value in last.items()}

    def add(self, report: metrics_pb2.MetricsReport, now_s: float) -> Delta | None:
        """Take in a report. None if it says nothing new, because a later one of the same life was here."""
        life = life_of(report)
        sums = self._lives.get(life)
        if sums is not None and report.sequence <= sums.sequence:
            return None
        counters, means, gauges, mean_values = self._split(report)
        sketches = {
            sys.intern(metric.name): Sketch.from_proto(metric.sketch)
            for metric in report.metrics[:NAMES_MAX]
            if metric.HasField("sketch")
        }
        first = sums is None
        if sums is None:
            self._begin(life, report)
            sums = self._lives[life] = _Sums(0, {}, {}, {}, report.started_ms)
        present = life == (self.started_ms, self.pid)
        delta = Delta(
            source=self.id,
            component=self.component,
            counters=_grown(sums.counters, counters),
            means=_grown_means(sums.means, means),
            sketches={
                name: sketch.since(sums.sketches[name]) if name in sums.sketches else sketch
                for name, sketch in sketches.items()
            },
            gauges=gauges if present else {},
            first_of_life=first,
            since_ms=sums.time_ms,
            time_ms=report.time_ms,
        )
        sums.sequence, sums.counters, sums.means, sums.time_ms = report.sequence, counters, means, report.time_ms
        sums.sketches = sketches
        self.received_s = now_s
        if present:
            self.latest.update(gauges)
            self.latest.update(mean_values)
            self._history.append((report.time_ms, counters))
        return delta

    def _begin(self, life: Life, report: metrics_pb2.MetricsReport) -> None:
        self.component, self.container = report.component, report.container
        self.started_ms, self.pid = life
        self.latest = {}
        self._history.clear()
        if report.sequence == 1:  # everything in it happened since the start
            self._history.append((report.started_ms, {}))
        if len(self._lives) >= LIVES_MAX:
            oldest = next(iter(self._lives))
            gone = self._lives.pop(oldest)
            _add_histograms(self._folded_histograms, gone)
            for name, value in gone.counters.items():
                self._folded[name] = self._folded.get(name, 0.0) + value

    def _split(
        self, report: metrics_pb2.MetricsReport
    ) -> tuple[dict[str, float], dict[str, Mean], dict[str, float], dict[str, float]]:
        counters: dict[str, float] = {}
        means: dict[str, Mean] = {}
        gauges: dict[str, float] = {}
        mean_values: dict[str, float] = {}
        for metric in report.metrics[:NAMES_MAX]:
            # Interned: every report of every source brings the same names again, and most of them are kept.
            name, kind = sys.intern(metric.name), metric.kind
            if kind == metrics_pb2.Metric.COUNTER:
                counters[name] = metric.value
            elif kind == metrics_pb2.Metric.MEAN and metric.count:
                means[name] = (metric.sum, metric.count)
                mean_values[name] = metric.value
            else:
                gauges[name] = metric.value
        self.dropped += max(0, len(report.metrics) - NAMES_MAX)
        return counters, means, gauges, mean_values


def _add_histograms(histograms: dict[str, Histogram], sums: _Sums) -> None:
    for name, sketch in sums.sketches.items():
        histograms.setdefault(name, Histogram()).add(sums.means.get(name, (0.0, 0))[0], sketch)


def _grown(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in now.items()}


def _grown_means(before: dict[str, Mean], now: dict[str, Mean]) -> dict[str, Mean]:
    grown: dict[str, Mean] = {}
    for name, (total, count) in now.items():
        old_total, old_count = before.get(name, (0.0, 0))
        if count > old_count:
            grown[name] = (total - old_total, count - old_count)
    return grown


class SourceSnapshot(Struct, frozen=True):
    """What is exported of one source."""

    id: str
    component: str
    container: int
    totals: dict[str, float]
    latest: dict[str, float]
    histograms: dict[str, Histogram] = field(default_factory=dict)
    """Latencies in ns; those of these names in `latest` are left out."""


class Ledger:
    """All sources of a container, or of a topology."""

    def __init__(self, *, sources_max: int, forgotten: Callable[[str], None] = lambda _source: None) -> None:
        self._sources_max = sources_max
        self._forgotten = forgotten
        """Notified of every source that is forgotten."""
        self._sources: dict[str, Source] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources.values())

    def get(self, source: str) -> Source | None:
        return self._sources.get(source)

    def add(self, report: metrics_pb2.MetricsReport, now_s: float) -> Delta | None:
        """Take in a report. None if it says nothing new. The longest silent source is evicted for a new one."""
        source = self._sources.get(report.source)
        if source is None:
            if len(self._sources) >= self._sources_max:
                self.forget(min(self._sources.values(), key=lambda s: s.received_s).id)
            source = self._sources[report.source] = Source(report.source, report.component, report.container)
        return source.add(report, now_s)

    def forget(self, source: str) -> None:
        """Drop all that is known of a source."""
        if self._sources.pop(source, None) is not None:
            self._forgotten(source)

    def check_invariants(self) -> None:
        assert len(self._sources) <= self._sources_max
        for source in self._sources.values():
            assert 1 <= len(source._lives) <= LIVES_MAX
            assert (source.started_ms, source.pid) in source._lives
            assert all(len(sums.counters) <= NAMES_MAX for sums in source._lives.values())
