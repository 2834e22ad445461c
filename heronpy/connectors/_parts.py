"""How sources with data at rest are read: in parts, which tasks share among themselves."""

# A part is divided from the rest of the data by the data alone, never by how many tasks there are: positions are kept
# per part, and so a restart with another number of tasks goes on where the last run was. Which task reads a part is
# decided by the part alone as well: tasks list the files each for itself, at slightly different times, and a rank in
# a list that has just become longer would give one part to two tasks and another to none.

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from heronpy.connectors._positions import Positions
from heronpy.connectors._times import Span, Times
from heronpy.connectors.spi import Chunk, Record, SourceContext, SourceReader

DeadLetter = Callable[[str, Any, str], None]
READ_S = 0.003
"""`read` decodes more as long as it has not taken this long: as many small files are read at once as one large."""


class Rows(NamedTuple):
    """Some rows of a part, column by column."""

    values: list[Any]
    """The elements; malformed rows are left out."""
    starts: Sequence[int]
    """Where each of them begins: a byte or row number, at which reading can begin."""
    end: int
    """Where the next rows begin."""
    times_ms: Sequence[int]
    """Their times."""
    prefix: str
    """The id of a row is this prefix with the row's start less `base`, …"""
    base: int = 0
    ids: Sequence[str] | None = None
    """… unless the ids are here."""

    def records(self, first: int, last: int, token: Any) -> list[Record]:
        """Rows `first` to `last` (exclusive) as records."""
        if self.ids is not None:
            ids: Any = self.ids[first:last]
        elif self.base:
            ids = [f"{self.prefix}{start - self.base}" for start in self.starts[first:last]]
        else:
            ids = [f"{self.prefix}{start}" for start in self.starts[first:last]]
        columns = zip(self.values[first:last], self.times_ms[first:last], ids, itertools.repeat(token), strict=False)
        return list(map(Record._make, columns))

    def chunk(self) -> Chunk:
        """All of them as a batch job reads them. Parts do not overlap, so ids are not needed."""
        return Chunk(self.values, self.times_ms)


class Part(Protocol):
    """A part of a source's data. Small and picklable."""

    @property
    def key(self) -> str:
        """Its name among all parts of the source; the same in every run."""
        ...

    @property
    def share(self) -> int:
        """Task `share % num_tasks` reads it."""
        ...

    @property
    def limit(self) -> int:
        """No position in it can be beyond this: one that is belongs to data that was there before."""
        ...

    @property
    def changed(self) -> Span | None:
        """Up to which place it has rows now, and the time of those that are new; None: times of rows never change."""
        ...

    def growing(self) -> Part:
        """The same, whose last row may still be half written: `rows` leaves it out then, and ends before it."""
        ...

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        """Its rows from a position on; None: all of them. Raises nothing: what cannot be read is a dead letter."""
        ...


class _Batch:
    """Rows that one `read` returned."""

    __slots__ = ("end", "outstanding")

    def __init__(self, outstanding: int, end: int) -> None:
        self.outstanding = outstanding
        self.end = end


class PartReader(SourceReader):
    """The stream face: reads this task's parts one after the other, and remembers how far everything is acked.

    After a kill reading begins with the first `read` that was not acked completely.
    """

    def __init__(self, parts: Sequence[Part], context: SourceContext) -> None:
        """Read `parts`, all parts of the source, as task `context.task_index`."""
        self._dead_letter = context.dead_letter
        directory = context.directory
        kept = None if directory is None else directory / "positions" / context.name
        self._positions = Positions(kept, context.task_index)
        self._times = Times(kept, context.task_index)
        mine = [part for part in parts if part.share % context.num_tasks == context.task_index]
        keys = [part.key for part in parts]
        self._positions.keep(keys)
        self._times.keep(keys)
        for part in mine:
            if (changed := part.changed) is not None:
                self._times.note(part.key, changed)
        self._times.save()
        self._parts = iter(mine)
        self._open: dict[str, collections.deque[_Batch]] = {}
        self._part: Part | None = None
        self._iterator: Iterator[Rows] = iter(())
        self._rows: Rows | None = None
        self._next = 0
        self._generation = 0
        self._ended = False
        self._next_part()

    def read(self, limit: int) -> Sequence[Record]:
        self._positions.save_if_due()
        records: list[Record] = []
        until_s = time.monotonic() + READ_S
        while len(records) < limit and not self._ended:
            if self._rows is not None:
                records += self._take(self._rows, limit - len(records))
            elif records and time.monotonic() > until_s:
                break
            else:
                self._advance()
                if time.monotonic() > until_s and self._rows is None:
                    break
        return records

    def _advance(self) -> None:
        """To the next rows, or to the next part, which are many if files are small."""
        self._rows = next(self._iterator, None)
        self._next = 0
        if self._rows is None:
            self._next_part()
        elif self._part is not None and (times_ms := self._times.of(self._part.key, self._rows.starts)) is not None:
            self._rows = self._rows._replace(times_ms=times_ms)

    def _take(self, rows: Rows, limit: int) -> list[Record]:
        assert self._part is not None
        first, last = self._next, min(self._next + limit, len(rows.values))
        whole = last == len(rows.values)
        batch = _Batch(last - first, rows.end if whole else rows.starts[last])
        self._open.setdefault(self._part.key, collections.deque()).append(batch)
        self._next = last
        if whole:
            self._rows = None
        if first == last:
            self._settle()
            return []
        if self._generation:  # other data in the same place: its ids must not be those of what was there before
            rows = rows._replace(prefix=f"{rows.prefix}{self._generation}~")
        return rows.records(first, last, batch)

    def _next_part(self) -> None:
        self._part = next(self._parts, None)
        if self._part is None:
            self._ended = True
            return
        position = self._positions.of(self._part.key, self._part.limit)
        self._iterator = self._part.rows(position, self._dead_letter)
        self._generation = self._positions.generation(self._part.key)

    def ack(self, records: Sequence[Record]) -> None:
        for record in records:
            record.token.outstanding -= 1
        self._settle()
        self._positions.save_if_due()

    def _settle(self) -> None:
        for key, batches in list(self._open.items()):
            end = None
            while batches and batches[0].outstanding <= 0:
                end = batches.popleft().end
            if end is not None:
                self._positions.advance(key, end)
            if not batches:
                del self._open[key]

    @property
    def ended(self) -> bool:
        return self._ended

    def close(self) -> None:
        self._positions.save()
        self._ended = True
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()  # a generator, which holds its file open
