"""`topologies` and `status`."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from heronpy.cli._options import ConfigPath, ConfigProperty, Verbose, Words, home, read_properties
from heronpy.cli._target import Place, resolve

WIDTH = 500
"""Tables are as wide as what is in them: what is cut or wrapped within columns can be neither read nor grepped."""


def topologies(
    cluster: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER[/ROLE[/ENV]]]", help="Only those of this cluster.")
    ] = None,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """List the topologies that were submitted and not killed."""
    from heronpy.submit import running

    place = Place.parse(cluster) if cluster else None
    found = [
        launch
        for launch in running(
            home(),
            place.cluster if place else None,
            properties=read_properties(config_property or []),
            config_path=config_path,
        )
        if place is None or (place.role in (None, launch.role) and place.environ in (None, launch.environ))
    ]
    if not found:
        print("no topology runs")
        return
    width = max(len(launch.topology) for launch in found)
    for launch in found:
        print(f"{launch.topology:<{width}}  {launch.cluster}/{launch.role}/{launch.environ}")


def status(
    words: Words,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.", show_default=False)] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show the plan, the processes and the rates of a topology."""
    from heronpy.cli._status import collect

    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    found, silent = collect(launch, now_s=time.time())
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    if silent is not None:
        raise silent


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=WIDTH)
    health = "ready" if found["ready"] else "not ready"
    console.print(f"[bold]{found['topology']}[/]  {found['place']}  {found['state']}, {health}")
    console.print(_components(found["components"]))
    console.print(_processes(found["processes"]))
    for culprit in found["backpressure"]:
        console.print(f"{culprit['culprit']} has held the spouts for {duration(culprit['held_s'])}", markup=False)
    for exception in found["exceptions"]:
        console.print(f"{exception['source']}: {exception['error']} ({exception['count']}×)", markup=False)


def _components(components: list[dict[str, Any]]) -> Any:
    table = empty_table("component", "kind", "reads", right=("tasks", "emit/s", "execute/s", "ack/s", "fail/s"))
    for c in components:
        rates = [f"{c['rates'][name]:,.0f}" if c["rates"] else "" for name in ("emit", "execute", "ack", "fail")]
        table.add_row(c["name"], c["kind"], ", ".join(c["inputs"]), str(c["parallelism"]), *rates)
    return table


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
            str(p["restarts"]),
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
