"""A source with both times and a past: lists of (element, time in ms), each list one split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.connectors import Chunk, Source, SourceContext, SourceReader


@dataclass(frozen=True)
class ListSplit:
    rows: tuple[tuple[Any, int], ...]

    @property
    def size_bytes(self) -> int:
        return 5_000_000  # so that each is a task of its own

    def read(self, dead_letter: Callable[[str, Any, str], None]) -> Iterator[Chunk]:
        for i in range(0, len(self.rows), 100):
            rows = self.rows[i : i + 100]
            yield Chunk([value for value, _ in rows], [time for _, time in rows])


class Lists(Source):
    timed = True

    def __init__(self, *lists: Sequence[tuple[Any, int]]) -> None:
        self._lists = tuple(map(tuple, lists))

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError("in batch jobs only")

    def splits(self, target_bytes: int) -> Sequence[ListSplit]:
        return [ListSplit(rows) for rows in self._lists]
