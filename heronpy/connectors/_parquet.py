"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.connectors._files import Files, Pattern, damage, share_of, size_of
from heronpy.connectors._optional import need
from heronpy.connectors._part_splits import PartSource
from heronpy.connectors._parts import DeadLetter, Rows
from heronpy.connectors._times import Span
from heronpy.connectors.spi import Chunk, Split

_ROWS = 4096
_LAST = 1 << 62


class ParquetFile(PartSource):
    """The rows of Parquet files, as dicts.

    The id of a row is `<path>:<row group>:<row in it>`; times and restarts are `TextFile`'s. A row group that cannot be
    read is a dead letter. One task reads a file in a topology; batch jobs divide it by row groups.
    """

    def __init__(self, pattern: Pattern, *, columns: Sequence[str] | None = None) -> None:
        """Describe the files; they are looked up when the source is opened.

        Args:
            pattern: a glob (`**` for any folders), a file or a list of paths; relative ones from the present directory.
            columns: which columns to read; all without it.
        """
        self._files = Files(pattern)
        self._columns = None if columns is None else tuple(columns)

    def __repr__(self) -> str:
        return f"ParquetFile({self._files})"

    def parts(self) -> Sequence[_ParquetPart]:
        need("pyarrow.parquet", "spark", "ParquetFile")
        return [_ParquetPart(path, 0, _LAST, size_of(path), self._columns) for path in self._files.paths()]

    def splits(self, target_bytes: int) -> Sequence[Split]:
        need("pyarrow.parquet", "spark", "ParquetFile")
        return [part for path in self._files.paths() for part in self._divided(path, target_bytes)]

    def _divided(self, path: str, target_bytes: int) -> Iterator[_ParquetPart]:
        """Parts of whole row groups; one part of a file that cannot be read: its reader will say so."""
        size = size_of(path)
        if size <= target_bytes:
            yield _ParquetPart(path, 0, _LAST, size, self._columns)
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(path)
        except (OSError, pa.ArrowException) as e:
            damage(path, e)
            yield _ParquetPart(path, 0, _LAST, size, self._columns)
            return
        first = taken = 0
        for group in range(metadata.num_row_groups):
            taken += metadata.row_group(group).total_byte_size
            if taken >= target_bytes or group + 1 == metadata.num_row_groups:
                yield _ParquetPart(path, first, group + 1, taken, self._columns)
                first, taken = group + 1, 0


@dataclass(frozen=True)
class _ParquetPart:
    """Row groups `first` to `last` (exclusive) of a file. Positions are row numbers in the file."""

    path: str
    first: int
    last: int
    size_bytes: int
    columns: tuple[str, ...] | None

    @property
    def key(self) -> str:
        return f"{self.path}:{self.first}"

    @property
    def share(self) -> int:
        return share_of(self.path, 0)

    @property
    def limit(self) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            rows: int = pq.read_metadata(self.path).num_rows
        except (OSError, pa.ArrowException) as e:
            damage(self.path, e)
            return _LAST
        return rows

    @property
    def changed(self) -> Span | None:
        return None  # such a file does not grow: with another time it has other rows

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            if rows.values:
                yield rows.chunk()

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with open(self.path, "rb") as f, pq.ParquetFile(f) as parquet:
                time_ms = os.fstat(f.fileno()).st_mtime_ns // 1_000_000
                if (missing := self._missing(parquet.schema_arrow.names)) is not None:
                    dead_letter(self.path, None, f"there is no column {missing!r}")
                    return
                yield from self._groups(parquet, position or 0, time_ms, dead_letter)
        except (OSError, pa.ArrowException) as e:
            dead_letter(self.path, None, f"cannot be read: {damage(self.path, e)}")

    def _missing(self, names: list[str]) -> str | None:
        return next((column for column in self.columns or () if column not in names), None)

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
                values = _dicts(batch)[max(0, position - row) :]
                row += batch.num_rows
                starts = range(row - len(values), row)
                yield Rows(values, starts, row, [time_ms] * len(values), prefix, begin)
        except (OSError, pa.ArrowException) as e:
            where = f"{self.path}: row group {group}" + (f" from row {row - begin}" if row > begin else "")
            dead_letter(where, None, f"cannot be read: {damage(self.path, e)}")
            yield Rows([], [], end, [], prefix)


def _dicts(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch; column by column, which is faster than row by row."""
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
