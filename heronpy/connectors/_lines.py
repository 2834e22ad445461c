"""Files of lines, in byte ranges."""

# A line belongs to the range in which its first byte is. A range that begins in the middle of a file skips to the
# first line that begins there, and reads its last line to the end, wherever that is: so any division of a file into
# ranges gives each line once, and nobody has to look into the file to divide it.

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heronpy.connectors._files import Files, Pattern, share_of, size_of, time_of, why
from heronpy.connectors._parts import DeadLetter, PartReader, Rows
from heronpy.connectors._spi import Chunk, Source, SourceContext, SourceReader, Split
from heronpy.connectors._times import Span

BLOCK_BYTES = 512 << 10
"""How much is read and decoded at a time; some ms."""
LINE_BYTES_MAX = 64 << 20
"""A longer line is a dead letter."""
STREAM_PART_BYTES = 64 << 20
"""The stream face divides files into ranges of this size."""
_SHOWN_BYTES = 1000


class LineFormat(ABC):
    """What a line means. Picklable."""

    @abstractmethod
    def decode(self, block: bytes, offset: int, path: str, dead_letter: DeadLetter) -> tuple[list[Any], list[int]]:
        """The elements in whole lines, and where each begins in the file.

        Args:
            block: lines, without the last newline.
            offset: where the first begins.
            path: of the file.
            dead_letter: for malformed lines.
        """


@dataclass(frozen=True)
class LinePart:
    """The lines of a file that begin in a range of bytes; also a split of a batch job."""

    path: str
    start: int
    end: int
    number: int
    format: LineFormat

    @property
    def key(self) -> str:
        return f"{self.path}:{self.start}"

    @property
    def share(self) -> int:
        return share_of(self.path, self.number)

    @property
    def limit(self) -> int:
        return size_of(self.path)

    @property
    def changed(self) -> Span | None:
        time_ms = time_of(self.path)
        return None if time_ms is None else (self.end, time_ms)

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            if rows.values:
                yield rows.chunk()

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        try:
            with open(self.path, "rb") as f:
                time_ms = os.fstat(f.fileno()).st_mtime_ns // 1_000_000
                begin = _first_line(f, self.start) if position is None else position
                for offset, block, following in blocks(f, begin, self.end, self.path, dead_letter):
                    values, starts = self.format.decode(block, offset, self.path, dead_letter)
                    yield Rows(values, starts, following, [time_ms] * len(values), f"{self.path}:")
        except OSError as e:
            dead_letter(self.path, None, f"cannot be read: {why(e)}")


def blocks(f: BinaryIO, begin: int, end: int, path: str, dead_letter: DeadLetter) -> Iterator[tuple[int, bytes, int]]:
    """(offset, whole lines without the last newline, offset of the next) of all lines that begin before `end`.

    Args:
        f: the file.
        begin: where the first line begins.
        end: a byte of the file.
        path: its path.
        dead_letter: for lines that are too long.
    """
    f.seek(begin)
    offset, rest = begin, b""
    while offset < end:
        more = f.read(BLOCK_BYTES)
        if not more:
            if rest:
                yield offset, rest, offset + len(rest)
            return
        data = rest + more
        cut = data.rfind(b"\n", len(rest))
        if cut < 0:
            rest = data
            if len(rest) > LINE_BYTES_MAX:
                dead_letter(f"{path}:{offset}", shown(rest), f"the line is longer than {LINE_BYTES_MAX} bytes")
                offset, rest = _first_line(f, offset + len(rest)), b""
                f.seek(offset)
            continue
        if offset + cut + 1 > end:
            cut = data.find(b"\n", end - 1 - offset)  # where the line ends in which the range ends
        yield offset, data[:cut], offset + cut + 1
        offset, rest = offset + cut + 1, data[cut + 1 :]


def _first_line(f: BinaryIO, start: int) -> int:
    """Where the first line begins that begins at `start` or later; the end of the file if there is none."""
    if start == 0:
        return 0
    f.seek(start - 1)
    while data := f.read(BLOCK_BYTES):
        newline = data.find(b"\n")
        if newline >= 0:
            return f.tell() - len(data) + newline + 1
    return f.tell()


def starts_of(lines: Sequence[bytes] | Sequence[str], offset: int) -> list[int]:
    """Where each line begins, if the first begins at `offset` and one byte is between two."""
    starts = list(itertools.accumulate([len(line) + 1 for line in lines], initial=offset))
    starts.pop()
    return starts


def shown(raw: bytes) -> str:
    """Raw bytes as a dead letter shows them."""
    text = raw[:_SHOWN_BYTES].decode(errors="backslashreplace")
    return text if len(raw) <= _SHOWN_BYTES else f"{text}… ({len(raw)} bytes)"


class LineFiles(Source):
    """A source of files of lines, one format for all."""

    def __init__(self, pattern: Pattern, format: LineFormat) -> None:
        self._files = Files(pattern)
        self._format = format

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files})"

    def open(self, context: SourceContext) -> SourceReader:
        return PartReader(self._parts(STREAM_PART_BYTES), context)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return self._parts(max(1, target_bytes))

    def _parts(self, part_bytes: int) -> list[LinePart]:
        parts = []
        for path in self._files.paths():
            size = size_of(path)
            for number, start in enumerate(range(0, size or 1, part_bytes)):
                # A file that cannot be read has one part as well: for the task that will say so.
                parts.append(LinePart(path, start, min(start + part_bytes, max(size, 1)), number, self._format))
        return parts
