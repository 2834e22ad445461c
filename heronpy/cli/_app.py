"""The command `heron`: finds the verb, runs it, and turns its error into one line and an exit code.

Each verb is imported only when it is called, because importing all of them would make `heron version` wait for gRPC.
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import importlib
import inspect
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from heronpy.cli._options import SERVICE_URL_ENV
from heronpy.errors import HeronError, UsageError, UserCodeError, nearest

VERBS = {
    "submit": "heronpy.cli._submit",
    "kill": "heronpy.cli._manage",
    "activate": "heronpy.cli._manage",
    "deactivate": "heronpy.cli._manage",
    "restart": "heronpy.cli._manage",
    "update": "heronpy.cli._update",
    "topologies": "heronpy.cli._show",
    "status": "heronpy.cli._show",
    "top": "heronpy.cli._top",
    "metrics": "heronpy.cli._metrics",
    "checkpoints": "heronpy.cli._checkpoints",
    "checkpoint": "heronpy.cli._checkpoints",
    "state": "heronpy.cli._state",
    "components": "heronpy.cli._plans",
    "logical-plan": "heronpy.cli._plans",
    "physical-plan": "heronpy.cli._plans",
    "logs": "heronpy.cli._logs",
    "log-level": "heronpy.cli._log_level",
    "stacks": "heronpy.cli._inside",
    "memory": "heronpy.cli._inside",
    "files": "heronpy.cli._inside",
    "tls": "heronpy.cli._tls",
    "pipeline": "heronpy.pipeline.cli",
    "tracker": "heron_tracker.cli",
    "apiserver": "heronpy.apiserver.cli",
    "viz": "heronpy.viz.cli",
    "bench": "heronpy.bench.cli",
    "version": "heronpy.cli._about",
    "help": "heronpy.cli._about",
}
"""Every verb, and the module with the function of that name."""

NEEDS_ACCESS = (
    *("top", "metrics", "checkpoints", "checkpoint", "state", "components", "logical-plan", "physical-plan", "logs"),
    *("log-level", "stacks", "memory", "files", "tls"),
)
"""The verbs for topologies that an API server does not have."""

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

# The base of what typer raises for a wrong command line; its name moves between typer's versions, its place does not.
_ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class Verbs(TyperGroup):
    """A group of verbs, each imported when it is needed."""

    verbs: ClassVar[Mapping[str, str]] = VERBS
    """Every verb, and the module with the function (or the group) of that name."""
    group: ClassVar[str] = ""
    """The verb that these belong to; empty: they are those of `heron`."""
    hint: ClassVar[str] = ": see `heron help`"
    """After the name of a verb that there is not, unless one is near."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in self.verbs if self._load(name) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = self._load(cmd_name) if cmd_name in self.verbs else None
        if command is None and not ctx.resilient_parsing and not cmd_name.startswith("-"):
            raise UsageError(f"unknown command {cmd_name!r}{nearest(cmd_name, self.verbs) or self.hint}")
        return command

    def _load(self, name: str) -> Any:
        if name not in self.commands:
            path = self.verbs[name]
            try:
                module = importlib.import_module(path)
            except ModuleNotFoundError as e:
                if e.name is None or not path.startswith(e.name):
                    raise
                return None  # this installation comes without the verb
            function = getattr(module, name.replace("-", "_"))
            if self.group in NEEDS_ACCESS:
                function = _needs_access(f"{self.group} {name}", function)
            elif self.verbs is VERBS and name in NEEDS_ACCESS and not isinstance(function, type):
                function = _needs_access(name, function)
            command = _command(name, function, getattr(module, "SETTINGS", {}).get(name, {}))
            # Given in full, because what is derived from the docstring is cut at 45 characters.
            command.short_help = command.short_help or _summary(function)
            self.commands[name] = command
        return self.commands[name]


