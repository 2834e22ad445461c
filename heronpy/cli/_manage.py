"""`kill`, `activate`, `deactivate` and `restart`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heronpy import submit
from heronpy.cli._options import (
    ConfigPath,
    ConfigProperty,
    ServiceUrl,
    Verbose,
    Words,
    home,
    read_properties,
    show_warnings,
)
from heronpy.cli._target import resolve
from heronpy.errors import UsageError
from heronpy.redaction import redacted

Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for a last checkpoint.", min=0)]


def kill(
    words: Words,
    force: Annotated[
        bool, typer.Option("--force", help="End it at once, without a last checkpoint.", show_default=False)
    ] = False,
    timeout: Timeout = submit.CHECKPOINT_TIMEOUT_S,
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Leave its checkpoints where they are.", show_default=False)
    ] = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """End a topology and remove everything of it, by default including its checkpoints.

    One with state is paused first, and a last checkpoint taken: so sinks commit all that it has emitted.
    """
    if service_url:
        from heronpy.cli._service import Service

        _refuse_configuration(service_url, config_path, config_property)
        done = Service.at(service_url).act(words, "kill", force=force, timeout=timeout, keep_state=keep_state)
        print(f"killed {words[-1]}")
        if done.get("checkpoints"):
            print(f"its checkpoints are left in {done['checkpoints']}")
        return
    properties = read_properties(config_property or [])
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=properties, to_kill=True)
    show_warnings()
    submit.kill(launch, keep_state=keep_state, final_s=None if force else timeout)
    print(f"killed {launch.topology}")
    if keep_state and launch.checkpoints:
        print(f"its checkpoints are left in {redacted(launch.checkpoints)}")


def activate(
    words: Words,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """Have the spouts of a topology emit."""
    if service_url:
        from heronpy.cli._service import Service

        _refuse_configuration(service_url, config_path, config_property)
        Service.at(service_url).act(words, "activate")
        print(f"activated {words[-1]}")
        return
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    submit.activate(launch)
    print(f"activated {launch.topology}")


def deactivate(
    words: Words,
    timeout: Timeout = submit.CHECKPOINT_TIMEOUT_S,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """Have the spouts of a topology stop emitting. With state, return when a checkpoint has all that they emitted."""
    if service_url:
        from heronpy.cli._service import Service

        _refuse_configuration(service_url, config_path, config_property)
        done = Service.at(service_url).act(words, "deactivate", timeout=timeout)
        print(f"deactivated {words[-1]}")
        if done.get("checkpoint") is not None:
            print(f"checkpoint {done['checkpoint']} has all that was emitted")
        return
    launch, _ = resolve(words, home=home(), config_path=config_path, properties=read_properties(config_property or []))
    show_warnings()
    submit.deactivate(launch)
    print(f"deactivated {launch.topology}")
    if launch.checkpoints and timeout:
        print(f"checkpoint {submit.take_checkpoint(launch, timeout_s=timeout)} has all that was emitted")


def restart(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[CLUSTER[/ROLE[/ENV]]] NAME [CONTAINER]", help="Which topology, or container."),
    ],
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """End the processes of a container, or of all containers, and start them again; with secrets that have changed."""
    if service_url:
        from heronpy.cli._service import Service

        _refuse_configuration(service_url, config_path, config_property)
        *which, container = words if len(words) == 3 else [*words, ""]
        if container and not container.isdecimal():
            raise UsageError(f"CONTAINER must be a number, not {container!r}")
        Service.at(service_url).act(which, "restart", container_id=container)
        print(f"restarted container {container} of {which[-1]}" if container else f"restarted {which[-1]}")
        return
    launch, text = resolve(
        words,
        home=home(),
        config_path=config_path,
        properties=read_properties(config_property or []),
        extra="CONTAINER",
    )
    if text is not None and not text.isdecimal():
        raise UsageError(f"CONTAINER must be a number, not {text!r}")
    for line in submit.restart(launch, None if text is None else int(text)):
        print(line, file=sys.stderr)
    print(f"restarted {launch.topology}" if text is None else f"restarted container {text} of {launch.topology}")


def _refuse_configuration(service_url: str, config_path: Path | None, config_property: list[str] | None) -> None:
    from heronpy.cli._service import refuse

    refuse(service_url, {"--config-path": config_path, "--config-property": config_property})
