"""CSV files."""

from __future__ import annotations

import codecs
import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heronpy.connectors._file_parts import DAMAGED, FilePart, first_line, next_line, ranges
from heronpy.connectors._files import Files, Pattern, why
from heronpy.connectors._part_splits import FileSource
from heronpy.connectors._parts import DeadLetter, Rows
from heronpy.connectors._text import check_encoding
from heronpy.connectors.lines import LINE_BYTES_MAX, shown
from heronpy.connectors.spi import Split
from heronpy.errors import ConfigError

_ROWS = 4096


@dataclass(frozen=True)
class _Dialect:
    encoding: str
    header: bool
    fields: tuple[str, ...] | None
    delimiter: str
    quotechar: str


class CsvFile(FileSource):
    """The rows of CSV files, as dicts of text; without a header and `fields`, as lists of text.

    Quoted fields may contain newlines, so a file is read by one task. Blank lines are not records. The id of a row is
    `<path>:<byte offset>`; times and restarts are `TextFile`'s. A row with another number of fields than the header,
    or with broken quotes, is a dead letter, and so is a file whose header has a name twice, unless there are `fields`.
    """

    def __init__(
        self,
        pattern: Pattern,
        *,
        header: bool = True,
        fields: Sequence[str] | None = None,
        delimiter: str = ",",
        quotechar: str = '"',
        encoding: str = "utf-8",
    ) -> None:
        """Describe the files; they are looked up when the source is opened.

        Args:
            pattern: a glob (`**` for any folders), a file or a list of paths; relative ones from the present directory.
                Or URLs, `s3://bucket/logs/*/*.jsonl?endpoint=…&region=…`; in a glob among them `?` is no wildcard.
            header: whether the first row of each file has the names of the fields.
            fields: names to use, instead of the header's if there is one.
            delimiter: between fields; one character.
            quotechar: around fields; one character.
            encoding: one in which a newline is one byte, so not UTF-16. A byte order mark is skipped.

        Raises:
            ConfigError: an unsuitable encoding, delimiter or quote, or one field twice.
        """
        check_encoding(encoding)
        try:
            csv.reader([], delimiter=delimiter, quotechar=quotechar)
        except (TypeError, ValueError) as e:
            raise ConfigError(f"CsvFile({pattern!r}): {why(e)}") from None
        self._files = Files(pattern)
        names = None if fields is None else tuple(fields)
        if names is not None and (twice := _twice(names)) is not None:
            raise ConfigError(f"CsvFile({pattern!r}): there are several fields {twice!r}")
        self._dialect = _Dialect(encoding, header, names, delimiter, quotechar)

    def __repr__(self) -> str:
        return f"CsvFile({self._files})"

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return self.parts()

    def parts(self) -> list[_CsvPart]:
        return [_CsvPart(*span, self._dialect) for span in ranges(self._files, None)]


@dataclass(frozen=True)
class _CsvPart(FilePart):
    dialect: _Dialect

    def rows_of(self, f: BinaryIO, position: int | None, time_ms: int, dead_letter: DeadLetter) -> Iterator[Rows]:
        reader = _RowReader(f, self.path, self.dialect, self.may_grow)
        names: Sequence[str] | None = self.dialect.fields
        if self.dialect.header:
            try:
                header = next(reader, None)
            except csv.Error as e:  # with another row's values as names, every row would be wrong
                dead_letter(self.path, None, f"its header cannot be read: {why(e)}")
                return
            names = names or (header and header[1])
            if names and (twice := _twice(names)) is not None:  # a dict would have only the last of its values
                dead_letter(self.path, None, f"its header has several fields {twice!r}: name them by `fields`")
                return
        reader.dead_letter = dead_letter
        if position is not None and position > reader.offset:
            reader.seek(next_line(f, position))
        while True:
            values, starts = reader.take(names, self.end)
            yield Rows(values, starts, reader.offset, [time_ms] * len(values), f"{self.path}:")
            if reader.ended:
                return


def _refuse(where: str, row: Any, reason: str) -> None:
    raise csv.Error(reason)


def _twice(names: Sequence[str]) -> str | None:
    return next((name for at, name in enumerate(names) if name in names[:at]), None)


