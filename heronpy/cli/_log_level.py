"""`log-level`."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from heronpy.cli._durations import seconds
from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._show import duration, empty_table
from heronpy.cli._target import resolve
from heronpy.errors import UsageError, nearest
from heronpy.proto import loglevels_pb2
from heronpy.runtime import LEVELS

CONFIGURED = "configured"
"""The word for the level that the topology was submitted with."""


def log_level(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER[/ROLE[/ENV]]] NAME [TARGET LEVEL]",
            help="Which topology; which component, instance or process of it, __stmgr__, __metricsmgr__, __executor__, "
            "__tmaster__, or __engine__ for all of these; and DEBUG, INFO, WARNING, ERROR, or `configured` to take a "
            "change back. Without the last two: show what is changed.",
        ),
    ],
    for_time: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Revert after this time: 90s, 10m, 2h.")
    ] = None,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Change what running processes log; restarted ones keep to it."""
    from heronpy import submit

    named, change = split(words)
    for_s = seconds("--for", for_time) if for_time is not None else 0
    if for_s and (change is None or change[1] is None):
        raise UsageError("--for needs a TARGET and a LEVEL that is to hold for that time")
    launch, _ = resolve(named, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    if change is None:
        levels = submit.log_levels(launch)
    else:
        levels = submit.set_log_level(launch, *change, for_s=for_s, user=submit.default_role())
    within_s = launch.config.metrics.interval_ms / 1000
    if as_json:
        found = {"configured": launch.config.logging.level, "levels": plain(levels), "within_s": within_s}
        print(json.dumps(found, indent=2))
    elif change is None:
        _print(levels, launch.config.logging.level)
    else:
        target, level = change
        what = f"{level}{f' for {duration(for_s)}' if for_s else ''}" if level else launch.config.logging.level
        print(f"{target}: {what}, within {within_s:g} s")


def split(words: list[str]) -> tuple[list[str], tuple[str, str | None] | None]:
    """The words that name the topology, and the change: a target and its level, None for the configured one.

    Raises:
        UsageError: a target without a level, or an unknown level.
    """
    if len(words) < 3:
        if len(words) == 2 and words[1].upper() in LEVELS:
            raise UsageError(f"{words[1]} of what? Name a component before it, or __engine__")
        return words, None
    level = words[-1].upper()
    if level == CONFIGURED.upper():
        return words[:-2], (words[-2], None)
    if level not in LEVELS:
        hint = nearest(level, LEVELS) or f": there are {', '.join(LEVELS)}"
        raise UsageError(f"no log level {words[-1]!r}{hint}")
    return words[:-2], (words[-2], level)


def plain(levels: loglevels_pb2.LogLevels) -> list[dict[str, Any]]:
    """The levels as plain values; `until` is in seconds since the epoch, None if there is no end."""
    return [
        {"target": level.target, "level": level.level, "until": level.until_ms / 1000 if level.until_ms else None}
        for level in levels.levels
    ]


def _print(levels: loglevels_pb2.LogLevels, configured: str) -> None:
    if not levels.levels:
        print(f"everything logs at the configured level, {configured}")
        return
    from rich.console import Console

    from heronpy.cli._show import WIDTH

    table = empty_table("target", "level", "for", right=())
    for level in levels.levels:
        left = duration(max(0.0, level.until_ms / 1000 - time.time())) if level.until_ms else "until it is changed"
        table.add_row(level.target, level.level, left)
    console = Console(highlight=False, markup=False, emoji=False, width=WIDTH)
    console.print(table)
    console.print(f"everything else logs at the configured level, {configured}")
