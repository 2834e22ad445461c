"""`topologies` and `status`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import heronpy
from heronpy.cli._options import ConfigPath, ConfigProperty, ServiceUrl, Verbose, Words, home, read_properties
from heronpy.cli._target import Place, resolve, revive
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch

HEALTH_STYLES = {"healthy": "green", "starting": "yellow", "degraded": "yellow", "unhealthy": "red"}
VALUE_MAX = 100
"""Characters of a value of the configuration; --json has all of them."""
_ROW = ("name", "cluster", "role", "environment", "trouble")
"""Of a topology, as an API server lists it."""
WIDTH = 500
"""Tables are as wide as what is in them: what is cut or wrapped within columns can be neither read nor grepped."""


def topologies(
    cluster: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER[/ROLE[/ENV]]]", help="Only those of this cluster.")
    ] = None,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """List the topologies that were submitted and not killed."""
    place = Place.parse(cluster) if cluster else None
    if service_url:
        from heronpy.cli._service import Service, refuse

        refuse(service_url, {"--config-path": config_path, "--config-property": config_property})
        rows = [_Row(*(one[key] for key in _ROW)) for one in Service.at(service_url).topologies()]
    else:
        rows = list(_rows(place.cluster if place else None, config_path, read_properties(config_property or [])))
    found = [row for row in rows if place is None or row.is_at(place)]
    if not found:
        print("no topology runs")
        return
    width = max(len(row.name) for row in found)
    for row in found:
        if row.launch is not None and not row.trouble:
            revive(row.launch)
        trouble = f"  ({row.trouble}: `heron kill` removes what is left)" if row.trouble else ""
        print(f"{row.name:<{width}}  {row.cluster}/{row.role}/{row.environ}{trouble}")


@dataclass(frozen=True, slots=True)
class _Row:
    """A topology of the list."""

    name: str
    cluster: str
    role: str
    environ: str
    trouble: str
    launch: Launch | None = None
    """Of one that was not asked of an API server."""

    def is_at(self, place: Place) -> bool:
        return (
            self.cluster == place.cluster and place.role in (None, self.role) and place.environ in (None, self.environ)
        )


def _rows(cluster: str | None, config_path: Path | None, properties: dict[str, Any]) -> Iterator[_Row]:
    from heronpy.submit import listed

    for one in listed(home(), cluster, properties=properties, config_path=config_path):
        launch = one.launch
        yield _Row(launch.topology, launch.cluster, launch.role, launch.environ, one.trouble, launch)


def status(
    words: Words,
    config: Annotated[
        bool,
        typer.Option("--config", help="The whole configuration in force, and where each value was set; no secrets."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.", show_default=False)] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """Show the plan, the processes and the rates of a topology."""
    if service_url:
        from heronpy.cli._service import Service, refuse

        here = {"--config": config, "--config-path": config_path, "--config-property": config_property}
        refuse(service_url, here)
        answer = Service.at(service_url).status(words)
        print(json.dumps(answer["status"], indent=2)) if as_json else _print(answer["status"])
        if answer["unavailable"]:
            raise UnavailableError(answer["unavailable"])
        return
    from heronpy.cli._status import collect

    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    if config:
        _print_config(launch, as_json=as_json)
        return
    found, silent = collect(launch, now_s=time.time())
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    if silent is not None:
        raise silent


def _print_config(launch: Launch, *, as_json: bool) -> None:
    from rich.console import Console

    from heronpy import submit
    from heronpy.redaction import redacted, shown

    logical, _ = submit.plans(launch)
    settings = [
        {"of": s.of, "key": redacted(s.key), "value": shown(s.key, s.value), "origin": s.origin}
        for s in submit.effective_config(logical, launch)
    ]
    if as_json:
        print(json.dumps(settings, indent=2))
        return
    table = empty_table("of", "key", "origin", "value", right=())
    for one in settings:
        value = one["value"] if isinstance(one["value"], str) else json.dumps(one["value"])
        cut = f"{value[: VALUE_MAX - 1]}…" if len(value) > VALUE_MAX else value
        table.add_row(one["of"], one["key"], one["origin"], cut)
    Console(highlight=False, markup=False, emoji=False, width=WIDTH).print(table)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=WIDTH)
    health = found["health"]
    ready = "ready" if found["ready"] else "not ready"
    console.print(
        f"[bold]{found['topology']}[/]  {found['place']}  {found['state']}, {ready}, "
        f"[bold {HEALTH_STYLES[health['state']]}]{health['state']}[/]"
    )
    for reason in health["reasons"]:
        console.print(f"{reason['state']}: {reason['text']}", markup=False)
    console.print(code_line(found["code"]), markup=False)
    if found.get("heronpy", "") not in ("", heronpy.__version__):
        line = f"heronpy: {found['heronpy']}; nothing of it is started by this heronpy, {heronpy.__version__}"
        console.print(line, markup=False)
    for line in scheduler_lines(found["scheduler"]):
        console.print(line, markup=False)
    for line in found["silent"]:
        console.print(f"?: {line}", markup=False)
    if found["stop_reason"]:
        console.print(f"paused by the engine: {found['stop_reason']}", markup=False)
    if found["checkpoints"] is not None:
        console.print(checkpoints_line(found["checkpoints"]), markup=False)
    console.print(_components(found["components"]))
    console.print(_processes(found["processes"]))
    for culprit in found["backpressure"]:
        console.print(f"{culprit['culprit']} has throttled the spouts for {duration(culprit['held_s'])}", markup=False)
    for component, count in found["dead_letters"].items():
        console.print(f"{component} has set aside {count:,} dead letter{'s' * (count != 1)}", markup=False)
    for line in exception_lines(found["exceptions"]):
        console.print(line, markup=False)


def code_line(found: dict[str, Any]) -> str:
    """Which code runs where, in one line."""
    by_version: dict[str, list[str]] = {}
    for container, version in found["containers"].items():
        by_version.setdefault(version or "(unknown)", []).append(container)
    if len(by_version) > 1:
        shown = ", ".join(f"{version} in {', '.join(containers)}" for version, containers in by_version.items())
    else:
        shown = next(iter(by_version), "(unknown)")
    on_trial = f", on trial; {found['fallback'] or 'what was submitted'} comes back if it fails"
    return f"code: {shown}{'' if found['fallback'] is None else on_trial}"


def checkpoints_line(found: dict[str, Any]) -> str:
    """How checkpoints go, in one line."""
    wanted = f"one every {found['interval_ms'] / 1000:g} s"
    if found["age_ms"] is None:
        last = "none yet"
    else:
        last = f"the last {duration(found['age_ms'] / 1000)} ago in {found['duration_ms'] / 1000:.1f} s"
    counts = f"{found['committed']} committed, {found['failed']} failed, {found['restores']} rollbacks"
    why = f"; {found['obstacle']}" if found["obstacle"] else ""
    return f"checkpoints: {found['phase']}, {last}, {wanted}; {counts}{why}"


def exception_lines(exceptions: Iterable[dict[str, Any]]) -> list[str]:
    """One line for each group of exceptions: where, what, how often; the latest last."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for exception in exceptions:
        groups.setdefault(exception["group"], []).append(exception)
    lines = []
    for members in groups.values():
        sources = [one["source"] for one in members]
        where = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
        lines.append(f"{where}: {members[-1]['error']} ({sum(one['count'] for one in members)}×)")
    return lines


