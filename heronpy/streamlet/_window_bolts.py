"""The bolts of windows and joins. What is due when, `heronpy.windows` decides.

A tuple is held until the last of its windows has fired, and results are anchored to the tuples that they are made of:
whatever is lost on the way, in this task or after it, is replayed by the source and fires again. So nothing is ever too
late: what comes for a window that has fired makes a pane with only what is new, a part to be merged ("discarding" in
Akidau et al., The Dataflow Model, VLDB 2015, §2.3). Such a pane waits for a grace period, so that what is replayed
after a kill comes together.

With checkpoints the windows are state, and nothing is held: a tuple is acked when it is in them. Their watermark then
never goes back, but from the end of all input: which windows of a key have fired is known by the watermark alone.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.api import Tuple, api_constants
from heronpy.api.api_constants import TopologyExceptionPolicy
from heronpy.instance.task import ANCHORS_MAX
from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet._task import now_ms
from heronpy.streamlet.graph import JoinNode, ReduceByKeyAndWindowNode, ReduceByWindowNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import joined
from heronpy.streamlet.window import Window
from heronpy.streamlet.windows import window_of
from heronpy.windows import (
    END,
    FOREVER,
    AfterProcessingTime,
    AfterWatermark,
    Effect,
    EffectErrors,
    Fold,
    FoldFailed,
    Pane,
    Placed,
    Reduce,
    Span,
    Windowing,
    durable_engine,
    window_engine,
)

GRACE_MS = 1000
_NO_TUPLES: list[Tuple] = []


class _HoldingReduce(Fold):
    """A reduction of elements with the tuples that they came in: (value, tuple) in, [value, tuple, tuple, …] kept."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self.lift = list  # type: ignore[method-assign,assignment]  # the pair as a list, without a call in between

    def lift(self, value: tuple[Any, Tuple]) -> list[Any]:
        raise AssertionError("replaced by list")

    def add(self, acc: list[Any], value: tuple[Any, Tuple]) -> list[Any]:
        acc[0] = self._function(acc[0], value[0])
        acc.append(value[1])
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a[0] = self._function(a[0], b[0])
        a += b[1:]
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        made = [functools.reduce(self._function, [acc[0] for acc in accs])]
        for acc in accs:
            made += acc[1:]
        return made


