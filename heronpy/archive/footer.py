"""What a file of an archive says about itself: JSON under the key `heronpy` in the Parquet footer."""

from __future__ import annotations

import errno
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from heronpy.archive._arrow import pa, pq
from heronpy.archive.element_types import Type
from heronpy.archive.encode import arrow_type
from heronpy.archive.mixed import OTHER
from heronpy.filesystem import Location, files_of

CODECS = ("columns", "pickle")
NOTES = ("absent", "ints", OTHER)
"""Columns that a file has only if its rows need them."""
_NO_THREAD = "Resource temporarily unavailable"
_NO_MEMORY = ("std::bad_alloc", "not enough memory", "Allocation error", "Cannot allocate memory", "Out of memory")
"""What the libraries below pyarrow say, which raises an error of damaged bytes with it: thrift, zstd, the system."""
_KEY = b"heronpy"
_FORMAT = 1
_MIXED_FORMAT = 2
"""Of files with the column `other`: without it, values would be taken for None."""
ROW_GROUP_BYTES = 24 * 1024 * 1024
"""Of Arrow data, about: what a reader has in memory at a time."""


class UnreadableError(Exception):
    """A file (or a part of it) that is not what a writer wrote; one line."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What is known of a file without reading its rows."""

    codec: str
    """As in the schema."""
    element: Type
    """Type of the column `value`; not for the codec "pickle"."""
    rows: int
    """How many there are."""
    hash_sum: int
    """Sum of their `id_hash` modulo 2^64."""
    replaces: tuple[str, ...] = ()
    """Names of files in the same directory whose rows are in this one: if they are still there, they do not count."""

    mixed: bool = False
    """Whether there may be values of other types than their fields', see `mixed`."""

    def metadata(self) -> dict[bytes, bytes]:
        """For the Parquet footer."""
        content = asdict(self)
        format_ = _MIXED_FORMAT if content.pop("mixed") else _FORMAT
        return {_KEY: json.dumps({"format": format_, **content}).encode()}


def read_footer(path: Location) -> Footer:
    """The footer of a file.

    Raises:
        FileNotFoundError: no such file.
        UnreadableError: it is none of an archive.
    """
    with opened(path) as file:
        return footer_of(file)


def check_codec(footer: Footer, codec: str) -> None:
    """Refuse a file of another codec than the archive's: one put there by somebody else would be unpickled.

    Raises:
        UnreadableError: it has another codec.
    """
    if footer.codec != codec:
        raise UnreadableError(f"its codec is {footer.codec!r}, and the archive's is {codec!r}")


def footer_of(file: Any) -> Footer:
    """The footer of an open file.

    Raises:
        UnreadableError: it is none of an archive, or its columns are not those that it names.
    """
    text = (file.metadata.metadata or {}).get(_KEY)
    if text is None:
        raise UnreadableError("not a file of an archive: it has no heronpy footer")
    try:
        content = json.loads(text)
        format_ = content.pop("format")
        if format_ not in (_FORMAT, _MIXED_FORMAT):
            raise UnreadableError("written by a later release")
        content["mixed"] = format_ == _MIXED_FORMAT
        content["replaces"] = tuple(content["replaces"])
        footer = Footer(**content)
        if footer.codec not in CODECS:
            raise UnreadableError(f"its codec is {footer.codec!r:.40}")
        expected = {"value": arrow_type(footer.element)} if footer.codec == "columns" else {"pickled": pa.binary()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"its heronpy footer is damaged: {type(error).__name__}") from error
    _check_columns(file, expected, NOTES if footer.codec == "columns" else ())
    # Parquet has no checksum over its own footer: a damaged one may well hide a row group's rows.
    in_groups = sum(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
    if not in_groups == file.metadata.num_rows == footer.rows:
        raise UnreadableError(f"its row groups have {in_groups} rows, and its footer says {footer.rows}")
    return footer


def check_times(file: Any, batch: int, batch_length_ms: int) -> None:
    """Refuse an open file that is in the folder of another batch than its rows: their own would lack them.

    Raises:
        UnreadableError: it has rows of another batch.
    """
    column = file.schema.names.index("time_ms")  # among the leaves; before `value`, which may have one of that name
    for group in range(file.num_row_groups):
        try:  # pyarrow's statistics end the process where a column's metadata are damaged; to read from it is an error
            next(file.iter_batches(batch_size=1, row_groups=[group], columns=["time_ms"]), None)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            as_unreadable(error)
            continue  # the reader of the row group finds it
        times = file.metadata.row_group(group).column(column).statistics
        for time_ms in () if times is None or not times.has_min_max else (times.min, times.max):
            if time_ms // batch_length_ms != batch:
                raise UnreadableError(
                    f"it has rows of batch {time_ms // batch_length_ms}, and is among those of {batch}"
                )


def _check_columns(file: Any, expected: dict[str, Any], optional: Collection[str]) -> None:
    schema = file.schema_arrow
    expected |= {"id": pa.string(), "id_hash": pa.int64(), "time_ms": pa.int64()}
    for name, type_ in expected.items():
        index = schema.get_field_index(name)
        if index < 0:
            raise UnreadableError(f"it has no column {name}")
        if schema.field(index).type != type_:
            raise UnreadableError(f"its column {name} is {schema.field(index).type}, not {type_}")
    if unknown := [name for name in schema.names if name not in expected and name not in optional]:
        raise UnreadableError(f"its column {unknown[0]!r:.40} is none that an archive has")


def opened(path: Location, size_bytes: int | None = None) -> Any:
    """An open `pyarrow.parquet.ParquetFile`; of a store quicker, if the size of the file is known.

    Raises:
        FileNotFoundError: no such file.
        UnreadableError: it is not Parquet, or its footer is damaged.
        OSError, MemoryError: it cannot be determined, see `as_unreadable`.
        HeronError: its store does not answer.
    """
    try:
        return pq.ParquetFile(files_of(path).input(path, size_bytes), page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise as_unreadable(error) from error


def as_unreadable(error: BaseException) -> UnreadableError:
    """What pyarrow says of damaged bytes.

    A missing file or a failing disk (an `errno`) is raised as it is, and so is a lack of memory: the bytes may well be
    whole, and taking them for damaged loses them.

    Raises:
        OSError: with an `errno`.
        MemoryError: there was not enough.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
        raise error
    if any(text in str(error) for text in _NO_MEMORY):
        raise MemoryError(" ".join(str(error).split())[:300]) from error
    if _NO_THREAD in str(error):  # pyarrow knows no error of its own for it
        raise OSError(errno.EAGAIN, _NO_THREAD) from error
    return UnreadableError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def write_options() -> dict[str, Any]:
    """How Parquet files are written.

    Page checksums find what bit flips do. Without dictionaries writing takes half the time, and zstd makes the files a
    third smaller: most of what is in events (ids, times, amounts) does not repeat.
    """
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": False,
        "write_page_checksum": True,
        "write_statistics": ["time_ms"],
        "store_schema": True,
    }


def rows_per_group(table: Any) -> int:
    """How many rows of this table make a row group."""
    return max(1024, ROW_GROUP_BYTES * int(table.num_rows) // max(1, int(table.nbytes)))
