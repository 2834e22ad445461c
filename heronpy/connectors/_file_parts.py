"""Parts of files that are read from byte to byte, plain or compressed with gzip."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Self, cast

from heronpy.connectors._files import Files, InputFile, damage, rests, share_of
from heronpy.connectors._parts import DeadLetter, Rows
from heronpy.connectors._times import Span
from heronpy.connectors.spi import Chunk

BLOCK_BYTES = 512 << 10
"""How much is read and decoded at a time; some ms."""
_BUFFERED_BYTES = 4 << 20
"""How much is asked of a store at a time."""
_COMPRESSED = ".gz"
_EXPANSION = 4
"""Bytes of text per byte of a compressed file: about."""
_LAST = 1 << 62
DAMAGED = (OSError, EOFError, zlib.error)
"""What is raised by reading a file that is damaged, or cannot be read now."""


@dataclass(frozen=True)
class FilePart(ABC):
    """What begins in a range of bytes of a file; also a split of a batch job.

    Of a compressed file these are bytes of its text. It is one part: only reading it shows how long it is.
    """

    file: InputFile
    start: int
    end: int
    number: int
    may_grow: bool = field(default=False, kw_only=True)
    """Whether a last line without an end is left for the next look, as long as it may still be being written."""

    @property
    def path(self) -> str:
        """What the file is called in ids and in dead letters."""
        return self.file.name

    @property
    def key(self) -> str:
        return f"{self.path}:{self.start}"

    @property
    def share(self) -> int:
        return share_of(self.path, self.number)

    @property
    def limit(self) -> int:
        if _compressed(self.path) or self.file.time_ms is None:
            return _LAST  # what cannot be read now is not shorter than it was
        return self.file.size_bytes

    @property
    def changed(self) -> Span | None:
        time_ms = self.file.time_ms
        return None if time_ms is None else (self.end, time_ms)

    @property
    def size_bytes(self) -> int:
        return _EXPANSION * self.file.size_bytes if _compressed(self.path) else self.end - self.start

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            if rows.values:
                yield rows.chunk()

    def growing(self) -> Self:
        return replace(self, may_grow=True)

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        growing = False
        try:
            with self._opened() as (f, time_ms):
                growing = self.may_grow and not rests(self.file, time_ms)
                # The text of a compressed file has its end: without it reading fails.
                part = replace(self, may_grow=growing and not _compressed(self.path))
                yield from part.rows_of(f, position, time_ms, dead_letter)
        except DAMAGED as e:
            if isinstance(e, EOFError) and growing:
                return
            dead_letter(self.path, None, f"cannot be read: {damage(self.path, e)}")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[BinaryIO, int]]:
        with self.file.opened() as (f, time_ms):
            raw: Any = f
            if isinstance(f, io.RawIOBase):
                raw = io.BufferedReader(f, _BUFFERED_BYTES)
            yield cast(BinaryIO, _GzipFile(fileobj=raw, mode="rb")) if _compressed(self.path) else raw, time_ms

    @abstractmethod
    def rows_of(self, f: BinaryIO, position: int | None, time_ms: int, dead_letter: DeadLetter) -> Iterator[Rows]:
        """The rows of the open file, from a position on, with the time of the file."""


class _GzipFile(gzip.GzipFile):
    """Gives all that comes before a damage before it raises that."""

    _damage: Exception | None = None

    def read(self, size: int | None = -1) -> bytes:
        if self._damage is not None:
            raise self._damage
        data = bytearray()
        while size is None or size < 0 or len(data) < size:
            try:
                more = self.read1(-1 if size is None or size < 0 else size - len(data))
            except DAMAGED as e:
                if not data:
                    raise
                self._damage = e
                break
            if not more:
                break
            data += more
        return bytes(data)


def ranges(files: Files, part_bytes: int | None) -> Iterator[tuple[InputFile, int, int, int]]:
    """(file, start, end, number) of the parts of some files; None: each is one part."""
    for file in files.found():
        if _compressed(file.name):
            yield file, 0, _LAST, 0
            continue
        size = file.size_bytes or 1  # one that cannot be read has one part as well: for the task that will say so
        for number, start in enumerate(range(0, size, part_bytes or size)):
            yield file, start, min(start + (part_bytes or size), size), number


def first_line(f: BinaryIO, start: int) -> int:
    """Where the first line begins that begins at `start` or later; the end of the file if there is none."""
    if start == 0:
        return 0
    f.seek(start - 1)
    while data := f.read(BLOCK_BYTES):
        newline = data.find(b"\n")
        if newline >= 0:
            return f.tell() - len(data) + newline + 1
    return f.tell()


def next_line(f: BinaryIO, position: int) -> int:
    """Where to go on when everything before `position` was read.

    The last line of a file may have had no end then. If it has one now, that is passed over; if it goes on, it was
    half written, and is read again: whole, and under the id that it had.
    """
    f.seek(max(0, position - 1))
    around = f.read(3)
    if position == 0 or len(around) < 2 or around[:1] == b"\n":
        return position
    ending = around[1:]
    if ending.startswith((b"\n", b"\r\n")):
        return position + ending.index(b"\n") + 1
    return _line_around(f, position)


def _line_around(f: BinaryIO, position: int) -> int:
    """Where the line begins that contains the byte before `position`."""
    while position > 0:
        begin = max(0, position - BLOCK_BYTES)
        f.seek(begin)
        newline = f.read(position - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        position = begin
    return 0


def _compressed(path: str) -> bool:
    return path.endswith(_COMPRESSED)
