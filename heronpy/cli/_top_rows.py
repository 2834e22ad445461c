"""What `top` shows, as numbers: one row for each component or instance. Pure.

Rates, latencies and queues are of the last reports. CPU comes from the gauges that a process reports: spent seconds by
uptime, between the last report of the minute before and now; for a process that is younger, since its start. Who held
the spouts is of the last minute and the one that has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.cli._wait import counted
from heronpy.errors import UsageError, nearest
from heronpy.health import Health, capacity
from heronpy.proto import tmaster_pb2
from heronpy.sketch import LATENCIES, by_latency

CPU = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
UPTIME = "__uptime-secs"
MEMORY = "__py-physical-memory-byte"
PENDING = "__pending-acked-count"
SPENT = "__time_spent_back_pressure_by_compid/"
BUSY_NS = "__execute-time-ns"

REQUEST = tmaster_pb2.MetricsRequest(metrics=[*CPU, UPTIME, f"{SPENT}*"], interval_s=60, minutely=True)
"""What is asked for beside the status."""
LATENCIES_REQUEST = tmaster_pb2.MetricsRequest(
    metrics=[f"{name}/*" for name in LATENCIES], interval_s=60, by_component=True, sketches=True
)
"""And this: distributions are kept by component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One component, or one instance of it. None is what does not apply, or is not known yet."""

    name: str
    component: str
    kind: str
    """spout or bolt."""
    tasks: int
    attached: int
    """How many of them are attached to their Stream Managers."""
    restarts: int
    """Since they were started on purpose."""
    emit: float
    """Tuples per second, as the next three."""
    execute: float
    ack: float
    fail: float
    latency: float | None
    """ms: of a spout until a tuple tree is complete, of a bolt until the ack, without acks the execution."""
    p50: float | None
    """ms, as the next two: percentiles of the same latency in the last minute; of components only."""
    p95: float | None
    p99: float | None
    capacity: float | None
    """Share of its time that the busiest task executes tuples; 1: it can do no more."""
    pending: float | None
    """Tuple trees of a spout that are not complete."""
    cpu: float | None
    """Cores."""
    memory: float | None
    """Bytes."""
    backpressure: float
    """Share of the time that it throttled the spouts, the worst of its instances."""


COLUMNS = (
    *("name", "tasks", "restarts", "emit", "execute", "ack", "fail"),
    *("latency", "p50", "p95", "p99", "capacity", "pending", "cpu", "memory", "backpressure"),
)
"""What rows can be sorted by."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of one moment, and what is true of the whole topology."""

    state: str
    ready: bool
    health: Health
    tmaster_started_ms: int
    rows: list[Row]
    culprits: list[tuple[str, float]]
    """Who throttled the spouts, for which share of the time; the worst first."""


def snapshot(
    spouts: frozenset[str],
    status: tmaster_pb2.StatusReply,
    history: tmaster_pb2.MetricsReply,
    latencies: tmaster_pb2.MetricsReply,
    *,
    by_instance: bool = False,
) -> Snapshot:
    """Make rows of what a Topology Master answers.

    Args:
        spouts: The names of the components that are spouts.
        status: What it says of now.
        history: What it answers to `REQUEST`.
        latencies: What it answers to `LATENCIES_REQUEST`.
        by_instance: A row for each instance, not for each component.
    """
    cores = cpu(history.series)
    held = held_shares(history)
    groups: dict[str, list[tmaster_pb2.InstanceStatus]] = {}
    for instance in status.instances:
        groups.setdefault(instance.id if by_instance else instance.component, []).append(instance)
    restarts = status.restarts
    sketches = {} if by_instance else by_latency(latencies.series)
    percentiles = {key: found for key, sketch in sketches.items() if (found := sketch.quantiles_ns()) is not None}
    rows = [
        _row(name, members, members[0].component in spouts, cores, held, restarts, percentiles)
        for name, members in groups.items()
    ]
    culprits = sorted(((who, share) for who, share in held.items() if share > 0), key=lambda found: -found[1])
    health = Health.from_proto(status.health)
    return Snapshot(status.state, status.ready, health, status.tmaster_started_ms, rows, culprits)


