"""CSV files."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heronpy.connectors._files import Files, Pattern, share_of, size_of, time_of, why
from heronpy.connectors._lines import shown
from heronpy.connectors._parts import DeadLetter, PartReader, Rows
from heronpy.connectors._spi import Chunk, Source, SourceContext, SourceReader, Split
from heronpy.connectors._text import check_encoding
from heronpy.connectors._times import Span
from heronpy.errors import ConfigError

_ROWS = 4096


@dataclass(frozen=True)
class _Dialect:
    encoding: str
    header: bool
    fields: tuple[str, ...] | None
    delimiter: str
    quotechar: str


class CsvFile(Source):
    """The rows of CSV files, as dicts of text; without a header and `fields`, as lists of text.

    Quoted fields may contain newlines, so a file is read by one task. Blank lines are no records. The id of a row is
    `<path>:<byte offset>`; times and restarts are `TextFile`'s. A row with another number of fields than the header,
    or with broken quotes, is a dead letter.
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
            pattern: a glob (`**` for any folders) or a list of paths; relative ones from the present directory.
            header: whether the first row of each file has the names of the fields.
            fields: names to use, instead of the header's if there is one.
            delimiter: between fields; one character.
            quotechar: around fields; one character.
            encoding: one in which a newline is one byte, so not UTF-16. A byte order mark is skipped.

        Raises:
            ConfigError: an unsuitable encoding, delimiter or quote.
        """
        check_encoding(encoding)
        try:
            csv.reader([], delimiter=delimiter, quotechar=quotechar)
        except (TypeError, ValueError) as e:
            raise ConfigError(f"CsvFile({pattern!r}): {why(e)}") from None
        self._files = Files(pattern)
        names = None if fields is None else tuple(fields)
        self._dialect = _Dialect(encoding, header, names, delimiter, quotechar)

    def __repr__(self) -> str:
        return f"CsvFile({self._files})"

    def open(self, context: SourceContext) -> SourceReader:
        return PartReader(self._parts(), context)

    def splits(self, target_bytes: int) -> Sequence[Split]:
        return self._parts()

    def _parts(self) -> list[_CsvPart]:
        return [_CsvPart(path, size_of(path), self._dialect) for path in self._files.paths()]


@dataclass(frozen=True)
class _CsvPart:
    path: str
    size_bytes: int
    dialect: _Dialect

    @property
    def key(self) -> str:
        return self.path

    @property
    def share(self) -> int:
        return share_of(self.path, 0)

    @property
    def limit(self) -> int:
        return size_of(self.path)

    @property
    def changed(self) -> Span | None:
        time_ms = time_of(self.path)
        return None if time_ms is None else (self.size_bytes, time_ms)

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            if rows.values:
                yield rows.chunk()

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        try:
            with open(self.path, "rb") as f:
                time_ms = os.fstat(f.fileno()).st_mtime_ns // 1_000_000
                reader = _RowReader(f, self.path, self.dialect, dead_letter)
                yield from self._rows(reader, position, time_ms, dead_letter)
        except OSError as e:
            dead_letter(self.path, None, f"cannot be read: {why(e)}")

    def _rows(self, reader: _RowReader, position: int | None, time_ms: int, dead_letter: DeadLetter) -> Iterator[Rows]:
        names: Sequence[str] | None = self.dialect.fields
        if self.dialect.header:
            header = next(reader, None)
            if reader.set_aside:  # with another row's values as names, every row would be wrong
                dead_letter(self.path, None, "its header cannot be read")
                return
            names = names or (header and header[1])
        if position is not None and position > reader.offset:
            reader.seek(position)
        while True:
            values, starts = reader.take(names)
            yield Rows(values, starts, reader.offset, [time_ms] * len(values), f"{self.path}:")
            if reader.ended:
                return


class _RowReader:
    """Rows with the byte at which each begins."""

    # What the stdlib's reader cannot parse may have swallowed many lines, as behind a quote that is never closed. Then
    # only the first line is set aside, and reading goes on with the second. A row is limited to `csv.field_size_limit`
    # for each field, so a stray quote costs at most that much of parsing twice.

    def __init__(self, f: BinaryIO, path: str, dialect: _Dialect, dead_letter: DeadLetter) -> None:
        self.offset = 0
        """Where the next row begins."""
        self.ended = False
        self.set_aside = 0
        """How many lines were malformed."""
        self._file = f
        self._path = path
        self._bom = codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig")
        self._encoding = "utf-8" if self._bom else dialect.encoding
        self._dead_letter = dead_letter
        self._taken: list[bytes] = []
        self._dialect = dialect
        self.seek(0)

    def seek(self, offset: int) -> None:
        """Go on with the row that begins there."""
        self._file.seek(offset)
        self.offset = offset
        self._taken.clear()
        self._reader = csv.reader(
            self._lines(), delimiter=self._dialect.delimiter, quotechar=self._dialect.quotechar, strict=True
        )

    def take(self, names: Sequence[str] | None) -> tuple[list[Any], list[int]]:
        """Up to some thousand rows that are as they should be: elements, and where they begin."""
        values: list[Any] = []
        starts: list[int] = []
        for start, row in self:
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
            except csv.Error as e:
                self._resume(start, why(e))
                continue
            except UnicodeDecodeError as e:
                self._resume(start, f"not {self._encoding}: {e.reason} at byte {e.start}")
                continue
            self.offset += sum(map(len, self._taken))
            self._taken.clear()
            if row:
                return start, row

    def _lines(self) -> Iterator[str]:
        """Lines as the parser asks for them; what a row is made of is remembered."""
        for line in self._file:
            self._taken.append(line)
            yield line.decode(self._encoding).removeprefix("\ufeff" if self._first(line) else "")

    def _first(self, line: bytes) -> bool:
        return self._bom and self.offset == 0 and len(self._taken) == 1 and line.startswith(codecs.BOM_UTF8)

    def _resume(self, start: int, reason: str) -> None:
        """Set the first line of a row aside that cannot be parsed, and go on behind it."""
        first = self._taken[0]
        self._aside(start, shown(first), reason)
        self.seek(start + len(first))

    def _aside(self, start: int, row: Any, reason: str) -> None:
        self.set_aside += 1
        self._dead_letter(f"{self._path}:{start}", row, reason)
