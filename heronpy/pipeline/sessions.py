"""Sessions in a batch job: windows that end when a key had no element for a gap.

A session lies in the batch in which it ends, as all windows do. It follows from no later one: an element that lengthens
it comes before its end. So a batch's sessions are those of all elements up to its own end, however many batches they
reach over; a program with sessions reads its archive from the beginning (`BatchPlan.lookback_ms`).
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from heronpy.pipeline.exchange import Layout, Outbox
from heronpy.pipeline.reductions import TABLE_KEYS_MAX, Span, checked
from heronpy.pipeline.task import Task
from heronpy.streamlet.graph import ReduceByKeyAndWindowNode, ReduceByWindowNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Times
from heronpy.streamlet.windows import window_of
from heronpy.windows import Span as WindowSpan

_START = operator.itemgetter(0)

SessionNode = ReduceByKeyAndWindowNode | ReduceByWindowNode


class SessionTable:
    """Sessions by key: lists [start in ms, end in ms, value] that do not touch one another, earliest first."""

    def __init__(self, merge: Callable[[Any, Any, Any, int], tuple[Any, bool]]) -> None:
        """There are none.

        Args:
            merge: makes one value of two, of a key and with the last time of the second; and whether it could.
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
            one[2], is_merged = self._merge(key, one[2], other[2], other[1] - 1)
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

    def clear(self) -> None:
        """There are none any more."""
        self._sessions, self.size = {}, 0


class SessionPort:
    """Where elements leave their task: reduced to sessions of what it has of each key."""

    def __init__(self, node: SessionNode, task: Task, layout: Layout, outbox: Outbox) -> None:
        self._node, self._task, self._outbox = node, task, outbox
        self._is_keyed = isinstance(node, ReduceByKeyAndWindowNode)
        self._end_ms = Span(layout, None).end_ms
        self._table = SessionTable(_merging(node, task))

    def add(self, values: list[Any], times: Times) -> None:
        table, gap_ms = self._table, self._node.window.duration_ms
        for element, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
            if time >= self._end_ms:
                continue
            key, value = None, element
            if self._is_keyed:
                try:
                    key, value = element
                    key = checked(key)
                except Exception as error:  # no pair
                    self._task.failed(self._node.stage, element, time, error)
                    continue
            table.add(key, time, time + gap_ms, value)
        if table.size > TABLE_KEYS_MAX:
            self.flush()

    def flush(self) -> None:
        name, task = self._node.stage, self._task
        self._outbox.keyed(name, None, self._table.rows(), lambda row, e: task.reduced(name, row[2] - 1)(row, e))
        self._table.clear()


class SessionReducer:
    """Emits (KeyedWindow, or Window, value) for each session."""

    def __init__(self, node: SessionNode, task: Task, layout: Layout, back_ms: int | None) -> None:
        self._is_keyed = isinstance(node, ReduceByKeyAndWindowNode)
        self._span = Span(layout, back_ms)
        self._table = SessionTable(_merging(node, task))

    def add(self, head: None, rows: list[Any]) -> None:
        for row in rows:
            self._table.add(*row)

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        yield None, self._table.rows()

    def results(self) -> Iterator[tuple[Any, int]]:
        for key, start, end, value in self._table.rows():
            if (time := end - 1) in self._span:
                window = window_of(WindowSpan(start, end))
                yield (KeyedWindow(key, window) if self._is_keyed else window, value), time


def _merging(node: SessionNode, task: Task) -> Callable[[Any, Any, Any, int], tuple[Any, bool]]:
    def merge(key: Any, a: Any, b: Any, time: int) -> tuple[Any, bool]:
        try:
            return node.function(a, b), True
        except Exception as error:  # user code
            task.failed(node.stage, b if key is None else (key, b), time, error)
            return a, False

    return merge