def scheduler_lines(service: dict[str, Any]) -> list[str]:
    """The service, or how many containers the cluster runs, in one line; and why the others do not run."""
    if service.get("error"):
        return [f"scheduler {service['name']}: {service['error']}"]
    containers = service.get("containers", ())
    if service["state"] != "none":
        return [_service_line(service), *(_waiting_line(one) for one in containers if one["reason"])]
    waiting = [one for one in containers if one["phase"] != "running" or one["reason"]]
    count = f"{len(containers) - len(waiting)} of {len(containers)} containers run"
    return [f"scheduler {service['name']}: {count}", *map(_waiting_line, waiting)]


def _service_line(service: dict[str, Any]) -> str:
    since = f" for {duration(service['since_s'])}" if service["since_s"] is not None else ""
    pid = f", pid {service['pid']}" if service["pid"] else ""
    return f"scheduler service: {service['state']}{since}{pid}, {service['restarts']} restarts"


def _waiting_line(container: dict[str, Any]) -> str:
    number, reason = container["container"], container["reason"]
    if container["phase"] == "running":
        return f"container {number} on {container['host']} is not up yet; it last ended with: {reason}"
    return f"container {number} is {container['phase']}" + (f": {reason}" if reason else "")


def _components(components: list[dict[str, Any]]) -> Any:
    table = empty_table(
        "component", "kind", "reads", right=("tasks", "emit/s", "execute/s", "ack/s", "fail/s", "p50 ms", "p99 ms")
    )
    for c in components:
        rates = [f"{c['rates'][name]:,.0f}" if c["rates"] else "" for name in ("emit", "execute", "ack", "fail")]
        table.add_row(c["name"], c["kind"], ", ".join(c["inputs"]), str(c["parallelism"]), *rates, *_percentiles(c))
    return table


def _percentiles(component: dict[str, Any]) -> list[str]:
    """Of the complete latency of a spout, of the process latency of a bolt, without acks of its execution."""
    latencies = component["latencies_ms"]
    found = next((latencies[kind] for kind in ("complete", "process", "execute") if kind in latencies), None)
    return [f"{found[p]:,.2f}" for p in ("p50", "p99")] if found else ["", ""]


def _processes(processes: list[dict[str, Any]]) -> Any:
    table = empty_table("process", "state", right=("container", "pid", "uptime", "restarts", "emit/s", "execute/s"))
    for p in processes:
        rates = p.get("rates")
        table.add_row(
            p["id"],
            p["state"],
            str(p["container"]),
            str(p["pid"] or ""),
            duration(p["uptime_s"]),
            f"{p['restarts']} ({recent} in 10 min)" if (recent := p["restarts_10_min"]) else str(p["restarts"]),
            *([f"{rates[name]:,.0f}" for name in ("emit", "execute")] if rates else ["", ""]),
        )
    return table


def empty_table(*left: str, right: tuple[str, ...]) -> Any:
    """An empty table with these headings, as all verbs print them."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def duration(seconds: float) -> str:
    """A duration in its two largest units, e.g. `3 h 20 min`."""
    whole = int(seconds)
    for unit_s, unit, smaller_s, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // smaller_s} {smaller}"
    return f"{whole} s"
