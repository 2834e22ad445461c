"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from heronpy.connectors._files import Files, InputFile, Pattern, damage, rests, share_of, why
from heronpy.connectors._optional import need
from heronpy.connectors._part_splits import FileSource
from heronpy.connectors._parts import DeadLetter, Rows
from heronpy.connectors._times import Span
from heronpy.connectors.spi import Chunk, Split

_ROWS = 4096
_LAST = 1 << 62


class ParquetFile(FileSource):
    """The rows of Parquet files, as dicts.

    The id of a row is `<path>:<row group>:<row in it>`; times and restarts are `TextFile`'s. A row group that cannot be
    read is a dead letter, and so is a row with a value that Python does not have (a year after 9999, nanoseconds
    without pandas), or a file with two columns of one name. One task reads a file in a topology; batch jobs divide it
    by row groups.
    """

    def __init__(self, pattern: Pattern, *, columns: Sequence[str] | None = None) -> None:
        """Describe the files; they are looked up when the source is opened.

        Args:
            pattern: a glob (`**` for any folders), a file or a list of paths; relative ones from the present directory.
                Or URLs, `s3://bucket/logs/*/*.jsonl?endpoint=…&region=…`; in a glob among them `?` is no wildcard.
            columns: which columns to read; all without it.
        """
        self._files = Files(pattern)
        self._columns = None if columns is None else tuple(columns)

    def __repr__(self) -> str:
        return f"ParquetFile({self._files})"

    def parts(self) -> Sequence[_ParquetPart]:
        need("pyarrow.parquet", "spark", "ParquetFile")
        return [_ParquetPart(file, 0, _LAST, file.size_bytes, self._columns) for file in self._files.found()]

    def splits(self, target_bytes: int) -> Sequence[Split]:
        need("pyarrow.parquet", "spark", "ParquetFile")
        return [part for file in self._files.found() for part in self._divided(file, target_bytes)]

    def _divided(self, file: InputFile, target_bytes: int) -> Iterator[_ParquetPart]:
        """Parts of whole row groups; one part of a file that cannot be read: its reader will say so."""
        size = file.size_bytes
        metadata = _metadata(file) if size > target_bytes else None
        if metadata is None:
            yield _ParquetPart(file, 0, _LAST, size, self._columns)
            return
        first = taken = 0
        for group in range(metadata.num_row_groups):
            taken += metadata.row_group(group).total_byte_size
            if taken >= target_bytes or group + 1 == metadata.num_row_groups:
                yield _ParquetPart(file, first, group + 1, taken, self._columns)
                first, taken = group + 1, 0


@dataclass(frozen=True)
class _ParquetPart:
    """Row groups `first` to `last` (exclusive) of a file. Positions are row numbers in the file."""

    file: InputFile
    first: int
    last: int
    size_bytes: int
    columns: tuple[str, ...] | None
    may_grow: bool = False
    """Whether a file that cannot be read is left for the next look, as long as it may still be being written."""

    @property
    def path(self) -> str:
        """What the file is called in ids and in dead letters."""
        return self.file.name

    @property
    def key(self) -> str:
        return f"{self.path}:{self.first}"

    @property
    def share(self) -> int:
        return share_of(self.path, 0)

    @property
    def limit(self) -> int:
        metadata = _metadata(self.file)
        return _LAST if metadata is None else int(metadata.num_rows)

    @property
    def changed(self) -> Span | None:
        return None  # such a file does not grow: with another time it has other rows

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            if rows.values:
                yield rows.chunk()

    def growing(self) -> Self:
        return replace(self, may_grow=True)

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        growing = False
        try:
            with self.file.opened() as (f, time_ms):
                growing = self.may_grow and not rests(self.file, time_ms)
                with pq.ParquetFile(f) as parquet:
                    if (reason := self._unfit(parquet.schema_arrow.names)) is not None:
                        dead_letter(self.path, None, reason)
                        return
                    yield from self._groups(parquet, position or 0, time_ms, dead_letter)
        except (OSError, pa.ArrowException) as e:
            reason = damage(self.path, e)
            if not growing:
                dead_letter(self.path, None, f"cannot be read: {reason}")

    def _unfit(self, names: list[str]) -> str | None:
        """Why a file with such columns cannot be read as dicts; None: it can."""
        for column in names if self.columns is None else self.columns:
            if names.count(column) != 1:
                return f"there {'are several columns' if column in names else 'is no column'} {column!r}"
        return None

    def _groups(self, parquet: Any, position: int, time_ms: int, dead_letter: DeadLetter) -> Iterator[Rows]:
        begin = 0
        for group in range(min(self.last, parquet.metadata.num_row_groups)):
            end = begin + parquet.metadata.row_group(group).num_rows
            if group >= self.first and end > position:
                yield from self._group(parquet, group, begin, end, max(begin, position), time_ms, dead_letter)
            begin = end

    def _group(
        self, parquet: Any, group: int, begin: int, end: int, position: int, time_ms: int, dead_letter: DeadLetter
    ) -> Iterator[Rows]:
        import pyarrow as pa

        row = begin
        prefix = f"{self.path}:{group}:"
        try:
            for batch in parquet.iter_batches(_ROWS, [group], None if self.columns is None else list(self.columns)):
                skipped = min(max(0, position - row), batch.num_rows)
                values, starts = _rows(batch.slice(skipped), row + skipped, prefix, begin, dead_letter)
                row += batch.num_rows
                yield Rows(values, starts, row, [time_ms] * len(values), prefix, begin)
        except (OSError, pa.ArrowException) as e:
            where = f"{self.path}: row group {group}" + (f" from row {row - begin}" if row > begin else "")
            dead_letter(where, None, f"cannot be read: {damage(self.path, e)}")
            yield Rows([], [], end, [], prefix)


def _metadata(file: InputFile) -> Any:
    """Of a Parquet file; None of one that cannot be read. Raises as `damage` does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.opened() as (f, _):
            return pq.read_metadata(f)
    except (OSError, pa.ArrowException) as e:
        damage(file.name, e)
        return None


def _rows(
    batch: Any, first: int, prefix: str, begin: int, dead_letter: DeadLetter
) -> tuple[list[dict[str, Any]], Sequence[int]]:
    """The rows of a batch that begins with row `first`, and their numbers."""
    try:
        return _dicts(batch), range(first, first + batch.num_rows)
    except (ValueError, OverflowError):  # some value is none of Python's: found row by row
        pass
    values, starts = [], []
    for number in range(batch.num_rows):
        try:
            values += _dicts(batch.slice(number, 1))
            starts.append(first + number)
        except (ValueError, OverflowError) as e:
            dead_letter(f"{prefix}{first + number - begin}", None, f"cannot be read: {why(e)}")
    return values, starts


def _dicts(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch; column by column, which is faster than row by row."""
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