class _RowReader:
    """Rows with the byte at which each begins."""

    # What the stdlib's reader cannot parse may have swallowed many lines, as behind a quote that is never closed. Then
    # only the first line is set aside, and reading goes on with the second. A row is limited to `csv.field_size_limit`
    # for each field, so a stray quote costs at most that much of parsing twice.

    def __init__(self, f: BinaryIO, path: str, dialect: _Dialect, may_grow: bool) -> None:
        self.offset = 0
        """Where the next row begins."""
        self.ended = False
        self.dead_letter: DeadLetter = _refuse
        """For rows that are malformed; at first that raises csv.Error."""
        self._file = f
        self._path = path
        self._bom = codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig")
        self._encoding = "utf-8" if self._bom else dialect.encoding
        self._may_grow = may_grow
        """Whether a row that the end of the file cuts off is left out."""
        self._taken: list[bytes] = []
        self._dialect = dialect
        self.seek(0)

    def seek(self, offset: int) -> None:
        """Go on with the row that begins there."""
        self._file.seek(offset)
        self._parse(offset, ())

    def _parse(self, offset: int, again: Iterable[bytes]) -> None:
        """Parse lines that were taken before, which begin at `offset`, and then those of the file."""
        self.offset = offset
        self._at_end = False
        self._again = deque(again)
        self._taken.clear()
        self._reader = csv.reader(
            self._lines(), delimiter=self._dialect.delimiter, quotechar=self._dialect.quotechar, strict=True
        )

    def take(self, names: Sequence[str] | None, end: int) -> tuple[list[Any], list[int]]:
        """Up to some thousand rows that are as they should be: elements, and where they begin, before `end`."""
        values: list[Any] = []
        starts: list[int] = []
        while self.offset < end:
            try:
                found = next(self, None)
            except DAMAGED:
                if not values:
                    raise
                self.seek(self.offset)  # where the next call finds it again
                return values, starts
            if found is None:
                break
            start, row = found
            if names is None:
                values.append(row)
            elif len(row) == len(names):
                values.append(dict(zip(names, row, strict=True)))
            else:
                self._aside(start, row, f"{len(row)} fields instead of {len(names)}")
                continue
            starts.append(start)
            if len(values) == _ROWS:
                return values, starts
        self.ended = True
        return values, starts

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        return self

    def __next__(self) -> tuple[int, list[str]]:
        while True:
            start = self.offset
            try:
                row = next(self._reader)
            except (csv.Error, UnicodeDecodeError) as e:
                if self._cut_off():
                    raise StopIteration from None
                if isinstance(e, UnicodeDecodeError):
                    self._resume(start, f"not {self._encoding}: {e.reason} at byte {e.start}")
                else:
                    self._resume(start, why(e))
                continue
            if self._cut_off():
                raise StopIteration
            self.offset += sum(map(len, self._taken))
            self._taken.clear()
            if row:
                return start, row

    def _cut_off(self) -> bool:
        """Whether the rest of a row may still be written: its last line has no end, or none of its lines ends it."""
        last = self._taken[-1]
        return self._may_grow and (self._at_end or (not last.endswith(b"\n") and len(last) <= LINE_BYTES_MAX))

    def _lines(self) -> Iterator[str]:
        """Lines as the parser asks for them; what a row is made of is remembered."""
        while line := self._again.popleft() if self._again else self._file.readline(LINE_BYTES_MAX + 1):
            self._taken.append(line)
            if len(line) > LINE_BYTES_MAX:
                raise csv.Error(f"the line is longer than {LINE_BYTES_MAX} bytes")
            yield line.decode(self._encoding).removeprefix("\ufeff" if self._first(line) else "")
        self._at_end = True

    def _first(self, line: bytes) -> bool:
        return self._bom and self.offset == 0 and len(self._taken) == 1 and line.startswith(codecs.BOM_UTF8)

    def _resume(self, start: int, reason: str) -> None:
        """Set the first line of a row aside that cannot be parsed, and go on behind it."""
        first, *others = self._taken
        self._aside(start, shown(first), reason)
        behind = start + len(first)
        if first.endswith(b"\n"):
            self._parse(behind, [*others, *self._again])
        else:  # too long to have been read to its end
            self.seek(first_line(self._file, behind))

    def _aside(self, start: int, row: Any, reason: str) -> None:
        self.dead_letter(f"{self._path}:{start}", row, reason)
