"""What bolts with windows have in common: the time of tuples, and what becomes of those that are too late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants as keys
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.bolt.window_bolt import WindowClock, effect_errors, wall_clock_s
from heronpy.api.bolt.window_settings import TimeSettings, time_ms
from heronpy.api.bolt.window_state import FOREMOST, WATERMARKS
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.followed_watermarks import FollowedWatermarks
from heronpy.api.metrics import CountMetric
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple
from heronpy.config import takes_checkpoints
from heronpy.errors import ConfigError
from heronpy.shown import said, shown
from heronpy.windows import END, NEVER, Sent

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

LATE_TUPLE_FIELD = "late_tuple"
"""The field of the late stream: the tuple, detached from its task."""
LATE_TUPLES = "late-tuple-count"
"""Metric: tuples behind the watermark."""
OUTLIER_TUPLES = "outlier-tuple-count"
"""Metric: tuples far in the future, or without a usable timestamp."""


class EventTimeBolt(Bolt):
    """Reads the time of tuples, derives the watermark, and sets aside what has no place in it."""

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """As for every bolt; declares the late stream, if `config` names one."""
        config = {keys.TOPOLOGY_COMPONENT_WINDOWS_HOLD_TUPLES: True, **(config or {})}
        late = config.get(keys.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM)
        outputs = list(optional_outputs or ())
        if late is not None:
            outputs.append(Stream([LATE_TUPLE_FIELD], str(late)))
        return super().spec(name=name, inputs=inputs, par=par, config=config, optional_outputs=outputs)

    def set_up_time(self, config: dict[str, Any], context: TopologyContext, settings: TimeSettings) -> None:
        """Set up clocks and ticks.

        Raises:
            ConfigError: the late stream is not declared.
        """
        if settings.late_stream is not None and settings.late_stream not in context.get_this_streams():
            raise ConfigError(
                f"the stream for late tuples, {settings.late_stream!r}, is not declared: name it in the configuration "
                "of the component, with with_late_tuple_stream()"
            )
        clock = self._clock = WindowClock(wall_clock_s(), self.logger)
        self._timestamp, self._late_stream = settings.timestamp, settings.late_stream
        self._clock_ms: Callable[[], int] = lambda: int(clock() * 1000)
        config[keys.TOPOLOGY_TICK_TUPLE_FREQ_MS] = settings.tick_ms
        mode = config.get(keys.TOPOLOGY_RELIABILITY_MODE)
        self._durable = takes_checkpoints(config)
        """Whether windows are in checkpoints, and tuples acked on arrival."""
        self._tracked = mode == keys.TopologyReliabilityMode.ATLEAST_ONCE
        self._tracking = self._tracked and not self._durable
        """Whether tuples are held until they have left their last window."""
        self._errors = effect_errors(config)
        self._anchors: Sequence[Tuple] | None = None
        self._late, self._outliers = CountMetric(), CountMetric()
        self._sent: Sent | None = None
        self._reached = NEVER, False
        if settings.timestamp is None:
            return
        context.register_metric(LATE_TUPLES, self._late, 10)
        context.register_metric(OUTLIER_TUPLES, self._outliers, 10)
        self._followed = FollowedWatermarks(context)
        self._watermarks = settings.watermarks(context, self._clock_ms(), self._followed)
        self._sent = Sent(every_ms=0) if context.sends_watermarks() else None
        if self._durable:
            # By task, as another one may be behind; also of those that are no more, who may come back to their windows.
            marks = context.split_state(WATERMARKS, index=int)
            self._saved_marks, self._index = marks, context.get_this_task_index()
            self._watermarks.restore(marks.get(self._index))
            foremost = context.task_state(FOREMOST, default=NEVER, merge=max, split=lambda saved, n: [saved] * n)
            self._saved_foremost = foremost
            self._watermarks.take_over(foremost.value)
            context.before_snapshot(self._save_marks)

    def _save_marks(self) -> None:
        self._saved_marks[self._index] = self._watermarks.saved()
        self._saved_foremost.value = self._watermarks.foremost

    def time_of(self, tup: Tuple) -> int | None:
        """The time of a tuple in ms; None: it has no usable one, and was set aside."""
        timestamp = self._timestamp
        if timestamp is None:
            return self._clock_ms()
        try:
            at_ms = time_ms(timestamp(tup))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self._outliers.incr()
            self._set_aside(tup, f"has no usable timestamp: {said(error)}")
            return None
        if not self._watermarks.observe((tup.component, tup.stream), at_ms, self._clock_ms()):
            self._outliers.incr()
            self._set_aside(tup, f"is far in the future: {at_ms} ms")
            return None
        return at_ms

    def watermark_now(self) -> int:
        """How far time has come, by the watermark or the clock; `NEVER` if that is not known."""
        return self._clock_ms() if self._timestamp is None else self._watermarks.advance(self._clock_ms())

    def receive_watermark(self, task: int, watermark: int) -> None:
        """Take the watermark of a task before this one; called by the engine."""
        if self._timestamp is not None:
            self._followed.mark(task, watermark)

    def send_watermark(self) -> None:
        """Send those after this bolt how far its time has come, when all is emitted that is due by then.

        If it has timers, too, they send it, when theirs are emitted as well.
        """
        if self._sent is not None:
            self._reached = self._watermarks.watermark, self._watermarks.idle
            watermark = END if self._watermarks.idle else self._watermarks.watermark
            if not hasattr(self, "on_timer") and self._sent.due(watermark, self._clock_ms()):
                self.delegate.send_watermark(watermark)

    def windows_reached(self) -> tuple[int, bool]:
        """How far time had come, and whether it was idle, when all windows were emitted that were due; for timers."""
        return self._reached

    def came_late(self, tup: Tuple, at_ms: int) -> None:
        """Set a late tuple aside."""
        self._late.incr()
        self._set_aside(tup, f"is late: {at_ms} ms, and the watermark is {self._watermarks.watermark} ms")

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Send a tuple on, anchored to the tuples of the window in hand unless `anchors` says otherwise.

        With checkpoints to nothing: they are acked already, and children would keep their trees from being complete.
        """
        anchors = self._anchors if anchors is None or self._durable else anchors
        return super().emit(tup, stream, anchors, direct_task, need_task_ids)

    def _set_aside(self, tup: Tuple, reason: str) -> None:
        if self._late_stream is not None:
            self._anchors = [tup] if self._tracked else None
            try:
                self.emit([tup], stream=self._late_stream)
            finally:
                self._anchors = None
        else:
            self.logger.info("left out, because it %s: %s", reason, shown(tup))
        self.ack(tup)


__all__ = ["LATE_TUPLES", "LATE_TUPLE_FIELD", "OUTLIER_TUPLES", "EventTimeBolt"]
