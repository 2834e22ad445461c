"""Reading the end of a log file, and what is added to it, also across rotations.

A rotating log renames x.log to x.log.1, x.log.1 to x.log.2 and so on, and begins a new x.log. The file that was being
read is recognized by its inode: what was left in it is read first, then every file that is newer than it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from heronpy.config import FILES_MAX, KIB, MIB

_CHUNK_BYTES = 64 * KIB
READ_BYTES_MAX = 8 * MIB
"""Most that is read at once; of longer last lines only the end is shown."""


class Follower:
    """Yields what is appended to a file, whole lines only, in order and without a gap."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        with contextlib.suppress(FileNotFoundError):
            self._file = path.open("rb")

    def last(self, count: int) -> bytes:
        """The last `count` whole lines of what is there now; `read` goes on behind them.

        Where the newest file has fewer, the rotated ones before it are read too.
        """
        if self._file is None:
            return b""
        data = _tail(self._file, count, READ_BYTES_MAX)
        for path in self._older() if data.count(b"\n") < count else ():
            with contextlib.suppress(FileNotFoundError), path.open("rb") as older:
                data = _tail(older, count - data.count(b"\n"), READ_BYTES_MAX - len(data)) + data
            if data.count(b"\n") >= count or len(data) >= READ_BYTES_MAX:
                break
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        return b"".join(data[:whole].splitlines(keepends=True)[-count:]) if count else b""

    def rest(self) -> bytes:
        """What there is of a line that has no end yet."""
        return self._rest

    def read(self) -> bytes:
        """The lines that were added since the last call; of a great many, the first."""
        data = self._rest + self._drain()
        for path in self._newer() if len(data) < READ_BYTES_MAX else ():
            try:
                opened = path.open("rb")
            except FileNotFoundError:  # rotated once more in this moment: the next call finds it
                break
            data += self._drain()  # what came between the last read and the rotation
            self.close()
            self._file = opened
            data += self._drain()
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _drain(self) -> bytes:
        if self._file is None:
            return b""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # truncated in place
        return self._file.read(READ_BYTES_MAX)

    def _older(self) -> Iterator[Path]:
        """The files before the open one, newest first."""
        own = os.fstat(self._file.fileno()).st_ino if self._file is not None else 0
        found = False
        for path in [self._path, *(Path(f"{self._path}.{n}") for n in range(1, FILES_MAX + 1))]:
            with contextlib.suppress(FileNotFoundError):
                if found:
                    yield path
                else:
                    found = path.stat().st_ino == own

    def _newer(self) -> list[Path]:
        """The files that come after the open one, oldest first."""
        if self._file is None:
            return [self._path]
        own = os.fstat(self._file.fileno()).st_ino
        newer: list[Path] = []
        for path in [self._path, *(Path(f"{self._path}.{n}") for n in range(1, FILES_MAX + 1))]:
            try:
                if path.stat().st_ino == own:
                    return newer[::-1]
            except FileNotFoundError:
                if path == self._path:
                    return []  # between two steps of a rotation, or removed
                continue
            newer.append(path)
        return newer[::-1]  # the open file was deleted: everything there is newer


def _tail(file: BinaryIO, count: int, bytes_max: int) -> bytes:
    """The end of a file with at least its last `count` lines, if `bytes_max` is enough. The file is at its end then."""
    position = end = file.seek(0, os.SEEK_END)
    data = b""
    while position > 0 and data.count(b"\n") <= count and len(data) < bytes_max:
        step = min(_CHUNK_BYTES, position)
        position = file.seek(position - step)
        data = file.read(step) + data
    file.seek(end)
    return data
