"""Files of batch views: Parquet, sorted by encoded key, so that a reader of one key reads one row group of one file.

A part names itself in its footer, and its pages have checksums: one that was exchanged or damaged is not read.

Columns: `key` and `value` as bytes (`heronpy.stores.encode_key`, `Monoid.encode`), and for people and other tools
`label`, the key as text, and `result`, what the monoid makes of the value, as JSON (or its repr, if it has no JSON).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from heronpy.filesystem import Location, files_of
from heronpy.stores import encode_key, key_label
from heronpy.streamlet.monoid import Monoid

ROW_GROUP_ROWS = 16_384
SMALL_GROUP_ROWS = 2_048
"""Of views whose keys are asked for anywhere in their history: what is read for one is most of what it costs."""
_ROW_GROUP_BYTES = 4 * 1024 * 1024
"""Of values: sketches may have kilobytes each, and a reader of one key reads a whole row group."""
_ZSTD_LEVEL = 1

_NAME = b"heronpy.part"
_NUMBER = re.compile(r"\.?part-(\d+)")

Row = tuple[bytes, Any, Any]
"""(encoded key, key, accumulator)"""
_EncodedRow = tuple[bytes, bytes, str, str]
"""(key, value, label, result)"""


def part_name(index: int) -> str:
    """The name of a part of a view."""
    return f"part-{index:05d}.parquet"


def unused(directory: Location, index: int, suffix: str = ".parquet") -> Location:
    """A name for a part that no other attempt has used: in a directory one that readers ignore, while it is written.

    In a store it is final, for nothing is renamed there: the manifest says whose part counts.
    """
    name = f"part-{index:05d}-{secrets.token_hex(6)}"
    if not isinstance(directory, Path):
        return directory / f"{name}{suffix}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f".{name}"


def opened_part(path: Location) -> Any:
    """A part as an open `pyarrow.parquet.ParquetFile`.

    Raises:
        ArrowException, OSError: it cannot be read, or is another one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(files_of(path).input(path), page_checksum_verification=True)
    name = (file.metadata.metadata or {}).get(_NAME)  # an earlier heronpy wrote none
    wrong = ""
    if name is not None and name != _name_of(path).encode():
        wrong = f"it is {name.decode(errors='replace'):.200}, in the place of another"
    elif not all(file.schema_arrow.get_all_field_indices(column) for column in ("key", "value")):
        wrong = "its columns are not those of a view"
    elif file.metadata.num_rows != sum(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)):
        wrong = "its row groups have not the rows that it names"
    if wrong:
        file.close()
        raise pa.ArrowInvalid(wrong)
    return file


def read_groups(file: Any, groups: Sequence[int]) -> Any:
    """Keys and values of row groups, as an Arrow table.

    Raises:
        ArrowException, OSError: they cannot be read, or not whole.
    """
    import pyarrow as pa

    # To hand one row group to threads costs more than to decode it.
    table = file.read_row_groups(groups, columns=["key", "value"], use_threads=len(groups) > 1)
    wanted = sum(file.metadata.row_group(group).num_rows for group in groups)
    if table.num_rows != wanted:  # the count in a page's header has no checksum
        raise pa.ArrowInvalid(f"{table.num_rows} rows instead of {wanted}")
    return table


def groups_together(file: Any) -> Iterator[range]:
    """The row groups of a part, as many at once as one of full size would be: who reads all asks a store less often."""
    first, rows, size = 0, 0, 0
    for group in range(file.num_row_groups):
        found = file.metadata.row_group(group)
        if group > first and (
            rows + found.num_rows > ROW_GROUP_ROWS or size + found.total_byte_size > _ROW_GROUP_BYTES
        ):
            yield range(first, group)
            first, rows, size = group, 0, 0
        rows, size = rows + found.num_rows, size + found.total_byte_size
    if rows:
        yield range(first, file.num_row_groups)


def _name_of(path: Location) -> str:
    """View, batch (or `base`), version and part, also of a name that is `unused`."""
    number = _NUMBER.match(path.name)
    return "/".join((*path.parts[-4:-1], path.name if number is None else part_name(int(number[1]))))


def sorted_rows(
    items: Iterable[tuple[Any, Any]], monoid: Monoid, failed: Callable[[Any, Any, Exception], None]
) -> list[Row]:
    """Rows by encoded key, each key once; `failed(key, acc, error)` is called for keys that cannot be stored."""
    rows: list[Row] = []
    for key, acc in items:
        try:
            rows.append((encode_key(key), key, acc))
        except Exception as error:  # a type that is not a key
            failed(key, acc, error)
    rows.sort(key=encoded_key)
    return list(once(rows, monoid, failed))


def once(
    rows: Iterable[Row], monoid: Monoid, failed: Callable[[Any, Any, Exception], None] | None = None
) -> Iterator[Row]:
    """Sorted rows, those of one key merged: keys that differ in Python may be one in a store (a tuple and a list).

    What the monoid cannot merge goes to `failed`, or is raised without it.
    """
    waiting: Row | None = None
    for row in rows:
        if waiting is None:
            waiting = row
        elif waiting[0] == row[0]:
            try:
                waiting = (row[0], row[1], monoid.merge(waiting[2], row[2]))
            except Exception as error:
                if failed is None:
                    raise
                failed(row[1], row[2], error)
        else:
            yield waiting
            waiting = row
    if waiting is not None:
        yield waiting


def encoded_key(row: Row) -> bytes:
    """What rows are sorted by."""
    return row[0]


def write_part(
    path: Location,
    rows: Iterable[Row],
    monoid: Monoid,
    failed: Callable[[Any, Any, Exception], None],
    *,
    group_rows: int = ROW_GROUP_ROWS,
) -> int:
    """Write a part to a path of `unused`, durably; how many rows it has. One row group is in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema().with_metadata({_NAME: _name_of(path).encode()})
    written = 0
    with (
        files_of(path).writing(path) as to,
        pq.ParquetWriter(
            to,
            schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=False,
            write_statistics=["key"],
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(0)],
        ) as writer,
    ):
        for group in _row_groups(_encoded_rows(rows, monoid, failed), group_rows):
            written += len(group)
            writer.write_table(pa.table(list(map(list, zip(*group, strict=True))), schema=schema))
    return written


def _row_groups(rows: Iterable[_EncodedRow], group_rows: int) -> Iterator[list[_EncodedRow]]:
    group: list[_EncodedRow] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row[1])
        if len(group) >= group_rows or size >= _ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _encoded_rows(
    rows: Iterable[Row], monoid: Monoid, failed: Callable[[Any, Any, Exception], None]
) -> Iterator[_EncodedRow]:
    for encoded, key, acc in rows:
        try:
            made = encoded, monoid.encode(acc), key_label(key), text_of(monoid.result(acc))
        except Exception as error:  # an accumulator that its monoid cannot encode
            failed(key, acc, error)
        else:
            yield made


def text_of(result: Any) -> str:
    """A result as JSON, or as its repr."""
    try:
        return _json.encode(result).decode()
    except (TypeError, UnicodeEncodeError, ValueError):
        return repr(result)


_json = msgspec.json.Encoder()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("key", pa.binary()), ("value", pa.binary()), ("label", pa.string()), ("result", pa.string())])
