"""Keyed and windowed operations in a batch job.

Each has a *port*, where elements leave their task, and a *reducer*, where they meet. Ports reduce what they can before
anything travels, in tables of bounded size. So reductions see elements in no order: functions must be associative and
commutative, as merges in topologies need, too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from heronpy.filesystem import Location, files_of
from heronpy.hashing import mix
from heronpy.pipeline._regions import Port
from heronpy.pipeline.exchange import Layout, Outbox, by_number
from heronpy.pipeline.partials import BEFORE_MS, Partials, pickled
from heronpy.pipeline.parts import unused
from heronpy.pipeline.task import Part, Task
from heronpy.streamlet.graph import ReduceByKeyAndWindowNode, ReduceByKeyNode, ReduceByWindowNode, StoreNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Push, Times, as_tuple
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.streamlet.windows import result_time_ms, window_at, window_starts

TABLE_KEYS_MAX = 200_000
"""Keys that a port reduces in memory before it sends them."""
_RESULTS = 8192
"""Results of a reduction that are handed on, or written, together."""
_MISSING = object()
STATES = ".states-"
STORED_STATES = "states-"
"""Folders of states in the job's directory: each is gone when its reader is done."""


def fold(
    pairs: list[Any],
    table: dict[Any, Any],
    function: Callable[[Any, Any], Any],
    failed: Callable[[Any, Exception], None],
) -> None:
    """Reduce the values of pairs by key into a table; pairs at fault are handed to `failed`."""
    get = table.get
    rest = iter(pairs)
    while True:
        pair: Any = None
        try:
            for pair in rest:
                key, value = pair
                before = get(key, _MISSING)
                table[key] = value if before is _MISSING else function(before, value)
            return
        except Exception as error:  # the pair is not a pair, its key cannot be hashed, or user code raised
            hashable = _hashable(pair, error)
            if hashable is None:
                failed(pair, error)
            else:
                fold([hashable], table, function, failed)


def _hashable(pair: Any, error: Exception) -> tuple[Any, Any] | None:
    """The pair with a list as key made a tuple, as stores do; None if that is not what is wrong."""
    if not isinstance(error, TypeError) or not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return None
    return (as_tuple(pair[0]), pair[1]) if isinstance(pair[0], list) else None


def checked(key: Any) -> Any:
    """A key that a dict takes."""
    if type(key) is list:
        key = as_tuple(key)
    hash(key)
    return key


