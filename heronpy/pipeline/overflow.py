"""Reductions of more keys than fit in memory.

What a reducer has is divided by a hash of the key among parts of a file whenever memory is full, and each part is
reduced by itself in the end (a Grace hash join): memory is bounded by the largest part. A part that is still too large
is divided again, by other bits of the hash.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from heronpy.hashing import mix, stable_hash
from heronpy.pipeline.memory import Memory, SpillFile

PARTS = 32
_DEPTH_MAX = 3
"""After 32^3 parts what is together is of one key, and dividing it is of no use."""


class Reducer(Protocol):
    """Where the elements of an exchange meet."""

    def take(self, data: bytes) -> None:
        """Take a block: pickled (head, rows), each row beginning with its key."""
        ...

    def dump(self) -> Iterator[tuple[Any, list[Any]]]:
        """What it has, as such blocks; it has nothing afterwards."""
        ...

    def results(self) -> Iterator[tuple[Any, int]]:
        """(element, time), when all has been taken."""
        ...


class Overflow:
    """A reducer whose elements go to disk when memory is full."""

    def __init__(self, new: Callable[[], Reducer], memory: Memory, directory: str | None, depth: int = 0) -> None:
        """An empty one.

        Args:
            new: makes a reducer.
            memory: of the task.
            directory: where the file is; None: where temporary files are.
            depth: how often what it takes has been divided.
        """
        self._new, self._memory, self._directory, self._depth = new, memory, directory, depth
        self._reducer = new()
        self._file: SpillFile | None = None
        self._parts: list[list[tuple[int, int]]] = [[] for _ in range(PARTS)]

    def take(self, data: bytes) -> None:
        """Take a block."""
        self._reducer.take(data)
        if self._depth < _DEPTH_MAX and self._memory.is_full():
            self._spill()

    def results(self) -> Iterator[tuple[Any, int]]:
        """(element, time) of everything; what a reducer still has to write it writes when its part is done."""
        if self._file is None:
            yield from _results(self._reducer)
            return
        self._spill()
        for part in self._parts:
            inner = Overflow(self._new, self._memory, self._directory, self._depth + 1)
            for at in part:
                inner.take(self._file.read(at))
            yield from inner.results()
        self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = SpillFile(self._directory)
        for head, rows in self._reducer.dump():
            parts: dict[int, list[Any]] = {}
            for row in rows:
                parts.setdefault(self._part(row[0]), []).append(row)
            for part, some in parts.items():
                self._parts[part] += self._file.write_rows(some, functools.partial(_block, head))
        self._reducer = self._new()
        self._memory.emptied()

    def _part(self, key: Any) -> int:
        # Other bits than those that brought the key here, and at each depth others again.
        return (mix(stable_hash(key)) >> (16 * self._depth)) % PARTS


def _block(head: Any, rows: list[Any]) -> tuple[Any, list[Any]]:
    return head, rows


def _results(reducer: Any) -> Iterator[tuple[Any, int]]:
    yield from reducer.results()
    if hasattr(reducer, "finish"):
        reducer.finish()
