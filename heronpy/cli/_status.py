"""What `status` shows: gathered from the state manager, the pid files and the Topology Master."""

from __future__ import annotations

from typing import Any

from heronpy import submit
from heronpy.cli._wait import counted
from heronpy.errors import UnavailableError
from heronpy.executor import PID_FILE, read_pids
from heronpy.plan import Component, PackingPlan
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch

SPENT = "__time_spent_back_pressure_by_compid/"
RATES = {"emit": "__emit-count", "execute": "__execute-count", "ack": "__ack-count", "fail": "__fail-count"}


def collect(launch: Launch, *, now_s: float) -> tuple[dict[str, Any], UnavailableError | None]:
    """The status as plain values, and why it has no more than files to go by, if the Topology Master is silent."""
    logical, packing = submit.plans(launch)
    silent = None
    try:
        reply = submit.status(launch)
    except UnavailableError as e:
        reply, silent = tmaster_pb2.StatusReply(), e
    reports = {i.id: i for i in reply.instances}
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
        "plan_version": reply.plan_version,
        "components": [_component(c, reply if silent is None else None) for c in logical.components.values()],
        "processes": _processes(launch, packing, reports, now_s),
        "backpressure": _culprits(reply),
        "exceptions": [_exception(e) for e in reply.exceptions],
    }, silent


def _component(component: Component, reply: tmaster_pb2.StatusReply | None) -> dict[str, Any]:
    """With rates and totals only if the Topology Master told them: that nobody knows is not 0."""
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


def _counts(instances: list[tmaster_pb2.InstanceStatus], *, rate: bool) -> dict[str, float]:
    return {name: sum(counted(i, counter, rate=rate) for i in instances) for name, counter in RATES.items()}


def _processes(
    launch: Launch, packing: PackingPlan, reports: dict[str, tmaster_pb2.InstanceStatus], now_s: float
) -> list[dict[str, Any]]:
    """Every process that should run, by container; the instances with their rates."""
    processes = []
    for container in range(max((c.id for c in packing.containers), default=0) + 1):
        pids = read_pids(launch.container_dir(container))
        packed = packing.container(container)
        instances = [i.instance_id(container) for i in packed.instances] if packed else []
        engine = [packed.stmgr_id] if packed else ["tmaster"] if container == 0 else []
        expected = [*engine, *([f"metricsmgr-{container}"] if engine else []), *instances]
        for id in [*expected, *(id for id in pids if id not in expected)]:
            record = pids.get(id)
            alive = record is not None and record.alive
            process: dict[str, Any] = {
                "id": f"{id}-{container}" if id == PID_FILE else id,
                "container": container,
                "state": "running" if alive else "dead" if record else "not started",
                "pid": record.pid if record and alive else 0,
                "uptime_s": max(0.0, round(now_s - record.started_ms / 1000, 1)) if record and alive else 0.0,
                "restarts": record.restarts if record else 0,
            }
            if id in reports:
                process["attached"] = reports[id].attached
                process["rates"] = _counts([reports[id]], rate=True)
                process["totals"] = _counts([reports[id]], rate=False)
            processes.append(process)
    return processes


def _culprits(reply: tmaster_pb2.StatusReply) -> list[dict[str, Any]]:
    """Who has held the spouts, and for how long in all; the worst first."""
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
        "component": named.component,
        "error": lines[-1] if lines else "",
        "stacktrace": named.report.stacktrace,
        "count": named.report.count,
    }
