"""Everything that a page about one topology shows, in one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heron_tracker import _models as m
from heron_tracker._health import model, silent
from heron_tracker._metrics import HISTORY_S
from heron_tracker._query_eval import MINUTE_S
from heron_tracker._remembered import Numbers, Remembered
from heron_tracker._tmasters import Tmasters, UnreachableError, iso_time
from heron_tracker._topology import Topology
from heronpy.errors import UnavailableError
from heronpy.health import Health, capacity
from heronpy.proto import tmaster_pb2
from heronpy.sketch import by_latency

SPENT = "__time_spent_back_pressure_by_compid/"
_COUNTS = ("__emit-count", "__execute-count", "__ack-count", "__fail-count")
_LATENCIES = ("__complete-latency", "__execute-latency", "__process-latency")
_MEMORY, _UPTIME = "__py-physical-memory-byte", "__uptime-secs"
_CPU = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
_CPU_TIME_S = 5 * MINUTE_S
"""CPU use is measured over at most the last so many seconds."""


@dataclass(slots=True)
class Measured:
    """Sums of one instance, or of several."""

    counts: dict[str, float] = field(default_factory=dict)
    weighted: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each latency: the sum of all measurements in ns, and their number."""
    gauges: dict[str, float] = field(default_factory=dict)
    cpu_cores: float | None = None
    capacity: float | None = None
    held_ms: float = 0.0
    percentiles_ns: dict[str, list[float]] = field(default_factory=dict)
    """Of each latency: p50, p95, p99. Of components only, whose entry has their name."""

    def take(self, series: tmaster_pb2.MetricSeries) -> None:
        """Add one metric of one instance, over all of its streams."""
        name = series.name.partition("/")[0]
        if name in _COUNTS:
            self.counts[name] = self.counts.get(name, 0) + series.value
        elif name in _LATENCIES:
            total, weight = self.weighted.get(name, (0.0, 0.0))
            share = series.weight or 1.0
            self.weighted[name] = (total + series.value * share, weight + share)
        else:
            self.gauges[name] = series.value

    def latency_ms(self, name: str) -> float | None:
        """The mean of a latency; None if nothing was measured."""
        total, weight = self.weighted.get(name, (0.0, 0.0))
        return total / weight / 1e6 if weight else None

    def over(self, seconds: float) -> None:
        """Set the capacity: which share of this time was spent in the user's `process` (Heron's formula)."""
        latency_ms = self.latency_ms("__execute-latency")
        if latency_ms is not None:
            self.capacity = capacity(self.counts.get("__execute-count", 0.0) * latency_ms / 1e3, seconds)


def together(parts: Sequence[Measured]) -> Measured:
    """Several instances as one: sums, means by weight, and the capacity of the busiest."""
    whole = Measured()
    for part in parts:
        for name, count in part.counts.items():
            whole.counts[name] = whole.counts.get(name, 0) + count
        for name, (total, weight) in part.weighted.items():
            old_total, old_weight = whole.weighted.get(name, (0.0, 0.0))
            whole.weighted[name] = (old_total + total, old_weight + weight)
        if _MEMORY in part.gauges:
            whole.gauges[_MEMORY] = whole.gauges.get(_MEMORY, 0) + part.gauges[_MEMORY]
        whole.held_ms += part.held_ms
    cores = [part.cpu_cores for part in parts if part.cpu_cores is not None]
    capacities = [part.capacity for part in parts if part.capacity is not None]
    whole.cpu_cores = sum(cores) if cores else None
    whole.capacity = max(capacities, default=None)
    return whole


async def summary(tmasters: Tmasters, remembered: Remembered[Measured], topology: Topology, interval: int) -> m.Summary:
    """The summary of a topology. With a Topology Master that is unreachable: its plan, and the last numbers, if any.

    Args:
        remembered: Where the numbers are kept, and found.
        interval: Seconds, up to three hours; 0 or less: all time.
    """
    interval = interval if 0 < interval <= HISTORY_S else -1
    status, health = await tmasters.status(topology)
    numbers: Numbers[Measured] | None = None
    if health == "ok":
        try:
            numbers = await _measure(tmasters, topology, interval)
            remembered.add(topology.id, interval, numbers)
        except UnavailableError as e:
            since = tmasters.unreachable_since(topology) if isinstance(e, UnreachableError) else None
            health = f"unreachable since {since}" if since else str(e)
    live = numbers is not None
    numbers = numbers or remembered.get(topology.id, interval)
    as_of = iso_time(numbers.at_s) if numbers is not None and not live else None
    numbers = numbers or Numbers({}, interval, time.time())
    measured, interval = numbers.measured, numbers.interval_s
    known = {i.id: i for i in status.instances} if status is not None else {}
    restarts = (status.restarts, status.recent_restarts) if status is not None else ({}, {})
    culprits = [m.Culprit(instance=id, held_ms=found.held_ms) for id, found in measured.items() if found.held_ms > 0]
    key = topology.key
    return m.Summary(
        cluster=key.cluster,
        role=key.role,
        environ=key.environ,
        name=key.name,
        id=topology.id,
        status=topology.status,
        ready=status is not None and status.ready and health == "ok",
        tracked=str(topology.logical.config.get("topology.reliability.mode", "ATMOST_ONCE")) != "ATMOST_ONCE",
        health=model(
            Health.from_proto(status.health)
            if status is not None and health == "ok"
            else silent(tmasters, topology, health)
        ),
        tmaster=health,
        interval=interval,
        as_of=as_of,
        components=[
            _component(topology, component.name, measured, known, restarts, interval, alive=health == "ok")
            for component in topology.logical.components.values()
        ],
        culprits=sorted(culprits, key=lambda culprit: -culprit.held_ms),
    )


