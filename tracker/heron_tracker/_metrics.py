"""Metrics and exceptions: what is asked of a Topology Master, and how its reply looks in Heron's shapes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from heron_tracker import _models as m
from heron_tracker._heron_names import answered, heron_name
from heron_tracker._query_eval import MINUTE_S, Budget, Line, evaluate, minutes
from heron_tracker._query_parse import Series, parse, series_of
from heron_tracker._tmasters import Tmasters, iso_time
from heron_tracker._topology import Topology
from heronpy.errors import NotFoundError, UsageError, nearest
from heronpy.proto import metrics_pb2, tmaster_pb2
from heronpy.sketch import QUANTILES, Sketch

HISTORY_S = 3 * 3600
"""How long a Topology Master keeps minutes."""
TIME_MAX_S = 24 * 3600
"""Longest time of one question."""
_EPOCH_MAX_S = 1 << 33
QUERY_POINTS_MAX = 2_000_000
"""Most values that a query fetches and calculates, at about 100 bytes each while they are needed."""
QUERY_WITHIN_S = 10.0

NAMES_MAX = 2000


def number(value: float) -> str:
    """A value as Heron writes it: whole numbers without a point."""
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 63 else repr(value)


def check_time(start_s: int, end_s: int) -> None:
    """Refuse a time that makes no sense.

    Raises:
        UsageError: it ends before it begins, or is too long.
    """
    if not 0 <= start_s <= end_s <= _EPOCH_MAX_S:
        raise UsageError(f"starttime {start_s} and endtime {end_s} must be seconds since the epoch, in this order")
    if end_s - start_s > TIME_MAX_S:
        raise UsageError(f"from starttime to endtime are more than {TIME_MAX_S} s: ask for less (3 hours are kept)")


def check_component(topology: Topology, component: str) -> None:
    """Refuse a component that the topology cannot have.

    Raises:
        NotFoundError: there is none; names the nearest.
    """
    if component not in topology.logical.components and not component.startswith("__"):
        known = topology.logical.components
        raise NotFoundError(f"topology {topology.key.name} has no component {component!r}{nearest(component, known)}")


def check_instances(topology: Topology, component: str, instances: Sequence[str]) -> None:
    """Refuse instances that the component cannot have.

    Raises:
        NotFoundError: there is no such instance; names the nearest.
    """
    if component not in topology.logical.components:
        return  # the engine's own: only the Topology Master knows them
    known = topology.instances(component)
    for instance in instances:
        if instance not in known:
            raise NotFoundError(f"component {component} has no instance {instance!r}{nearest(instance, known)}")


async def metrics(
    tmasters: Tmasters,
    topology: Topology,
    component: str,
    names: Sequence[str],
    instances: Sequence[str],
    interval: int,
) -> Callable[[], m.Metrics]:
    """`/topologies/metrics`, to be made off the event loop. Raises NotFoundError and UnreachableError."""
    request = tmaster_pb2.MetricsRequest(
        component=component, instances=instances, metrics=names, interval_s=max(-1, min(interval, HISTORY_S + 1))
    )
    reply = await _ask(tmasters, topology, request)

    def make() -> m.Metrics:
        found: dict[str, dict[str, str]] = {}
        for series in reply.series:
            found.setdefault(series.name, {})[series.instance] = number(series.value)
        return m.Metrics(interval=reply.interval_s, component=component, metrics=found)

    return make


async def timeline(
    tmasters: Tmasters,
    topology: Topology,
    component: str,
    names: Sequence[str],
    instances: Sequence[str],
    start_s: int,
    end_s: int,
) -> Callable[[], m.Timeline]:
    """`/topologies/metrics/timeline`, to be made off the event loop.

    Raises:
        NotFoundError, UsageError, UnreachableError.
    """
    check_time(start_s, end_s)
    request = tmaster_pb2.MetricsRequest(
        component=component, instances=instances, metrics=names, minutely=True, start_s=start_s, end_s=max(end_s, 1)
    )
    reply = await _ask(tmasters, topology, request)

    def make() -> m.Timeline:
        found: dict[str, dict[str, dict[str, float]]] = {}
        for series in reply.series:
            data = {str(minute): value for minute, value in sorted(series.minutes.items())}
            found.setdefault(series.name, {})[series.instance] = data
        return m.Timeline(component=component, starttime=start_s, endtime=end_s, timeline=found)

    return make


async def query(
    tmasters: Tmasters, topology: Topology, text: str, start_s: int, end_s: int, limit: asyncio.Semaphore
) -> bytes:
    """`/topologies/metrics/query`, as JSON. A metric that was never reported has no values below RATE and DEFAULT.

    Args:
        limit: Of the calculations at a time.

    Raises:
        QueryError: it cannot be read.
        NotFoundError: no such component or instance; or no such metric, and no RATE or DEFAULT for it.
        UsageError, UnreachableError.
    """
    check_time(start_s, end_s)
    node = parse(text)
    wanted = series_of(node)
    budget = Budget(QUERY_POINTS_MAX, QUERY_WITHIN_S)
    for series, _ in wanted:
        check_component(topology, series.component)
        if series.instance != "*":
            check_instances(topology, series.component, [series.instance])
    fetched: dict[Series, list[Line]] = {}
    for series, optional in wanted:
        if series not in fetched:
            fetched[series] = await _fetch(tmasters, topology, series, start_s, end_s, optional=optional)
            budget.spend(sum(len(line.data) for line in fetched[series]))

    def answer() -> bytes:
        lines = evaluate(node, fetched, minutes(start_s, end_s), budget)
        budget.spend(sum(len(line.data) for line in lines))
        rows = [_row(line) for line in lines if line.data]
        return msgspec.json.encode({"starttime": start_s, "endtime": end_s, "timeline": rows})

    async with limit:
        return await asyncio.to_thread(answer)  # the loop serves others meanwhile


def _row(line: Line) -> dict[str, Any]:
    data = {str(minute): value for minute, value in sorted(line.data.items())}
    return {"data": data} if line.instance is None else {"instance": line.instance, "data": data}


async def _fetch(
    tmasters: Tmasters, topology: Topology, series: Series, start_s: int, end_s: int, *, optional: bool
) -> list[Line]:
    instances = [] if series.instance == "*" else [series.instance]
    request = tmaster_pb2.MetricsRequest(
        component=series.component,
        instances=instances,
        metrics=[series.metric],
        minutely=True,
        start_s=start_s,
        end_s=max(end_s, 1),
    )
    reply = await _ask(tmasters, topology, request, must_know=not optional)
    wanted = minutes(start_s, end_s)
    found = {
        s.instance: {minute: value for minute, value in s.minutes.items() if minute in wanted}
        for s in reply.series
        if s.name == series.metric  # a name that ends in * is a prefix to the Topology Master
    }
    names = instances or dict.fromkeys([*topology.instances(series.component), *found])
    return [Line(name, found.get(name, {})) for name in names]


async def _ask(
    tmasters: Tmasters, topology: Topology, request: tmaster_pb2.MetricsRequest, *, must_know: bool = True
) -> tmaster_pb2.MetricsReply:
    """Ask, and refuse unknown names.

    Of several metrics some may be unknown: a component that has never failed a tuple has no count of them.
    """
    component = request.component
    check_component(topology, component)
    check_instances(topology, component, request.instances)
    if len(request.metrics) > NAMES_MAX or len(request.instances) > NAMES_MAX:
        raise UsageError(f"more than {NAMES_MAX} names at once: ask for all of them by naming none")
    reply = await _in_herons_names(tmasters, topology, request)
    own = component in topology.logical.components
    if reply.unknown_component and not own:
        raise NotFoundError(f"topology {topology.key.name} has no component {component!r} that reports metrics")
    if reply.unknown_instances and not own:
        raise NotFoundError(f"component {component} has no instance {reply.unknown_instances[0]!r}")
    exact = [name for name in request.metrics if not name.endswith("*")]
    if must_know and exact and not set(request.metrics) - set(reply.unknown_metrics):
        hint = "its instances have reported nothing yet" if reply.unknown_component else "it never reported any"
        raise NotFoundError(f"component {component} has no metric {exact[0]!r}: {hint}")
    return reply


async def _in_herons_names(
    tmasters: Tmasters, topology: Topology, request: tmaster_pb2.MetricsRequest
) -> tmaster_pb2.MetricsReply:
    """Ask; names that only Apache Heron has are answered by ours."""
    component = topology.logical.components.get(request.component)
    is_bolt = component is not None and not component.is_spout
    asked = list(request.metrics)
    names = {name: found for name in asked if (found := heron_name(name, is_bolt=is_bolt)) is not None}
    if not names or request.by_component:
        return await tmasters.metrics(topology, request)
    wider = tmaster_pb2.MetricsRequest()
    wider.CopyFrom(request)
    wider.metrics.extend(pattern for found in names.values() for pattern in found.patterns)
    reply = await tmasters.metrics(topology, wider)
    answered(reply, asked, names, topology.memory_mb())
    return reply


async def history(
    tmasters: Tmasters,
    topology: Topology,
    component: str,
    names: Sequence[str],
    interval_s: int,
    points: int,
    percentiles: bool = False,
) -> m.History:
    """A component's metrics over time, aggregated over its instances, with at most `points` points a line."""
    end_s = int(time.time())
    start_s = end_s - min(max(interval_s, MINUTE_S), HISTORY_S)
    request = tmaster_pb2.MetricsRequest(
        component=component, metrics=names, minutely=True, start_s=start_s, end_s=end_s, by_component=True
    )
    request.sketches = percentiles
    reply = await _ask(tmasters, topology, request)
    step = MINUTE_S * -(-len(minutes(start_s, end_s)) // points)
    kind = metrics_pb2.Metric.Kind
    return m.History(
        component=component,
        starttime=start_s,
        endtime=end_s,
        step=step,
        percentiles=await asyncio.to_thread(_percentiles, reply.series, step) if percentiles else {},
        lines=[
            m.HistoryLine(
                metric=series.name,
                kind=kind.Name(series.kind).lower(),
                data={str(t): v for t, v in downsampled(series.minutes, series.kind, step).items()},
            )
            for series in sorted(reply.series, key=lambda s: s.name)
        ],
    )


def _percentiles(found: Iterable[tmaster_pb2.MetricSeries], step: int) -> dict[str, dict[str, dict[str, float]]]:
    """Of each latency, over all streams, for each point: what was measured in its minutes, merged."""
    merged: dict[str, dict[int, Sketch]] = {}
    for series in found:
        for minute, proto in series.minute_sketches.items():
            points = merged.setdefault(series.name.partition("/")[0], {})
            points.setdefault(minute - minute % step, Sketch()).merge(Sketch.from_proto(proto))
    percentiles: dict[str, dict[str, dict[str, float]]] = {}
    for name, points in merged.items():
        for time_s, sketch in sorted(points.items()):
            for quantile, ns in zip(QUANTILES, sketch.quantiles_ns() or (), strict=False):
                percentiles.setdefault(name, {}).setdefault(f"p{100 * quantile:g}", {})[str(time_s)] = ns
    return percentiles


def downsampled(data: Mapping[int, float], kind: int, step: int) -> dict[int, float]:
    """Fewer points: counters are summed, means averaged, of gauges it is the last value."""
    points: dict[int, list[float]] = {}
    for minute, value in sorted(data.items()):
        points.setdefault(minute - minute % step, []).append(value)
    if kind == metrics_pb2.Metric.COUNTER:
        return {t: sum(values) for t, values in points.items()}
    if kind == metrics_pb2.Metric.MEAN:
        return {t: sum(values) / len(values) for t, values in points.items()}
    return {t: values[-1] for t, values in points.items()}


def _exceptions_request(topology: Topology, component: str, instances: Sequence[str]) -> tmaster_pb2.ExceptionsRequest:
    if component in ("*", "all") and component not in topology.logical.components:
        known = topology.instances()
        for instance in instances:
            if instance not in known:
                raise NotFoundError(
                    f"topology {topology.key.name} has no instance {instance!r}{nearest(instance, known)}"
                )
        return tmaster_pb2.ExceptionsRequest(instances=instances)
    check_component(topology, component)
    check_instances(topology, component, instances)
    return tmaster_pb2.ExceptionsRequest(component=component, instances=instances)


async def exceptions(
    tmasters: Tmasters, topology: Topology, component: str, instances: Sequence[str]
) -> list[m.ExceptionEntry]:
    """`/topologies/exceptions`, the latest last. `all` and `*` stand for every component."""
    reply = await tmasters.exceptions(topology, _exceptions_request(topology, component, instances))
    hosts = _hosts(topology)
    return [
        m.ExceptionEntry(
            hostname=hosts.get(e.source, ""),
            instance_id=e.source,
            stacktrace=e.report.stacktrace,
            lasttime=iso_time(e.report.last_time_ms / 1000),
            firsttime=iso_time(e.report.first_time_ms / 1000),
            count=e.report.count,
            logging=e.report.logging,
            group=e.group,
        )
        for e in reply.exceptions
    ]


async def exception_summary(
    tmasters: Tmasters, topology: Topology, component: str, instances: Sequence[str]
) -> list[m.ExceptionClass]:
    """`/topologies/exceptionsummary`, the most frequent first."""
    reply = await tmasters.exception_summary(topology, _exceptions_request(topology, component, instances))
    return [
        m.ExceptionClass(
            class_name=c.class_name,
            lasttime=iso_time(c.last_time_ms / 1000),
            firsttime=iso_time(c.first_time_ms / 1000),
            count=c.count,
        )
        for c in reply.classes
    ]


def _hosts(topology: Topology) -> dict[str, str]:
    if topology.packing is None:
        return {}
    hosts = topology.hosts()
    return {
        instance.instance_id(container.id): hosts.get(container.id, "")
        for container in topology.packing.containers
        for instance in container.instances
    }
