"""`update`: other numbers of tasks and containers for a topology that runs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy import submit
from heronpy.cli._dry_run import Format, code_values, show, show_planned
from heronpy.cli._options import (
    ConfigPath,
    ConfigProperty,
    ServiceUrl,
    Verbose,
    Words,
    home,
    path_given,
    read_properties,
    show_warnings,
)
from heronpy.cli._target import resolve
from heronpy.errors import UsageError


def update(
    words: Words,
    component_parallelism: Annotated[
        list[str] | None,
        typer.Option(metavar="COMPONENT:N", help="Number of tasks of a component; may be repeated."),
    ] = None,
    containers: Annotated[
        int | None,
        typer.Option(
            "--containers", "--container-number", metavar="N", help="Number of containers.", show_default=False
        ),
    ] = None,
    code: Annotated[
        str, typer.Option(metavar="FILE", help="New code: a .py, .pex or .zip file, or a module.", show_default=False)
    ] = "",
    class_name: Annotated[
        str, typer.Option("--class", metavar="CLASS", help="With --code: its topology's class; - runs it as a script.")
    ] = "-",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="ARG", help="With --code: passed to it, as heron submit was given it; may be repeated."
        ),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_given,
            help="With --code: a requirements file of pip; else that of before.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long it may take.", min=0)] = 120.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.", show_default=False)
    ] = False,
    dry_run_format: Annotated[Format, typer.Option(help="How to print the difference.")] = Format.TABLE,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """Change the number of tasks of components or of containers, or the code, while a topology runs.

    Effectively once, a checkpoint is taken, and all go on from it: nothing is lost or repeated. Tasks that stay keep
    their ids; state by key, and splits of sources, are divided again. A component with a state that cannot be divided
    is refused. It happens as a whole or not at all.

    New code must have the same components, streams and groupings. It is on trial until all tasks have run for some
    seconds, and no checkpoint is taken meanwhile; if it fails, the old code goes on with the checkpoint that the new
    code has begun with. Without checkpoints, containers are restarted one after the other.
    """
    tasks = parallelism_of(component_parallelism or [])
    show_warnings()
    if service_url:
        from heronpy.cli._service import refuse

        here = {"--requirements": requirements, "--config-path": config_path, "--config-property": config_property}
        refuse(service_url, here)
    if code:
        given = {"--component-parallelism": tasks, "--containers": containers is not None}
        if other := next((option for option, value in given.items() if value), ""):
            raise UsageError(f"{other} does not work with --code: change one after the other")
        shown = dry_run_format if dry_run else None
        if service_url:
            _update_code_there(service_url, words, code, class_name, arg or [], timeout_s=timeout, shown=shown)
            return
        properties = read_properties(config_property or [])
        if requirements is not None:
            properties["heron.package.requirements"] = str(requirements.absolute())
        where = {"config_path": config_path, "properties": properties}
        _update_code(words, code, class_name, arg or [], timeout_s=timeout, shown=shown, **where)
        return
    of_code = {"--class": class_name != "-", "--arg": arg, "--requirements": requirements}
    if other := next((option for option, value in of_code.items() if value), ""):
        raise UsageError(f"{other} needs --code FILE")
    if not tasks and containers is None:
        raise UsageError("nothing to change: give --component-parallelism COMPONENT:N, --containers N or --code FILE")
    if service_url:
        from heronpy.cli._service import Service

        done = Service.at(service_url).act(
            words,
            "update",
            component_parallelism=component_parallelism,
            container_number=containers,
            timeout=timeout,
            dry_run=dry_run,
            dry_run_format=dry_run_format if dry_run else None,
        )
        if not (dry_run and dry_run_format is Format.JSON):
            print("\n".join(done["changes"]) or f"nothing to change: {words[-1]} has that already")
        if dry_run and (done["changes"] or dry_run_format is Format.JSON):
            show_planned(done)
        if done["status"] == "Updated":
            print(f"updated {words[-1]}")
        return
    properties = read_properties(config_property or [])
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=properties)
    planned = submit.plan_update(launch, tasks, containers, home=home(), properties=properties, config_path=config_path)
    as_json = dry_run and dry_run_format is Format.JSON
    if not planned.changes and not as_json:
        print(f"nothing to change: {launch.topology} has that already")
        return
    if not as_json:
        print("\n".join(planned.changes))
    if dry_run:
        show(planned.logical, planned.after, dry_run_format, before=planned.before)
        return
    began_s = time.monotonic()
    submit.update(planned, timeout_s=timeout, on_step=lambda step: print(f"{step} …", file=sys.stderr))
    print(f"updated {launch.topology} in {time.monotonic() - began_s:.1f} s")


def _update_code(
    words: list[str],
    file: str,
    class_name: str,
    args: list[str],
    *,
    timeout_s: float,
    shown: Format | None,
    **where: Any,
) -> None:
    """Update the code; with a format of a dry run only print what would change."""
    from heronpy import loader

    launch, _ = resolve(words, home=home(), **where)
    definition = loader.define(file, class_name, args, name=launch.topology)
    planned = submit.plan_code_update(launch, definition, home=home(), **where)
    if shown is Format.JSON:
        print(json.dumps(code_values(planned), indent=2))
        return
    if not planned.changes:
        print(f"nothing to change: {launch.topology} runs code {planned.after} already")
        return
    print("\n".join(planned.changes))
    if shown is not None:
        return
    began_s = time.monotonic()
    version = submit.update_code(planned, timeout_s=timeout_s, on_step=lambda step: print(f"{step} …", file=sys.stderr))
    print(f"{launch.topology} runs code {version} after {time.monotonic() - began_s:.1f} s")


def _update_code_there(
    url: str,
    words: list[str],
    file: str,
    class_name: str,
    args: list[str],
    *,
    timeout_s: float,
    shown: Format | None,
) -> None:
    from heronpy.cli._service import update_code

    done = update_code(url, words, file, class_name, args, timeout_s=timeout_s, dry_run=shown is not None)
    if shown is Format.JSON:
        show_planned(done)
        return
    print("\n".join(done["changes"]) or f"nothing to change: {words[-1]} runs code {done['code']} already")
    if done["status"] == "Updated":
        print(f"{words[-1]} runs code {done['code']}")


def parallelism_of(pairs: list[str]) -> dict[str, int]:
    """`COMPONENT:N` strings as a map.

    Raises:
        UsageError: one has another form, or a component is named twice.
    """
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, count = pair.rpartition(":")
        if not name or not count.isdecimal() or int(count) < 1:
            raise UsageError(f"--component-parallelism {pair!r} must have the form COMPONENT:N, with N from 1")
        if name in found:
            raise UsageError(f"--component-parallelism names {name!r} twice")
        found[name] = int(count)
    return found
