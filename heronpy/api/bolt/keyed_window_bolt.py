"""Bolts whose windows are of any kind that `heronpy.windows` knows, for each key: sessions, triggers, evictors.

    class Visits(KeyedWindowBolt):
        outputs = ["user", "pages"]
        fold = Reduce(operator.add)

        def value(self, tup):
            return 1

        def on_pane(self, pane):
            self.emit([pane.key, pane.value])

    visits = Visits.with_windows(Session(30 * 60_000), lateness=timedelta(minutes=1)).with_timestamp_field("at")
    builder.add_bolt("visits", visits, 4, {pages: Grouping.fields("user")})

The key is what all inputs are grouped by: the value of one field, or the tuple of several. Where an input is grouped
otherwise, windows belong to the task, and the key of a pane means nothing.

A window keeps what its fold makes of the tuples. At least once they are held besides, and acked when their last window
is closed; with checkpoints they are acked on arrival, because windows are state, which goes along with its keys when
the number of tasks changes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from heronpy.api.bolt.event_time_bolt import EventTimeBolt
from heronpy.api.bolt.window_settings import TimeSettings, duration_ms
from heronpy.api.bolt.window_state import WINDOWS
from heronpy.api.bolt.windowed_bolt import WindowedBoltBuilder
from heronpy.api.tuple import Tuple
from heronpy.errors import ConfigError
from heronpy.windows import (
    END,
    AfterWatermark,
    Collect,
    Duration,
    Effect,
    Fold,
    FoldFailed,
    Late,
    Pane,
    Placed,
    Trigger,
    Windowing,
    Windows,
    durable_engine,
    window_engine,
)

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

WINDOWING = "keyed_window_bolt_windowing"
"""Configuration key of the `Windowing`."""


class KeyedWindowBolt(EventTimeBolt):
    """See the file. Implement `on_pane()`; begin with `with_windows()`."""

    fold: Fold = Collect()
    """What is kept of the values of a window."""

    def value(self, tup: Tuple) -> Any:
        """What is folded of a tuple; its values, unless overridden."""
        return tup.values

    def on_pane(self, pane: Pane) -> None:
        """Called for every result of a window. Must be implemented."""
        raise NotImplementedError(f"{type(self).__name__} does not implement on_pane()")

    @classmethod
    def with_windows(
        cls,
        windows: Windows,
        *,
        trigger: Trigger | None = None,
        accumulating: bool = False,
        lateness: Duration | datetime.timedelta | None = None,
    ) -> WindowedBoltBuilder:
        """Windows of this kind.

        Args:
            windows: how tuples are divided, e.g. `Session(60_000)`; times are in ms.
            trigger: when a window has a pane; when the watermark passes its end, without it.
            accumulating: whether a pane has everything that its window got so far, or what is new since the last.
            lateness: how long after its end a window takes tuples; not at all without it.

        Raises:
            ConfigError: windows that make no sense.
        """
        windowing = Windowing(
            windows=windows,
            trigger=AfterWatermark() if trigger is None else trigger,
            accumulating=accumulating,
            lateness_ms=0 if lateness is None else duration_ms(lateness, at_least=0),
        )
        return WindowedBoltBuilder(cls, {WINDOWING: windowing})

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Set up windows and ticks. Call it first if you override it.

        Raises:
            ConfigError: windows are missing or make no sense.
        """
        windowing = config.get(WINDOWING)
        if not isinstance(windowing, Windowing):
            raise ConfigError(f"{type(self).__name__} needs windows: see KeyedWindowBolt.with_windows()")
        self.set_up_time(config, context, TimeSettings(**TimeSettings.values(config)))
        key_fields = context.key_fields()
        self._key_of = {
            (source.component_name, source.id): _key_reader(key_fields, source, context)
            for source in context.get_this_sources()
        }
        if self._durable:
            self._engine = durable_engine(windowing, self.fold, context, WINDOWS, keyed=bool(key_fields))
            if self._timestamp is None and self._engine.watermark < END:
                self._clock.go_on_from(self._engine.watermark / 1000)
        else:
            self._engine = window_engine(windowing, _Holding(self.fold) if self._tracking else self.fold)
        self._shared: dict[int, int] = {}
        """How many accumulators a tuple is in, by its identity, where there are several."""

    def process(self, tup: Tuple) -> None:
        at_ms = self.time_of(tup)
        if at_ms is None:
            return
        engine = self._engine
        if self._timestamp is None:
            at_ms = max(at_ms, engine.watermark)  # a clock that went back stands still
        key = self._key_of[tup.component, tup.stream](tup.values)
        value = self.value(tup)
        effects = engine.add(key, (value, tup) if self._tracking else value, at_ms, self._clock_ms())
        if effects:
            if isinstance(effects[0], Late):
                self.came_late(tup, at_ms)
                return
            if isinstance(effects[0], Placed) and self._tracking:
                self._shared[id(tup)] = effects[0].times
            self._carry_out(effects)
        if not self._tracking:
            self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        self._carry_out(self._engine.advance(self.watermark_now(), self._clock_ms()))
        self.send_watermark()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, (Late, Placed)):
                continue
            settle = self.ack
            try:
                if isinstance(effect, Pane):
                    self._show(effect)
                elif isinstance(effect, FoldFailed):
                    raise effect.error
            except Exception as error:
                self._errors.add(error)
                settle = self.fail
                if self._tracking:
                    for tup in _tuples_of(effect):
                        self.fail(tup)
            if self._tracking:
                for acc in effect.released:
                    self._release(acc[1:], settle)
        self._errors.raise_first()

    def _show(self, pane: Pane) -> None:
        for _, error in pane.refused:
            raise error
        if self._tracking:
            value, self._anchors = pane.value
            pane = replace(pane, value=value, released=())
        try:
            self.on_pane(pane)
        finally:
            self._anchors = None

    def _release(self, tuples: Sequence[Tuple], settle: Callable[[Tuple], None]) -> None:
        """Settle the tuples of an accumulator that are in no other."""
        for tup in tuples:
            left = self._shared.pop(id(tup), 1) - 1
            if left:
                self._shared[id(tup)] = left
            else:
                settle(tup)


