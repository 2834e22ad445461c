"""Storm's windowed bolts: windows by number or time, of arrival or event time.

    class Sum(BaseWindowedBolt):
        outputs = ["sum"]

        def execute(self, window):
            self.emit([sum(tup["number"] for tup in window.get())])

    Sum.with_window(Count(30), Count(10)).spec(name="sum", inputs=[numbers], par=2)
    Sum.with_tumbling_window(timedelta(seconds=5)).with_timestamp_field("at").with_lag(timedelta(seconds=1)).spec(...)

Everything is in the component's configuration, under Storm's keys, and may be set there instead. A window is of one
task: the tuples that its grouping sends there.

By event time, a window is due when the watermark has passed its end. It is that of the inputs that send watermarks of
the timestamp field (a `SourceSpout` of a source with event times does, of `time_ms`), less the lag, and else derived
from the tuples; see docs/guarantees.md. Tuples behind the watermark are late, and those whose time is far ahead of
their stream's are outliers, if that sends no watermarks (see `heronpy.windows`). Both go to the late stream, if there
is one, else they are logged; they are acked and counted, and so are those without a usable timestamp. Tuples of a
window are anchors of what is emitted in `execute()`, and acked when no window to come can have them. With checkpoints
they are acked on arrival, and anchors of nothing, because the windows are state then: a failure loses none.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants as keys
from heronpy.api.bolt.event_time_bolt import LATE_TUPLE_FIELD, LATE_TUPLES, OUTLIER_TUPLES, EventTimeBolt
from heronpy.api.bolt.window_settings import (
    LENGTHS,
    TIMESTAMP_EXTRACTOR,
    Extent,
    WindowSettings,
    duration_ms,
    extent_config,
)
from heronpy.api.bolt.window_state import TaskWindows
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple
from heronpy.errors import ConfigError
from heronpy.windows import NEVER, Count, Duration, Evaluated, Expired, SavedElements, TrailingWindows

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class TupleWindow:
    """What `execute()` sees: the tuples of a window, and what changed since the one before it."""

    def __init__(self, window: Evaluated) -> None:
        self._window = window

    def get(self) -> list[Tuple]:
        """All tuples of the window, in the order of their times."""
        return self._window.elements

    def get_new(self) -> list[Tuple]:
        """Those that were not in the window before it."""
        return self._window.new

    def get_expired(self) -> list[Tuple]:
        """Those of the window before it that are not in it."""
        return self._window.gone

    def get_start_timestamp(self) -> int:
        """Where it begins, in ms since the epoch (inclusive); of a window by number, the time of its first tuple."""
        return int(self._window.start)

    def get_end_timestamp(self) -> int:
        """Where it ends, in ms since the epoch (exclusive)."""
        return int(self._window.end)


class BaseWindowedBolt(EventTimeBolt):
    """A bolt that sees windows of tuples. Implement `execute()`; begin with one of the `with_…` methods."""

    def execute(self, window: TupleWindow) -> None:
        """Called for every window that has tuples. Must be implemented."""
        raise NotImplementedError(f"{type(self).__name__} does not implement execute()")

    # Builder

    @classmethod
    def with_window(cls, length: Extent, slide: Extent | None = None) -> WindowedBoltBuilder:
        """Windows of the last `length`, one every `slide`; every tuple without it."""
        config = {
            **extent_config(
                length, keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT, keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS
            ),
            **extent_config(
                Count(1) if slide is None else slide,
                keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT,
                keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS,
            ),
        }
        return WindowedBoltBuilder(cls, config)

    @classmethod
    def with_tumbling_window(cls, length: Extent) -> WindowedBoltBuilder:
        """Windows that follow one another: every tuple is in one."""
        return cls.with_window(length, length)

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """As for every bolt; declares the late stream, if `config` names one.

        Raises:
            ConfigError: windows that make no sense.
        """
        if config is not None and any(key in config for key in LENGTHS):
            WindowSettings.of(config)
        return super().spec(name=name, inputs=inputs, par=par, config=config, optional_outputs=optional_outputs)

    # The engine's side

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Set up windows and ticks. Call it first if you override it.

        Raises:
            ConfigError: windows are missing or make no sense.
        """
        settings = self._settings = WindowSettings.of(config)
        self.set_up_time(config, context, settings)
        self._windows = TaskWindows(self._made, context, durable=self._durable)
        if settings.timestamp is None:
            self._clock.go_on_from(self._windows.reached / 1000)

    def _made(self, saved: SavedElements | None, own: bool) -> TrailingWindows:
        settings = self._settings
        starts_at = isinstance(settings.slide, Duration) and settings.timestamp is None
        return TrailingWindows(
            settings.length,
            settings.slide,
            event_time=settings.timestamp is not None,
            first_end=self._clock_ms() + settings.slide.value if starts_at else None,
            saved=saved,
        )

    def process(self, tup: Tuple) -> None:
        at_ms = self.time_of(tup)
        if at_ms is None:
            return
        if self._timestamp is not None and at_ms < self._watermarks.watermark:
            self.came_late(tup, at_ms)
            return
        if effects := self._windows.add(tup, at_ms):
            self._carry_out(effects)
        if self._durable:
            self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        watermark = self.watermark_now()
        if watermark != NEVER:
            self._carry_out(self._windows.advance(watermark))
        self.send_watermark()

    def _carry_out(self, effects: Sequence[Evaluated | Expired]) -> None:
        for effect in effects:
            if isinstance(effect, Expired):
                if not self._durable:
                    for tup in effect.elements:
                        self.ack(tup)
                continue
            self._anchors = effect.elements if self._tracking else None
            try:
                self.execute(TupleWindow(effect))
            except Exception as error:
                self._errors.add(error)
                if self._tracking:
                    for tup in effect.elements:
                        self.fail(tup)  # the ack when it leaves its last window comes too late
            finally:
                self._anchors = None
        self._errors.raise_first()