class _Sides(Fold):
    """Left and right values with their tuples: (side, value, tuple) in, two lists of pairs kept."""

    def lift(self, value: tuple[int, Any, Any]) -> tuple[list[Any], list[Any]]:
        return self.add(([], []), value)

    def add(self, acc: tuple[list[Any], list[Any]], value: tuple[int, Any, Any]) -> tuple[list[Any], list[Any]]:
        acc[value[0]].append(value[1:])
        return acc

    def merge(self, a: tuple[list[Any], list[Any]], b: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        for mine, others in zip(a, b, strict=True):
            mine += others
        return a

    def combine(self, accs: Sequence[tuple[list[Any], list[Any]]]) -> tuple[list[Any], list[Any]]:
        lefts, rights = ([pair for acc in accs for pair in acc[side]] for side in (0, 1))
        return lefts, rights


class _WindowBolt(StageBolt):
    """Gives elements to the engine, and emits its panes."""

    key_fields = 1
    """Values of a tuple before its time."""

    def set_up(self) -> None:
        node = self.stage.head.node
        assert isinstance(node, (ReduceByWindowNode, ReduceByKeyAndWindowNode, JoinNode))
        self._function = node.function
        windowing = Windowing(
            windows=node.window.windows,
            trigger=AfterWatermark(late=AfterProcessingTime(GRACE_MS)),
            lateness_ms=FOREVER,
        )
        self._duration_ms = node.window.duration_ms
        if self.task.saved:
            self.tracking = False
            keyed = self.key_fields == 2
            self._engine = durable_engine(windowing, self.fold(), self.task.context, "windows", keyed=keyed)
        else:
            self._engine = window_engine(windowing, self.fold())
        self._span, self._window = Span(0, 0), window_of(Span(0, 0))
        self._shared: dict[int, int] = {}
        """How many accumulators a tuple is in, by its identity, where there are several."""
        policy = self.task.context.get_cluster_config().get(api_constants.TOPOLOGY_EXCEPTION_POLICY)
        self._errors = EffectErrors(goes_on=policy == TopologyExceptionPolicy.FAIL)
        wall_ms = time.time_ns() // 1_000_000
        if not self.stage.timed and self._engine.watermark != END:
            wall_ms = max(wall_ms, self._engine.watermark)  # the clock of another host may be behind
        self._wall_offset_ms = wall_ms - now_ms()  # setting the clock must not move windows

    def fold(self) -> Fold:
        """What is kept of the elements."""
        return _HoldingReduce(self._function) if self.tracking else Reduce(self._function)

    def wrapper(self) -> Callable[[Any, Tuple], Any] | None:
        """What makes an element for the fold; None: it is the value, with its tuple where tuples are tracked."""
        return None

    def held(self, acc: Any) -> Iterable[Tuple]:
        """The tuples in an accumulator."""
        tuples: list[Tuple] = acc[1:]
        return tuples

    def emit_pane(self, pane: Pane) -> None:
        """Emit what a pane makes."""
        value, anchors = pane.value, _NO_TUPLES
        if self.tracking:
            # The engine takes no more; a replay brings the others along.
            value, anchors = value[0], value[1 : ANCHORS_MAX + 1]
        self.place.anchors = anchors
        self.put((self.named(pane), value))

    def named(self, pane: Pane) -> Any:
        """What comes before the value of a pane."""
        raise NotImplementedError

    def taker(self) -> Callable[[Tuple], None]:
        timed, keyed, position = self.stage.timed, self.key_fields == 2, self.key_fields
        add, wrap, carry_out = self._engine.add, self.wrapper(), self._carry_out

        def take(tup: Tuple) -> None:
            values = tup.values
            key, value = (values[0], values[1]) if keyed else (None, values[0])
            try:
                element = value if wrap is None else wrap(value, tup)
                effects = add(key, element, values[position] if timed else self._wall_ms())
            except Exception as error:
                self.failed((key, value) if keyed else value, error)
            else:
                if effects:
                    carry_out(effects)
            self.ack(tup)

        def take_tracked(tup: Tuple) -> None:
            values = tup.values
            key, value = (values[0], values[1]) if keyed else (None, values[0])
            try:
                element = (value, tup) if wrap is None else wrap(value, tup)
                effects = add(key, element, values[position] if timed else self._wall_ms())
            except Exception as error:
                self.failed((key, value) if keyed else value, error)
                self.done(tup)
                return
            if effects:
                placed = effects[0]
                if isinstance(placed, Placed):
                    self._shared[id(tup)] = placed.times
                carry_out(effects)

        return take_tracked if self.tracking else take

    def process_tick(self, tup: Tuple) -> None:
        self._fire_due()
        super().process_tick(tup)

    def watermark_came(self) -> None:
        self._fire_due()  # results of windows that are past go before the watermark that says so
        super().watermark_came()

    def watermark(self) -> int:
        low = self.upstream.low
        if not self.stage.timed and low == END and len(self._engine):
            return self._wall_ms() - self._duration_ms  # what waits has windows of this clock
        return low

    def window_of(self, span: Span) -> Window:
        """A window as users see it. All panes of a window come together."""
        if span is not self._span:
            self._span, self._window = span, window_of(span)
        return self._window

    def _fire_due(self) -> None:
        wall_ms = self._wall_ms()
        low = self.upstream.low if self.stage.timed else wall_ms
        if self.task.saved and low < self._engine.watermark < END:
            low = self._engine.watermark
        self._carry_out(self._engine.advance(low, wall_ms))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        errors = self._errors
        for effect in effects:
            try:
                if isinstance(effect, Pane):
                    self._show(effect)
                elif isinstance(effect, FoldFailed):
                    parts = [acc[0] for acc in effect.accs] if self.tracking else list(effect.accs)
                    self.failed(parts if effect.key is None else (effect.key, parts), effect.error)
                else:
                    continue
            except Exception as error:
                errors.add(error)
                continue
            if self.tracking:
                self._let_go(effect.released)
        errors.raise_first()

    def _show(self, pane: Pane) -> None:
        self.place.time_ms = pane.span.end_ms - 1  # a result's time is the last of its window
        for acc, error in pane.refused:
            part = acc[0] if self.tracking else acc
            self.failed(part if pane.key is None else (pane.key, part), error)
        self.emit_pane(pane)

    def _let_go(self, released: Iterable[Any]) -> None:
        shared, held, done = self._shared, self.held, self.done
        for acc in released:
            if shared:
                self._release(held(acc))
            else:
                for tup in held(acc):
                    done(tup)

    def _release(self, tuples: Iterable[Tuple]) -> None:
        """Be done with the tuples of an accumulator that are in no other."""
        for tup in tuples:
            left = self._shared.pop(id(tup), 1) - 1
            if left:
                self._shared[id(tup)] = left
            else:
                self.done(tup)

    def _wall_ms(self) -> int:
        return now_ms() + self._wall_offset_ms


class ReduceByWindowBolt(_WindowBolt):
    """One value for each window."""

    def named(self, pane: Pane) -> Window:
        return self.window_of(pane.span)


class ReduceByKeyAndWindowBolt(_WindowBolt):
    """One value for each key in each window."""

    key_fields = 2

    def named(self, pane: Pane) -> KeyedWindow:
        return KeyedWindow(pane.key, self.window_of(pane.span))


class JoinBolt(_WindowBolt):
    """All pairs of a left and a right value with one key in one window.

    A pane that comes late is joined within itself: those that it might have met are gone.
    """

    key_fields = 2

    def set_up(self) -> None:
        super().set_up()
        assert isinstance(self.stage.head.node, JoinNode)
        self._how = self.stage.head.node.how

    def fold(self) -> Fold:
        return _Sides()

    def wrapper(self) -> Callable[[Any, Tuple], Any]:
        sides = {(entrance.component, entrance.stream): entrance.side for entrance in self.stage.entrances}
        tracking = self.tracking
        return lambda value, tup: (sides[tup.component, tup.stream], value, tup if tracking else None)

    def held(self, acc: Any) -> Iterable[Tuple]:
        return (tup for side in acc for _, tup in side)

    def emit_pane(self, pane: Pane) -> None:
        keyed = KeyedWindow(pane.key, self.window_of(pane.span))
        lefts, rights = pane.value
        for left, right in joined(self._how, lefts, rights, _UNMATCHED):
            self._join(keyed, left, right)

    def _join(self, keyed: KeyedWindow, left: tuple[Any, Any], right: tuple[Any, Any]) -> None:
        try:
            made = self._function(left[0], right[0])
        except Exception as error:
            self.failed((keyed.key, left[0], right[0]), error)
            return
        self.place.anchors = [tup for _, tup in (left, right) if tup is not None]
        self.put((keyed, made))


_UNMATCHED = (None, None)
