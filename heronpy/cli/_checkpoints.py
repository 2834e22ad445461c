"""`checkpoints` and `checkpoint`."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from heronpy.cli._options import (
    AsJson,
    ConfigPath,
    ConfigProperty,
    Verbose,
    Words,
    home,
    read_properties,
    show_warnings,
)
from heronpy.cli._show import WIDTH, duration, empty_table
from heronpy.cli._target import resolve
from heronpy.errors import CheckpointError, HeronError, UsageError
from heronpy.redaction import redacted
from heronpy.submit import StoredCheckpoint

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def checkpoints(
    words: Words,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all that they have, and check it.", show_default=False)
    ] = False,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """List the checkpoints of a topology: when they were taken, and their sizes.

    With --verify, which of them can be restored: the exit code is 6 if a committed one cannot.
    """
    from heronpy import submit

    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    found = submit.checkpoints(launch, verify=verify)
    if as_json:
        print(json.dumps([_plain(one) for one in found], indent=2))
    else:
        if found:
            _print(found, time.time())
        else:
            print(f"{launch.topology} has no checkpoint yet")
        with contextlib.suppress(HeronError):  # it does not run
            if obstacle := submit.status(launch).checkpoints.obstacle:
                print(f"now: {obstacle}")
    if verify and (damaged := [one.id for one in found if one.committed and one.error]):
        raise CheckpointError(f"{len(damaged)} of {len(found)} checkpoints cannot be restored: {damaged}")


def checkpoint(
    words: Words,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="Copy it there, for `heron submit --from URL`.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for it.", min=0)] = 60.0,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Take a checkpoint of a topology now. With --to any topology can begin with it, with any number of tasks."""
    from heronpy import submit

    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    if not launch.checkpoints:
        raise UsageError(f"topology {launch.topology} takes no checkpoints")
    show_warnings()
    if to is None:
        print(f"checkpoint {submit.take_checkpoint(launch, timeout_s=timeout)} is committed")
    else:
        url = submit.storage_url(to)
        print(f"checkpoint {submit.save_checkpoint(launch, url, timeout_s=timeout)} is in {redacted(url)}")


def _plain(one: StoredCheckpoint) -> dict[str, Any]:
    return {
        "id": one.id,
        "committed": one.committed,
        "time": _time(one).isoformat(timespec="milliseconds") if one.created_ms else None,
        "duration_ms": one.duration_ms or None,
        "epoch": one.epoch,
        "size": one.size,
        "added": one.added,
        "logged": one.logged,
        "components": {
            name: {"tasks": one.tasks[name], "size": component_size} for name, component_size in one.components.items()
        },
        "error": one.error or None,
    }


def _time(one: StoredCheckpoint) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(one.created_ms / 1000, datetime.UTC)


def _print(found: Sequence[StoredCheckpoint], now_s: float) -> None:
    from rich.console import Console

    table = empty_table("id", "time (UTC)", "state", "components", right=("age", "took", "size", "new", "logged"))
    for one in found:
        parts = [f"{name} ×{one.tasks[name]} {shown_size(size)}" for name, size in one.components.items()]
        table.add_row(
            str(one.id),
            f"{_time(one):%Y-%m-%d %H:%M:%S}" if one.created_ms else "",
            "damaged" if one.error else "committed" if one.committed else "not committed",
            ", ".join(parts),
            duration(max(0.0, now_s - one.created_ms / 1000)) if one.created_ms else "",
            f"{one.duration_ms / 1000:.1f} s" if one.duration_ms else "",
            *([""] * 3 if one.error else [shown_size(one.size), shown_size(one.added), shown_size(one.logged)]),
        )
    console = Console(highlight=False, markup=False, emoji=False, width=WIDTH)
    console.print(table)
    for one in found:
        if one.error:
            console.print(one.error)


def shown_size(size: int) -> str:
    """Bytes with three digits or so, e.g. `1.2 MiB`."""
    value, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
