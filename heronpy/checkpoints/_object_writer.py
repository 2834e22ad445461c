"""Writing an object of a checkpoint, see `_object`.

Entries come in any order, in slices between the batches of a task, and are to be read by range of key groups. To sort
them all would stop the task. So each is put under its group in a *run*; when that has a few megabytes, another one is
begun, and the full one is written group by group, some of it with every entry that is added. In the file a range of
groups is one piece of each run, so its reader asks for few pieces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from heronpy.checkpoints._header import Header
from heronpy.checkpoints._object import (
    END_MAGIC,
    FORMAT,
    INDEX_PREFIX,
    MAGIC,
    PREFIX,
    RECORD,
    TRAILER,
    Entries,
    Row,
    encoded,
)

BLOCK_BYTES: Final = 64 * 1024
"""A block has about so many bytes, if values are of similar size; one with a larger value has only that."""
RUN_BYTES: Final = 4 * 1024 * 1024
"""What is put in order together takes so much memory, about; while it is written, there is another of these."""
_ROW_BYTES = 128
"""Of an entry in memory, besides its value."""
_WRITTEN_BY_ADDED = 2

_Run = defaultdict[int, list[Row]]
"""Entries by key group; under ~group those whose keys only unpickling brings back: they cannot be picked by hash."""


class ObjectWriter:
    """Makes an object of entries, piece by piece. What is ready must be taken from `chunks`, in order."""

    def __init__(self, header: Header, *, run_bytes: int = RUN_BYTES) -> None:
        """Nothing is added.

        Args:
            header: Of the object.
            run_bytes: How much is put in order together, in memory.
        """
        self.header = header
        self.chunks: list[bytes] = []
        self.size = 0
        """Bytes so far, also those that were taken."""
        self.checksum = 0
        """Of the index, when it is finished: what the manifest has."""
        body = msgspec.msgpack.encode(header)
        self._header = INDEX_PREFIX.pack(len(body), crc32(body))
        self._records: list[bytes] = []
        self._run_bytes_max = run_bytes
        self._runs = [_Run(list) for _ in header.states]
        self._run_bytes = 0
        self._writing: Iterator[int] = iter(())
        """The runs before, a block at a time, in bytes."""
        self._due_bytes = 0
        """How much of them is to be written, for what was added."""
        self._append(PREFIX.pack(MAGIC, FORMAT, len(body), crc32(body)) + body)

    def add(self, state: int, group: int, row: Row) -> None:
        """Add an entry.

        Args:
            state: Position of its state in the header.
            group: Its key group, which must be one of the header's.
            row: The entry.
        """
        self._runs[state][group if row[1] is None else ~group].append(row)
        value = row[2]
        kind = type(value)
        size = _ROW_BYTES
        if kind is Ext:
            size += len(value.data)
        elif kind is str or kind is bytes:
            size += len(value)
        self._run_bytes += size
        self._due_bytes += _WRITTEN_BY_ADDED * size
        if self._due_bytes >= BLOCK_BYTES:
            self._write_due()

    def add_encoded(self, state: int, group: int, key: str | int, value: bytes) -> None:
        """Add an entry whose key is stored as it is, whose value is encoded by its codec, and whose time is not kept.

        Raises:
            CheckpointError: the value is too large.
        """
        self._runs[state][group].append((key, None, encoded(value), 0))
        size = _ROW_BYTES + len(value)
        self._run_bytes += size
        self._due_bytes += _WRITTEN_BY_ADDED * size
        if self._due_bytes >= BLOCK_BYTES:
            self._write_due()

    def _write_due(self) -> None:
        """Write a block of the runs before, and begin others if these are full."""
        self._due_bytes -= next(self._writing, BLOCK_BYTES)
        if self._run_bytes >= self._run_bytes_max:
            for _ in self._writing:  # nothing is left, unless the last values were large
                pass
            self._begin_runs()

    def add_run(
        self,
        state: int,
        keys: Sequence[Any],
        values: Sequence[Any],
        stamps: Sequence[int] = (),
        group: int | None = None,
    ) -> None:
        """Add entries as a block of their own, in columns. Nothing is added if this raises.

        Args:
            state: Position of their state in the header.
            keys: As in a `Row`.
            values: As in a `Row`.
            stamps: As in a `Row`; none: all are 0.
            group: The key group of all of them; None: they are of any.

        Raises:
            UnicodeEncodeError: text that is not UTF-8.
            OverflowError: an int of more than 64 bits.
        """
        groups = range(self.header.first_group, self.header.end_group) if group is None else range(group, group + 1)
        self._append_block(state, groups, Entries(_encode(keys), {}, values, stamps))

    def flush(self, deadline_s: float = float("inf"), clock: Callable[[], float] = perf_counter) -> bool:
        """Write what was added, until a time. Whether nothing is left."""
        while True:
            for _ in self._writing:
                if clock() >= deadline_s:
                    return False
            if not self._run_bytes:
                return True
            self._begin_runs()

    def finish(self) -> None:
        """Write what was added, and the index."""
        self.flush()
        index = self._header + b"".join(self._records)
        self.checksum = crc32(index)
        self._append(index + TRAILER.pack(self.size, len(index), self.checksum, END_MAGIC))

    def _begin_runs(self) -> None:
        self._writing = self._written(self._runs, self._run_bytes)
        self._runs = [_Run(list) for _ in self._runs]
        self._run_bytes = self._due_bytes = 0

    def _written(self, runs: Sequence[_Run], run_bytes: int) -> Iterator[int]:
        """Write runs in the order of states and groups. Yields after each block, which is of neighbouring groups."""
        entries = sum(len(rows) for run in runs for rows in run.values())
        at_most = max(1, entries * BLOCK_BYTES // run_bytes)
        for state, run in enumerate(runs):
            rows: list[Row] = []
            first = 0
            for group in sorted(run):
                own = run.pop(group)
                if rows and len(rows) + len(own) > at_most:
                    yield self._write(state, range(first, group), rows)
                    rows = []
                if group < 0 or len(own) > at_most:
                    only = range(~group, -group) if group < 0 else range(group, group + 1)
                    for at in range(0, len(own), at_most):
                        yield self._write(state, only, own[at : at + at_most])
                    continue
                first = first if rows else group
                rows += own
            if rows:
                yield self._write(state, range(first, group + 1), rows)

    def _write(self, state: int, groups: range, rows: Sequence[Row]) -> int:
        keys, originals, values, stamps = zip(*rows, strict=True)
        pickled = {at: original for at, original in enumerate(originals) if original is not None}
        return self._append_block(state, groups, Entries(_encode(keys), pickled, values, stamps if any(stamps) else []))

    def _append_block(self, state: int, groups: range, entries: Entries) -> int:
        data = _encode(entries)
        count, checksum = len(entries.values), crc32(data)
        self._records.append(RECORD.pack(self.size, len(data), state, groups.start, groups.stop, count, checksum))
        self._append(data)
        return len(data)

    def _append(self, data: bytes) -> None:
        self.chunks.append(data)
        self.size += len(data)


_encode = msgspec.msgpack.Encoder().encode
