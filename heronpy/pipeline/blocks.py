"""Blocks: many rows with something that is the same for all of them, their head, pickled in one call.

Rows travel between tasks in blocks, and wait on disk in blocks.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle

BLOCK_ROWS = 2048
"""Rows of a block, at most."""
BLOCK_BYTES = 128 * 1024
"""Of a block with several rows, at most: PySpark holds up to a thousand before it looks at the memory that it uses."""

_FIRST_ROWS = 64
Failed = Callable[[Any, Exception], None]
"""Called for a row with what is wrong with it."""


class Packer:
    """Divides rows among blocks. It begins with as many rows as fitted the last time: some are kilobytes large.

    The first time it begins with few, for memory is full where rows are written to disk.
    """

    def __init__(self) -> None:
        """Nothing is packed."""
        self._rows = _FIRST_ROWS

    def pack(self, head: Any, rows: list[Any], failed: Failed | None = None) -> Iterator[bytes]:
        """Blocks of (head, rows), for `unpacked`.

        Args:
            head: the same for all rows.
            rows: any number of them.
            failed: called for each row that cannot be pickled, which is left out; None: that is an error.
        """
        at = 0
        while at < len(rows):
            some = rows[at : at + self._rows] if at or len(rows) > self._rows else rows
            at += len(some)
            yield from self._pack(head, some, failed)

    def _pack(self, head: Any, rows: list[Any], failed: Failed | None) -> Iterator[bytes]:
        data, rows = _dumped(head, rows, failed)
        if len(data) > BLOCK_BYTES and len(rows) > 1:
            size = self._rows = max(1, len(rows) * BLOCK_BYTES // (2 * len(data)))
            del data
            for i in range(0, len(rows), size):
                yield from self._pack(head, rows[i : i + size], failed)
            return
        if len(rows) == self._rows and 2 * len(data) <= BLOCK_BYTES:
            self._rows = min(BLOCK_ROWS, 2 * self._rows)
        if rows:
            yield data


def _dumped(head: Any, rows: list[Any], failed: Failed | None) -> tuple[bytes, list[Any]]:
    """A block, and the rows that are in it."""
    try:
        return pickle.dumps((head, rows), protocol=5), rows
    except Exception:  # classes of a script, lambdas in values
        pass
    try:
        return bytes(cloudpickle.dumps((head, rows))), rows
    except Exception:  # one row at least cannot be
        if failed is None:
            raise
    kept = []
    for row in rows:
        try:
            cloudpickle.dumps(row)
            kept.append(row)
        except Exception as error:  # this one
            failed(row, error)
    return bytes(cloudpickle.dumps((head, kept))), kept


def unpacked(block: bytes) -> tuple[Any, list[Any]]:
    """Head and rows of a block of this job."""
    made: tuple[Any, list[Any]] = pickle.loads(block)
    return made


def sliced(rows: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Rows, so many together."""
    waiting = iter(rows)
    while some := list(itertools.islice(waiting, most)):
        yield some
