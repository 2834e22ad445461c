"""Dead letters by reason. A file is read once: what was found in it is kept beside, in `dead-letter.json`."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from heronpy.archive import DEAD_LETTERS
from heronpy.errors import HeronError
from heronpy.filesystem import Files, Found, Location, files_of
from heronpy.pipeline.letters import is_of_run
from heronpy.pipeline.record import NAMES_MAX, Letters, kind_of, plain_text

COUNTS_FILE = f"{DEAD_LETTERS}.json"
NOT_READ = "not read"
"""Instead of a reason: there are too many new dead letters to read them all at a time."""
_BYTES_MAX = 64 * 1024 * 1024
"""So much of new dead letters is read for their reasons; those in the rest are counted under one."""
_REASON = re.compile(rb'\{"at": [^,]*, "where": "(?:[^"\\]|\\.)*", "reason": "((?:[^"\\]|\\.)*)"')


class _File(msgspec.Struct, frozen=True):
    """What was found in a file."""

    size_bytes: int
    """So much of it was read."""
    stamp: str
    counts: dict[str, int]
    """By the kind of reason."""


def dead_letters(directory: Location) -> tuple[Letters, ...]:
    """How many rows each origin has set aside in a job's directory, by side and kind of reason; most first.

    The live side and batch runs set aside each for itself: what neither can compute both have.

    Raises:
        OSError, HeronError: they cannot be read.
    """
    files = files_of(directory)
    known, now = _known(directory), dict[str, _File]()
    counts: Counter[tuple[str, str, str]] = Counter()
    left_bytes = _BYTES_MAX
    for origin, listed in sorted(files.folders(directory / DEAD_LETTERS)):
        for file in listed:
            if not file.path.name[0].isalnum():
                continue  # staged: it does not count yet
            name = f"{origin}/{file.path.name}"
            before = known.get(name)
            if before is None or before.stamp != file.stamp:
                with contextlib.suppress(FileNotFoundError):  # someone tidies up meanwhile
                    before = _counted(files, file, before, left_bytes)
                    left_bytes -= file.size_bytes
            if before is not None:
                now[name] = before
                side = "batch" if is_of_run(file.path) else "live"
                counts.update({(origin, kind, side): count for kind, count in before.counts.items()})
    whole = {name: found for name, found in now.items() if NOT_READ not in found.counts or name.endswith(".left-out")}
    if whole != known:
        with contextlib.suppress(HeronError, OSError):  # they are counted again
            files.write(directory / COUNTS_FILE, msgspec.json.encode(whole))
    most = counts.most_common(NAMES_MAX)
    return tuple(Letters(origin=plain_text(of), reason=kind, side=side, count=n) for (of, kind, side), n in most)


def _known(directory: Location) -> dict[str, _File]:
    try:
        return msgspec.json.decode(files_of(directory).read(directory / COUNTS_FILE), type=dict[str, _File])
    except (FileNotFoundError, msgspec.DecodeError, ValueError):
        return {}


def _counted(files: Files[Any], file: Found[Any], before: _File | None, left_bytes: int) -> _File:
    """What is in a file: lines are only ever appended to it."""
    counts: Counter[str] = Counter()
    if file.path.suffix == ".left-out":
        with contextlib.suppress(ValueError):
            counts[NOT_READ] += int(files.read(file.path) or 0)
        return _File(file.size_bytes, file.stamp, dict(counts))
    size_bytes = 0
    if file.path.suffix == ".jsonl":
        if before is not None and before.size_bytes <= file.size_bytes:
            size_bytes = before.size_bytes
            counts.update(before.counts)
        for line in _lines(files, file.path, size_bytes):
            if not line.endswith(b"\n"):
                break  # it is being written
            size_bytes += len(line)
            left_bytes -= len(line)
            counts[_kind(line) if left_bytes > 0 else NOT_READ] += 1
    return _File(size_bytes, file.stamp, dict(counts))


def _lines(files: Files[Any], path: Location, begin: int) -> Iterator[bytes]:
    if not isinstance(path, Path):
        yield from files.read(path)[begin:].splitlines(keepends=True)
        return
    with path.open("rb") as lines:
        lines.seek(begin)
        yield from lines


def _kind(line: bytes) -> str:
    found = _REASON.match(line)
    if found is None:
        return "other"
    with contextlib.suppress(ValueError):
        return kind_of(json.loads(b'"' + found[1] + b'"'))
    return "other"
