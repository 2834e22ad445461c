"""The Tracker's own metrics, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from heron_tracker._directory import Directory
from heron_tracker._events import Events
from heron_tracker._pipeline_metrics import PipelineMetrics

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class OwnMetrics:
    """Requests, calls of Topology Masters, and what is followed. Each Tracker has a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "heron_tracker_requests", "Requests answered.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "heron_tracker_request_seconds",
            "Time until an answer began.",
            ["path"],
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        self._calls = Counter(
            "heron_tracker_tmaster_calls", "Calls of Topology Masters.", ["method", "answered"], registry=self._registry
        )

    def follow(self, directory: Directory, events: Events) -> None:
        """Export the state of these, too."""
        self._registry.register(_Followed(directory, events))
        self._registry.register(PipelineMetrics(lambda: directory.topologies.values()))

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is that of the route: what callers make up must not make series."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def called(self, method: str, answered: bool) -> None:
        """Count a call of a Topology Master."""
        self._calls.labels(method, "yes" if answered else "no").inc()

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)


class _Followed(Collector):
    def __init__(self, directory: Directory, events: Events) -> None:
        self._directory = directory
        self._events = events

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("heron_tracker_statemgr_up", "Whether a state manager answers.", labels=["name"])
        watches = GaugeMetricFamily("heron_tracker_watches", "Nodes that are watched.", labels=["name"])
        topologies = GaugeMetricFamily("heron_tracker_topologies", "Topologies that are known.", labels=["name"])
        damaged = GaugeMetricFamily(
            "heron_tracker_topologies_damaged", "Topologies whose state cannot be read.", labels=["name"]
        )
        for follower in self._directory.followers:
            name = [follower.config.name]
            up.add_metric(name, float(follower.error is None))
            watches.add_metric(name, follower.watches)
            topologies.add_metric(name, len(follower.topologies))
            damaged.add_metric(name, len(follower.damaged))
        subscribers = GaugeMetricFamily(
            "heron_tracker_event_subscribers", "Open streams of events.", value=self._events.subscribers
        )
        return [up, watches, topologies, damaged, subscribers]
