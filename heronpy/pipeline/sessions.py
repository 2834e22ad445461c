"""Sessions in a batch job: windows that end when a key had no element for a gap.

A session lies in the batch in which it ends, as all windows do. It follows from no later one: an element that lengthens
it comes before its end. So at the end of each batch some sessions are open, at most one of each key, and all others are
over for good. The open ones are kept of each batch that is done (`BatchPlan.opens`): what is computed after it begins
with those, and reads no element before them. A late element concerns later batches only as far as it makes the sessions
others that are open at their beginning: a run goes on until they are as they were.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from heronpy.pipeline._regions import Port
from heronpy.pipeline.blocks import sliced
from heronpy.pipeline.exchange import Layout, Outbox
from heronpy.pipeline.partials import pickled
from heronpy.pipeline.reductions import TABLE_KEYS_MAX, Span, checked
from heronpy.pipeline.task import Task
from heronpy.streamlet.graph import ReduceByKeyAndWindowNode, ReduceByWindowNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Times
from heronpy.streamlet.windows import window_of
from heronpy.windows import Span as WindowSpan

_START = operator.itemgetter(0)
_END = operator.itemgetter(1)
_TOGETHER = 8192
"""Sessions that are kept together."""

SessionNode = ReduceByKeyAndWindowNode | ReduceByWindowNode


class SessionTable:
    """Sessions by key: lists [start in ms, end in ms, value] that do not touch one another, earliest first."""

    def __init__(self, merge: Callable[[Any, Any, Any, int], tuple[Any, bool]]) -> None:
        """There are none.

        Args:
            merge: makes one value of two, of a key and with the end of the second; and whether it could.
        """
        self._merge = merge
        self._sessions: dict[Any, list[list[Any]]] = {}
        self.size = 0
        """Sessions in it."""

    def add(self, key: Any, start: int, end: int, value: Any) -> None:
        """Add a session, or one element's; those that it touches become one."""
        found = self._sessions.setdefault(key, [])
        at = bisect.bisect_left(found, start, key=_START)
        if at and found[at - 1][1] > start:
            at -= 1
        into: list[Any] | None = None
        while at < len(found) and found[at][0] < end:
            if into is None:
                one, other = found[at], (start, end, value)
            else:
                one, other = into, tuple(found[at])
            one[2], is_merged = self._merge(key, one[2], other[2], other[1])
            if is_merged:
                one[0], one[1] = min(one[0], other[0]), max(one[1], other[1])
                end = max(end, one[1])
            if into is not None:
                del found[at]
                self.size -= 1
                continue
            into, at = one, at + 1
            if not is_merged:
                return
        if into is None:
            found.insert(at, [start, end, value])
            self.size += 1

    def rows(self) -> Iterator[tuple[Any, int, int, Any]]:
        """(key, start, end, value) of all."""
        return ((key, *session) for key, found in self._sessions.items() for session in found)

    def of(self, key: Any) -> list[list[Any]]:
        """Those of a key."""
        return self._sessions.get(key, [])

    def remove(self, key: Any) -> None:
        """Take out those of a key."""
        self.size -= len(self._sessions.pop(key))

    def over(self, before: int) -> Iterator[tuple[Any, int, int, Any]]:
        """Take out those that end by a time, as `rows`."""
        for key, found in list(self._sessions.items()):
            at = bisect.bisect_right(found, before, key=_END)
            yield from ((key, start, end, value) for start, end, value in found[:at])
            self.size -= at
            if at == len(found):
                del self._sessions[key]
            else:
                del found[:at]


