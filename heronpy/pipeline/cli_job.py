"""What the verbs of `heron pipeline` have in common: which job, and when."""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from heronpy.cli.commands import end_options, home
from heronpy.errors import UnavailableError, UsageError, nearest
from heronpy.pipeline.load import Loaded, is_known, load_job
from heronpy.stores import SqliteStore, store_at

_EXTRAS = {"pyarrow": "spark", "pyspark": "spark", "datasketches": "spark", "redis": "redis", "psycopg": "postgres"}
"""Packages that come with an extra of this distribution."""


class JobCommand(TyperCommand):
    """Everything after the file or module of a job belongs to its script, also what looks like an option.

    After the name of a job nothing does, so options may stand behind it.
    """

    names: ClassVar[tuple[str, ...]] = ("JOB",)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.params for name in param.opts if name.startswith("-")}
        with_value = {name for param in self.params if not getattr(param, "is_flag", True) for name in param.opts}
        ref = first_word(args, with_value)
        before = args[: args.index(ref)] if ref is not None else []
        if any(arg.startswith("--") and arg.partition("=")[0] not in options for arg in before if arg != "--"):
            return super().parse_args(ctx, args)  # refused by its name: its value was taken for the job
        if ref is not None and not is_known(home(), ref):
            args = end_options(args, options, with_value, names=self.names)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as e:
            missing = (e.name or "").partition(".")[0]
            if missing not in _EXTRAS:
                raise
            raise UnavailableError(f"this needs {missing}: pip install 'heron-engine[{_EXTRAS[missing]}]'") from e


class KeyCommand(JobCommand):
    """The same with a key after the job."""

    names = ("JOB", "KEY")


def first_word(args: Sequence[str], with_value: set[str]) -> str | None:
    """The first argument that is neither an option nor the value of one."""
    skip = False
    for n, arg in enumerate(args):
        if skip:
            skip = False
        elif arg == "--":
            return args[n + 1] if n + 1 < len(args) else None
        elif arg.startswith("-") and arg != "-":
            skip = arg in with_value
        else:
            return arg
    return None


def load(
    ref: str, args: list[str] | None, name: str | None, live: str | None = None, *, makes_live: bool = False
) -> Loaded:
    """The job of a command line; see `load_job`.

    Raises:
        UsageError: its live views are to be in a directory that is not there, and the command does not make it.
    """
    store = None if live is None else store_at(live)
    there = store.directory if isinstance(store, SqliteStore) else None
    if there is not None and not makes_live and not there.is_dir():
        beside = [path.name for path in there.parent.iterdir()] if there.parent.is_dir() else []
        raise UsageError(f"--live {live}: there is no directory {there}{nearest(there.name, beside)}")
    return load_job(ref, args or [], home=home(), name=name, live=store)


def parse_time_ms(option: str, text: str) -> int:
    """`now`, seconds since the epoch, or an ISO time (UTC, unless it has an offset), in ms since the epoch.

    Raises:
        UsageError: none of these.
    """
    if text == "now":
        return int(time.time() * 1000)
    if re.fullmatch(r"\d{1,15}(\.\d*)?", text):
        return int(float(text) * 1000)
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:  # also seconds before the epoch, which people take for seconds before now
        raise UsageError(
            f"{option} {text!r} is no time: use 2026-01-31T12:00, seconds since the epoch, or now"
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return int(at.timestamp() * 1000)


def parse_batch(text: str, length_ms: int) -> int:
    """The id of a batch that is given as such, or by a time in it.

    Raises:
        UsageError: neither.
    """
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        return parse_time_ms("--batch", text) // length_ms
    except UsageError:
        raise UsageError(f"--batch {text!r} is no batch: use a time in it, as 2026-01-31T12:00, or its id") from None


def parse_key(text: str) -> Any:
    """A key as JSON if it is JSON (arrays are tuples), else the text itself.

    Raises:
        UsageError: a JSON object, which no key can be.
    """
    try:
        return _key(json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> None:
    raise ValueError(text)  # NaN is JSON to Python only; as a key it is text


def _key(value: Any) -> Any:
    if isinstance(value, dict):
        raise UsageError("a key is not a JSON object: arrays, texts, numbers, true, false and null are")
    return tuple(_key(v) for v in value) if isinstance(value, list) else value


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A .py file, a dotted module, or a job's name.")]
ArgsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS", help="Passed to the script, whatever they look like.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which program, if the script runs several.")
]
LiveOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where the live views are, if not where the program says: redis://…, postgresql://…, env:VARIABLE.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print it as JSON.", show_default=False)]
