"""A sink that writes Parquet files."""

# An element must be refused when it is written, not when a row group is made of thousands of them: so each is checked,
# value by value, against what Arrow can hold. The columns of a file are those of its first row group. When a later
# group has more (a new field, numbers with fractions, a list where None was), what is there is written once more with
# columns for both. That happens as often as the data surprises, so a few times in a file of any size.

from __future__ import annotations

import datetime
import shutil
import tempfile
from typing import Any, BinaryIO

from heronpy.connectors._files import why
from heronpy.connectors._optional import need
from heronpy.connectors._part_files import FileSink
from heronpy.connectors._row_sinks import unfit
from heronpy.connectors._staged_files import Encoder

_GROUP_ROWS = 16_384
_INT64_END = 1 << 63
_DECIMAL128_DIGITS_MAX = 38
_DECIMAL_DIGITS_MAX = 76
_FLAT = frozenset({bool, float, bytes, type(None), datetime.date})


class ParquetSink(FileSink):
    """Parquet files. Columns are the fields of dicts, and their types follow from the values.

    A named tuple is written as its fields, another pair as the columns `key` and `value`, anything else as the column
    `value`. Within columns dicts and named tuples become structs, also `Window` and `KeyedWindow`; lists and tuples
    become lists, whose items must be of one type; a dict without fields is null. One column has values of one type in
    one file, or integers and floats, which are floats then: an element with another type than the column has by then
    is refused.
    """

    suffix = ".parquet"

    def encoder(self, f: BinaryIO) -> Encoder:
        need("pyarrow.parquet", "spark", "ParquetSink")
        return _ParquetEncoder(f, self)


class _ParquetEncoder:
    def __init__(self, f: BinaryIO, sink: FileSink) -> None:
        self._file = f
        self._sink = sink
        self._rows: list[dict[str, Any]] = []
        self._types: dict[str, Any] = {}
        self._fitting: set[tuple[Any, ...]] = set()
        self._schema: Any = None
        self._writer: Any = None

    def add(self, element: Any) -> None:
        import pyarrow as pa

        try:
            row = _row(element)
            if not self._fits(row):
                self._types = self._with(row)
        except (TypeError, ValueError, OverflowError, RecursionError, pa.ArrowException) as e:
            raise unfit(self._sink, element, why(e)) from e
        self._rows.append(row)
        if len(self._rows) >= _GROUP_ROWS:
            self._write_group()

    def _fits(self, row: dict[str, Any]) -> bool:
        """Whether values like these were in these columns before, so that nothing has to be found out."""
        fitting = self._fitting
        for name, value in row.items():
            kind = type(value)
            if kind is int:
                if not -_INT64_END <= value < _INT64_END:
                    return False
            elif kind is str:
                if not value.isascii():
                    value.encode()
            elif kind not in _FLAT:
                return False
            if (name, kind) not in fitting:
                return False
        return True

    def _with(self, row: dict[str, Any]) -> dict[str, Any]:
        """The types of the columns with this row in them. Raises if there are none."""
        import pyarrow as pa

        types = dict(self._types)
        for name, value in row.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a field must be text, not {name!r}")
            name.encode()
            found = pa.array([value]).type
            try:
                types[name] = _merged(types.get(name, pa.null()), found)
            except TypeError as e:
                raise TypeError(f"column {name!r}: {e}") from None
        self._fitting.update((name, type(value)) for name, value in row.items())
        return types

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema(list(self._types.items()))
        if self._writer is not None and schema != self._schema:
            self._widen(schema)
        if self._writer is None:
            self._schema = schema
            self._writer = pq.ParquetWriter(self._file, schema)
        if self._rows:
            columns = [_array([row.get(field.name) for row in self._rows], field.type) for field in schema]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            self._rows.clear()

    def _widen(self, schema: Any) -> None:
        """Write what is in the file once more, with other columns, and go on behind it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._writer.close()
        self._file.flush()
        with tempfile.TemporaryFile(dir=None) as copy:
            self._file.seek(0)
            shutil.copyfileobj(self._file, copy)
            self._file.seek(0)
            self._file.truncate()
            self._writer = pq.ParquetWriter(self._file, schema)
            self._schema = schema
            parquet = pq.ParquetFile(copy)
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                names = set(table.column_names)
                columns = [
                    _array(table[field.name].to_pylist(), field.type)
                    if field.name in names
                    else pa.nulls(table.num_rows, field.type)
                    for field in schema
                ]
                self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    def finish(self) -> None:
        if self._rows or self._writer is None:
            self._write_group()
        self._writer.close()


def _row(element: Any) -> dict[str, Any]:
    """An element as columns."""
    if isinstance(element, dict):
        if not element:
            raise TypeError("it has no fields")
        row = element
    elif hasattr(element, "_fields"):
        row = element._asdict()
    elif isinstance(element, (tuple, list)) and len(element) == 2:
        row = {"key": element[0], "value": element[1]}
    else:
        row = {"value": element}
    return {name: _plain(value) if isinstance(value, (tuple, list, dict)) else value for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Named tuples within as dicts."""
    if hasattr(value, "_fields"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(field) for name, field in value.items()} or None  # Parquet has no struct without fields
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _merged(a: Any, b: Any) -> Any:
    """The Arrow type of a column with values of both types. Raises TypeError if there is none."""
    import pyarrow as pa

    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if {a, b} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_merged(a.value_type, b.value_type))
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        types = {field.name: field.type for field in a}
        for field in b:
            types[field.name] = _merged(types.get(field.name, pa.null()), field.type)
        return pa.struct(list(types.items()))
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        scale = max(a.scale, b.scale)
        digits = max(a.precision - a.scale, b.precision - b.scale) + scale
        if digits <= _DECIMAL_DIGITS_MAX:
            return pa.decimal256(digits, scale) if digits > _DECIMAL128_DIGITS_MAX else pa.decimal128(digits, scale)
    raise TypeError(f"it has {a} in this file, not {b}")


def _array(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa

    if _has_floats(kind):  # integers beyond 2**53 would be refused
        values = [_with_floats(value, kind) for value in values]
    return pa.array(values, kind)


def _has_floats(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _has_floats(kind.value_type)
    return any(_has_floats(field.type) for field in kind) if pa.types.is_struct(kind) else bool(kind == pa.float64())


def _with_floats(value: Any, kind: Any) -> Any:
    """A value of a type, with floats wherever the type has them."""
    import pyarrow as pa

    if value is None or not _has_floats(kind):
        return value
    if pa.types.is_list(kind):
        return [_with_floats(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _with_floats(value.get(field.name), field.type) for field in kind}
    return float(value)
