"""Joins in a batch job: a port for each side, and a reducer where both meet.

What one key has on both sides may be more than memory: no hash divides it further. It then waits on disk, in runs of
one side and one length of a window, and a window's pairs are made of some blocks of the left side at a time and a pass
over the right one (a block nested-loop join): there are as many pairs as elements of one side times those of the other,
so the passes cost little beside them.

Of sessions that are joined, all elements are kept that are in one that is open at the end of a batch: runs go on from
these, as they do from sessions that are reduced.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from heronpy.pipeline._regions import Port
from heronpy.pipeline.blocks import unpacked
from heronpy.pipeline.exchange import Layout, Outbox
from heronpy.pipeline.partials import pickled
from heronpy.pipeline.reductions import Span, checked
from heronpy.pipeline.sessions import SessionTable
from heronpy.pipeline.spill import Spill
from heronpy.pipeline.task import Task
from heronpy.streamlet.graph import JoinNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Times, joined
from heronpy.streamlet.windows import window_of, window_starts
from heronpy.windows import Session
from heronpy.windows import Span as WindowSpan

_ROWS_MAX = 50_000
"""Rows that wait in a port."""
_LEFT_BYTES = 8 * 1024 * 1024
"""Of the left side that are joined with one pass over the right one, as blocks."""
_KEPT_MAX = 8192
"""Elements that are kept, until they are sent …"""
_KEPT_BYTES = 1024 * 1024
"""… if they are no larger than this together."""
_TIME = operator.itemgetter(0)
_NOTHING: list[Any] = []
_Rows = Callable[[], Iterator[list[Any]]]
"""A pass over the values of one side in a window, some at a time; none of them is empty."""


class JoinPort:
    """One side: rows (key, time, value) for each partition."""

    def __init__(
        self, node: JoinNode, side: int, task: Task, layout: Layout, outbox: Outbox, begins: int | None = None
    ) -> None:
        """Nothing is added.

        Args:
            node: the join.
            side: 0 is the left one, 1 the right one.
            task: where it runs.
            layout: the job's.
            outbox: the task's.
            begins: the first batch whose elements are taken, see `BatchPlan.begins`.
        """
        self._node, self._side, self._task, self._outbox = node, side, task, outbox
        self._begin_ms = -math.inf if begins is None else begins * layout.batch_length_ms
        self._rows: list[tuple[Any, int, Any]] = []

    def add(self, values: list[Any], times: Times) -> None:
        for pair, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
            if time < self._begin_ms:
                continue
            try:
                key, value = pair
                self._rows.append((checked(key), time, value))
            except Exception as error:  # no pair
                self._task.failed(self._node.stage, pair, time, error)
        if len(self._rows) > _ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        name = self._node.stage
        self._outbox.keyed(name, self._side, self._rows, lambda row, e: self._task.failed(name, row, row[1], e))
        self._rows = []


class JoinReducer:
    """Emits (KeyedWindow, function(left, right)) for all pairs of each key and window."""

    def __init__(
        self,
        node: JoinNode,
        task: Task,
        layout: Layout,
        back_ms: int | None,
        directory: str | None = None,
        kept: Port | None = None,
    ) -> None:
        """Nothing is added.

        Args:
            node: the join.
            task: where it runs.
            layout: the job's.
            back_ms: how far back its results are read.
            directory: where one key's elements are, if they do not fit in memory; None: where temporary files are.
            kept: where the elements are kept of sessions that are open at the end of each batch; None: they are not.
        """
        self._node, self._task, self._layout, self._kept = node, task, layout, kept
        self._pairs: list[tuple[bytes, bytes]] = []
        """What is to be kept, and not sent yet; with"""
        self._times: list[int] = []
        self._kept_bytes = 0
        self._span = Span(layout, back_ms)
        self._sides: dict[Any, tuple[list[tuple[int, Any]], list[tuple[int, Any]]]] = {}
        self._spill: Spill[tuple[Any, int, int]] = Spill(directory)
        """Runs of (time, value), by key, side and number of the window's length since the epoch."""
        self._sessions = SessionTable(lambda _key, _a, _b, _time: (None, True))
        """Of what is on disk."""

    def add(self, side: int | None, rows: list[Any]) -> None:
        if side is None:  # kept of a session that was open before all that is read
            for key, (of, time, value) in rows:
                self._sides.setdefault(key, ([], []))[of].append((time, value))
            return
        for key, time, value in rows:
            self._sides.setdefault(key, ([], []))[side].append((time, value))

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        for side in (0, 1):
            yield side, ((key, *row) for key, sides in self._sides.items() for row in sides[side])

    def spill(self) -> None:
        """Put all elements on disk: no hash of keys divides them any more.

        Raises:
            OSError: the disk is full.
        """
        window = self._node.window
        length_ms = window.duration_ms
        while self._sides:
            key, sides = self._sides.popitem()
            for side, rows in enumerate(sides):
                runs: dict[int, list[Any]] = {}
                for row in rows:
                    runs.setdefault(row[0] // length_ms, []).append(row)
                    if isinstance(window.windows, Session):
                        self._sessions.add(key, row[0], row[0] + length_ms, None)
                for number, some in runs.items():
                    self._spill.write((key, side, number), None, some)

    def results(self) -> Iterator[tuple[Any, int] | None]:
        if self._spill.runs:
            self.spill()
            with self._spill:
                yield from self._spilled()
        while self._sides:
            key, sides = self._sides.popitem()
            for rows in sides:
                rows.sort(key=_TIME)
            for span in self._windows(sorted({time for rows in sides for time, _ in rows})):
                inside = [_within(rows, span) for rows in sides]
                yield from self._joined(key, span, *map(_values, inside))
                yield from self._keep(key, span, [functools.partial(iter, rows) for rows in inside])
        yield from self._sent()

    def _spilled(self) -> Iterator[tuple[Any, int] | None]:
        length_ms = self._node.window.duration_ms
        numbers: dict[Any, set[int]] = {}
        for key, _, number in self._spill.runs:
            numbers.setdefault(key, set()).add(number)
        for key, there in numbers.items():
            for span in self._windows_of(key, there):
                wanted = range(span.start_ms // length_ms, (span.end_ms - 1) // length_ms + 1)
                left, right = ([(key, side, n) for n in wanted if n in there] for side in (0, 1))
                yield from self._joined(key, span, self._read(left, span, _LEFT_BYTES), self._read(right, span))
                yield from self._keep(key, span, [functools.partial(self._rows, runs, span) for runs in (left, right)])

    def _windows_of(self, key: Any, numbers: Iterable[int]) -> Iterable[WindowSpan]:
        """The windows of what a key has on disk; in some there may be nothing."""
        config = self._node.window
        if isinstance(config.windows, Session):
            return (WindowSpan(start, end) for start, end, _ in self._sessions.of(key))
        length_ms, slide_ms = config.duration_ms, config.slide_ms
        firsts = ((n, window_starts(n * length_ms, config)[0]) for n in numbers)
        starts = sorted({start for n, first in firsts for start in range(first, (n + 1) * length_ms, slide_ms)})
        return (WindowSpan(start, start + length_ms) for start in starts)

    def _windows(self, times: list[int]) -> Iterable[WindowSpan]:
        """The windows of times, which are in order."""
        config = self._node.window
        if isinstance(config.windows, Session):
            return _sessions(times, config.duration_ms)
        starts = sorted({start for time in times for start in window_starts(time, config)})
        return [WindowSpan(start, start + config.duration_ms) for start in starts]

    def _read(self, runs: list[tuple[Any, int, int]], span: WindowSpan, at_least_bytes: int = 0) -> _Rows:
        def read() -> Iterator[list[Any]]:
            values: list[Any] = []
            size = 0
            for run in runs:
                for block in self._spill.blocks(run):
                    values += [value for time, value in unpacked(block)[1] if span.start_ms <= time < span.end_ms]
                    size += len(block)
                    if values and size >= at_least_bytes:
                        yield values
                        values, size = [], 0
            if values:
                yield values

        return read

    def _rows(self, runs: list[tuple[Any, int, int]], span: WindowSpan) -> Iterator[tuple[int, Any]]:
        rows = (row for run in runs for row in self._spill.rows(run))
        return (row for row in rows if span.start_ms <= row[0] < span.end_ms)

    def _keep(
        self, key: Any, span: WindowSpan, sides: Sequence[Callable[[], Iterator[tuple[int, Any]]]]
    ) -> Iterator[None]:
        """Keep what is in a session before the end of each batch at which it is open."""
        wanted, length = self._layout.wanted, self._layout.batch_length_ms
        if self._kept is None or not wanted:
            return
        name, first = pickled(key), self._layout.first
        assert first is not None, "there are wanted ones"
        open_at = range(max(span.start_ms // length, first), min((span.end_ms - 1) // length, self._layout.last + 1))
        for batch in filter(wanted.__contains__, open_at):
            end_ms = (batch + 1) * length
            rows = ((side, *row) for side, read in enumerate(sides) for row in read() if row[0] < end_ms)
            elements: Iterable[bytes] = (pickled([row]) for row in rows)
            if not self._spill.runs:
                elements = sorted(elements)  # the same whenever it is the same elements: see `Following.reopened`
            for number, element in enumerate(elements):
                # One name for each. Who unpickles it reads the key, and nothing behind it.
                self._pairs.append((name + pickled(number), element))
                self._times.append(batch * length)
                self._kept_bytes += len(element)
                if len(self._pairs) >= _KEPT_MAX or self._kept_bytes >= _KEPT_BYTES:
                    yield from self._sent()

    def _sent(self) -> Iterator[None]:
        """Send what is to be kept."""
        if self._kept is not None and self._pairs:
            self._kept.add(self._pairs, self._times)
            self._kept.flush()
            self._pairs, self._times, self._kept_bytes = [], [], 0
            yield None

    def _joined(self, key: Any, span: WindowSpan, left: _Rows, right: _Rows) -> Iterator[tuple[Any, int]]:
        time = span.end_ms - 1
        if time not in self._span:
            return
        named = KeyedWindow(key, window_of(span))
        has_left, has_right = False, next(right(), None) is not None
        for lefts in left():
            has_left = True
            for rights in right() if has_right else [_NOTHING]:
                yield from self._made(named, time, lefts, rights)
        if not has_left:
            for rights in right():
                yield from self._made(named, time, _NOTHING, rights)

    def _made(self, key: Any, time: int, left: list[Any], right: list[Any]) -> Iterator[tuple[Any, int]]:
        for a, b in joined(self._node.how, left, right, None):
            try:
                made = self._node.function(a, b)
            except Exception as error:  # user code
                self._task.failed(self._node.stage, (key, a, b), time, error)
            else:
                yield (key, made), time


def _within(rows: list[tuple[int, Any]], span: WindowSpan) -> list[tuple[int, Any]]:
    """Those of a window, of rows in the order of their times."""
    begin, end = (bisect.bisect_left(rows, at, key=_TIME) for at in (span.start_ms, span.end_ms))
    return rows[begin:end]


def _values(rows: list[tuple[int, Any]]) -> _Rows:
    """A pass over the values of rows."""
    values = [value for _, value in rows]
    return lambda: iter([values] if values else [])


def _sessions(times: list[int], gap_ms: int) -> Iterator[WindowSpan]:
    start = last = times[0]
    for time in times:
        if time - last >= gap_ms:
            yield WindowSpan(start, last + gap_ms)
            start = time
        last = time
    yield WindowSpan(start, last + gap_ms)
