"""Reads an archive's files: parts of them, chunk by chunk. What cannot be read is set aside, and the rest is read."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heronpy.archive._arrow import pa
from heronpy.archive.decode import decode, hashes_of, one_array
from heronpy.archive.footer import Footer, UnreadableError, as_unreadable, check_codec, footer_of, opened
from heronpy.connectors.spi import Chunk
from heronpy.errors import HeronError, NotFoundError, is_shortage
from heronpy.filesystem import Location
from heronpy.shown import said

DeadLetter = Callable[[str, Any, str], None]
_CHUNK_ROWS = 16_384
DAMAGED = (ValueError, TypeError, LookupError, AttributeError, pa.ArrowException)
"""What decoding raises for columns that `encode` has not made."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some row groups of a file, or all of them."""

    path: Location
    row_groups: tuple[int, ...] | None = None
    size_bytes: int | None = None
    """Of the file, if that is known."""


@dataclass(frozen=True, slots=True)
class ArchiveSplit:
    """A part of an archive that one task reads: whole small files, or row groups of large ones. Picklable."""

    parts: tuple[Part, ...]
    size_bytes: int
    codec: str
    """The archive's: a file of another one is set aside, and nothing of it is unpickled."""

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        """The records, some thousand at a time; one row group is in memory.

        Raises:
            NotFoundError: a file is gone, as after a compaction that took place long ago: list the files again.
            HeronError: the disk cannot be read, or there is not enough memory.
        """
        for part in self.parts:
            try:
                yield from _read_part(part, self.codec, dead_letter)
            except FileNotFoundError as error:
                raise NotFoundError(f"{part.path} is gone: the archive was compacted meanwhile; run again") from error
            except OSError as error:
                raise HeronError(f"cannot read {part.path}: {error.strerror or error}") from error
            except MemoryError as error:
                raise HeronError(f"not enough memory to read {part.path}: {error}") from error
            except UnreadableError as error:
                dead_letter(str(part.path), None, f"the file cannot be read: {error}")


def _read_part(part: Part, codec: str, dead_letter: DeadLetter) -> Iterator[Chunk]:
    with opened(part.path, part.size_bytes) as file:
        footer = footer_of(file)
        check_codec(footer, codec)
        for group in range(file.num_row_groups) if part.row_groups is None else part.row_groups:
            where = f"{part.path}, row group {group}"
            try:
                table = read_row_group(file, group)
            except UnreadableError as error:
                dead_letter(where, None, f"the row group cannot be read: {error}")
                continue
            for begin in range(0, table.num_rows, _CHUNK_ROWS):
                columns = {name: one_array(table.column(name).slice(begin, _CHUNK_ROWS)) for name in table.column_names}
                chunk = _chunk(columns, footer, f"{where}, row", begin, dead_letter)
                if chunk.values:
                    yield chunk


def read_row_group(file: Any, group: int) -> Any:
    """A row group as an Arrow table.

    Raises:
        UnreadableError: its bytes are damaged.
        OSError, MemoryError: it cannot be determined, see `as_unreadable`.
    """
    try:
        table = file.read_row_group(group)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise as_unreadable(error) from error
    if table.num_rows != file.metadata.row_group(group).num_rows:
        raise UnreadableError(f"{table.num_rows} rows instead of {file.metadata.row_group(group).num_rows}")
    if any(table.column(name).null_count for name in ("id", "id_hash", "time_ms")):
        raise UnreadableError("rows without id or time")
    return table


def id_hash_groups(path: Location) -> Iterator[np.ndarray[Any, np.dtype[np.int64]] | None]:
    """The column `id_hash` of a file, row group by row group; None for each that is damaged.

    Raises:
        FileNotFoundError: no such file.
        UnreadableError: it is none of an archive.
        OSError, MemoryError: it cannot be determined, see `as_unreadable`.
    """
    with opened(path) as file:
        footer_of(file)
        for group in range(file.num_row_groups):
            try:
                column = file.read_row_group(group, columns=["id_hash"]).column(0)
            except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
                as_unreadable(error)
                yield None
                continue
            if column.null_count or len(column) != file.metadata.row_group(group).num_rows:
                yield None
            elif len(column):
                yield column.to_numpy().astype(np.int64, copy=False)


def proves_damage(error: Exception, footer: Footer) -> bool:
    """Whether what decoding has raised says that rows are damaged; unpickling them may raise anything."""
    return not is_shortage(error) and (footer.codec == "pickle" or isinstance(error, DAMAGED))


def _chunk(columns: dict[str, Any], footer: Footer, where: str, begin: int, dead_letter: DeadLetter) -> Chunk:
    try:
        return _decoded(columns, footer)
    except Exception as error:  # unpickling may raise anything
        if not proves_damage(error, footer):
            raise
    return _row_by_row(columns, footer, where, begin, dead_letter)


def _decoded(columns: dict[str, Any], footer: Footer) -> Chunk:
    if footer.codec == "pickle":
        values = [pickle.loads(pickled) for pickled in columns["pickled"].to_numpy(zero_copy_only=False)]
    else:
        values = decode(columns, footer.element)
    return Chunk(values, columns["time_ms"].to_numpy().tolist(), columns["id"], hashes_of(columns["id_hash"]))


def _row_by_row(columns: dict[str, Any], footer: Footer, where: str, begin: int, dead_letter: DeadLetter) -> Chunk:
    """A chunk without the rows that cannot be decoded."""
    values, kept = [], []
    for row in range(len(columns["id"])):
        try:
            values += _decoded({name: column.slice(row, 1) for name, column in columns.items()}, footer).values
            kept.append(row)
        except Exception as error:
            if not proves_damage(error, footer):
                raise
            reason = f"cannot be decoded: {said(error)}"
            dead_letter(f"{where} {begin + row}", columns["id"][row].as_py(), reason)
    keep = pa.array(kept, pa.int64())
    return Chunk(
        values,
        columns["time_ms"].take(keep).to_pylist(),
        columns["id"].take(keep),
        hashes_of(columns["id_hash"].take(keep)),
    )
