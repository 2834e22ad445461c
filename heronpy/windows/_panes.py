"""Windows of any trigger, which do not merge: on a grid, or the global one.

The state of a key is a dict: {window's start: [count, due, fired, accumulator]}. `count` is of the elements since the
last pane, `due` when the next is because of processing time (or None), `fired` whether the watermark has passed the
end. A pane that takes everything leaves nothing behind.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, MutableMapping, Sequence
from operator import itemgetter
from typing import Any

from heronpy.windows._effects import Closed, Effect, Late, Placed, Timing
from heronpy.windows._engine import NOTHING, WindowEngine, delay_of, reached
from heronpy.windows._folds import Fold
from heronpy.windows._spans import END, FOREVER, NEVER, Global, Sliding, Span, Tumbling
from heronpy.windows._triggers import Windowing

COUNT, DUE, FIRED, ACC = 0, 1, 2, 3
_GLOBAL = range(NEVER, NEVER + 1)


class PaneEngine(WindowEngine):
    """See the file."""

    def __init__(
        self, windowing: Windowing, fold: Fold, state: MutableMapping[Any, Any] | None = None, watermark: int = NEVER
    ) -> None:
        super().__init__(windowing, fold, state, watermark)
        assert isinstance(windowing.windows, (Tumbling, Sliding, Global))
        self._windows = windowing.windows
        self._accumulating = windowing.accumulating
        self._keys: dict[int, dict[Any, None]] = {}
        """Who has a record, by window."""
        self._ends: list[tuple[int, int]] = []
        """A heap: when windows are fired or closed by the watermark, and their starts."""
        self._queued: set[tuple[int, int]] = set()
        """The same."""
        self._timers: list[tuple[int, int, Any, int]] = []
        """A heap: due, a number, key, start. It counts only while the record says the same."""
        self._numbers = itertools.count()
        self._is_flushed = False
        """Whether nothing has come since the last flush, which looks at all keys."""
        for key, records in self._saved():
            for start, record in records.items():
                self._enter(key, start)
                if record[DUE] is not None:
                    heapq.heappush(self._timers, (record[DUE], next(self._numbers), key, start))

    def add(self, key: Any, value: Any, time_ms: int, now_ms: int = 0) -> Sequence[Effect]:
        now_ms = self._clock(now_ms)
        starts = _GLOBAL if isinstance(self._windows, Global) else self._windows.starts(time_ms)
        placed = 0
        effects: list[Effect] = []
        for start in starts:
            end = self._span(start).end_ms
            if self._too_late(end):
                continue
            self._put(key, start, end, value)
            placed += 1
            effects += self._after_add(key, start, now_ms)
        if not placed:
            return [Late(key, value, time_ms)]
        if placed > 1:
            effects.insert(0, Placed(placed))
        return effects or NOTHING

    def _put(self, key: Any, start: int, end: int, value: Any) -> None:
        self._is_flushed = False
        records = self.state.get(key)
        record = None if records is None else records.get(start)
        if record is None:
            acc = self.fold.lift(value)
            record = [0, None, self._watermarked and end <= self.watermark, acc]
            if records is None:
                records = self.state[key] = {}
            records[start] = record
            self._enter(key, start)
        elif len(record) > ACC:
            record[ACC] = self.fold.add(record[ACC], value)
        else:
            record.append(self.fold.lift(value))
        record[COUNT] += 1

    def _after_add(self, key: Any, start: int, now_ms: int) -> Iterator[Effect]:
        record = self.state[key][start]
        rule = self._late if record[FIRED] else self._early
        if reached(rule, record[COUNT]):
            yield self._fire(key, start, Timing.LATE if record[FIRED] else Timing.EARLY)
            return
        delay_ms = delay_of(rule)
        if delay_ms is not None and record[DUE] is None:
            record[DUE] = now_ms + delay_ms
            heapq.heappush(self._timers, (record[DUE], next(self._numbers), key, start))

    def _hasten(self, latest_ms: int) -> None:
        for due, _, key, start in [timer for timer in self._timers if timer[0] > latest_ms]:
            record = self.state[key][start]
            assert record[DUE] == due, "nothing has happened since the restore"
            record[DUE] = latest_ms
            heapq.heappush(self._timers, (latest_ms, next(self._numbers), key, start))

    def flush(self) -> Iterator[Effect]:
        if self._is_flushed:
            return
        self._is_flushed = True
        new = [(start, key) for key, records in self._saved() for start, record in records.items() if record[COUNT]]
        for start, key in sorted(new, key=itemgetter(0)):
            yield self._fire(key, start, Timing.LATE if self.state[key][start][FIRED] else Timing.EARLY)

    def _due(self) -> Iterator[Effect]:
        while self._timers and self._timers[0][0] <= self._now_ms:
            due, _, key, start = heapq.heappop(self._timers)
            record = self.state.get(key, {}).get(start)
            if record is not None and record[DUE] == due:
                yield self._fire(key, start, Timing.LATE if record[FIRED] else Timing.EARLY)
        while self._ends and self._ends[0][0] <= self.watermark:
            at, start = heapq.heappop(self._ends)
            self._queued.discard((at, start))
            if start not in self._keys:
                continue
            end = self._span(start).end_ms
            if self._watermarked and at == end:
                yield from self._on_time(start, list(self._keys[start]))
            if self._too_late(end):
                yield from self._close(start)
            elif start in self._keys:
                self._queue(start)
        if self.watermark == END:
            for start in sorted(self._keys):
                yield from self._close(start)

    def _on_time(self, start: int, keys: list[Any]) -> Iterator[Effect]:
        for key in keys:
            record = self.state[key][start]
            if record[FIRED]:
                continue
            record[FIRED] = True
            if len(record) > ACC:
                yield self._fire(key, start, Timing.ON_TIME)
            elif not self._accumulating:
                self._forget(key, start)

    def _close(self, start: int) -> Iterator[Effect]:
        for key in list(self._keys.get(start, ())):
            record = self.state[key][start]
            if record[COUNT]:
                yield self._fire(key, start, Timing.LATE if record[FIRED] else Timing.ON_TIME, closes=True)
                continue
            self._forget(key, start)
            if len(record) > ACC:
                yield Closed(key, self._span(start), (record[ACC],))

    def _fire(self, key: Any, start: int, timing: Timing, *, closes: bool = False) -> Effect:
        record = self.state[key][start]
        acc = record[ACC]
        record[COUNT], record[DUE] = 0, None
        released: tuple[Any, ...] = ()
        if closes or not self._accumulating:
            released = (acc,)
            self._forget(key, start)  # what comes next begins anew
        elif record[FIRED] and not self._lateness_ms:
            released = (acc,)
            self._forget(key, start)
        return self._pane(key, self._span(start), (acc,), timing, released)

    def _enter(self, key: Any, start: int) -> None:
        keys = self._keys.get(start)
        if keys is None:
            keys = self._keys[start] = {}
            self._queue(start)
        keys[key] = None

    def _queue(self, start: int) -> None:
        at = self._span(start).end_ms
        if at <= self.watermark:
            if self._lateness_ms == FOREVER:
                return  # nothing but the end of everything closes it
            at += self._lateness_ms
        if (at, start) not in self._queued:
            self._queued.add((at, start))
            heapq.heappush(self._ends, (at, start))

    def _forget(self, key: Any, start: int) -> None:
        records = self.state[key]
        del records[start]
        if not records:
            del self.state[key]
        keys = self._keys[start]
        del keys[key]
        if not keys:
            del self._keys[start]

    def _span(self, start: int) -> Span:
        return Span(NEVER, END) if isinstance(self._windows, Global) else Span(start, start + self._windows.size_ms)

    def check_invariants(self) -> None:
        found = {(key, start) for key, records in self.state.items() for start in records}
        assert found == {(key, start) for start, keys in self._keys.items() for key in keys}
        assert all(records for records in self.state.values())
        assert sorted(self._ends) == sorted(self._queued)
        assert self._lateness_ms == FOREVER or self._keys.keys() <= {start for _, start in self._ends}
        due = {(at, key, start) for at, _, key, start in self._timers}
        for key, records in self.state.items():
            for start, record in records.items():
                assert len(record) > ACC or not record[COUNT]
                assert record[DUE] is None or (record[DUE], key, start) in due
                assert not self._too_late(self._span(start).end_ms)


__all__ = ["PaneEngine"]
