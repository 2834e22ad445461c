"""How much a task holds, and what it does when that is too much: files without names, which go with the process.

The bound is Spark's own, `spark.python.worker.memory`: what a Python worker may use before it writes to disk. It is
compared with the resident memory of the process, because nobody knows what a user's accumulators weigh: a sketch may
take 16 KB, a set anything.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import psutil

MIB = 1024 * 1024
LIMIT_BYTES = 512 * MIB
LIMIT_KEY = "spark.python.worker.memory"
_UNITS = {"": MIB, "k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}
_HEADROOM = 16
"""A task whose process is at the limit without its doing may hold a sixteenth of it all the same."""
_FRAME_ROWS = 1024
"""Rows that are written together, and are in memory together when they are read, at most."""
_FRAME_BYTES = 256 * 1024
"""Of several rows, at most."""


def limit_of(text: str) -> int:
    """Bytes, for what Spark takes as a size: `512m`, `1g`; a bare number is MiB."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    return int(match[1]) * _UNITS[match[2]] if match else LIMIT_BYTES


class Memory:
    """What the process of a task may use."""

    def __init__(self, limit_bytes: int) -> None:
        """Begin a task."""
        self._process = psutil.Process()
        self._limit = limit_bytes
        self._bound = max(limit_bytes, self._used() + limit_bytes // _HEADROOM)

    def is_full(self) -> bool:
        """Whether something must leave memory; costs microseconds: ask once in some thousand elements."""
        return self._used() > self._bound

    def emptied(self) -> None:
        """What could leave has left."""
        gc.collect(0)
        _give_back()
        # What the allocator keeps is used again first; without room above that, every chunk would be written.
        self._bound = max(self._limit, self._used() + self._limit // _HEADROOM)

    def _used(self) -> int:
        return int(self._process.memory_info().rss)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # no glibc
        return None


def _give_back() -> None:
    """Give memory that is free in the C library back to the system: else it counts as used."""
    trim = _trim()
    if trim is not None:
        trim(0)


class SpillFile:
    """Frames of rows on disk; without a name, so that nothing is left of it however the process ends."""

    def __init__(self, directory: str | None) -> None:
        """Open a file in a directory; None: where temporary files are."""
        self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115  # closed by `close`
        self._end = 0
        self._frame_rows = _FRAME_ROWS

    def write_rows(self, rows: Iterable[Any], wrap: Callable[[list[Any]], Any]) -> list[tuple[int, int]]:
        """Write rows in frames, each of them what `wrap` makes of some rows, pickled. Where they are.

        Raises:
            OSError: the disk is full.
        """
        places: list[tuple[int, int]] = []
        waiting = iter(rows)
        while frame := list(itertools.islice(waiting, self._frame_rows)):
            self._write_frame(frame, wrap, places)
        return places

    def _write_frame(self, frame: list[Any], wrap: Callable[[list[Any]], Any], places: list[tuple[int, int]]) -> None:
        data = _dumped(wrap(frame))
        if len(data) > _FRAME_BYTES and len(frame) > 1:
            middle = len(frame) // 2
            self._frame_rows = max(1, min(self._frame_rows, middle))  # the next ones are as large
            self._write_frame(frame[:middle], wrap, places)
            self._write_frame(frame[middle:], wrap, places)
        else:
            places.append(self.write(data))

    def write(self, data: bytes) -> tuple[int, int]:
        """Where it is.

        Raises:
            OSError: the disk is full.
        """
        at = (self._end, len(data))
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self._end += len(data)
        return at

    def read(self, at: tuple[int, int]) -> bytes:
        """What was written there."""
        offset, length = at
        pieces = []
        while length:
            piece = os.pread(self._file.fileno(), length, offset)
            if not piece:
                raise EOFError("a spilled frame is not there")
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Free its space."""
        self._file.close()


def frames(rows: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Rows, some together."""
    waiting = iter(rows)
    while frame := list(itertools.islice(waiting, most)):
        yield frame


def _dumped(rows: Any) -> bytes:
    """Pickled, also if classes of a script are in it."""
    try:
        return pickle.dumps(rows, protocol=5)
    except Exception:  # such classes, and lambdas
        return bytes(cloudpickle.dumps(rows))