class SessionPort:
    """Where elements leave their task: reduced to sessions of what it has of each batch and key."""

    def __init__(
        self, node: SessionNode, task: Task, layout: Layout, outbox: Outbox, begins: int | None = None
    ) -> None:
        """Nothing is added.

        Args:
            node: the reduction.
            task: where it runs.
            layout: the job's.
            outbox: the task's.
            begins: the first batch whose elements are taken, see `BatchPlan.begins`.
        """
        self._node, self._task, self._layout, self._outbox = node, task, layout, outbox
        self._is_keyed = isinstance(node, ReduceByKeyAndWindowNode)
        self._begin_ms = -math.inf if begins is None else begins * layout.batch_length_ms
        self._end_ms = Span(layout, None).end_ms
        self._merge = _merging(node, task)
        self._tables: dict[int, SessionTable] = {}

    def add(self, values: list[Any], times: Times) -> None:
        gap_ms, length = self._node.window.duration_ms, self._layout.batch_length_ms
        for element, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
            if not self._begin_ms <= time < self._end_ms:
                continue
            key, value = None, element
            if self._is_keyed:
                try:
                    key, value = element
                    key = checked(key)
                except Exception as error:  # no pair
                    self._task.failed(self._node.stage, element, time, error)
                    continue
            batch = time // length
            table = self._tables.get(batch)
            if table is None:
                table = self._tables[batch] = SessionTable(self._merge)
            table.add(key, time, time + gap_ms, value)
        if sum(table.size for table in self._tables.values()) > TABLE_KEYS_MAX:
            self.flush()

    def flush(self) -> None:
        name, task = self._node.stage, self._task
        for batch, table in self._tables.items():
            failed = task.reduced(name, batch * self._layout.batch_length_ms)
            self._outbox.keyed(name, batch, table.rows(), failed)
        self._tables = {}


class SessionReducer:
    """Emits (KeyedWindow, or Window, value) for each session."""

    def __init__(
        self, node: SessionNode, task: Task, layout: Layout, back_ms: int | None, kept: Port | None = None
    ) -> None:
        """Nothing is added.

        Args:
            node: the reduction.
            task: where it runs.
            layout: the job's.
            back_ms: how far back its results are read.
            kept: where those are kept that are open at the end of each batch; None: they are not.
        """
        self._node, self._task, self._layout, self._kept = node, task, layout, kept
        self._is_keyed = isinstance(node, ReduceByKeyAndWindowNode)
        self._span = Span(layout, back_ms)
        self._merge = _merging(node, task)
        self._open = SessionTable(self._merge)
        """Those at the end of the last batch before all that are read."""
        self._tables: dict[int, SessionTable] = {}
        """Of each batch alone."""

    def add(self, batch: int | None, rows: list[Any]) -> None:
        if batch is None:
            for key, session in rows:
                self._open.add(key, *session)
            return
        table = self._tables.get(batch)
        if table is None:
            table = self._tables[batch] = SessionTable(self._merge)
        for row in rows:
            table.add(*row)

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        yield None, ((key, tuple(session)) for key, *session in self._open.rows())
        for batch, table in self._tables.items():
            yield batch, table.rows()

    def results(self) -> Iterator[tuple[Any, int] | None]:
        wanted: Iterable[int] = () if self._kept is None or self._layout.wanted is None else self._layout.wanted
        for batch in sorted({*self._tables, *wanted}):
            if (table := self._tables.pop(batch, None)) is not None:
                for row in table.rows():
                    self._open.add(*row)
            if batch in wanted:
                end_ms = (batch + 1) * self._layout.batch_length_ms
                yield from self._emitted(self._open.over(end_ms))
                yield from self._keep(batch)
        yield from self._emitted(self._open.rows())

    def _emitted(self, sessions: Iterable[tuple[Any, int, int, Any]]) -> Iterator[tuple[Any, int]]:
        for key, start, end, value in sessions:
            if (time := end - 1) in self._span:
                window = window_of(WindowSpan(start, end))
                yield (KeyedWindow(key, window) if self._is_keyed else window, value), time

    def _keep(self, batch: int) -> Iterator[None]:
        """Keep what is open at the end of a batch, before later elements change it."""
        assert self._kept is not None
        time_ms = batch * self._layout.batch_length_ms
        for some in sliced(list(self._open.rows()), _TOGETHER):
            pairs: list[tuple[bytes, bytes]] = []
            for key, start, end, value in some:
                try:
                    pairs.append((pickled(key), pickled([(start, end, value)])))
                except Exception as error:
                    self._task.failed(self._node.stage, value if key is None else (key, value), time_ms, error)
                    self._open.remove(key)
            self._kept.add(pairs, time_ms)
            self._kept.flush()
            yield None


def _merging(node: SessionNode, task: Task) -> Callable[[Any, Any, Any, int], tuple[Any, bool]]:
    gap_ms = node.window.duration_ms

    def merge(key: Any, a: Any, b: Any, end: int) -> tuple[Any, bool]:
        try:
            return node.function(a, b), True
        except Exception as error:  # user code
            # Set aside in the batch of its last element: it is in no session that is kept for a later one.
            task.failed(node.stage, b if key is None else (key, b), end - gap_ms, error)
            return a, False

    return merge
