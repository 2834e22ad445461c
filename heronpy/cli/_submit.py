"""`submit`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from heronpy.cli._dry_run import Format, show_planned
from heronpy.cli._options import (
    ConfigPath,
    ConfigProperty,
    ServiceUrl,
    Verbose,
    home,
    path_given,
    read_properties,
    show_warnings,
)
from heronpy.cli._target import Place
from heronpy.errors import HeronError, NoTopologyError, UsageError
from heronpy.runtime import Launch


class SubmitCommand(TyperCommand):
    """Everything after CLASS belongs to the topology, also what looks like an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.params for name in param.opts if name.startswith("-")}
        with_value = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        return super().parse_args(ctx, end_options(args, options, with_value))


def end_options(
    args: list[str], options: set[str], with_value: set[str], *, names: Sequence[str] = ("CLUSTER", "FILE", "CLASS")
) -> list[str]:
    """Put `--` behind the last named argument (CLASS), so that no option is looked for after it.

    Args:
        options: The options of the verb itself.
        with_value: Those that take the next argument as their value.
        names: What the arguments before the user's are called.

    Raises:
        UsageError: an option of the verb follows CLASS. It would silently go to the user's code; who wants that writes
            `--` before it.
    """
    last = names[-1]
    positional = 0
    skip = False
    for i, arg in enumerate(args):
        if skip:
            skip = False
        elif arg == "--":
            return args
        elif arg.startswith("-") and arg != "-":
            skip = arg in with_value
        else:
            positional += 1
            if positional == len(names):
                rest = args[i + 1 :]
                if rest[:1] == ["--"]:
                    return args
                for late in rest:
                    if late.partition("=")[0] in options - {"-h", "--help", "-v"}:
                        raise UsageError(
                            f"{late} stands after {last}, so it would go to the user's code: put it before "
                            f"{names[-2:][0]}, or -- after {last} if that is meant"
                        )
                return [*args[: i + 1], "--", *rest]
    return args


SETTINGS = {"submit": {"cls": SubmitCommand}}


