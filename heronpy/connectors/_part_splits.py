"""Parts of data at rest as splits, whose positions are kept by their reader."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heronpy.connectors._files import Files
from heronpy.connectors._parts import READ_S, Part, PartReader, Rows
from heronpy.connectors._times import Span, extended, times_at, unread
from heronpy.connectors.spi import Record, Source, SourceContext, SourceReader, SplitReader, StreamSplit


class PartPosition(NamedTuple):
    """How far a part is read. In checkpoints a plain tuple."""

    generation: int
    """How often its data has been replaced by less: then it is read from its beginning, under other ids."""
    offset: int | None
    """Where the next row begins; None: nothing is read."""
    spans: tuple[Span, ...]
    """Times of rows that have none of their own: a row keeps the one that it was first read with. Without those of
    rows that are not read again from here: a file may be followed for years."""
    damage: str = ""
    """Why it cannot be read further, which was set aside."""


class PartSource(Source):
    """A source of parts."""

    rewindable = True

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """All parts that the stream face reads."""

    def open(self, context: SourceContext) -> SourceReader:
        return PartReader(self.parts(), context)

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return {part.key: PartSplit(part) for part in self.parts()}


class FileSource(PartSource):
    """A source whose parts are in files, and are called as `FilePart.key` is."""

    _files: Files

    def is_gone(self, split: str) -> bool:
        return self._files.is_gone(split.rpartition(":")[0])


@dataclass(frozen=True, slots=True)
class PartSplit:
    """A part as a split."""

    part: Part

    def open(self, position: Any, context: SourceContext) -> SplitReader:
        part = self.part.growing() if context.followed else self.part
        return _PartSplitReader(part, PartPosition(*(position or (0, None, ()))), context)


class _PartSplitReader(SplitReader):
    def __init__(self, part: Part, position: PartPosition, context: SourceContext) -> None:
        generation, offset, spans, damage = position
        if offset is not None and offset > part.limit:
            generation, offset, spans = generation + 1, None, ()
        if (changed := part.changed) is not None:
            spans = tuple(extended(spans, changed))
        self._position = PartPosition(generation, offset, spans, damage)
        self._dead_letter = context.dead_letter
        self._iterator: Iterator[Rows] = part.rows(offset, self._set_aside)
        self._rows: Rows | None = None
        self._next = 0
        self._ended = False

    @property
    def position(self) -> tuple[Any, ...]:
        return tuple(self._position)

    @property
    def ended(self) -> bool:
        return self._ended

    def read(self, limit: int) -> Sequence[Record]:
        until_s = time.monotonic() + READ_S
        while self._rows is None and not self._ended:
            self._advance()
            if time.monotonic() > until_s:
                break
        return [] if self._rows is None else self._take(self._rows, limit)

    def close(self) -> None:
        self._ended = True
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()  # a generator, which holds its file open

    def _advance(self) -> None:
        rows = next(self._iterator, None)
        if rows is None:
            self._ended = True
        elif not rows.values:  # malformed ones
            self._reach(rows.end)
        else:
            spans, generation = self._position.spans, self._position.generation
            if spans:
                rows = rows._replace(times_ms=times_at(spans, rows.starts))
            if generation:  # other data in the same place: its ids must not be those of what was there before
                rows = rows._replace(prefix=f"{rows.prefix}{generation}~")
            self._rows, self._next = rows, 0

    def _take(self, rows: Rows, limit: int) -> list[Record]:
        first, last = self._next, min(self._next + limit, len(rows.values))
        whole = last == len(rows.values)
        self._next = last
        self._reach(rows.end if whole else rows.starts[last])
        if whole:
            self._rows = None
        return rows.records(first, last, None)

    def _reach(self, offset: int) -> None:
        if offset != self._position.offset:
            generation, _, spans, _ = self._position
            self._position = PartPosition(generation, offset, tuple(unread(spans, offset)))

    def _set_aside(self, where: str, row: Any, reason: str) -> None:
        """What keeps the rest from being read is found each time that more is looked for, and set aside once."""
        if row is None:
            damage = f"{where}: {reason}"
            if damage == self._position.damage:
                return
            self._position = self._position._replace(damage=damage)
        self._dead_letter(where, row, reason)
