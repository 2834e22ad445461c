"""What `status` shows: gathered from the state manager, the pid files and the Topology Master."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import heron_scheduler
from heron_scheduler import ContainerPhase

from heronpy import submit
from heronpy.cli._remote_processes import SeenProcess, seen_elsewhere
from heronpy.cli._wait import counted
from heronpy.errors import UnavailableError
from heronpy.health import Health, unreachable
from heronpy.host import EXECUTOR, SERVICE, PidFile, heartbeat_path, read_pids, service_record
from heronpy.plan import Component, PackingPlan
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch
from heronpy.sketch import LATENCIES, QUANTILES, by_latency

SPENT = "__time_spent_back_pressure_by_compid/"
LATENCIES_REQUEST = tmaster_pb2.MetricsRequest(
    metrics=[f"{name}/*" for name in LATENCIES], interval_s=600, by_component=True, sketches=True
)
LETTERS_REQUEST = tmaster_pb2.MetricsRequest(metrics=["__dead-letter-count/*", "dead-letter-count*"], by_component=True)
"""Since the topology began, as far as the Topology Master remembers."""
_NO_SERVICE: dict[str, Any] = {"state": "none", "pid": 0, "since_s": None, "restarts": 0}
RATES = {"emit": "__emit-count", "execute": "__execute-count", "ack": "__ack-count", "fail": "__fail-count"}


def collect(launch: Launch, *, now_s: float) -> tuple[dict[str, Any], UnavailableError | None]:
    """The status as plain values, and why it has no more than files to go by, if the Topology Master is silent."""
    logical, packing = submit.plans(launch)
    silent = None
    try:
        reply, (history, letters) = submit.status_and_metrics(launch, LATENCIES_REQUEST, LETTERS_REQUEST)
    except UnavailableError as e:
        reply, silent = tmaster_pb2.StatusReply(), e
        history = letters = tmaster_pb2.MetricsReply()
    processes, unseen = _processes(launch, packing, reply, now_s)
    health = Health.from_proto(reply.health) if silent is None else unreachable(str(silent), submit.awaited_s(launch))
    return {
        "topology": launch.topology,
        "id": launch.topology_id,
        "cluster": launch.cluster,
        "role": launch.role,
        "environ": launch.environ,
        "place": f"{launch.cluster}/{launch.role}/{launch.environ}",
        "directory": str(launch.dir),
        "state": reply.state or "UNKNOWN",
        "ready": reply.ready,
        "stop_reason": reply.stop_reason,
        "health": health_of(health),
        "plan_version": reply.plan_version,
        "code": code_of(launch, packing),
        "heronpy": launch.release,
        "checkpoints": checkpoints_of(reply),
        "components": [
            {**_component(c, reply if silent is None else None), "latencies_ms": _latencies(c.name, history)}
            for c in logical.components.values()
        ],
        "scheduler": {
            **(_service(launch, now_s) if heron_scheduler.has_service(launch) else _NO_SERVICE),
            **_containers(launch, packing, reply if silent is None else None),
        },
        "processes": processes,
        "silent": unseen,
        "backpressure": _culprits(reply),
        "dead_letters": _dead_letters(letters),
        "exceptions": [_exception(e) for e in reply.exceptions],
    }, silent


def code_of(launch: Launch, packing: PackingPlan) -> dict[str, Any]:
    """Which version of the user's code each container runs, and which comes back if that is not accepted."""
    fallback = None if packing.trial is None else packing.trial.fallback or launch.code
    return {"containers": {str(c.id): c.code or launch.code for c in packing.containers}, "fallback": fallback}


def checkpoints_of(reply: tmaster_pb2.StatusReply) -> dict[str, Any] | None:
    """How checkpoints go; None if there are none, or it is unknown. Counts are of the present Topology Master."""
    if not reply.HasField("checkpoints"):
        return None
    reported = reply.checkpoints
    return {
        "phase": reported.phase,
        "newest": reported.newest,
        "under_way": reported.in_progress or None,
        "interval_ms": reported.interval_ms,
        "age_ms": reported.age_ms if reported.age_ms >= 0 and reported.committed else None,
        "duration_ms": int(reported.last_took_s * 1000) if reported.committed else None,
        "committed": reported.committed,
        "failed": reported.failed,
        "restores": reported.restores,
        "last_failure": reported.last_failure or None,
        "obstacle": (reported.obstacle or None) if reported.age_ms > 2 * reported.interval_ms else None,
        "problem": reported.problem or None,
        "fallback": reported.fallback or None,
    }


def _component(component: Component, reply: tmaster_pb2.StatusReply | None) -> dict[str, Any]:
    """With rates and totals only if the Topology Master has reported them: unknown is not 0."""
    instances = [i for i in reply.instances if i.component == component.name] if reply is not None else None
    return {
        "name": component.name,
        "kind": "spout" if component.is_spout else "bolt",
        "class": component.class_name,
        "parallelism": component.parallelism,
        "inputs": [f"{i.component}:{i.stream} {i.grouping.name}" for i in component.inputs],
        "rates": _counts(instances, rate=True) if instances is not None else None,
        "totals": _counts(instances, rate=False) if instances is not None else None,
    }


def _service(launch: Launch, now_s: float) -> dict[str, Any]:
    """The scheduler service: alive or not, and since when; for a dead one that is its last heartbeat."""
    record = service_record(launch)
    alive = record is not None and record.alive
    since_s: float | None = record.started_ms / 1000 if record is not None and alive else None
    if since_s is None:
        with contextlib.suppress(OSError):  # then since when it is dead is unknown, and shown as that
            since_s = heartbeat_path(launch.dir, SERVICE).stat().st_mtime
    return {
        "state": "running" if alive else "dead" if record else "not started",
        "pid": record.pid if record and alive else 0,
        "since_s": None if since_s is None else max(0.0, round(now_s - since_s, 1)),
        "restarts": record.restarts if record else 0,
    }


