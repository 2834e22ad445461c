"""Joins in a batch job: a port for each side, and a reducer where both meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

from heronpy.pipeline.exchange import Layout, Outbox
from heronpy.pipeline.reductions import Span, checked
from heronpy.pipeline.task import Task
from heronpy.streamlet.graph import JoinNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Times, joined
from heronpy.streamlet.windows import result_time_ms, window_at, window_starts

_ROWS_MAX = 50_000
"""Rows that wait in a port."""


class JoinPort:
    """One side: rows (key, time, value) for each partition."""

    def __init__(self, node: JoinNode, side: int, task: Task, outbox: Outbox) -> None:
        self._node, self._side, self._task, self._outbox = node, side, task, outbox
        self._rows: list[tuple[Any, int, Any]] = []

    def add(self, values: list[Any], times: Times) -> None:
        for pair, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
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

    def __init__(self, node: JoinNode, task: Task, layout: Layout, back_ms: int | None) -> None:
        self._node, self._task = node, task
        self._span = Span(layout, back_ms)
        self._sides: dict[Any, tuple[list[tuple[int, Any]], list[tuple[int, Any]]]] = {}

    def add(self, side: int, rows: list[Any]) -> None:
        for key, time, value in rows:
            self._sides.setdefault(key, ([], []))[side].append((time, value))

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        for side in (0, 1):
            yield side, ((key, *row) for key, sides in self._sides.items() for row in sides[side])

    def results(self) -> Iterator[tuple[Any, int]]:
        config = self._node.window
        while self._sides:
            key, sides = self._sides.popitem()
            panes: dict[int, tuple[list[Any], list[Any]]] = {}
            for side, rows in enumerate(sides):
                for time, value in rows:
                    for start in window_starts(time, config):
                        panes.setdefault(start, ([], []))[side].append(value)
            for start in sorted(panes):
                time = result_time_ms(start, config)
                if time in self._span:
                    named = KeyedWindow(key, window_at(start, config))
                    yield from (((named, made), time) for made in self._pairs(named, time, *panes[start]))

    def _pairs(self, key: Any, time: int, left: list[Any], right: list[Any]) -> Iterator[Any]:
        for a, b in joined(self._node.how, left, right, None):
            try:
                made = self._node.function(a, b)
            except Exception as error:  # user code
                self._task.failed(self._node.stage, (key, a, b), time, error)
            else:
                yield made
