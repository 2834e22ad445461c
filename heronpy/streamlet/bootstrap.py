"""What a topology begins with, if a batch job has computed it: state of reductions, and the time that it reaches.

bootstrap/states/<stage>.pickle     pairs (key, value), in pickled lists
bootstrap/cut.json                  elements of before this time are in those states, and in batch views

Written by the job, into the job's own directory, which is why it may be unpickled.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heronpy.errors import StateError
from heronpy.files import replace_file, replacing
from heronpy.filesystem import Location

_CHUNK = 1000


def write_states(directory: Path, stage: str, items: Iterable[tuple[Any, Any]]) -> None:
    """Make these the initial state of a stage, atomically.

    Args:
        directory: the job's.
        stage: name of a `reduce_by_key`.
        items: its keys with their values so far.
    """
    pairs = iter(items)
    with replacing(_states(directory, stage)) as file:
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            pickle.dump(chunk, file, 5)


def read_states(directory: Location, stage: str) -> Iterator[tuple[Any, Any]]:
    """The initial state of a stage; nothing if there is none.

    Raises:
        StateError: it is damaged.
    """
    if not isinstance(directory, Path):
        return  # there can be none: the bootstrap refuses stores
    path = _states(directory, stage)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        while file.tell() < size:
            try:
                yield from pickle.load(file)
            except Exception as e:
                # Damaged pickles raise nearly anything.
                raise StateError(f"{path} cannot be read: {e}; run the bootstrap again") from e


def write_cut(directory: Path, before_ms: int) -> None:
    """Have the topology leave out elements of before a time, in ms since the epoch."""
    data = json.dumps({"before_ms": before_ms}).encode()
    replace_file(directory / "bootstrap" / "cut.json", data)


def read_cut(directory: Location) -> int | None:
    """The time that `write_cut` was given; None if there is none.

    Raises:
        StateError: it is damaged.
    """
    if not isinstance(directory, Path):
        return None  # as above
    path = directory / "bootstrap" / "cut.json"
    try:
        return int(json.loads(path.read_bytes())["before_ms"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise StateError(f"{path} cannot be read: {e}; run the bootstrap again") from e


def _states(directory: Path, stage: str) -> Path:
    return directory / "bootstrap" / "states" / f"{stage}.pickle"
