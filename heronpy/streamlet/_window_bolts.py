"""The bolts of windows and joins. What is due when, `heronpy.windows` decides.

A tuple is held until the last of its windows has fired, and results are anchored to the tuples that they are made of:
whatever is lost on the way, in this task or after it, is replayed by the source and fires again. So nothing is too
late, unless the user says how late is: what comes for a window that has fired makes a pane with only what is new, a
part to be merged ("discarding" in Akidau et al., The Dataflow Model, VLDB 2015, §2.3). Such a pane waits for a grace
period, so that what is replayed after a kill comes together.

With checkpoints the windows are state, and nothing is held: a tuple is acked when it is in them. Their watermark then
never goes back, but from the end of all input: which windows of a key have fired is known by the watermark alone.

The end of all input (`END`) may be a pause. Where windows forget what has fired, they fire then, and what comes later
is new to them. Those that must not forget, because they accumulate or know what is too late, are flushed.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from heronpy.api import Tuple, api_constants
from heronpy.api.api_constants import TopologyExceptionPolicy
from heronpy.api.bolt.event_time_bolt import LATE_TUPLES
from heronpy.api.metrics import CountMetric
from heronpy.instance.task import ANCHORS_MAX
from heronpy.shown import shown
from heronpy.streamlet._bolts import StageBolt
from heronpy.streamlet._task import now_ms
from heronpy.streamlet._window_folds import Dated, Evicting, HeldFold, HeldValues, ReducedValues, Sides
from heronpy.streamlet.chain import after
from heronpy.streamlet.graph import JoinNode, LateNode, ReduceByKeyAndWindowNode, ReduceByWindowNode
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import Put, joined
from heronpy.streamlet.window import Window
from heronpy.streamlet.windows import window_of
from heronpy.windows import (
    END,
    FOREVER,
    AfterCount,
    AfterWatermark,
    Closed,
    Effect,
    EffectErrors,
    FoldFailed,
    Global,
    Late,
    Pane,
    Placed,
    Span,
    durable_engine,
    window_engine,
)

FLUSH_EVERY_MS = 1000
"""How often windows are flushed while nothing comes: all of their state is looked at."""
_NO_TUPLES: list[Tuple] = []


class _WindowBolt(StageBolt):
    """Gives elements to the engine, and emits its panes."""

    key_fields = 1
    """Values of a tuple before its time."""

    def _compiled(self) -> Put:
        head = self.stage.head
        lates = [step for step in head.then if isinstance(step.node, LateNode)]
        then = tuple(step for late in lates for step in late.then)
        exits = tuple(exit for late in lates for exit in late.exits)
        self._put_late = after(dataclasses.replace(head, then=then, exits=exits), self.task) if then or exits else None
        """Takes late elements; None: nobody asked for them."""
        return after(dataclasses.replace(head, then=tuple(s for s in head.then if s not in lates)), self.task)

    def set_up(self) -> None:
        node = self.stage.head.node
        assert isinstance(node, (ReduceByWindowNode, ReduceByKeyAndWindowNode, JoinNode))
        self._function = node.function
        config, context = node.window, self.task.context
        windowing = config.windowing
        self._duration_ms = config.duration_ms
        self._global = isinstance(config.windows, Global)
        self._flushes = self._global or windowing.lateness_ms != FOREVER
        self._flushed_at_ms: int | None = None
        self._named_by_times = not config.bounded
        self._dated = self._named_by_times or config.evicts
        """Whether the fold takes elements with their times."""
        trigger = windowing.trigger
        rules = (trigger.early, trigger.late) if isinstance(trigger, AfterWatermark) else (trigger,)
        self._clocked = not windowing.sliced and not all(rule is None or isinstance(rule, AfterCount) for rule in rules)
        """Whether a pane may be due a time after an element came."""
        if self.task.saved:
            self.tracking = False
        self._inner = self._fold = fold = self.fold()
        if config.evicts:
            self._fold = fold = Evicting(fold, config.kept_count, config.kept_ms, holds=self.tracking)
        elif self._dated:
            self._fold = fold = Dated(fold)
        if self.task.saved:
            self._engine = durable_engine(windowing, fold, context, "windows", keyed=self.key_fields == 2)
        else:
            self._engine = window_engine(windowing, fold)
        self._late = CountMetric()
        if config.allowed_lateness_ms is not None:
            context.register_metric(LATE_TUPLES, self._late, 10)
        self._span, self._window = Span(0, 0), window_of(Span(0, 0))
        self._shared: dict[int, int] = {}
        """How many accumulators a tuple is in, by its identity, where there are several."""
        policy = self.task.context.get_cluster_config().get(api_constants.TOPOLOGY_EXCEPTION_POLICY)
        self._errors = EffectErrors(goes_on=policy == TopologyExceptionPolicy.FAIL)
        wall_ms = time.time_ns() // 1_000_000
        if not self.stage.timed and self._engine.watermark != END:
            wall_ms = max(wall_ms, self._engine.watermark)  # the clock of another host may be behind
        self._wall_offset_ms = wall_ms - now_ms()  # setting the clock must not move windows

    def fold(self) -> HeldFold:
        """What is kept of the elements, without their times."""
        return HeldValues(self._function) if self.tracking else ReducedValues(self._function)

    def wrapper(self) -> Callable[[Any, Tuple], Any] | None:
        """What makes an element for the fold; None: it is the value, with its tuple where tuples are tracked."""
        return None

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
        add, wrap, carry_out = self._adder(), self.wrapper(), self._carry_out

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
                    if type(effects[0]) is Late:
                        self._came_late(tup)
                    else:
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
                first = effects[0]
                if type(first) is Late:
                    self._came_late(tup)
                    self.done(tup)
                    return
                if type(first) is Placed:
                    self._shared[id(tup)] = first.times
                carry_out(effects)

        return take_tracked if self.tracking else take

    def _adder(self) -> Callable[[Any, Any, int], Sequence[Effect]]:
        """The engine's `add`, with what this one's windows need besides."""
        add, wall_ms = self._engine.add, self._wall_ms
        if self._dated:
            return lambda key, element, time_ms: add(key, (time_ms, element), time_ms, wall_ms())
        if self._clocked:
            return lambda key, element, time_ms: add(key, element, time_ms, wall_ms())
        return add

    def _came_late(self, tup: Tuple) -> None:
        """An element is too late for all of its windows."""
        self._late.incr()
        values = tup.values
        element = (values[0], values[1]) if self.key_fields == 2 else values[0]
        if self._put_late is None:
            self.logger.info("left out, because it is late: %s", shown(element))
            return
        self.place.time_ms = values[self.key_fields]
        self.place.anchors = [tup]
        self._put_late(element)

    def process_tick(self, tup: Tuple) -> None:
        self._fire_due()
        super().process_tick(tup)

    def watermark_came(self) -> None:
        self._fire_due()  # results of windows that are past go before the watermark that says so
        super().watermark_came()

    def watermark(self) -> int:
        low = self.upstream.low
        if not self.stage.timed and low == END and len(self._engine) and not self._named_by_times:
            return self._wall_ms() - self._duration_ms  # what waits has windows of this clock
        return low

    def window_of(self, span: Span) -> Window:
        """A window as users see it. All panes of a window come together."""
        if span is not self._span:
            self._span, self._window = span, window_of(span)
        return self._window

    def _fire_due(self) -> None:
        wall_ms = self._wall_ms()
        low = self.upstream.low if self.stage.timed or self._global else wall_ms
        if low < END:
            self._flushed_at_ms = None
        elif self._flushes:
            self._flush(wall_ms)
            return
        if self.task.saved and low < self._engine.watermark < END:
            low = self._engine.watermark
        self._carry_out(self._engine.advance(low, wall_ms))

    def _flush(self, wall_ms: int) -> None:
        engine = self._engine
        effects: Iterable[Effect] = engine.advance(engine.watermark, wall_ms)
        if self._flushed_at_ms is None or wall_ms - self._flushed_at_ms >= FLUSH_EVERY_MS:
            self._flushed_at_ms = wall_ms
            effects = itertools.chain(effects, engine.flush())
        self._carry_out(effects)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        errors = self._errors
        for effect in effects:
            if isinstance(effect, (Late, Placed)):
                continue
            try:
                if isinstance(effect, Pane):
                    self._show(effect)
                elif isinstance(effect, FoldFailed):
                    parts = [self._fold.part(acc) for acc in effect.accs]
                    self.failed(parts if effect.key is None else (effect.key, parts), effect.error)
            except Exception as error:
                errors.add(error)
                if self.tracking:
                    for tup in self._tuples_of(effect):
                        self.fail(tup)  # being done with it later changes nothing
            if self.tracking:
                self._let_go(effect.released)
        errors.raise_first()

    def _tuples_of(self, effect: Pane | FoldFailed | Closed) -> Iterator[Tuple]:
        """The tuples that are held in what a window shows."""
        if isinstance(effect, Pane):
            yield from self._inner.tuples(effect.value[2] if self._dated else effect.value)
            accs = [acc for acc, _ in effect.refused]
        else:
            accs = list(effect.accs) if isinstance(effect, FoldFailed) else []
        for acc in accs:
            yield from self._fold.tuples(acc)

    def _show(self, pane: Pane) -> None:
        if self._dated:
            first_ms, last_ms, value = pane.value
            span = Span(first_ms, last_ms + 1) if self._named_by_times else pane.span
            pane = replace(pane, span=span, value=value)
        self.place.time_ms = pane.span.end_ms - 1  # a result's time is the last of its window
        for acc, error in pane.refused:
            part = self._fold.part(acc)
            self.failed(part if pane.key is None else (pane.key, part), error)
        self.emit_pane(pane)

    def _let_go(self, released: Iterable[Any]) -> None:
        shared, held, done = self._shared, self._fold.tuples, self.done
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

    def fold(self) -> HeldFold:
        return Sides()

    def wrapper(self) -> Callable[[Any, Tuple], Any]:
        sides = {(entrance.component, entrance.stream): entrance.side for entrance in self.stage.entrances}
        tracking = self.tracking
        return lambda value, tup: (sides[tup.component, tup.stream], value, tup if tracking else None)

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