def window_groups(values: list[Any], times: Times, config: WindowConfig) -> Iterator[tuple[int, list[Any]]]:
    """(start in ms, its elements) for the windows of a chunk; agrees with `window_starts`."""
    if isinstance(times, int):
        yield from ((start, values) for start in window_starts(times, config))
        return
    at = np.asarray(times, dtype=np.int64)
    last = at - at % config.slide_ms
    if config.duration_ms == config.slide_ms:
        yield from by_number(values, last)
        return
    for back in range(-(-config.duration_ms // config.slide_ms)):
        starts = last - back * config.slide_ms
        inside = starts + config.duration_ms > at
        if inside.all():
            yield from by_number(values, starts)
        else:
            chosen = np.flatnonzero(inside)
            yield from by_number([values[i] for i in chosen.tolist()], starts[chosen])


class Span:
    """Which result times of a node anybody reads."""

    def __init__(self, layout: Layout, back_ms: int | None) -> None:
        length = layout.batch_length_ms
        self.begin_ms = None if layout.first is None or back_ms is None else layout.first * length - back_ms
        self.end_ms = (layout.last + 1) * length

    def __contains__(self, time_ms: int) -> bool:
        return time_ms < self.end_ms and (self.begin_ms is None or time_ms >= self.begin_ms)


def emit(push: Push, results: Iterator[tuple[Any, int] | None]) -> Iterator[None]:
    """Push (element, time) in chunks; yields after each, and where there is None, so that what was sent can leave."""
    values: list[Any] = []
    times: list[int] = []
    for result in results:
        if result is not None:
            values.append(result[0])
            times.append(result[1])
        if result is None or len(values) >= _RESULTS:
            push(values, times)
            values, times = [], []
            yield
    push(values, times)
    yield


class SendablePort:
    """A reduction's port that refuses each element that cannot be pickled, before others are reduced with it."""

    def __init__(self, port: Port, stage: str, task: Task) -> None:
        self._port, self._stage, self._task = port, stage, task
        self.flush = port.flush

    def add(self, values: list[Any], times: Times) -> None:
        kept: list[Any] = []
        kept_times: list[int] = []
        for value, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
            try:
                pickled(value)
            except Exception as error:
                self._task.failed(self._stage, value, time, error)
            else:
                kept.append(value)
                kept_times.append(time)
        if kept:
            self._port.add(kept, kept_times)


# reduce_by_key


class KeyPort:
    """{batch: {key: [value, time of the latest element]}}"""

    def __init__(
        self,
        node: ReduceByKeyNode,
        task: Task,
        layout: Layout,
        outbox: Outbox,
        begins: int | None = None,
        taken: frozenset[int] | None = None,
    ) -> None:
        """Nothing is added.

        Args:
            node: the reduction.
            task: where it runs.
            layout: the job's.
            outbox: the task's.
            begins: the first batch whose elements are taken, see `BatchPlan.begins`.
            taken: batches whose elements are; None: all. What others have is kept.
        """
        self._node, self._task, self._layout, self._outbox = node, task, layout, outbox
        self._begins, self._taken = begins, taken
        self._tables: dict[int, dict[Any, list[Any]]] = {}
        self._size = 0

    def add(self, values: list[Any], times: Times) -> None:
        function, length, last = self._node.function, self._layout.batch_length_ms, self._layout.last
        begins = -math.inf if self._begins is None else self._begins
        taken = self._taken
        for pair, time in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
            batch = time // length
            if not begins <= batch <= last or (taken is not None and batch not in taken):
                continue
            try:
                key, value = pair
                key = checked(key)
                table = self._tables.setdefault(batch, {})
                cell = table.get(key)
                if cell is None:
                    table[key] = [value, time]
                    self._size += 1
                    continue
                cell[0] = function(cell[0], value)
                if time > cell[1]:
                    cell[1] = time
            except Exception as error:  # no pair, or user code raised
                self._task.failed(self._node.stage, pair, time, error)
        if self._size > TABLE_KEYS_MAX:
            self.flush()

    def flush(self) -> None:
        name = self._node.stage
        for batch, table in self._tables.items():
            failed = self._task.reduced(name, batch * self._layout.batch_length_ms)
            self._outbox.keyed(name, batch, ((key, *cell) for key, cell in table.items()), failed)
        self._tables, self._size = {}, 0


class KeyReducer:
    """Emits (key, value of everything up to the end of the batch) for each key that occurs in a batch.

    Not for one of which all was set aside there: it is kept nowhere, so a later run would not know of it.
    """

    def __init__(
        self,
        node: ReduceByKeyNode,
        task: Task,
        layout: Layout,
        back_ms: int | None,
        kept: Port | None = None,
        kept_node: StoreNode | None = None,
        is_reduced: bool = False,
    ) -> None:
        """Nothing is added.

        Args:
            node: the reduction.
            task: where it runs.
            layout: the job's.
            back_ms: how far back its results are read.
            kept: where what each batch has alone is kept, see `partials`.
            kept_node: the view that it is.
            is_reduced: there is another reduction behind this one, which needs its results of all batches in turn.
        """
        self._node, self._task, self._layout = node, task, layout
        self._span = Span(layout, back_ms)
        self._back = None if back_ms is None or is_reduced else -(-back_ms // layout.batch_length_ms)
        self._kept, self._kept_node = kept, kept_node
        self._tables: dict[int, dict[Any, list[Any]]] = {}
        self.state: dict[Any, Any] = {}
        """(key, value) of what is before all batches that are read; after `results`: of everything."""

    def add(self, batch: int | None, rows: list[Any]) -> None:
        if batch is None:
            for key, value in rows:
                before = self.state.get(key, _MISSING)
                self.state[key] = value if before is _MISSING else self._merged(key, before, value, BEFORE_MS)[0]
            return
        table = self._tables.setdefault(batch, {})
        for key, value, time in rows:
            cell = table.get(key)
            if cell is None:
                table[key] = [value, time]
                continue
            cell[0], taken = self._merged(key, cell[0], value, time)
            if taken:
                cell[1] = max(cell[1], time)

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        yield None, self.state.items()
        for batch, table in self._tables.items():
            yield batch, ((key, *cell) for key, cell in table.items())

    def results(self) -> Iterator[tuple[Any, int]]:
        state = self.state
        for batch in sorted(self._tables):
            keeps: list[tuple[bytes, Any]] = []
            is_kept = self._is_kept(batch)
            is_read = self._layout.is_read(batch, self._back)
            for key, (value, time) in self._tables.pop(batch).items():
                before, taken = state.get(key, _MISSING), True
                if before is _MISSING:
                    state[key] = value
                else:
                    state[key], taken = self._merged(key, before, value, time)
                if not taken:
                    continue
                if is_kept is not None:
                    keeps.append((pickled(key), (value, time) if is_kept.timed else value))
                if is_read and time in self._span:
                    yield (key, state[key]), time
            if is_kept is not None:
                self._keep(batch, keeps)

    def _is_kept(self, batch: int) -> Partials | None:
        """How what a batch has alone is kept; None: it is not."""
        node = self._kept_node
        if node is None or not self._layout.is_wanted(batch, node.stage):
            return None
        assert isinstance(node.monoid, Partials)
        return node.monoid

    def _keep(self, batch: int, pairs: list[tuple[bytes, Any]]) -> None:
        """Keep what a batch has alone, before what it is merged with changes it."""
        assert self._kept is not None
        self._kept.add(pairs, batch * self._layout.batch_length_ms)
        self._kept.flush()

    def _merged(self, key: Any, a: Any, b: Any, time: int) -> tuple[Any, bool]:
        """Both, or the first; and whether it is both."""
        try:
            return self._node.function(a, b), True
        except Exception as error:  # user code
            self._task.failed(self._node.stage, (key, b), time, error)
            return a, False


class StateReducer(KeyReducer):
    """Also writes the values of everything, for `heronpy.pipeline.states`."""

    def __init__(self, node: ReduceByKeyNode, task: Task, layout: Layout) -> None:
        super().__init__(node, task, layout, back_ms=None)
        self._layout = layout

    def finish(self) -> None:
        """Write them, after `results`."""
        path = unused(state_directory(self._layout.directory, self._layout.version), self._task.index)
        items = list(self.state.items())
        with files_of(path).writing(path) as to, to.open("wb") if isinstance(to, Path) else nullcontext(to) as f:
            for i in range(0, len(items), _RESULTS):
                f.write(cloudpickle.dumps(items[i : i + _RESULTS]))
        self._task.report.parts.append(Part(self._node.stage, 0, self._task.index, len(items), path, path.name))


def state_directory(directory: Location, version: str) -> Location:
    """Where states are while they are read."""
    return directory / f"{STATES if isinstance(directory, Path) else STORED_STATES}{version}"


# reduce_by_key_and_window


class KeyedWindowPort:
    """{start: {key: value}}"""

    def __init__(
        self, node: ReduceByKeyAndWindowNode, task: Task, layout: Layout, outbox: Outbox, back_ms: int | None
    ) -> None:
        self._node, self._task, self._outbox = node, task, outbox
        self._span = Span(layout, back_ms)
        self._tables: dict[int, dict[Any, Any]] = {}
        self._size = 0

    def add(self, values: list[Any], times: Times) -> None:
        config = self._node.window
        for start, pairs in window_groups(values, times, config):
            if result_time_ms(start, config) not in self._span:
                continue
            table = self._tables.setdefault(start, {})
            before = len(table)
            fold(
                pairs,
                table,
                self._node.function,
                self._task.failing(self._node.stage, result_time_ms(start, config)),
            )
            self._size += len(table) - before
            if self._size > TABLE_KEYS_MAX:
                self.flush()

    def flush(self) -> None:
        name = self._node.stage
        for start, table in self._tables.items():
            failed = self._task.reduced(name, result_time_ms(start, self._node.window))
            self._outbox.keyed(name, start, table.items(), failed)
        self._tables, self._size = {}, 0


class KeyedWindowReducer:
    """Emits (KeyedWindow, value)."""

    def __init__(self, node: ReduceByKeyAndWindowNode, task: Task) -> None:
        self._node, self._task = node, task
        self._tables: dict[int, dict[Any, Any]] = {}

    def add(self, start: int, rows: list[Any]) -> None:
        fold(
            rows,
            self._tables.setdefault(start, {}),
            self._node.function,
            self._task.failing(self._node.stage, result_time_ms(start, self._node.window)),
        )

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        for start, table in self._tables.items():
            yield start, table.items()

    def results(self) -> Iterator[tuple[Any, int]]:
        config = self._node.window
        for start in sorted(self._tables):
            window, time = window_at(start, config), result_time_ms(start, config)
            for key, value in self._tables.pop(start).items():
                yield (KeyedWindow(key, window), value), time


# reduce_by_window


class WindowPort:
    """{start: value}"""

    def __init__(
        self, node: ReduceByWindowNode, task: Task, layout: Layout, outbox: Outbox, back_ms: int | None
    ) -> None:
        self._node, self._task, self._layout, self._outbox = node, task, layout, outbox
        self._span = Span(layout, back_ms)
        self._values: dict[int, Any] = {}

    def add(self, values: list[Any], times: Times) -> None:
        for start, elements in window_groups(values, times, self._node.window):
            if result_time_ms(start, self._node.window) in self._span:
                _reduce_into(self._values, start, elements, self._node, self._task)
        if len(self._values) > TABLE_KEYS_MAX:
            self.flush()

    def flush(self) -> None:
        name, count = self._node.stage, self._layout.counts[self._node.stage]
        buckets: dict[int, list[Any]] = {}
        for start, value in self._values.items():
            buckets.setdefault(mix(start) % count, []).append((start, value))
        for p, rows in buckets.items():
            self._outbox.rows(name, p, None, rows, self._failed)
        self._values = {}

    def _failed(self, row: tuple[int, Any], error: Exception) -> None:
        start, value = row
        self._task.reduced(self._node.stage, result_time_ms(start, self._node.window))(value, error)


class WindowReducer:
    """Emits (Window, value)."""

    def __init__(self, node: ReduceByWindowNode, task: Task) -> None:
        self._node, self._task = node, task
        self._values: dict[int, Any] = {}

    def add(self, head: None, rows: list[Any]) -> None:
        for start, value in rows:
            _reduce_into(self._values, start, [value], self._node, self._task)

    def dump(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        yield None, self._values.items()

    def results(self) -> Iterator[tuple[Any, int]]:
        config = self._node.window
        for start in sorted(self._values):
            yield (window_at(start, config), self._values.pop(start)), result_time_ms(start, config)


def _reduce_into(values: dict[int, Any], start: int, elements: list[Any], node: ReduceByWindowNode, task: Task) -> None:
    before = [values[start]] if start in values else []
    try:
        values[start] = functools.reduce(node.function, elements, *before)
    except Exception:  # found one by one
        total: Any = before[0] if before else _MISSING
        for element in elements:
            try:
                total = element if total is _MISSING else node.function(total, element)
            except Exception as error:  # user code
                task.failed(node.stage, element, result_time_ms(start, node.window), error)
        if total is not _MISSING:
            values[start] = total
