"""The Prometheus endpoint: Heron's metric names as families and labels.

`__emit-count/default` of instance `container_1_word_3` becomes

    heron_emit_count_total{topology="…",component="word",instance="container_1_word_3",container="1",stream="default"}

What follows the base of a name goes to labels, so that a family's name never depends on the topology:

    __execute-count/<component>/<stream>              source, stream
    __emit-count/<stream>                             stream
    __time_spent_back_pressure_by_compid/<instance>   key
    __client_<stmgr>/__bytes_to_stmgrs                key
    <user's metric>/<key>                             key
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from heronpy.runtime import Launch

log = logging.getLogger(__name__)

SERIES_MAX = 20_000
"""Most series of one container. More are not exported, and counted in heron_metrics_series_dropped."""
LABELS = ("topology", "component", "instance", "container", "stream", "source", "key")


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """What is exported of one source."""

    id: str
    component: str
    container: int
    totals: dict[str, float]
    latest: dict[str, float]


@dataclass(frozen=True, slots=True)
class SeriesName:
    """A metric's name, split into what Prometheus calls family and labels."""

    family: str
    stream: str = ""
    source: str = ""
    key: str = ""


def series_name(name: str) -> SeriesName:
    """Split a Heron metric name."""
    base, *rest = name.split("/")
    engine = base.startswith("__")
    if engine and "-" in base and rest and not any(part.startswith("__") for part in rest):
        # The instances' own metrics are the ones with dashes; streams may not contain slashes.
        source, stream = ("", rest[0]) if len(rest) == 1 else (rest[0], "/".join(rest[1:]))
        return SeriesName(_sanitised(base), stream=stream, source=source)
    if engine:
        peer = base.removeprefix("__client_")
        words, keys = ([base], []) if peer == base else (["client"], [peer])
        for part in rest:
            (words if part.startswith("__") or keys else keys).append(part)
        return SeriesName(_sanitised("_".join(words)), key="/".join(keys))
    return SeriesName(_sanitised(base), key="/".join(rest))


def _sanitised(name: str) -> str:
    return "heron_" + (re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_") or "unnamed")


class HeronCollector(Collector):
    """Makes families from a snapshot of all sources, at every scrape."""

    def __init__(
        self,
        topology: str | None,
        snapshot: Callable[[], Sequence[SourceSnapshot]],
        *,
        series_max: int = SERIES_MAX,
    ) -> None:
        self._topology = (topology,) if topology is not None else ()
        self._labels = LABELS if topology is not None else LABELS[1:]
        self._snapshot = snapshot
        self._series_max = series_max

    def collect(self) -> Iterable[Metric]:
        """One family per metric; first come, first served when there are too many series or two names collide."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        seen: set[tuple[str, tuple[str, ...]]] = set()
        dropped = 0
        for kind, name, source, value in self._values():
            series = series_name(name)
            labels = (
                *self._topology,
                source.component,
                source.id,
                str(source.container),
                series.stream,
                series.source,
                series.key,
            )
            family_name = series.family.removesuffix("_total")
            family = families.get(family_name)
            # A family has one type, and different names may become equal when they are sanitised.
            taken = (family_name, labels) in seen or not isinstance(family, kind | None)
            if taken or len(seen) >= self._series_max:
                dropped += 1
                continue
            if family is None:
                family = families[family_name] = kind(family_name, "", labels=self._labels)
            seen.add((family_name, labels))
            family.add_metric(labels, value)
        yield from families.values()
        yield GaugeMetricFamily(
            "heron_metrics_series_dropped",
            "Series of this container that are not exported: too many, or names that collide.",
            value=dropped,
        )

    def _values(
        self,
    ) -> Iterator[tuple[type[CounterMetricFamily] | type[GaugeMetricFamily], str, SourceSnapshot, float]]:
        for source in self._snapshot():
            for name, value in source.totals.items():
                yield CounterMetricFamily, name, source, value
            for name, value in source.latest.items():
                yield GaugeMetricFamily, name, source, value


class PrometheusEndpoint:
    """`GET /metrics` on 127.0.0.1, in a thread. `close()` ends it.

    Args:
        launch: the topology.
        container: whose metrics they are; it is added to a configured port.
        snapshot: returns what is exported, at every scrape and in another thread.
        options: `port`, `path`, `include-topology-name`.
    """

    def __init__(
        self,
        launch: Launch,
        container: int,
        snapshot: Callable[[], Sequence[SourceSnapshot]],
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        options = options or {}
        registry = CollectorRegistry()
        with_topology = bool(options.get("include-topology-name", True))
        registry.register(HeronCollector(launch.topology if with_topology else None, snapshot))
        configured = int(options.get("port", 0)) or launch.config.metrics.prometheus_port
        handler = _handler(registry, "/" + str(options.get("path", "/metrics")).strip("/"))
        self._server = _listening(configured + container if configured else 0, handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="prometheus", daemon=True)
        self._thread.start()
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _listening(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as e:
        # Two topologies of one machine with the same configuration: metrics on another port are better than none.
        log.error("no Prometheus endpoint on port %d: %s; a free port is used", port, e.strerror)
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def _handler(registry: CollectorRegistry, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # of a client that does not finish its request

        def do_GET(self) -> None:
            if self.path.partition("?")[0].rstrip("/") != path.rstrip("/"):
                self.send_error(404, f"metrics are at {path}")
                return
            encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            body = encode(registry)
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    return Handler
