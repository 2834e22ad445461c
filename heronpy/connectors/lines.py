"""Files of lines, in byte ranges."""

# A line belongs to the range in which its first byte is. A range that begins in the middle of a file skips to the
# first line that begins there, and reads its last line to the end, wherever that is: so any division of a file into
# ranges gives each line once, and dividing the file needs no look into it.

from __future__ import annotations

import codecs
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heronpy.connectors._file_parts import BLOCK_BYTES, FilePart, first_line, next_line, ranges
from heronpy.connectors._files import Files, Pattern
from heronpy.connectors._part_splits import FileSource
from heronpy.connectors._parts import DeadLetter, Rows
from heronpy.connectors.spi import Split

LINE_BYTES_MAX = 64 << 20
"""A longer line is a dead letter."""
STREAM_PART_BYTES = 64 << 20
"""The stream face divides files into ranges of this size."""
_SHOWN_BYTES = 1000


class LineFormat(ABC):
    """What a line means. Picklable."""

    utf8 = True
    """Whether the lines are UTF-8. A byte order mark before the first is skipped then."""

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
class LinePart(FilePart):
    """The lines of a file that begin in a range of bytes."""

    format: LineFormat

    def rows_of(self, f: BinaryIO, position: int | None, time_ms: int, dead_letter: DeadLetter) -> Iterator[Rows]:
        begin = first_line(f, self.start) if position is None else next_line(f, position)
        for offset, block, following in blocks(f, begin, self.end, self.path, dead_letter, may_grow=self.may_grow):
            mark = len(codecs.BOM_UTF8) if offset == 0 and self.format.utf8 and block.startswith(codecs.BOM_UTF8) else 0
            values, starts = self.format.decode(block[mark:], offset + mark, self.path, dead_letter)
            yield Rows(values, starts, following, [time_ms] * len(values), f"{self.path}:")


def blocks(
    f: BinaryIO, begin: int, end: int, path: str, dead_letter: DeadLetter, *, may_grow: bool = False
) -> Iterator[tuple[int, bytes, int]]:
    """(offset, whole lines without the last newline, offset of the next) of all lines that begin before `end`.

    Args:
        f: the file.
        begin: where the first line begins.
        end: a byte of the file.
        path: its path.
        dead_letter: for lines that are too long.
        may_grow: whether a last line without an end is left out.
    """
    f.seek(begin)
    offset, rest = begin, b""
    while offset < end:
        more = f.read(
            max(BLOCK_BYTES, len(rest))
        )  # twice as much each time: a long line is copied twice, not 100 times
        if not more:
            if rest and not may_grow:
                yield offset, rest, offset + len(rest)
            return
        data = rest + more
        cut = data.rfind(b"\n", len(rest))
        if cut < 0:
            rest = data
            if len(rest) > LINE_BYTES_MAX:
                dead_letter(f"{path}:{offset}", shown(rest), f"the line is longer than {LINE_BYTES_MAX} bytes")
                offset, rest = first_line(f, offset + len(rest)), b""
                f.seek(offset)
            continue
        if offset + cut + 1 > end:
            cut = data.find(b"\n", end - 1 - offset)  # where the line ends in which the range ends
        yield offset, data[:cut], offset + cut + 1
        offset, rest = offset + cut + 1, data[cut + 1 :]


def starts_of(lines: Sequence[bytes] | Sequence[str], offset: int) -> list[int]:
    """Where each line begins, if the first begins at `offset` and one byte is between two."""
    starts = list(itertools.accumulate([len(line) + 1 for line in lines], initial=offset))
    starts.pop()
    return starts


def shown(raw: bytes) -> str:
    """Raw bytes as a dead letter shows them."""
    text = raw[:_SHOWN_BYTES].decode(errors="backslashreplace")
    return text if len(raw) <= _SHOWN_BYTES else f"{text}… ({len(raw)} bytes)"


class LineFiles(FileSource):
    """A source of files of lines, one format for all."""

    def __init__(self, pattern: Pattern, format: LineFormat) -> None:
        self._files = Files(pattern)
        self._format = format

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files})"

    def parts(self) -> Sequence[LinePart]:
        return self._parts(STREAM_PART_BYTES)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return self._parts(max(1, target_bytes))

    def _parts(self, part_bytes: int) -> list[LinePart]:
        return [LinePart(*span, self._format) for span in ranges(self._files, part_bytes)]
