"""Reports that wait for the Topology Master: one per life of a source, however long it is away."""

from __future__ import annotations

from heronpy.metricsmgr._accumulator import EXCEPTIONS_MAX
from heronpy.metricsmgr._ledger import LIVES_MAX, NAMES_MAX, Life, life_of
from heronpy.proto import metrics_pb2

Key = tuple[str, Life]

LIVES_WAITING_MAX = LIVES_MAX // 2
"""Below what a ledger distinguishes: a batch that is sent twice must find all its lives there."""


class Outbox:
    """Merges reports until they are acknowledged. Bounded by sources, lives and names, not by time."""

    def __init__(self, *, sources_max: int) -> None:
        self._sources_max = sources_max
        self._waiting: dict[Key, metrics_pb2.MetricsReport] = {}
        self.dropped = 0
        """Reports dropped because too many sources, or lives of one, were waiting."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, report: metrics_pb2.MetricsReport) -> None:
        """Take in a report that is newer than those of the same life before it."""
        key = (report.source, life_of(report))
        older = self._waiting.get(key)
        self._waiting[key] = report if older is None else merged(older, report)
        if older is None:
            self._make_room(report.source)

    def take(self) -> list[metrics_pb2.MetricsReport]:
        """All that waits, oldest life first. Give it back to `returned` unless it was acknowledged."""
        batch = list(self._waiting.values())
        self._waiting = {}
        return batch

    def returned(self, batch: list[metrics_pb2.MetricsReport]) -> None:
        """The batch may not have arrived: it waits again, in front and merged with what came since."""
        since, self._waiting = self._waiting, {}
        for report in (*batch, *since.values()):
            self.add(report)

    def _make_room(self, source: str) -> None:
        lives = [key for key in self._waiting if key[0] == source]
        if len(lives) > LIVES_WAITING_MAX:
            del self._waiting[lives[0]]
            self.dropped += 1
        elif len(self._waiting) > self._sources_max * LIVES_WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1

    def check_invariants(self) -> None:
        assert len(self._waiting) <= self._sources_max * LIVES_WAITING_MAX
        for source in {key[0] for key in self._waiting}:
            assert sum(key[0] == source for key in self._waiting) <= LIVES_WAITING_MAX


def merged(older: metrics_pb2.MetricsReport, newer: metrics_pb2.MetricsReport) -> metrics_pb2.MetricsReport:
    """One report that says what both say. Counters are running sums, so the newer value is the value of both."""
    metrics = {m.name: m for m in older.metrics} | {m.name: m for m in newer.metrics}
    exceptions = {e.stacktrace: e for e in older.exceptions} | {e.stacktrace: e for e in newer.exceptions}
    report = metrics_pb2.MetricsReport()
    report.CopyFrom(newer)
    del report.metrics[:]
    report.metrics.extend(list(metrics.values())[-NAMES_MAX:])
    del report.exceptions[:]
    report.exceptions.extend(list(exceptions.values())[-EXCEPTIONS_MAX:])
    return report