def _row(
    name: str,
    members: Sequence[tmaster_pb2.InstanceStatus],
    is_spout: bool,
    cores: Mapping[str, float],
    held: Mapping[str, float],
    restarts: Mapping[str, int],
    percentiles_ns: Mapping[tuple[str, str], Sequence[float]],
) -> Row:
    rates = {kind: float(sum(counted(i, f"__{kind}-count", rate=True) for i in members)) for kind in _RATES}
    latencies = ["__complete-latency"] if is_spout else ["__process-latency", "__execute-latency"]
    component = members[0].component
    found_ns = next((ns for kind in latencies if (ns := percentiles_ns.get((component, kind))) is not None), None)
    p50, p95, p99 = (ns / 1e6 for ns in found_ns) if found_ns is not None else (None, None, None)
    busy = [counted(i, BUSY_NS, rate=True) / 1e9 for i in members if _has(i.rates, BUSY_NS)]
    return Row(
        name=name,
        component=component,
        kind="spout" if is_spout else "bolt",
        tasks=len(members),
        attached=sum(i.attached for i in members),
        restarts=sum(restarts.get(i.id, 0) for i in members),
        latency=next((ms for kind in latencies if (ms := latency_ms(members, kind)) is not None), None),
        p50=p50,
        p95=p95,
        p99=p99,
        capacity=capacity(max(busy), 1.0) if busy else None,
        pending=_total(i.latest.get(PENDING) for i in members) if is_spout else None,
        cpu=_total(cores.get(i.id) for i in members),
        memory=_total(i.latest.get(MEMORY) for i in members),
        backpressure=max(held.get(i.id, 0.0) for i in members),
        **rates,
    )


_RATES = ("emit", "execute", "ack", "fail")
_COUNTERS = {
    "__complete-latency": "__ack-count",
    "__process-latency": "__ack-count",
    "__execute-latency": "__execute-count",
}


def latency_ms(members: Iterable[tmaster_pb2.InstanceStatus], kind: str) -> float | None:
    """A latency over all streams and instances, weighted by how many tuples each had; None if it was not measured."""
    found: list[tuple[float, float]] = []
    for instance in members:
        for name, ns in instance.latest.items():
            if name.startswith(f"{kind}/"):
                counter = _COUNTERS[kind] + name.removeprefix(kind)
                found.append((ns / 1e6, instance.rates.get(counter, 0.0)))
    weight = sum(rate for _, rate in found)
    if weight > 0:
        return sum(ms * rate for ms, rate in found) / weight
    return sum(ms for ms, _ in found) / len(found) if found else None


def cpu(series: Iterable[tmaster_pb2.MetricSeries]) -> dict[str, float]:
    """Cores that each process uses."""
    minutes: dict[str, dict[str, Mapping[int, float]]] = {}
    for one in series:
        if one.name in CPU or one.name == UPTIME:
            minutes.setdefault(one.instance, {})[one.name] = one.minutes
    return {id: cores for id, found in minutes.items() if (cores := _cores(found)) is not None}


def _cores(found: Mapping[str, Mapping[int, float]]) -> float | None:
    gauges = [minutes for name, minutes in found.items() if name in CPU]
    # Only minutes with all of them: what a process has spent in its life is not what it spent in one minute.
    times = sorted(set(found.get(UPTIME, {})).intersection(*gauges))
    if not times:
        return None

    def spent(minute: int) -> float:
        return sum(minutes[minute] for minutes in gauges)

    now, up = spent(times[-1]), found[UPTIME][times[-1]]
    if len(times) > 1:
        before, up_before = spent(times[-2]), found[UPTIME][times[-2]]
        if up > up_before:  # else it was started again in between
            return max(0.0, (now - before) / (up - up_before))
    return now / up if up > 0 else None


def held_shares(history: tmaster_pb2.MetricsReply) -> dict[str, float]:
    """Which share of the time each culprit throttled the spouts, as the Stream Manager that saw the most of it says."""
    shares: dict[str, float] = {}
    for series in history.series:
        if series.name.startswith(SPENT) and history.interval_s > 0:
            culprit = series.name.removeprefix(SPENT)
            share = min(1.0, series.value / 1000 / history.interval_s)
            shares[culprit] = max(share, shares.get(culprit, 0.0))
    return shares


def check_column(name: str) -> str:
    """The name of a column that rows can be sorted by.

    Raises:
        UsageError: there is none of this name; names the nearest.
    """
    if name not in COLUMNS:
        hint = nearest(name, COLUMNS) or f": there are {', '.join(COLUMNS)}"
        raise UsageError(f"no column {name!r}{hint}")
    return name


def ordered(rows: Iterable[Row], column: str) -> list[Row]:
    """The largest first, what is not known last; names in their order, also where numbers are equal."""

    def value(row: Row) -> Any:
        return getattr(row, column)

    by_name = sorted(rows, key=_natural)
    if column == "name":
        return by_name
    return sorted(by_name, key=lambda row: -float("inf") if value(row) is None else value(row), reverse=True)


def _natural(row: Row) -> tuple[str, int]:
    """Instances of a component by their task ids."""
    task = row.name.rpartition("_")[2]
    return row.component, int(task) if row.name != row.component and task.isdecimal() else 0


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _has(values: Mapping[str, float], counter: str) -> bool:
    return any(name == counter or name.startswith(f"{counter}/") for name in values)


Look = Callable[[], Snapshot]
"""Asks for a new snapshot."""
