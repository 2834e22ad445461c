"""A view as a table in one file, for whatever reads Parquet, CSV or JSON lines: DuckDB, pandas, Polars, a spreadsheet.

Columns: `key` and `value`; a key of a window is divided into `key`, `window_start` and `window_end` (seconds since the
epoch). A column has the type that all of its cells have: text, integers of 64 bits, floats, booleans. Where cells are
of several types, or of a type that tables do not know (a tuple, a set, a wider integer), it is JSON text as a whole.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from heronpy.archive import require_arrow
from heronpy.errors import HeronError, UsageError
from heronpy.files import replacing
from heronpy.pipeline.blocks import sliced
from heronpy.pipeline.reconcile import plain
from heronpy.pipeline.spill import Spill
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.window import Window

_ROWS_AT_ONCE = 16_384
_TORN_S = 24 * 3600.0
_EXACT_FLOAT = 2**53
_INT64 = range(-(2**63), 2**63)

Row = Sequence[Any]


def check_path(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is read.

    Raises:
        UsageError: its name has no suffix of a known format, or its directory is missing.
        ConfigError: its format needs pyarrow, which is not installed.
    """
    if path.suffix not in _WRITERS:
        raise UsageError(f"--out {path}: its suffix says the format: {', '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no directory {path.parent}")
    if path.suffix == ".parquet":
        require_arrow(f"--out {path}")


def export(items: Iterable[tuple[Any, Any]], path: Path) -> int:
    """Write a view to a file, which is replaced as a whole; how many rows.

    Rows are collected in a temporary file, not in memory.

    Args:
        items: Keys, as `MergedStore.items` has them, and values.
        path: The file; its suffix is the format.

    Raises:
        HeronError: the file, or the temporary one, cannot be written.
    """
    with Spill[None](None) as spill:
        table = _Table(spill)
        for some in sliced(items, _ROWS_AT_ONCE):
            table.add(some)
        _write(table, path)
    return table.count


def _write(table: _Table, path: Path) -> None:
    _remove_torn(path)
    try:
        with replacing(path, durable=False) as file:
            _WRITERS[path.suffix](table, file)
    except OSError as e:
        raise HeronError(f"{path} cannot be written: {e.strerror or e}") from e


def _remove_torn(path: Path) -> None:
    """Remove what exports to the file were writing that were killed: whose writer lives is not as old."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError):  # gone, or renamed into place
            if time.time() - left.stat().st_mtime > _TORN_S:
                left.unlink()


class _Table:
    """Rows on disk, and what types their columns have."""

    def __init__(self, spill: Spill[None]) -> None:
        self._spill = spill
        self.names: tuple[str, ...] = ("key", "value")
        self._kinds: list[set[str]] = []
        self.count = 0

    def add(self, items: list[tuple[Any, Any]]) -> None:
        try:
            self._spill.write(None, None, [self._row(key, value) for key, value in items])
        except OSError as e:
            raise HeronError(f"rows cannot be collected in {tempfile.gettempdir()}: {e.strerror or e}") from e
        self.count += len(items)

    def _row(self, key: Any, value: Any) -> list[tuple[Any, str]]:
        """Each cell as a plain value, or as JSON if it is none: which of both the column needs is known at the end."""
        cells: Row
        match key:
            case KeyedWindow(inner, Window(start, end)):
                self.names, cells = ("key", "window_start", "window_end", "value"), (inner, start, end, value)
            case Window(start, end):
                self.names, cells = ("window_start", "window_end", "value"), (start, end, value)
            case _:
                cells = (key, value)
        if not self._kinds:
            self._kinds = [set() for _ in cells]
        of_cells = [_kind(cell) for cell in cells]
        for kinds, kind in zip(self._kinds, of_cells, strict=True):
            kinds.add(kind)
        return [
            (None, _json(cell)) if kind == "json" else (_plain_cell(cell), "")
            for cell, kind in zip(cells, of_cells, strict=True)
        ]

    def types(self) -> tuple[str, ...]:
        """Of each column: text, int, float, bool or json."""
        return tuple(_type(kinds) for kinds in self._kinds) or ("text",) * len(self.names)

    def rows(self, types: Sequence[str]) -> Iterator[Row]:
        """All rows, with JSON text in the columns of that type."""
        for row in self._spill.rows(None):
            yield [
                text or _json(cell) if kind == "json" else cell for (cell, text), kind in zip(row, types, strict=True)
            ]


def _kind(cell: Any) -> str:
    match cell:
        case bool():
            return "bool"
        case int():
            return "small int" if abs(cell) <= _EXACT_FLOAT else "int" if cell in _INT64 else "json"
        case float():
            return "float"
        case str():
            return "text" if _is_unicode(cell) else "json"
    return "json"


def _type(kinds: set[str]) -> str:
    if kinds <= {"int", "small int"}:
        return "int"
    if kinds <= {"float", "small int"}:
        return "float"
    return next(iter(kinds)) if len(kinds) == 1 else "json"


def _plain_cell(cell: Any) -> Any:
    """A cell that needs no JSON as the plain type that it is a kind of (numpy's floats are floats)."""
    match cell:
        case bool():
            return cell
        case int():
            return int(cell)
        case float():
            return float(cell)
    return str.__str__(cell)


def _json(cell: Any) -> str:
    return json.dumps(plain(cell))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which Python's text may have and no table
        return False
    return True


def _parquet(table: _Table, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"text": pa.string(), "json": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    types = table.types()
    schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in zip(table.names, types, strict=True)])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in sliced(table.rows(types), _ROWS_AT_ONCE):
            columns = zip(*rows, strict=True)
            arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _csv(table: _Table, file: BinaryIO) -> None:
    line = io.StringIO(newline="")
    writer = csv.writer(line)  # ends lines by "\r\n": with another end it would leave these two unquoted in texts
    for row in itertools.chain([table.names], table.rows(table.types())):
        line.seek(0)
        line.truncate()
        writer.writerow(row)
        file.write(line.getvalue()[:-2].encode() + b"\n")


def _json_lines(table: _Table, file: BinaryIO) -> None:
    everything = ["json"] * len(table.names)
    for row in table.rows(everything):
        cells = ", ".join(f'"{name}": {cell}' for name, cell in zip(table.names, row, strict=True))
        file.write(f"{{{cells}}}\n".encode())


_WRITERS: dict[str, Callable[[_Table, BinaryIO], None]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _json_lines,
}
