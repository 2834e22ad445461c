"""Writing an object of a checkpoint, see `_object`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from heronpy.checkpoints._header import Header
from heronpy.checkpoints._object import (
    BLOCK_BYTES,
    END_MAGIC,
    FORMAT,
    INDEX_PREFIX,
    MAGIC,
    MIXED,
    PREFIX,
    RECORD,
    TRAILER,
    Entries,
    Row,
)

_ROW_BYTES = 32  # a key and a number, about


@dataclass(slots=True)
class _Open:
    """A block that is being filled."""

    rows: list[Row]
    bytes: int = 0


class ObjectWriter:
    """Makes an object of entries, piece by piece. What is ready must be taken from `chunks`, in order."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.chunks: list[bytes] = []
        self.size = 0
        """Bytes so far, also those that were taken."""
        self.checksum = 0
        """Of the index, when it is finished: what the manifest has."""
        body = msgspec.msgpack.encode(header)
        self._header = INDEX_PREFIX.pack(len(body), crc32(body))
        self._records: list[bytes] = []
        self._open: dict[tuple[int, int], _Open] = {}
        self._append(PREFIX.pack(MAGIC, FORMAT, len(body), crc32(body)) + body)

    def add(self, state: int, groups: Iterable[int], rows: Iterable[Row]) -> None:
        """Add entries.

        Args:
            state: Position of their state in the header.
            groups: The key group of each, which must be one of the header's, or `MIXED`.
            rows: The entries.
        """
        blocks = self._open
        for group, row in zip(groups, rows, strict=True):
            block = blocks.get((state, group))
            if block is None:
                block = blocks[state, group] = _Open([])
            block.rows.append(row)
            value = row[2]
            kind = type(value)
            block.bytes += _ROW_BYTES
            if kind is Ext:
                block.bytes += len(value.data)
            elif kind is str or kind is bytes:
                block.bytes += len(value)
            if block.bytes >= BLOCK_BYTES:
                self._end(state, group)

    def add_run(
        self, state: int, keys: Sequence[Any], values: Sequence[Any], stamps: Sequence[int] = (), group: int = MIXED
    ) -> None:
        """Add entries as a block of their own, in columns. Nothing is added if this raises.

        Args:
            state: Position of their state in the header.
            keys: As in a `Row`.
            values: As in a `Row`.
            stamps: As in a `Row`; none: all are 0.
            group: The key group of all of them.

        Raises:
            UnicodeEncodeError: text that is not UTF-8.
            OverflowError: an int of more than 64 bits.
        """
        self._append_block(state, group, Entries(_encode(keys), {}, values, stamps))

    def flush(self, deadline_s: float = float("inf"), clock: Callable[[], float] = perf_counter) -> bool:
        """End the open blocks, until a time. Whether none is left."""
        # Blocks of one state in the order of their groups lie together: whoever reads a range reads it at once.
        for state, group in sorted(self._open):
            self._end(state, group)
            if clock() >= deadline_s:
                break
        return not self._open

    def finish(self) -> None:
        """End the open blocks, and write the index."""
        self.flush()
        index = self._header + b"".join(self._records)
        self.checksum = crc32(index)
        self._append(index + TRAILER.pack(self.size, len(index), self.checksum, END_MAGIC))

    def _end(self, state: int, group: int) -> None:
        rows = self._open.pop((state, group)).rows
        keys, originals, values, stamps = zip(*rows, strict=True)
        pickled = {at: original for at, original in enumerate(originals) if original is not None}
        self._append_block(state, group, Entries(_encode(keys), pickled, values, stamps if any(stamps) else []))

    def _append_block(self, state: int, group: int, entries: Entries) -> None:
        data = _encode(entries)
        self._records.append(RECORD.pack(self.size, len(data), state, group, len(entries.values), crc32(data)))
        self._append(data)

    def _append(self, data: bytes) -> None:
        self.chunks.append(data)
        self.size += len(data)


_encode = msgspec.msgpack.Encoder().encode
