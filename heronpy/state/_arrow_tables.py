"""Arrow tables as values of a state: PyArrow is imported by those who have some."""

from __future__ import annotations

from typing import Any


def encode_table(table: Any) -> bytes:
    """A table in Arrow's IPC stream format, of which a slice is only what it shows.

    Raises:
        TypeError: not a `pyarrow.Table`.
    """
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        raise TypeError(f"arrow takes pyarrow.Table, not {type(table).__qualname__}: use pickle")
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(out.getvalue()))


def decode_table(data: Any) -> Any:
    """The table; it keeps nothing of `data`, which is a part of something larger."""
    import pyarrow as pa

    with pa.ipc.open_stream(bytes(data)) as reader:
        return reader.read_all()
