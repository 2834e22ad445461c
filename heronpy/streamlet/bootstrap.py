"""What a topology begins with, if a batch job has computed it: state of reductions, and the time that it reaches.

bootstrap/states/<stage>.pickle     pairs (key, value), in pickled lists
bootstrap/cut.json                  whose states there are; elements of before a time are in them, and in batch views

In a store a folder cannot be replaced: there `bootstrap.json` says which one counts, what is in it, and the cut.

Written by the job, into the job's own directory, which is why it may be unpickled.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote

from heronpy.errors import HeronError, StateError
from heronpy.files import replace_file, replacing
from heronpy.filesystem import Location, UrlPath, stored_files

_CHUNK = 1000
_NAMED = "bootstrap.json"
_CUT = "bootstrap/cut.json"
_BUFFERED_BYTES = 1 << 20
_Place = TypeVar("_Place", Path, UrlPath)


def write_states(directory: Location, stage: str, items: Iterable[tuple[Any, Any]]) -> None:
    """Make these the initial state of a stage, atomically; in a store, when `name_bootstrap` names them.

    Args:
        directory: the job's.
        stage: name of a `reduce_by_key`.
        items: its keys with their values so far.
    """
    if isinstance(directory, Path):
        writing: AbstractContextManager[BinaryIO] = replacing(_states(directory, stage))
    else:
        writing = stored_files(directory).writing(_states(directory, stage))
    with writing as file:
        pairs = iter(items)
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            pickle.dump(chunk, file, 5)


def read_states(directory: Location, stage: str, place: str = "") -> Iterator[tuple[Any, Any]]:
    """The initial state of a stage; nothing if there is none.

    Args:
        directory: the job's.
        stage: name of a `reduce_by_key`.
        place: where it is in its program, see `ReduceByKeyNode.place`.

    Raises:
        StateError: it is damaged, or of another reduction, which had that name before the program was changed.
    """
    named = _named(directory) or {"states": {}}
    if named["states"].get(stage) not in (None, place):
        raise StateError(
            f"the bootstrap in {directory} has the state of another {stage}, from before the program was changed: run "
            "the bootstrap again, and give reductions names with set_name()"
        )
    if isinstance(directory, UrlPath):
        yield from _stored_states(directory, stage, named)
        return
    path = _states(directory, stage)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from _pairs(file, os.fstat(file.fileno()).st_size, path)


def _stored_states(directory: UrlPath, stage: str, named: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if stage not in named["states"]:
        return
    path = _states(directory / named["folder"], stage)
    try:
        with stored_files(path).opened(path) as (raw, found):
            assert isinstance(raw, io.RawIOBase)
            yield from _pairs(io.BufferedReader(raw, _BUFFERED_BYTES), found.size_bytes, path)
    except FileNotFoundError as e:
        raise StateError(f"{path} is missing: run the bootstrap again") from e


def _pairs(file: BinaryIO | io.BufferedReader, size: int, path: Location) -> Iterator[tuple[Any, Any]]:
    while file.tell() < size:
        try:
            chunk = pickle.load(file)
        except HeronError:
            raise
        except Exception as e:
            # Damaged pickles raise nearly anything.
            raise StateError(f"{path} cannot be read: {e}; run the bootstrap again") from e
        yield from chunk


def write_cut(directory: Path, before_ms: int, states: Mapping[str, str] = {}) -> None:
    """Have the topology leave out elements of before a time, in ms since the epoch.

    Args:
        directory: the job's.
        before_ms: that time.
        states: stages that have states there, with their places in the program.
    """
    data = json.dumps({"before_ms": before_ms, "states": dict(states)}).encode()
    replace_file(directory / _CUT, data)


def read_cut(directory: Location) -> int | None:
    """The time that `write_cut` was given; None if there is none.

    Raises:
        StateError: it is damaged.
    """
    named = _named(directory)
    return None if named is None else named["before_ms"]


def name_bootstrap(directory: UrlPath, folder: str, states: Mapping[str, str], before_ms: int) -> None:
    """Have topologies of a job in a store begin with the states in a folder, and leave out what is before a time.

    Args:
        directory: the job's.
        folder: below it; what `write_states` was given.
        states: stages that have states there, with their places in the program.
        before_ms: in ms since the epoch.
    """
    named = {"folder": folder, "states": dict(states), "before_ms": before_ms}
    stored_files(directory).write(directory / _NAMED, json.dumps(named).encode())


def _named(directory: Location) -> dict[str, Any] | None:
    path = directory / (_NAMED if isinstance(directory, UrlPath) else _CUT)
    try:
        if isinstance(path, UrlPath):
            named = json.loads(stored_files(path).read(path))
            if not isinstance(named["folder"], str):
                raise TypeError("it has no folder")
        else:
            named = json.loads(path.read_bytes())
        states = named.get("states", {})  # an earlier heronpy did not say where these are in the program
        return {
            **named,
            "before_ms": int(named["before_ms"]),
            "states": states if isinstance(states, dict) else dict.fromkeys(states),
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise StateError(f"{path} cannot be read: {e}; run the bootstrap again") from e


def _states(directory: _Place, stage: str) -> _Place:
    name = stage if isinstance(directory, Path) else quote(stage, safe="")
    return directory / "bootstrap" / "states" / f"{name}.pickle"
