"""Jobs that were loaded before: `$HERON_HOME/pipelines/<name>.json` says what to load, and with what arguments."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heronpy.config import check_name, is_name
from heronpy.errors import ConfigError, NotFoundError, StateError, nearest
from heronpy.files import replace_file

FOLDER = "pipelines"


@dataclass(frozen=True, slots=True)
class Remembered:
    """How a job was loaded."""

    job: str
    """An absolute path of a script, or a dotted module."""
    args: tuple[str, ...]
    """The script's `sys.argv[1:]`."""
    cwd: str
    """The working directory: arguments may be relative to it."""


def remember(home: Path, name: str, how: Remembered) -> None:
    """Note down how a job is loaded, instead of what was known under its name.

    Raises:
        ConfigError: a name that cannot be part of a path.
        StateError: it cannot be written.
    """
    path = _path(home, name)
    if known(home, name) == how:
        return
    try:
        # Arguments may hold what only their user is to see.
        replace_file(path, json.dumps(asdict(how), indent=1), mode=0o600)
    except OSError as e:
        raise StateError(f"{path} cannot be written: {e.strerror or e}") from e


def knows(home: Path, name: str) -> bool:
    """Whether a job of this name was loaded."""
    try:
        return _path(home, name).exists()
    except ConfigError:
        return False


def known(home: Path, name: str) -> Remembered | None:
    """How the job of this name was loaded last; None: it was not, or that cannot be read, and is to be written anew.

    Raises:
        ConfigError: a name that cannot be part of a path.
    """
    path = _path(home, name)
    try:
        return _parsed(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # one that cannot be replaced, either, raises where it is written


def recall(home: Path, name: str) -> Remembered:
    """How the job of this name was loaded last.

    Raises:
        NotFoundError: none was; names the nearest that was.
        StateError: its file cannot be read.
    """
    path = _path(home, name)
    try:
        found = json.loads(path.read_text())
        return _parsed(found)
    except FileNotFoundError:
        raise not_found(home, name) from None
    except (OSError, ValueError, KeyError, TypeError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else "damaged"
        raise StateError(f"{path} cannot be read ({why}): remove it, and load the job from its file once more") from e


def not_found(home: Path, name: str) -> NotFoundError:
    """The error for a job that is not known."""
    hint = nearest(name, names(home))
    if not hint:
        # It would not be remembered: a topology of that name could not be submitted.
        hint = ": load it once with `heron pipeline run FILE.py [ARGS]`" if is_name(name) else ": name its file instead"
    return NotFoundError(f"no job {name!r}, and no file or module of that name{hint}")


def names(home: Path) -> list[str]:
    """The names of all jobs that were loaded."""
    return sorted(path.stem for path in (home / FOLDER).glob("[!.]*.json"))


def _path(home: Path, name: str) -> Path:
    return home / FOLDER / f"{check_name('job name', name)}.json"


def _parsed(found: dict[str, Any]) -> Remembered:
    job, args, cwd = found["job"], found["args"], found["cwd"]
    if not (isinstance(job, str) and isinstance(cwd, str) and isinstance(args, list)):
        raise TypeError("wrong types")
    return Remembered(job, tuple(str(arg) for arg in args), cwd)
