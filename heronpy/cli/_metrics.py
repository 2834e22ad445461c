"""`metrics`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from heronpy import submit
from heronpy.cli._durations import seconds
from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._show import WIDTH, duration, empty_table
from heronpy.cli._target import resolve
from heronpy.errors import NotFoundError, UsageError, nearest
from heronpy.plan import PackingPlan, operators_of
from heronpy.proto import metrics_pb2, tmaster_pb2
from heronpy.runtime import Launch
from heronpy.sketch import QUANTILES, Sketch

HISTORY_S = 3 * 3600
ENGINE = ("__stmgr__", "__metricsmgr__", "__executor__", "__tmaster__", "__ckptmgr__")
DEFAULT = (
    *("__emit-count", "__execute-count", "__ack-count", "__fail-count"),
    *("__complete-latency", "__process-latency", "__execute-latency"),
    *("__pending-acked-count", "__py-physical-memory-byte"),
)
"""What is shown of the engine's metrics of each component where nothing is named."""
OWN_MAX = 20
"""How many of the user's metrics of each component are shown then."""
_KINDS = {metrics_pb2.Metric.COUNTER: "count", metrics_pb2.Metric.GAUGE: "gauge", metrics_pb2.Metric.MEAN: "mean"}


def metrics(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER[/ROLE[/ENV]]] NAME [COMPONENT]",
            help=f"Which topology, and which of its components; also {', '.join(ENGINE)}.",
        ),
    ],
    component: Annotated[str | None, typer.Option("--component", "-c", help="The same as COMPONENT.")] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", help="Only of this instance or process; may be repeated.")
    ] = None,
    instances: Annotated[
        bool, typer.Option("--instances", "-i", help="A line for each instance, not for each component.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            help="Only this one with its streams, e.g. __emit-count; NAME* is a prefix; may be repeated.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every metric of every process, not the most important.")
    ] = False,
    window: Annotated[
        str, typer.Option("--window", "-w", metavar="TIME", help="Of the last 10m, 1h, … up to 3h, or `all` time.")
    ] = "10m",
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show metrics over a time: counts summed, means by their weights, gauges as they were last.

    Without a component, an instance or a metric: yours and the most important of the engine's; --all shows all.
    """
    window_s = window_of(window)
    launch, named = resolve(
        words,
        home=home(),
        config_path=config_path,
        properties=read_properties(config_property or []),
        extra="COMPONENT",
    )
    if named and component not in (None, named):
        raise UsageError(f"which component: {named}, or {component} of --component?")
    component = component_running(launch, named or component)
    request = tmaster_pb2.MetricsRequest(
        component=component or "",
        instances=instance or [],
        metrics=asked(metric or []),
        interval_s=window_s,
        by_component=not (instances or instance),
        sketches=not (instances or instance),
    )
    reply = submit.metrics(launch, request)
    _check_known(launch, request, reply, metric or [])
    found = in_order(reply.series)
    chosen = found if everything or component or instance or metric else most_important(found)
    rows = [_row(series, reply.interval_s) for series in chosen]
    if as_json:
        print(json.dumps({"interval_s": reply.interval_s, "metrics": rows}, indent=2))
        return
    _print(rows, reply.interval_s)
    if len(chosen) < len(found):
        print(f"{len(chosen)} of {len(found):,} metrics: --all shows all, a component or --metric some")


def component_running(launch: Launch, name: str | None) -> str | None:
    """The component of this name, or the one that runs the operator of a streamlet program of this name."""
    if name is None or name in ENGINE:
        return name
    logical, _ = submit.plans(launch)
    running = (c.name for c in logical.components.values() if any(o.name == name for o in operators_of(c.config)))
    return name if name in logical.components else next(running, name)


def window_of(text: str) -> int:
    """The seconds of a window; -1 for all time.

    Raises:
        UsageError: it has no such form, or is longer than what is kept.
    """
    if text == "all":
        return -1
    window_s = seconds("--window", text)
    if window_s > HISTORY_S:
        raise UsageError(f"--window {text}: minutes are kept for 3 hours; ask for 3h, or for `all` time")
    return window_s


def asked(names: Iterable[str]) -> list[str]:
    """What the Topology Master is asked for: a metric, and the same by stream."""
    return [wanted for name in names for wanted in ([name] if name.endswith("*") else [name, f"{name}/*"])]


def matches(name: str, wanted: str) -> bool:
    """Whether a metric is meant by what the user wrote."""
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted or name.startswith(f"{wanted}/")


def in_order(series: Iterable[tmaster_pb2.MetricSeries]) -> list[tmaster_pb2.MetricSeries]:
    """Users' components before the engine's, then by instance; users' metrics before the engine's, then by name."""

    def place(series: tmaster_pb2.MetricSeries) -> tuple[bool, str, str, bool, str]:
        engine = series.component.startswith("__"), series.name.startswith("__")
        return engine[0], series.component, series.instance, engine[1], series.name

    return sorted(series, key=place)


def most_important(series: Iterable[tmaster_pb2.MetricSeries]) -> list[tmaster_pb2.MetricSeries]:
    """Of users' components: the first of their own metrics, and those of the engine that are DEFAULT."""
    own: Counter[tuple[str, str]] = Counter()
    chosen = []
    for one in series:
        if one.component.startswith("__"):
            continue
        if one.name.startswith("__"):
            wanted = one.name.partition("/")[0] in DEFAULT
        else:
            own[one.component, one.instance] += 1
            wanted = own[one.component, one.instance] <= OWN_MAX
        if wanted:
            chosen.append(one)
    return chosen


def _percentiles(series: tmaster_pb2.MetricSeries) -> dict[str, float] | None:
    """Of a latency, in ns as its mean; None of what has none."""
    found = Sketch.from_proto(series.sketch).quantiles_ns() if series.HasField("sketch") else None
    return {f"p{100 * q:g}": ns for q, ns in zip(QUANTILES, found, strict=True)} if found is not None else None


def _row(series: tmaster_pb2.MetricSeries, interval_s: int) -> dict[str, Any]:
    counts = series.kind == metrics_pb2.Metric.COUNTER
    return {
        "component": series.component,
        "instance": series.instance or None,
        "metric": series.name,
        "kind": _KINDS[series.kind],
        "value": series.value,
        "per_s": series.value / interval_s if counts and interval_s > 0 else None,
        "measurements": int(series.weight) if series.weight else None,
        "percentiles": _percentiles(series),
    }


def _check_known(
    launch: Launch, request: tmaster_pb2.MetricsRequest, reply: tmaster_pb2.MetricsReply, metric: Sequence[str]
) -> None:
    """Raise NotFoundError for the first name that the topology does not have."""
    if reply.unknown_component or reply.unknown_instances or (request.component and request.instances):
        logical, packing = submit.plans(launch)
        components, owners = [*logical.components, *ENGINE], processes(packing)
        if request.component and request.component not in components:
            raise _unknown(launch, "component", request.component, components)
        for id in request.instances:
            if id not in owners:
                raise _unknown(launch, "instance or process", id, owners)
            if request.component not in ("", owners[id]):
                raise NotFoundError(f"{id} is of {owners[id]}, not of {request.component}")
    missing = [name for name in metric if not any(matches(series.name, name) for series in reply.series)]
    if missing:
        # Known, but without a value in this time, is not an error.
        everything = submit.metrics(launch, tmaster_pb2.MetricsRequest(interval_s=-1, by_component=True)).series
        for name in missing:
            _check_metric(launch, request.component, name, everything)


def _check_metric(launch: Launch, component: str, name: str, everything: Iterable[tmaster_pb2.MetricSeries]) -> None:
    """Raise NotFoundError if the component, or the whole topology, never had this metric."""
    found = [series for series in everything if matches(series.name, name)]
    if not found:
        names = {series.name for series in everything if component in ("", series.component)}
        raise _unknown(launch, "metric", name, sorted({*names, *(known.partition("/")[0] for known in names)}))
    owners = sorted({series.component for series in found})
    if component and component not in owners:
        raise NotFoundError(f"{component} of {launch.topology} has no metric {name!r}; {', '.join(owners)} has")


def _unknown(launch: Launch, what: str, name: str, known: Iterable[str]) -> NotFoundError:
    return NotFoundError(f"topology {launch.topology} has no {what} {name!r}{nearest(name, known)}")


def processes(packing: PackingPlan) -> dict[str, str]:
    """The ids of everything that reports metrics, each with its component."""
    containers = [0, *(c.id for c in packing.containers)]
    return {
        "tmaster": "__tmaster__",
        **{c.stmgr_id: "__stmgr__" for c in packing.containers},
        **{i.instance_id(c.id): i.component for c in packing.containers for i in c.instances},
        **{f"{kind}-{n}": f"__{kind}__" for kind in ("metricsmgr", "executor", "ckptmgr") for n in containers},
    }


def _print(rows: list[dict[str, Any]], interval_s: int) -> None:
    from rich.console import Console

    of = "all time" if interval_s < 0 else f"the last {duration(interval_s)}"
    if not rows:
        print(f"nothing was reported in {of}")
        return
    by_instance = any(row["instance"] for row in rows)
    names = [f"p{100 * q:g}" for q in QUANTILES] if any(row["percentiles"] for row in rows) else []
    heads = ("value", "per s", *names)
    table = empty_table("instance" if by_instance else "component", "metric", "kind", right=heads)
    for row in rows:
        table.add_row(
            row["instance"] or row["component"],
            row["metric"],
            row["kind"],
            number(row["value"]),
            "" if row["per_s"] is None else f"{row['per_s']:,.1f}",
            *(number(row["percentiles"][name]) if row["percentiles"] else "" for name in names),
        )
    console = Console(highlight=False, markup=False, emoji=False, width=WIDTH)
    console.print(f"metrics of {of}")
    console.print(table)


def number(value: float) -> str:
    """A value as exactly as it matters."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.3f}" if abs(value) >= 0.01 else f"{value:.3g}"
