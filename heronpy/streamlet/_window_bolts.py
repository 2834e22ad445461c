"""The bolts of windows and joins.

A tuple is held until the last of its windows has fired, and results are anchored to the tuples that they are made of:
whatever is lost on the way, in this task or after it, is replayed by the source and fires again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from heronpy.api import Tuple
from heronpy.instance._anchors import ANCHORS_MAX
from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet._graph import JoinNode, JoinType, ReduceByKeyAndWindowNode, ReduceByWindowNode
from heronpy.streamlet._panes import Held, Panes, anchors_of, released
from heronpy.streamlet._task import now_ms
from heronpy.streamlet._watermark import END
from heronpy.streamlet._windows import result_time_ms, window_at
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.windowconfig import WindowConfig

_MISSING: Any = object()


class _Value:
    """A reduction, and the tuples that are in it."""

    __slots__ = ("held", "value")

    def __init__(self) -> None:
        self.value = _MISSING
        self.held: list[Any] = []


class _WindowBolt(StageBolt):
    """Sorts elements into panes, and fires those that are due."""

    key_fields = 1
    """Values of a tuple before its time."""

    def set_up(self) -> None:
        node = self.stage.head.node
        assert isinstance(node, (ReduceByWindowNode, ReduceByKeyAndWindowNode, JoinNode))
        self._window: WindowConfig = node.window
        self._function = node.function
        self._panes: Panes[Any] = Panes(node.window, self.pane)
        self._wall_offset_ms = time.time_ns() // 1_000_000 - now_ms()  # setting the clock must not move windows
        self._now_ms = now_ms()

    def pane(self) -> Any:
        """An empty pane."""
        raise NotImplementedError

    def add(self, panes: list[Any], tup: Tuple, held: Any) -> None:
        """Put a tuple into its panes; `held` stands for it in their lists, None if nothing is tracked."""
        raise NotImplementedError

    def fire(self, start_ms: int, pane: Any) -> Iterable[Any]:
        """Emit what a pane makes. Returns what was held for it."""
        raise NotImplementedError

    def taker(self) -> Callable[[Tuple], None]:
        timed, position, tracking = self.stage.timed, self.key_fields, self.tracking
        panes_of = self._panes.of

        def take(tup: Tuple) -> None:
            if timed:
                panes = panes_of(tup.values[position], self.upstream.low, self._now_ms)
            else:
                now = self._wall_ms()
                panes = panes_of(now, now, self._now_ms)
            if not tracking:
                self.add(panes, tup, None)
                self.ack(tup)
                return
            held = Held(tup, len(panes)) if len(panes) > 1 else tup
            self.add(panes, tup, held)

        return take

    def process_tick(self, tup: Tuple) -> None:
        self._fire_due()
        super().process_tick(tup)

    def watermark_came(self) -> None:
        self._fire_due()  # results of windows that are past go before the watermark that says so
        super().watermark_came()

    def watermark(self) -> int:
        low = self.upstream.low
        if not self.stage.timed and low == END and len(self._panes):
            return self._wall_ms() - self._window.duration_ms  # what waits has windows of this clock
        return low

    def give_up(self, held: Any) -> None:
        """A tuple is not in a pane after all."""
        if held is not None:
            for tup in released([held]):
                self.done(tup)

    def emit_from(self, held: list[Any], element: Any) -> None:
        """Emit a result, anchored to the tuples that it is made of."""
        self.place.anchors = anchors_of(
            held[:ANCHORS_MAX]
        )  # the engine takes no more; a replay brings the others along
        self.put(element)

    def _fire_due(self) -> None:
        self._now_ms = now_ms()
        low = self.upstream.low if self.stage.timed else self._wall_ms()
        for start_ms, pane in self._panes.due(low, self._now_ms):
            self.place.time_ms = result_time_ms(start_ms, self._window)
            for tup in released(list(self.fire(start_ms, pane))):
                self.done(tup)

    def _wall_ms(self) -> int:
        return now_ms() + self._wall_offset_ms


class ReduceByWindowBolt(_WindowBolt):
    """One value for each window."""

    def pane(self) -> _Value:
        return _Value()

    def add(self, panes: list[_Value], tup: Tuple, held: Any) -> None:
        element = tup.values[0]
        for pane in panes:
            try:
                pane.value = element if pane.value is _MISSING else self._function(pane.value, element)
            except Exception as error:
                self.failed(element, error)
                self.give_up(held)
                continue
            if held is not None:
                pane.held.append(held)

    def fire(self, start_ms: int, pane: _Value) -> Iterable[Any]:
        if pane.value is not _MISSING:
            self.emit_from(pane.held, (window_at(start_ms, self._window), pane.value))
        return pane.held


class ReduceByKeyAndWindowBolt(_WindowBolt):
    """One value for each key in each window."""

    key_fields = 2

    def pane(self) -> dict[Any, _Value]:
        return {}

    def add(self, panes: list[dict[Any, _Value]], tup: Tuple, held: Any) -> None:
        key, value = tup.values[0], tup.values[1]
        for pane in panes:
            try:
                found = pane.get(key)
                if found is None:
                    found = pane[key] = _Value()
                    found.value = value
                else:
                    found.value = self._function(found.value, value)
            except Exception as error:
                self.failed((key, value), error)
                self.give_up(held)
                continue
            if held is not None:
                found.held.append(held)

    def fire(self, start_ms: int, pane: dict[Any, _Value]) -> Iterable[Any]:
        window = window_at(start_ms, self._window)
        all_held: list[Any] = []
        for key, found in pane.items():
            self.emit_from(found.held, (KeyedWindow(key, window), found.value))
            all_held += found.held
        return all_held


class JoinBolt(_WindowBolt):
    """All pairs of a left and a right value with one key in one window.

    A pane that comes late is joined within itself: those that it might have met are gone.
    """

    key_fields = 2

    def set_up(self) -> None:
        super().set_up()
        assert isinstance(self.stage.head.node, JoinNode)
        how = self.stage.head.node.how
        self._lonely = (how in (JoinType.OUTER_LEFT, JoinType.OUTER), how in (JoinType.OUTER_RIGHT, JoinType.OUTER))
        self._sides = {(entrance.component, entrance.stream): entrance.side for entrance in self.stage.entrances}

    def pane(self) -> dict[Any, tuple[list[Any], list[Any]]]:
        return {}

    def add(self, panes: list[dict[Any, Any]], tup: Tuple, held: Any) -> None:
        key, value = tup.values[0], tup.values[1]
        side = self._sides[tup.component, tup.stream]
        for pane in panes:
            try:
                sides: tuple[list[Any], list[Any]] | None = pane.get(key)
                if sides is None:
                    sides = pane[key] = ([], [])
            except TypeError as error:  # a key that cannot be hashed
                self.failed((key, value), error)
                self.give_up(held)
                continue
            sides[side].append((value, held))

    def fire(self, start_ms: int, pane: dict[Any, Any]) -> Iterable[Any]:
        window = window_at(start_ms, self._window)
        for key, (lefts, rights) in pane.items():
            keyed = KeyedWindow(key, window)
            for left in lefts:
                for right in rights:
                    self._join(keyed, left, right)
                if not rights and self._lonely[0]:
                    self._join(keyed, left, _NOBODY)
            if not lefts and self._lonely[1]:
                for right in rights:
                    self._join(keyed, _NOBODY, right)
        return [held for sides in pane.values() for side in sides for _, held in side if held is not None]

    def _join(self, keyed: KeyedWindow, left: tuple[Any, Any], right: tuple[Any, Any]) -> None:
        try:
            made = self._function(left[0], right[0])
        except Exception as error:
            self.failed((keyed.key, left[0], right[0]), error)
            return
        self.emit_from([held for _, held in (left, right) if held is not None], (keyed, made))


_NOBODY = (None, None)
