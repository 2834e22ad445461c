"""`state`: looking into what a topology has stored."""

from __future__ import annotations

import ast
import contextlib
import datetime
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import typer

from heronpy.cli._app import Verbs
from heronpy.cli._options import AsJson, ConfigPath, ConfigProperty, Verbose, home, read_properties
from heronpy.cli._show import WIDTH, empty_table
from heronpy.cli._target import resolve
from heronpy.errors import NotFoundError, UsageError, UserCodeError
from heronpy.runtime import Launch

SHOWN = 100
"""So many entries are shown unless more are asked for."""
_WIDTH_MAX = 200
_PLAIN = (str, bytes, int, float, bool, tuple, type(None))


class state(Verbs):  # named as the verb
    """See the state that a topology has stored in its checkpoints."""

    verbs: ClassVar[Mapping[str, str]] = {"show": "heronpy.cli._state"}
    group: ClassVar[str] = "state"
    hint: ClassVar[str] = ": see `heron state --help`"


def show(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CLUSTER/ROLE[/ENV]] NAME [COMPONENT [STATE [KEY]]]",
            help='Of which topology; KEY as text, or as JSON (7, true, ["a", 7]).',
        ),
    ],
    limit: Annotated[int, typer.Option(help="Show at most so many entries; 0: all.", min=0)] = SHOWN,
    as_json: AsJson = False,
    config_path: ConfigPath = None,
    config_property: ConfigProperty = None,
    verbose: Verbose = False,
) -> None:
    """Show the newest committed checkpoint: which states it has, or keys and values of one.

    Values of other than plain types are unpickled, which imports the topology's classes and runs code that the
    checkpoint names. So only what is your own is read: the topology's directory must be yours, and so must a storage
    that is a directory. Other users who can write to an S3 or Redis storage can run code as you.
    """
    place, words = (words[:1], words[1:]) if "/" in words[0] else ([], words)
    if not 1 <= len(words) <= 4:
        raise UsageError("give [CLUSTER/ROLE[/ENV]] NAME [COMPONENT [STATE [KEY]]]")
    properties = read_properties(config_property or [])
    launch, _ = resolve([*place, words[0]], home=home(), config_path=config_path, properties=properties)
    if len(words) < 3:
        _show_names(launch, words[1] if len(words) > 1 else None, as_json=as_json)
    else:
        _show_entries(launch, words[1], words[2], words[3] if len(words) > 3 else None, limit, as_json=as_json)


def _show_names(launch: Launch, component: str | None, *, as_json: bool) -> None:
    from heronpy import submit

    checkpoint, found = submit.stored_states(launch, component)
    if as_json:
        fields = ("component", "name", "kind", "codec", "version", "tasks")
        states = [{field: getattr(one, field) for field in fields} for one in found]
        print(json.dumps({"checkpoint": checkpoint, "states": states}, indent=2))
        return
    table = empty_table("component", "state", "kind", "codec", right=("version", "tasks"))
    for one in found:
        table.add_row(one.component, one.name, one.kind, one.codec, str(one.version), str(one.tasks))
    print(f"checkpoint {checkpoint} of {launch.topology}")
    _print(table)


def _show_entries(launch: Launch, component: str, name: str, key: str | None, limit: int, *, as_json: bool) -> None:
    from heronpy import submit
    from heronpy.loader import activate

    try:
        activate(submit.with_running_code(launch))
    except UserCodeError as e:
        print(f"heron: classes of the topology are not known: {e}", file=sys.stderr)
    found = submit.stored_state(launch, component, name, keys=None if key is None else [*_meant(key)])
    wanted = found.entries if key is None else [one for one in found.entries if _is(one.key, key)]
    if key is not None and not wanted:  # it may be named by what it shows itself as
        found = submit.stored_state(launch, component, name)
        wanted = [one for one in found.entries if _is(one.key, key)]
    if key is not None and not wanted:
        raise NotFoundError(f"state {name!r} of {component!r} has no key {key} in checkpoint {found.checkpoint}")
    shown = wanted[:limit] if limit else wanted
    if as_json:
        entries = [
            {
                "key": _plain(one.key),
                "value": _plain(one.value),
                "task": one.task,
                "written": _time(one.written_ms) if one.written_ms else None,
            }
            for one in shown
        ]
        about = {"checkpoint": found.checkpoint, "kind": found.kind, "total": len(wanted)}
        print(json.dumps({**about, "entries": entries}, indent=2))
        return
    by_task = any(one.task is not None for one in shown)
    times = any(one.written_ms for one in shown)
    table = empty_table("key", "value", *(["written (UTC)"] if times else []), right=("task",) if by_task else ())
    for one in shown:
        written = [_time(one.written_ms)] if times else []
        task = [str(one.task)] if by_task else []
        table.add_row(_short(one.key), _short(one.value), *written, *task)
    print(f"{name} of {component} in checkpoint {found.checkpoint}: {len(wanted):,} entries")
    _print(table)
    if len(shown) < len(wanted):
        print(f"{len(wanted) - len(shown):,} more: --limit 0 shows all", file=sys.stderr)


def _is(key: Any, text: str) -> bool:
    """Whether a key is the one that the user has named."""
    return any(key == named and type(key) is type(named) for named in _meant(text)) or repr(key) == text


def _meant(text: str) -> Iterator[Any]:
    """The keys of plain types that a text may name, at least itself."""
    yield text
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = _tuples(read(text))
            if isinstance(value, _PLAIN):
                yield value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A value as JSON has it, or what it shows itself as."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(one) for key, one in value.items()}
    return _repr(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as e:  # of the user's class
        return f"<{type(value).__name__}: its repr raised {type(e).__name__}>"


def _short(value: Any) -> str:
    text = _repr(value)
    return text if len(text) <= _WIDTH_MAX else f"{text[:_WIDTH_MAX]}…"


def _time(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")


def _print(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False, width=WIDTH).print(table)
