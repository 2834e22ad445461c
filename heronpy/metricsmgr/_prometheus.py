"""Heron's metric names as Prometheus' families and labels.

`__emit-count/default` of instance `container_1_word_3` becomes

    heron_emit_count_total{topology="…",component="word",instance="container_1_word_3",container="1",stream="default"}

Engine metrics are in base units, which their names state (`_prometheus_names.py`), and latencies whose distribution is
known are histograms. What follows the base of a name goes to labels, so that a family's name never depends on the
topology:

    __execute-count/<component>/<stream>              source, stream
    __emit-count/<stream>                             stream
    __time_spent_back_pressure_by_compid/<instance>   key
    __client_<stmgr>/__bytes_to_stmgrs                key
    <user's metric>/<key>                             key
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from heronpy.metricsmgr._ledger import Histogram, SourceSnapshot
from heronpy.metricsmgr._prometheus_names import base_unit, help_of

SERIES_MAX = 20_000
"""Most series of one container. More are not exported, and counted in heron_metrics_series_dropped."""
BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Of the buckets of histograms; counts at a bound are as exact as the sketch behind them."""
LABELS = ("topology", "component", "instance", "container", "stream", "source", "key")


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
        families: dict[str, _Family] = {}
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
            family_name, factor = base_unit(series.family) if name.startswith("__") else (series.family, 1.0)
            family_name = family_name.removesuffix("_total")
            family = families.get(family_name)
            # A family has one type, and different names may become equal when they are sanitised.
            taken = (family_name, labels) in seen or not isinstance(family, kind | None)
            if taken or len(seen) >= self._series_max:
                dropped += 1
                continue
            if family is None:
                family = families[family_name] = kind(family_name, help_of(family_name, name), labels=self._labels)
            seen.add((family_name, labels))
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, _buckets(value), value.sum_ns * factor)
            else:
                family.add_metric(labels, value * factor)
        yield from families.values()
        yield GaugeMetricFamily(
            "heron_metrics_series_dropped",
            "Series of this container that are not exported: too many, or names that collide.",
            value=dropped,
        )

    def _values(self) -> Iterator[tuple[type[_Family], str, SourceSnapshot, Any]]:
        for source in self._snapshot():
            for name, histogram in source.histograms.items():
                yield HistogramMetricFamily, name, source, histogram
            for name, value in source.totals.items():
                yield CounterMetricFamily, name, source, value
            for name, value in source.latest.items():
                if name not in source.histograms:
                    yield GaugeMetricFamily, name, source, value


_Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    counts = histogram.sketch.below(bound * 1e9 for bound in BOUNDS_S)
    bounds = [(f"{bound:g}", float(count)) for bound, count in zip(BOUNDS_S, counts, strict=True)]
    return [*bounds, ("+Inf", float(histogram.sketch.count))]