def _needs_access(name: str, function: Any) -> Any:
    """A verb that is refused where an API server is meant: it would look for another topology of the same name here."""

    @functools.wraps(function)
    def verb(*args: Any, **options: Any) -> Any:
        if os.environ.get(SERVICE_URL_ENV):
            raise UsageError(
                f"`heron {name}` does not work through an API server: run it where the cluster can be reached, without "
                f"{SERVICE_URL_ENV}"
            )
        return function(*args, **options)

    return verb


def _summary(function: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _command(name: str, found: Any, settings: dict[str, Any]) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(found, type) and issubclass(found, Verbs):  # a verb with verbs of its own
        app = typer.Typer(cls=found, add_completion=False, rich_markup_mode=None, help=found.__doc__, **settings)

        @app.callback(invoke_without_command=True)
        def _alone(ctx: typer.Context) -> None:
            if ctx.invoked_subcommand is None:
                print(ctx.get_help())
    else:
        app.command(name, **settings)(found)
    return typer.main.get_command(app)


def main(*words: str) -> None:
    """Run the command line of this process, after these words if there are any, and exit."""
    atexit.register(_is_done)
    sys.exit(run([*words, *sys.argv[1:]]))


def _is_done() -> None:
    # While Python clears up, signals have their default action again: an interrupt would kill the process, and what it
    # has done would look undone.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    gc.freeze()  # it would look for garbage in every module, which takes a fifth of the CPU of a short command


def run(args: Sequence[str]) -> int:
    """Run one command. Returns its exit code; an error is one line on stderr."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log lines would stand between ours
    for name in ("heronpy", "heron_scheduler", "kazoo", "asyncio"):
        logging.getLogger(name).addHandler(logging.NullHandler())  # else Python prints their warnings to stderr
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # not every locale has our arrows
        code = _group().main(args=list(args), prog_name="heron", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as e:
        # The one broad except: whatever happened, the user gets one line, and the traceback with -v.
        return _report(e, args)
    if code == INTERRUPTED:
        print("heron: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _group() -> Any:
    app = typer.Typer(
        cls=Verbs,
        rich_markup_mode=None,  # square brackets mean what they say
        help="Submit topologies, and see, steer and end those that run.",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="A topology is named by CLUSTER[/ROLE[/ENV]] NAME, or by NAME alone where only one has it.",
    )

    @app.callback(invoke_without_command=True)
    def _root(
        ctx: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version.", show_default=False)] = False,
    ) -> None:
        if version:
            ctx.invoke(importlib.import_module(VERBS["version"]).version)
        elif ctx.invoked_subcommand is None:
            print(ctx.get_help())

    return typer.main.get_command(app)


def _report(error: Exception, args: Sequence[str]) -> int:
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        # The reader of our output has seen enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if verbose():
        traceback.print_exception(error)
    elif isinstance(error, UserCodeError) and error.traceback:
        print(error.traceback.rstrip("\n"), file=sys.stderr)
    if isinstance(error, HeronError):
        message, code = str(error), error.exit_code
    elif isinstance(error, _ClickException):
        context = getattr(error, "ctx", None)
        # An option without its value has no context.
        path = context.command_path if context else " ".join(("heron", *(word for word in args[:1] if word in VERBS)))
        message, code = f"{error.format_message().rstrip('.')}. See `{path} --help`.", 2  # type: ignore[attr-defined]  # its interface
    elif isinstance(error, OSError):
        message, code = f"{error.filename or 'error'}: {error.strerror or error}", 1
    else:
        message, code = f"unexpected {type(error).__name__}: {error} (-v shows where)", 70
    first, *more = [line.strip() for line in message.splitlines() if line.strip()] or [type(error).__name__]
    # What a process that did not start has logged comes with its error: its last line says why, all of it is for -v.
    print(f"heron: {first}{f' {more[-1]}' if more else ''}", file=sys.stderr)
    return code


def verbose() -> bool:
    """Whether -v was given."""
    return logging.getLogger("heronpy").isEnabledFor(logging.DEBUG)
