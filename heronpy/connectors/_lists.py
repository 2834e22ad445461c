"""Elements that are in memory."""

from __future__ import annotations

import datetime
import hashlib
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from heronpy.connectors._part_splits import PartSource
from heronpy.connectors._parts import DeadLetter, PartReader, Rows
from heronpy.connectors._times import Span
from heronpy.connectors.spi import Chunk, Source, SourceContext, SourceReader, Split, StreamSplit
from heronpy.errors import ConfigError
from heronpy.windows import event_time_ms

_PARTS = 64
_ROWS = 4096
_LAST = 1 << 62


class ListSource(PartSource):
    """The elements of a list, for tests, examples and small tables. They travel with the program.

    It ends with the last element, unless it repeats. One task reads them in order; several divide them. The id of an
    element is its index after a digest of the list, or what `ids` says. After a restart with the same list it goes on
    where everything was acked, if the program has a directory; not if it repeats.
    """

    def __init__(
        self,
        items: Iterable[Any],
        *,
        times: Sequence[float | datetime.datetime] | None = None,
        ids: Sequence[str] | None = None,
        repeat: bool = False,
    ) -> None:
        """Take the elements.

        Args:
            items: the elements.
            times: of the elements, in seconds since the epoch or datetimes: then these are event times. Without them
                all have the time at which this object was made.
            ids: of the elements. A batch job counts elements with equal ids once.
            repeat: begin anew after the last, for ever. Then there is no batch face, and ids say which round it is.

        Raises:
            ConfigError: not one time or id for each element, a time that is none, or nothing to repeat.
        """
        self._items = list(items)
        for name, column in (("times", times), ("ids", ids)):
            if column is not None and len(column) != len(self._items):
                raise ConfigError(f"ListSource: {len(column)} {name} for {len(self._items)} items")
        if repeat and not self._items:
            raise ConfigError("ListSource: there is nothing to repeat")
        made_ms = time.time_ns() // 1_000_000
        self._times_ms = [made_ms] * len(self._items) if times is None else _in_ms(times)
        self._ids = None if ids is None else list(ids)
        self._repeat = repeat
        self.rewindable = not repeat
        self.timed = times is not None
        # Positions in another list mean nothing in this one. Equal lists may differ here: that costs duplicates.
        self._digest = _digest(self._items)

    def __repr__(self) -> str:
        return f"ListSource({len(self._items)} items)"

    def open(self, context: SourceContext) -> SourceReader:
        if self._repeat:
            own = [part for part in self.parts() if part.share % context.num_tasks == context.task_index]
            return _Repeating(own, context.dead_letter)
        return super().open(context)

    def parts(self) -> Sequence[_ListPart]:
        return self._parts(-(-len(self._items) // _PARTS) or 1)

    def stream_splits(self) -> Mapping[str, StreamSplit]:
        return super().stream_splits() if self.rewindable else Source.stream_splits(self)

    def splits(self, target_bytes: int) -> Sequence[Split] | None:
        # How many bytes an element has is unknown; 100 is as good as any.
        return None if self._repeat else self._parts(max(1, target_bytes // 100))

    def _parts(self, length: int) -> list[_ListPart]:
        parts = []
        for number, start in enumerate(range(0, len(self._items), length)):
            span = slice(start, start + length)
            ids = None if self._ids is None else tuple(self._ids[span])
            items, times_ms = tuple(self._items[span]), tuple(self._times_ms[span])
            parts.append(_ListPart(self._digest, number, start, items, times_ms, ids))
        return parts


def _in_ms(times: Sequence[Any]) -> list[int]:
    found = []
    for index, given in enumerate(times):
        try:
            found.append(event_time_ms(given))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"ListSource: the time of item {index}: {error}") from None
    return found


@dataclass(frozen=True)
class _ListPart:
    digest: str
    share: int
    start: int
    items: tuple[Any, ...]
    times_ms: tuple[int, ...]
    ids: tuple[str, ...] | None

    @property
    def key(self) -> str:
        return f"{self.digest}:{self.start}"

    @property
    def limit(self) -> int:
        return self.start + len(self.items)

    @property
    def changed(self) -> Span | None:
        return None

    @property
    def size_bytes(self) -> int:
        return 100 * len(self.items)

    def read(self, dead_letter: DeadLetter) -> Iterator[Chunk]:
        for rows in self.rows(None, dead_letter):
            yield rows.chunk() if rows.ids is None else _with_ids(rows)

    def growing(self) -> Self:
        return self

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        begin = 0 if position is None else position - self.start
        for first in range(begin, len(self.items), _ROWS):
            span = slice(first, first + _ROWS)
            values = list(self.items[span])
            starts = range(self.start + first, self.start + first + len(values))
            ids = None if self.ids is None else self.ids[span]
            yield Rows(values, starts, starts.stop, self.times_ms[span], f"{self.digest}:", ids=ids)


def _digest(items: list[Any]) -> str:
    try:
        raw = pickle.dumps(items)
    except Exception:  # of anybody's class; functions and the like travel otherwise, and are distinguished by number
        raw = str(len(items)).encode()
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def _with_ids(rows: Rows) -> Chunk:
    import numpy as np

    ids = list(rows.ids or ())
    raw = b"".join(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest() for name in ids)
    return Chunk(rows.values, rows.times_ms, ids, np.frombuffer(raw, dtype=np.int64))


class _Round:
    """The elements of one task, once more: all parts as one that never ends."""

    key = "repeat"
    share = 0
    limit = _LAST
    changed = None

    def __init__(self, parts: Sequence[_ListPart]) -> None:
        self._parts = parts

    def growing(self) -> Self:
        return self

    def rows(self, position: int | None, dead_letter: DeadLetter) -> Iterator[Rows]:
        round_number = 0
        while self._parts:
            for part in self._parts:
                for rows in part.rows(None, dead_letter):
                    names = rows.ids or [f"{rows.prefix}{start}" for start in rows.starts]
                    yield rows._replace(ids=[f"{name}/{round_number}" for name in names])
            round_number += 1


class _Repeating(PartReader):
    """Without positions: its ids begin anew with each life."""

    def __init__(self, parts: Sequence[_ListPart], dead_letter: DeadLetter) -> None:
        context = SourceContext(
            name="repeat", task_index=0, num_tasks=1, config={}, directory=None, dead_letter=dead_letter
        )
        super().__init__([_Round(parts)], context)