def _containers(launch: Launch, packing: PackingPlan, reply: tmaster_pb2.StatusReply | None) -> dict[str, Any]:
    """What the scheduler says of each container. How one has ended that is up again is left out."""
    registered = {stmgr.location.id for stmgr in reply.stmgrs if stmgr.registered} if reply is not None else set()
    up = {container.id for container in packing.containers if container.stmgr_id in registered}
    up |= {0} if reply is not None else set()
    error, absent = "", "pending" if heron_scheduler.has_service(launch) else "lost"
    found = {}
    try:
        found = {one.container: one for one in heron_scheduler.containers(launch)}
    except UnavailableError as e:
        error = str(e)
    containers = []
    for n in sorted({0, *(container.id for container in packing.containers), *found}):
        one = found.get(n)
        reason = "" if one is None or (n in up and one.phase is ContainerPhase.RUNNING) else one.reason
        known = (one.phase.value, one.host, one.job, reason) if one else ("?" if error else absent, "", "", "")
        containers.append({"container": n, **dict(zip(("phase", "host", "job", "reason"), known, strict=True))})
    return {"name": launch.scheduler, "error": error, "containers": containers}


def _latencies(component: str, history: tmaster_pb2.MetricsReply) -> dict[str, dict[str, float]]:
    """Percentiles of the last ten minutes by kind of latency; of bolts they are those of batches."""
    found = {}
    for (name, latency), sketch in by_latency(history.series).items():
        if name == component and (quantiles := sketch.quantiles_ns()) is not None:
            kind = latency.removeprefix("__").removesuffix("-latency")
            found[kind] = {f"p{100 * q:g}": round(ns / 1e6, 4) for q, ns in zip(QUANTILES, quantiles, strict=True)}
    return found


def _dead_letters(reply: tmaster_pb2.MetricsReply) -> dict[str, int]:
    """How many each component has set aside, of those that have any."""
    counts: dict[str, int] = {}
    for series in reply.series:
        if series.value:
            counts[series.component] = counts.get(series.component, 0) + int(series.value)
    return counts


def _counts(instances: list[tmaster_pb2.InstanceStatus], *, rate: bool) -> dict[str, float]:
    return {name: sum(counted(i, counter, rate=rate) for i in instances) for name, counter in RATES.items()}


def health_of(health: Health) -> dict[str, Any]:
    """A verdict as plain values."""
    reasons = [{"kind": r.kind.value, "state": r.state.word, "text": r.text} for r in health.reasons]
    return {"state": health.state.word, "restarts": health.restarts, "reasons": reasons}


def _processes(
    launch: Launch, packing: PackingPlan, reply: tmaster_pb2.StatusReply, now_s: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Every process that should run, by container; the instances with their rates. And which containers are silent."""
    reports = {i.id: i for i in reply.instances}
    remote = seen_elsewhere(launch, now_s)
    processes = []
    for container in range(max((c.id for c in packing.containers), default=0) + 1):
        seen = remote.processes.get(container)
        if seen is None:
            seen = {id: _seen(record, now_s) for id, record in read_pids(launch.container_dir(container)).items()}
        packed = packing.container(container)
        instances = [i.instance_id(container) for i in packed.instances] if packed else []
        engine = [packed.stmgr_id] if packed else ["tmaster"] if container == 0 else []
        kinds = ["metricsmgr"]
        kinds += ["ckptmgr"] if launch.checkpoints else []
        kinds += ["heron-shell"] if launch.config.shell.enabled else []
        expected = [*engine, *(f"{kind}-{container}" for kind in kinds if engine), *instances]
        absent = SeenProcess(state="?" if container in remote.unknown else "not started")
        for id in [*expected, *(id for id in seen if id not in expected)]:
            name = f"{id}-{container}" if id == EXECUTOR else id
            process: dict[str, Any] = {"id": name, "container": container, **asdict(seen.get(id, absent))}
            if id in reports:
                process["attached"] = reports[id].attached
                process["rates"] = _counts([reports[id]], rate=True)
                process["totals"] = _counts([reports[id]], rate=False)
            processes.append(process)
    return processes, remote.silent


def _seen(record: PidFile, now_s: float) -> SeenProcess:
    alive = record.alive
    return SeenProcess(
        state="running" if alive else "dead",
        pid=record.pid if alive else 0,
        uptime_s=max(0.0, round(now_s - record.started_ms / 1000, 1)) if alive else 0.0,
        restarts=record.restarts,
        restarts_10_min=record.restarts_within(600, now_s),
        last_end=record.last_end,
    )


def _culprits(reply: tmaster_pb2.StatusReply) -> list[dict[str, Any]]:
    """Who has throttled the spouts, and for how long in all; the worst first."""
    culprits = [
        {"culprit": name.removeprefix(SPENT), "stmgr": stmgr.location.id, "held_s": round(ms / 1000, 1)}
        for stmgr in reply.stmgrs
        for name, ms in stmgr.totals.items()
        if name.startswith(SPENT) and ms > 0
    ]
    return sorted(culprits, key=lambda culprit: -float(culprit["held_s"]))


def _exception(named: tmaster_pb2.NamedException) -> dict[str, Any]:
    lines = named.report.stacktrace.strip().splitlines()
    return {
        "source": named.source,
        "group": named.group,
        "component": named.component,
        "error": lines[-1] if lines else "",
        "stacktrace": named.report.stacktrace,
        "count": named.report.count,
    }