def _tuples_of(effect: Effect) -> Iterator[Tuple]:
    """The tuples that are held in what a window shows."""
    if isinstance(effect, Pane):
        yield from effect.value[1]
        for acc, _ in effect.refused:
            yield from acc[1:]
    elif isinstance(effect, FoldFailed):
        for acc in effect.accs:
            yield from acc[1:]


class _Holding(Fold):
    """A fold of values with the tuples that they came in: (value, tuple) in, [accumulator, tuple, tuple, …] kept."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    def lift(self, value: tuple[Any, Tuple]) -> list[Any]:
        return [self._fold.lift(value[0]), value[1]]

    def add(self, acc: list[Any], value: tuple[Any, Tuple]) -> list[Any]:
        acc[0] = self._fold.add(acc[0], value[0])
        acc.append(value[1])
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a[0] = self._fold.merge(a[0], b[0])
        a += b[1:]
        return a

    def combine(self, accs: Sequence[list[Any]]) -> list[Any]:
        return [self._fold.combine([acc[0] for acc in accs]), *(tup for acc in accs for tup in acc[1:])]

    def result(self, acc: list[Any]) -> tuple[Any, list[Tuple]]:
        return self._fold.result(acc[0]), acc[1:]


def _key_reader(key_fields: Any, source: Any, context: TopologyContext) -> Callable[[Sequence[Any]], Any]:
    """What reads the key of the values of an input's tuple."""
    names = key_fields.get((source.component_name, source.id))
    if names is None:
        return lambda _values: None
    fields = context.get_component_output_fields(source.component_name, source.id) or ()
    return itemgetter(*(fields.index(name) for name in names))


__all__ = ["WINDOWING", "KeyedWindowBolt"]
