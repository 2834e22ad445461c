"""The batch sides of topologies for Prometheus: `heron_pipeline_…`, from their last reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from heron_tracker._topology import Topology
from heronpy.pipeline.record import Figures, Record, figures

_LABELS = ["cluster", "role", "environ", "topology"]
_ONE: dict[str, tuple[str, Callable[[Record, Figures], float | None]]] = {
    "lag_seconds": (
        "How far batch views are behind now, which live views are at.",
        lambda record, now: _seconds(now.lag_ms),
    ),
    "archive_lag_seconds": (
        "How far batch views were behind the archives when a run last reported.",
        lambda record, now: _seconds(now.archive_lag_ms),
    ),
    "closed_before_seconds": (
        "Unix time: all batches that end by then are done.",
        lambda record, now: _seconds(now.closed_before_ms),
    ),
    "max_lateness_seconds": (
        "For how long late elements are waited for before a batch is computed.",
        lambda record, now: record.max_lateness_ms / 1000,
    ),
    "batch_length_seconds": ("How long a batch is.", lambda record, now: record.batch_length_ms / 1000),
    "reported_time_seconds": ("Unix time of the last report.", lambda record, now: record.at_ms / 1000),
    "duplicates": ("Elements that batches have dropped as duplicates.", lambda record, now: record.duplicates),
    "elements": ("Elements in the batches that are done.", lambda record, now: record.elements),
    "last_run_seconds": (
        "How long the last batch run took.",
        lambda record, now: record.run.seconds if record.run else None,
    ),
    "last_run_failed": (
        "1 if the last batch run failed, else 0.",
        lambda record, now: float(bool(record.run.error)) if record.run else None,
    ),
    "reconciled_time_seconds": (
        "Unix time of the last `heron pipeline reconcile`.",
        lambda record, now: record.reconciled.at_s if record.reconciled else None,
    ),
}


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


class PipelineMetrics(Collector):
    """What is exported of the batch sides of topologies. Reads nothing but memory."""

    def __init__(self, topologies: Callable[[], Iterable[Topology]]) -> None:
        """Name where the topologies are."""
        self._topologies = topologies

    def collect(self) -> Iterable[Metric]:
        now_ms = time.time_ns() // 1_000_000
        ones = {
            name: GaugeMetricFamily(f"heron_pipeline_{name}", text, labels=_LABELS) for name, (text, _) in _ONE.items()
        }
        batches = GaugeMetricFamily(
            "heron_pipeline_batches",
            "Batches: done; of these, damaged: computed without a part of their input; waiting: archived and not done.",
            labels=[*_LABELS, "state"],
        )
        letters = GaugeMetricFamily(
            "heron_pipeline_dead_letters",
            "Elements and rows that were set aside, by stage, kind of reason and side (live, batch): each has its own.",
            labels=[*_LABELS, "origin", "reason", "side"],
        )
        drifted = GaugeMetricFamily(
            "heron_pipeline_drifted_keys",
            "Keys that live and batch view did not agree on at the last reconcile.",
            labels=[*_LABELS, "view"],
        )
        for topology in self._topologies():
            record = topology.pipeline
            if record is None:
                continue
            key = topology.key
            labels = [key.cluster, key.role, key.environ, key.name]
            now = figures(record, now_ms)
            for name, (_, value_of) in _ONE.items():
                if (value := value_of(record, now)) is not None:
                    ones[name].add_metric(labels, value)
            states = {"done": record.done, "damaged": record.damaged_batches, "waiting": record.waiting}
            for state, count in states.items():
                batches.add_metric([*labels, state], count)
            for of, count in {(x.origin, x.reason, x.side): x.count for x in record.dead_letters}.items():
                letters.add_metric([*labels, *of], count)
            for view, keys in {x.view: x.drifted for x in record.reconciled.views}.items() if record.reconciled else ():
                drifted.add_metric([*labels, view], keys)
        return [*ones.values(), batches, letters, drifted]