async def _measure(tmasters: Tmasters, topology: Topology, interval: int) -> Numbers[Measured]:
    prefixes = [f"{name}/*" for name in (*_COUNTS, *_LATENCIES)]
    work, spent, cpu, sketched = await asyncio.gather(
        tmasters.metrics(
            topology, tmaster_pb2.MetricsRequest(metrics=[*prefixes, _MEMORY, _UPTIME], interval_s=interval)
        ),
        tmasters.metrics(
            topology,
            tmaster_pb2.MetricsRequest(component="__stmgr__", metrics=[f"{SPENT}*"], interval_s=interval),
        ),
        tmasters.metrics(
            topology,
            tmaster_pb2.MetricsRequest(
                metrics=list(_CPU), minutely=True, interval_s=min(interval if interval > 0 else HISTORY_S, _CPU_TIME_S)
            ),
        ),
        tmasters.metrics(
            topology,
            tmaster_pb2.MetricsRequest(
                metrics=[f"{name}/*" for name in _LATENCIES], interval_s=interval, by_component=True, sketches=True
            ),
        ),
    )
    measured: dict[str, Measured] = {id: Measured() for id in topology.instances()}
    for series in work.series:
        if series.instance in measured:
            measured[series.instance].take(series)
    for series in spent.series:
        culprit = measured.setdefault(series.name.removeprefix(SPENT), Measured())
        culprit.held_ms += series.value
    for id, cores in _cores(cpu.series).items():
        if id in measured:
            measured[id].cpu_cores = cores
    for found in measured.values():
        uptime_s = found.gauges.get(_UPTIME, 0.0)
        found.over(min(interval, uptime_s) if interval > 0 and uptime_s else max(interval, uptime_s))
    for (component, latency), sketch in by_latency(sketched.series).items():
        if (found_ns := sketch.quantiles_ns()) is not None:
            measured.setdefault(component, Measured()).percentiles_ns[latency] = found_ns
    return Numbers(measured, work.interval_s, time.time())


def _cores(found: Iterable[tmaster_pb2.MetricSeries]) -> dict[str, float]:
    """CPU seconds per second from the first to the last minute that is known."""
    cores: dict[str, float] = {}
    for series in found:
        if len(series.minutes) > 1:
            first, last = min(series.minutes), max(series.minutes)
            used_s = series.minutes[last] - series.minutes[first]
            if used_s >= 0:  # else it was started again in between
                cores[series.instance] = cores.get(series.instance, 0.0) + used_s / (last - first)
    return cores


def _component(
    topology: Topology,
    name: str,
    measured: Mapping[str, Measured],
    known: dict[str, tmaster_pb2.InstanceStatus],
    restarts: tuple[Mapping[str, int], Mapping[str, int]],
    interval: int,
    *,
    alive: bool,
) -> m.ComponentLoad:
    component = topology.logical.components[name]
    ids = topology.instances(name)
    instances = []
    for id in ids:
        found = measured.get(id, Measured())
        status = known.get(id, tmaster_pb2.InstanceStatus(id=id))
        instances.append(
            m.InstanceLoad(
                **_load(found, interval),
                id=id,
                container=int(id.split("_")[1]),
                restarts=restarts[0].get(id, 0),
                recent_restarts=restarts[1].get(id, 0),
                attached=status.attached and alive,
                pid=status.pid,
                uptime_s=found.gauges.get(_UPTIME),
            )
        )
    return m.ComponentLoad(
        **_load(together([measured.get(id, Measured()) for id in ids]), interval),
        name=name,
        complete_percentiles=_percentiles(measured, name, "complete"),
        execute_percentiles=_percentiles(measured, name, "execute"),
        process_percentiles=_percentiles(measured, name, "process"),
        restarts=sum(one.restarts for one in instances),
        recent_restarts=sum(one.recent_restarts for one in instances),
        kind="spout" if component.is_spout else "bolt",
        parallelism=len(ids) or component.parallelism,
        instances=instances,
    )


def _percentiles(measured: Mapping[str, Measured], component: str, kind: str) -> m.Percentiles | None:
    found_ns = measured.get(component, Measured()).percentiles_ns.get(f"__{kind}-latency")
    if found_ns is None:
        return None
    p50, p95, p99 = (ns / 1e6 for ns in found_ns)
    return m.Percentiles(p50_ms=p50, p95_ms=p95, p99_ms=p99)


def _load(found: Measured, interval: int) -> dict[str, Any]:
    emitted, executed, acked, failed = (found.counts.get(name, 0.0) for name in _COUNTS)
    return {
        "emitted": emitted,
        "executed": executed,
        "acked": acked,
        "failed": failed,
        "emit_rate": emitted / interval if interval > 0 else None,
        "execute_rate": executed / interval if interval > 0 else None,
        "complete_latency_ms": found.latency_ms("__complete-latency"),
        "execute_latency_ms": found.latency_ms("__execute-latency"),
        "process_latency_ms": found.latency_ms("__process-latency"),
        "capacity": found.capacity,
        "cpu_cores": found.cpu_cores,
        "memory_bytes": found.gauges.get(_MEMORY),
        "backpressure_ms": found.held_ms,
    }