def submit(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER[/ROLE[/ENV]]", help="Where it runs.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .py, .pex or .zip file, or a dotted module.")],
    class_name: Annotated[str, typer.Argument(metavar="CLASS", help="The topology's class; - runs FILE as a script.")],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Passed to the topology, whatever they look like.")
    ] = None,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    deploy_deactivated: Annotated[
        bool, typer.Option("--deploy-deactivated", help="Start it paused.", show_default=False)
    ] = False,
    requirements: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=path_given, help="Requirements of pip to install for it.", show_default=False
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=REFERENCE",
            help="file:PATH, env:VARIABLE or kubernetes:SECRET/KEY; may be repeated.",
            show_default=False,
        ),
    ] = None,
    start_from: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Begin with the checkpoint that is there.")
    ] = None,
    allow_dropped_state: Annotated[
        bool,
        typer.Option(
            "--allow-dropped-state", help="With --from: leave behind state that is not declared.", show_default=False
        ),
    ] = False,
    allow_empty_state: Annotated[
        bool,
        typer.Option(
            "--allow-empty-state", help="Begin without state if no checkpoint can be read.", show_default=False
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the packing plan and start nothing.", show_default=False)
    ] = False,
    dry_run_format: Annotated[Format, typer.Option(help="How to print it.")] = Format.TABLE,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another name than the topology's own.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when tuples flow. Ctrl-C before that undoes the submission.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="With --wait: how long.", min=0)] = 60.0,
    simulator: Annotated[bool, typer.Option("--simulator", help="Run it in this process instead.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="With --simulator: for how long. Default: until Ctrl-C.", min=0),
    ] = None,
    service_url: ServiceUrl = "",
    verbose: Verbose = False,
) -> None:
    """Start a topology."""
    place = Place.parse(cluster)
    if service_url:
        from heronpy.cli import _service

        here: dict[str, object] = {
            "--simulator": simulator,
            "--from": start_from is not None,
            "--wait": wait,
            "--requirements": requirements,
            "--config-path": config_path,
            "--secret": secret,
        }
        _service.refuse(service_url, here)
        flags = {"topology.state.allow.empty": allow_empty_state, "topology.state.allow.dropped": allow_dropped_state}
        extra = [f"{key}=true" for key, given in flags.items() if given]
        done = _service.submit(
            service_url,
            place,
            file,
            class_name,
            args or [],
            properties=[*(config_property or []), *extra],
            name=name,
            deactivated=deploy_deactivated,
            dry_run=dry_run,
            dry_run_format=dry_run_format,
        )
        if dry_run:
            show_planned(done)
        else:
            print(f"submitted {done['name']} to {done['cluster']}/{done['role']}/{done['environment']}")
        return
    properties = read_properties(config_property or [])
    if allow_empty_state:
        properties["topology.state.allow.empty"] = "true"
    if allow_dropped_state:
        properties["topology.state.allow.dropped"] = "true"
    if secret:
        properties["topology.secrets"] = _secrets(secret)
    if requirements is not None:
        properties["heron.package.requirements"] = str(requirements.absolute())
    if simulator and start_from is not None:
        raise UsageError("--from is for topologies that run in processes, not for --simulator")
    show_warnings()
    try:
        definition = _define(file, class_name, args or [], name=name, paused=deploy_deactivated)
    except NoTopologyError:
        if {"-h", "--help"}.isdisjoint(args or []):
            raise
        return  # it has printed its help
    from heronpy.submit import prepare, storage_url, uninterrupted

    where: dict[str, Any] = {
        "cluster": place.cluster,
        "role": place.role,
        "environ": place.environ,
        "home": home(),
        "properties": properties,
        "config_path": config_path,
        "start_from": "" if start_from is None else storage_url(start_from),
    }
    if simulator:
        _simulate(definition, prepare(definition, **where), seconds)
        return
    if dry_run:
        from heronpy.cli._dry_run import show

        submission = prepare(definition, **where)
        show(submission.logical, submission.packing, dry_run_format)
        return
    launch = _start(definition, where, timeout_s=timeout if wait else None)
    with uninterrupted():  # it runs: an exit code that says otherwise would be wrong
        if class_name == "-" and name is None:
            _remember(definition, file, args or [])
        print(f"submitted {launch.topology} to {launch.cluster}/{launch.role}/{launch.environ}")


def _secrets(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, reference = pair.partition("=")
        if not equals:
            raise UsageError("--secret must have the form NAME=REFERENCE, for example db=file:~/db-password")
        found[name] = reference
    return found


def _define(file: str, class_name: str, args: list[str], *, name: str | None, paused: bool) -> Any:
    from heronpy import loader

    return loader.define(file, class_name, args, name=name, initial_state="PAUSED" if paused else "RUNNING")


def _remember(definition: Any, file: str, args: list[str]) -> None:
    """Let `heron pipeline` find the program by its name, if it has a batch side."""
    from heronpy.pipeline.registry import Remembered, remember
    from heronpy.plan import LogicalPlan
    from heronpy.streamlet.config import DIRECTORY_KEY

    path = Path(file)
    if DIRECTORY_KEY not in LogicalPlan.from_proto(definition.proto).config or path.suffix in (".pex", ".zip"):
        return
    job = str(path.resolve()) if path.is_file() else file
    with contextlib.suppress(HeronError):  # the topology runs all the same; `heron pipeline` can be given the file
        remember(home(), definition.name, Remembered(job, tuple(args), str(Path.cwd())))


def _simulate(definition: Any, planned: Any, seconds: float | None) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")  # what user code logs
    simulate = importlib.import_module("heronpy.testing").simulate
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        simulate(
            dataclasses.replace(definition, proto=planned.logical.proto),
            config=planned.launch.config.instance,
            seconds=seconds,
            secrets=importlib.import_module("heronpy.usersecrets").read_secrets(planned.launch.secrets),
        )


def _start(definition: Any, where: dict[str, Any], *, timeout_s: float | None) -> Launch:
    import heronpy.submit as submission

    launch = submission.submit(definition, **where)
    if timeout_s is not None:
        from heronpy.cli._wait import wait

        try:
            wait(launch, timeout_s=timeout_s, has_bolts=bool(definition.proto.bolts))
        except (KeyboardInterrupt, SystemExit):
            with submission.uninterrupted():
                submission.kill(launch)
            raise
    return launch
