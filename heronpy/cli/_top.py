"""`top`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import Annotated, Any

import typer

from heronpy import submit
from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, Words, home, read_properties
from heronpy.cli._show import WIDTH
from heronpy.cli._status import health_of
from heronpy.cli._target import resolve
from heronpy.cli._top_rows import COLUMNS, LATENCIES_REQUEST, REQUEST, Look, Snapshot, check_column, snapshot
from heronpy.cli._top_view import screen
from heronpy.errors import NotFoundError, StateError, UnavailableError
from heronpy.runtime import Launch

NOTICE_S = 60.0
"""How long a restart of the Topology Master is shown."""


def top(
    words: Words,
    instances: Annotated[bool, typer.Option("--instances", "-i", help="A line for each instance.")] = False,
    sort: Annotated[str, typer.Option("--sort", "-s", metavar="COLUMN", help=f"One of {', '.join(COLUMNS)}.")] = "cpu",
    interval: Annotated[float, typer.Option("--interval", "-n", help="Refresh interval in seconds.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.", show_default=False)] = False,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show what a topology does now, until Ctrl-C; once where the output is not a terminal."""
    from rich.console import Console

    check_column(sort)
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    look = _looking(launch, instances)
    console = Console(highlight=False, markup=False, emoji=False)
    if as_json:
        print(json.dumps(_plain(launch, look()), indent=2))
    elif once or not console.is_terminal or console.is_dumb_terminal:
        if not console.is_terminal:
            console.width = WIDTH  # a file has no width
        console.print(screen(_title(launch), look(), sort=sort, width=console.width, height=None), crop=False)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _live(launch, look, console, sort=sort, interval_s=interval)


def _looking(launch: Launch, by_instance: bool) -> Look:
    logical, _ = submit.plans(launch)
    spouts = frozenset(c.name for c in logical.spouts)

    def look() -> Snapshot:
        status, (history, latencies) = submit.status_and_metrics(launch, REQUEST, LATENCIES_REQUEST)
        return snapshot(spouts, status, history, latencies, by_instance=by_instance)

    return look


def _title(launch: Launch) -> str:
    return f"{launch.topology}  {launch.cluster}/{launch.role}/{launch.environ}"


def _plain(launch: Launch, seen: Snapshot) -> dict[str, Any]:
    return {
        "topology": launch.topology,
        "state": seen.state,
        "ready": seen.ready,
        "health": health_of(seen.health),
        "rows": [dataclasses.asdict(row) for row in seen.rows],
        "backpressure": [{"culprit": who, "share": share} for who, share in seen.culprits],
    }


def _live(launch: Launch, look: Look, console: Any, *, sort: str, interval_s: float) -> None:
    """Refresh until interrupted. The terminal is as it was when this returns, or raises.

    Raises:
        NotFoundError: the topology was killed.
    """
    from rich.live import Live

    notices = _Notices()
    seen: Snapshot | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                seen = look()
            except (UnavailableError, StateError) as e:
                if not launch.dir.exists():
                    raise NotFoundError(f"topology {launch.topology} was killed") from e
                notes = notices.unreachable(str(e))
            else:
                notes = notices.answered(seen, time.time())
            width, height = console.size
            live.update(screen(_title(launch), seen, sort=sort, width=width, height=height, notes=notes), refresh=True)
            time.sleep(interval_s)


class _Notices:
    """What has happened to the Topology Master since `top` began."""

    def __init__(self) -> None:
        self._answered_s: float | None = None
        self._started_ms: int | None = None
        self._restarted_s: float | None = None

    def unreachable(self, why: str) -> list[str]:
        known = f"; this is of {_clock(self._answered_s)}" if self._answered_s is not None else ""
        return [f"{why}{known}"]

    def answered(self, seen: Snapshot, now_s: float) -> list[str]:
        if self._started_ms not in (None, seen.tmaster_started_ms):
            self._restarted_s = now_s
        self._started_ms, self._answered_s = seen.tmaster_started_ms, now_s
        if self._restarted_s is None or now_s - self._restarted_s > NOTICE_S:
            return []
        when = _clock(seen.tmaster_started_ms / 1000)
        return [f"the Topology Master was started again at {when}: rates come with the next reports"]


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
