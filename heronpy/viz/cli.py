"""`heron viz`: dashboards for Grafana, and targets for Prometheus."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy.cli.commands import ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.errors import HeronError, NotFoundError, StateError, UsageError
from heronpy.runtime import Launch
from heronpy.viz import Discovery, GrafanaClient, overview_dashboard, topology_dashboard

log = logging.getLogger(__name__)

WATCH_S = 2.0
"""How often the running topologies are listed."""


def viz(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[[CLUSTER[/ROLE[/ENV]]] NAME]", help="Which topology; none: all that run."),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the dashboard there.")] = None,
    datasource: Annotated[str, typer.Option(metavar="NAME", help="Prometheus' name in Grafana.")] = "",
    overview: Annotated[
        bool, typer.Option("--overview", help="The dashboard that shows all topologies.", show_default=False)
    ] = False,
    grafana_url: Annotated[str, typer.Option(metavar="URL", help="Put the dashboard into this Grafana.")] = "",
    token_env: Annotated[
        str, typer.Option(metavar="VAR", help="The environment variable that holds Grafana's token.")
    ] = "GRAFANA_TOKEN",
    file_sd: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the targets of all topologies there, for Prometheus.")
    ] = None,
    limits: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what topologies may use there, as recording rules.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep the files up to date while topologies come and go, until Ctrl-C.", show_default=False
        ),
    ] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Make a Grafana dashboard of a topology, or keep Grafana and Prometheus up to date with all that run."""
    if (words or overview) and (file_sd or limits or watch):
        raise UsageError("--file-sd, --limits and --watch are about all topologies: leave out the name and --overview")
    if words and overview:
        raise UsageError("--overview is about all topologies: leave out the name")
    grafana = GrafanaClient(grafana_url, _token(token_env)) if grafana_url else None
    if overview:
        _deliver(overview_dashboard().to_json(datasource), output, grafana)
    elif words:
        from heronpy.cli.places import resolve

        properties = read_properties(config_property or [])
        launch, _ = resolve(words, home=home(), config_path=config_path, properties=properties)
        _deliver(_dashboard(launch, datasource), output, grafana)
    elif output:
        raise UsageError("--output is one dashboard: name a topology, or give --overview")
    elif file_sd or limits or grafana:
        _keep(_discovery(file_sd, limits), grafana, datasource, watch)
    else:
        raise UsageError("name a topology, or give --overview, --file-sd, --limits or --grafana-url")


def _token(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _dashboard(launch: Launch, datasource: str) -> dict[str, Any]:
    from heronpy.submit import plans

    return topology_dashboard(launch, *plans(launch)).to_json(datasource)


def _deliver(dashboard: dict[str, Any], output: Path | None, grafana: GrafanaClient | None) -> None:
    text = json.dumps(dashboard, indent=2) + "\n"
    if output is not None:
        output.write_text(text)
    if grafana is not None:
        print(grafana.put(dashboard))
    elif output is None:
        print(text, end="")


def _discovery(file_sd: Path | None, limits: Path | None) -> Discovery:
    from heronpy.security import authority
    from heronpy.submit import plans, running

    return Discovery(
        lambda: running(home()),
        lambda launch: plans(launch)[1],
        targets_file=file_sd,
        limits_file=limits,
        scraper=lambda: authority.scraper_certificate(home() / "tls"),
        reported=_reported,
    )


def _reported(launch: Launch) -> Mapping[int, str]:
    from heronpy.submit import status

    try:
        return status(launch).prometheus
    except HeronError as e:
        print(f"heron: no targets of topology {launch.topology}: {e}", file=sys.stderr)
        return {}


def _keep(discovery: Discovery, grafana: GrafanaClient | None, datasource: str, watch: bool) -> None:
    shown: set[str] = set()
    said = ""
    while True:
        try:
            launches = discovery.refresh()
            if grafana is not None:
                _show_new(launches, shown, grafana, datasource)
            said = ""
        except HeronError as e:
            if not watch:
                raise
            if str(e) != said:  # once, not every few seconds
                said = str(e)
                print(f"heron: {said}; trying again", file=sys.stderr)
        if not watch:
            return
        time.sleep(WATCH_S)


def _show_new(launches: Sequence[Launch], shown: set[str], grafana: GrafanaClient, datasource: str) -> None:
    """Put the dashboards of those into Grafana that are not among `shown`."""
    shown &= {launch.topology_id for launch in launches}
    for launch in launches:
        if launch.topology_id not in shown:
            try:
                dashboard = _dashboard(launch, datasource)
            except (NotFoundError, StateError) as e:  # being submitted, or killed
                log.warning("no dashboard of topology %s yet: %s", launch.topology, e)
                continue
            print(f"{launch.topology}  {grafana.put(dashboard)}", flush=True)
            shown.add(launch.topology_id)