@dataclass(frozen=True)
class WindowedBoltBuilder:
    """A windowed bolt with its windows. In the place of the class in `TopologyBuilder.add_bolt`, or with `spec()`."""

    bolt: type[EventTimeBolt]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Component configuration so far."""

    def with_timestamp_field(self, name: str) -> WindowedBoltBuilder:
        """Windows of event time: the field of each tuple with its time in ms since the epoch, or a datetime."""
        return self._with(**{keys.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME: name})

    def with_timestamp_extractor(self, extractor: Callable[[Tuple], Any]) -> WindowedBoltBuilder:
        """Windows of event time: a function of a tuple that returns its time, as `with_timestamp_field`.

        Raises:
            ConfigError: it is not a function.
        """
        if not callable(extractor):
            raise ConfigError(f"with_timestamp_extractor() takes a function, not {extractor!r}")
        return self._with(**{TIMESTAMP_EXTRACTOR: extractor})

    def with_lag(self, lag: Duration | datetime.timedelta) -> WindowedBoltBuilder:
        """By how much event times may be out of order; not at all without it."""
        return self._with(**{keys.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS: duration_ms(lag, at_least=0)})

    def with_watermark_interval(self, interval: Duration | datetime.timedelta) -> WindowedBoltBuilder:
        """How often the watermark advances; every second without it."""
        return self._with(**{keys.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS: duration_ms(interval)})

    def with_late_tuple_stream(self, stream_id: str) -> WindowedBoltBuilder:
        """Emit late tuples on this stream, which is declared with them, as the field `late_tuple`."""
        return self._with(**{keys.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM: stream_id})

    def with_idle_after(self, idle: Duration | datetime.timedelta) -> WindowedBoltBuilder:
        """After how long a stream without tuples does not hold up the watermark; a minute without it."""
        return self._with(**{keys.TOPOLOGY_BOLTS_WATERMARK_IDLE_AFTER_MS: duration_ms(idle)})

    def spec(
        self,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Use the bolt in a topology; see `Bolt.spec`."""
        merged = {**self.config, **(config or {})}
        return self.bolt.spec(name=name, inputs=inputs, par=par, config=merged, optional_outputs=optional_outputs)

    def _with(self, **config: Any) -> WindowedBoltBuilder:
        return WindowedBoltBuilder(self.bolt, {**self.config, **config})


__all__ = [
    "LATE_TUPLES",
    "LATE_TUPLE_FIELD",
    "OUTLIER_TUPLES",
    "TIMESTAMP_EXTRACTOR",
    "BaseWindowedBolt",
    "TupleWindow",
    "WindowSettings",
    "WindowedBoltBuilder",
]
