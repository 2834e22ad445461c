"""Heron's window bolts: they see the tuples of a span of time together.

A window ends on a grid: a slide interval after the one before it, the first one slide after `initialize()`. A tuple
belongs to the windows that its arrival falls into, however late the tick that fires them is handled, so every tuple is
in exactly duration / slide windows (tumbling: in one), and is acked after its last. Ticks that were missed while the
task was blocked are made up for, except over stretches without tuples.

Times are the arrival's (processing time), in seconds since the epoch at the task's start plus the time since then, so
that setting the clock does not move a window. What is decided, `heronpy.windows.TrailingWindows` decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.bolt.window_state import TaskWindows
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.stream import Stream
from heronpy.api.tuple import Tuple
from heronpy.config import takes_checkpoints
from heronpy.errors import ConfigError
from heronpy.windows import Duration, EffectErrors, Evaluated, Expired, SavedElements, TrailingWindows

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class WindowContext(NamedTuple):
    """The span of a window in seconds since the epoch: from `start` (inclusive) to `end` (exclusive)."""

    start: float
    end: float


class _WindowBolt(Bolt):
    """Windows of `duration` seconds, one every `slide` seconds."""

    window_duration: float
    slide_interval: float
    _durable = False
    """Whether windows are in checkpoints, and tuples acked on arrival."""

    @classmethod
    def _spans(cls, config: Mapping[str, Any]) -> tuple[float, float]:
        """Duration and slide in seconds.

        Raises:
            ConfigError: a missing or impossible one.
        """
        raise NotImplementedError

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: Mapping[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """As for every bolt. If `config` has the window's spans, the ticks that it needs are configured here.

        Raises:
            ConfigError: a span that is not a number above zero, or a slide longer than the window.
        """
        config = {api_constants.TOPOLOGY_COMPONENT_WINDOWS_HOLD_TUPLES: True, **(config or {})}
        if any(key in config for key in cls._span_keys()):
            _, slide = cls._spans(config)
            config |= _ticks(slide)
        return super().spec(name=name, inputs=inputs, par=par, config=config, optional_outputs=optional_outputs)

    @classmethod
    def _span_keys(cls) -> tuple[str, ...]:
        raise NotImplementedError

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:  # Heron's name
        """Called for every window, with its tuples in the order of their arrival. Must be implemented.

        The tuples are acked by the window bolt.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement processWindow()")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Read the spans and set up ticks. Call it first if you override it.

        Raises:
            ConfigError: a span is missing or impossible.
        """
        self.window_duration, self.slide_interval = self._spans(config)
        # The engine reads the tick interval after initialize(), so that spans from the topology's configuration work.
        config.update(_ticks(self.slide_interval))
        self._clock = WindowClock(wall_clock_s(), self.logger)
        self._durable = takes_checkpoints(config)
        self._errors = effect_errors(config)
        self._windows = TaskWindows(self._made, context, durable=self._durable)
        self._clock.go_on_from(self._windows.reached)

    def _made(self, saved: SavedElements | None, own: bool) -> TrailingWindows:
        return TrailingWindows(
            Duration(self.window_duration),
            Duration(self.slide_interval),
            fires_empty=own,
            first_end=self._clock() + self.slide_interval,
            saved=saved,
        )

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = Stream.DEFAULT_STREAM_ID,
        anchors: Sequence[Tuple] | None = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int]:
        """Send a tuple on. With checkpoints it is anchored to nothing, as tuples of windows are acked already."""
        return super().emit(tup, stream, None if self._durable else anchors, direct_task, need_task_ids)

    @property
    def current_tuples(self) -> list[tuple[Tuple, float]]:
        """The tuples that are still in some window to come, with their arrival."""
        return [(tup, at) for at, tup in self._windows.own.entries]

    def process(self, tup: Tuple) -> None:
        effects = self._windows.add(tup, self._clock())
        if effects:
            self._carry_out(effects)
        if self._durable:
            self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        self._carry_out(self._windows.advance(self._clock()))

    def _carry_out(self, effects: Sequence[Evaluated | Expired]) -> None:
        for effect in effects:
            if isinstance(effect, Evaluated):
                try:
                    self.processWindow(WindowContext(effect.start, effect.end), effect.elements)
                except Exception as error:
                    self._errors.add(error)
                    if not self._durable:
                        for tup in effect.elements:
                            self.fail(tup)  # the ack when it leaves its last window comes too late
            elif not self._durable:
                for tup in effect.elements:
                    self.ack(tup)
        self._errors.raise_first()


class SlidingWindowBolt(_WindowBolt):
    """Every slide interval, the tuples of the last duration. Implement `processWindow()`.

    Configured, on the component or on the topology, with `WINDOW_DURATION_SECS` and `WINDOW_SLIDEINTERVAL_SECS` (the
    duration, unless given), both in seconds and possibly fractions of them.
    """

    WINDOW_DURATION_SECS = "slidingwindowbolt_duration_secs"
    WINDOW_SLIDEINTERVAL_SECS = "slidingwindowbolt_slideinterval_secs"

    @classmethod
    def _span_keys(cls) -> tuple[str, ...]:
        return cls.WINDOW_DURATION_SECS, cls.WINDOW_SLIDEINTERVAL_SECS

    @classmethod
    def _spans(cls, config: Mapping[str, Any]) -> tuple[float, float]:
        duration = _seconds(cls, config, cls.WINDOW_DURATION_SECS)
        if cls.WINDOW_SLIDEINTERVAL_SECS not in config:
            return duration, duration
        slide = _seconds(cls, config, cls.WINDOW_SLIDEINTERVAL_SECS)
        if slide > duration:
            raise ConfigError(
                f"{cls.__name__}: {cls.WINDOW_SLIDEINTERVAL_SECS} ({slide:g}) must not be longer than "
                f"{cls.WINDOW_DURATION_SECS} ({duration:g}): tuples between two windows would be in none"
            )
        return duration, slide


class TumblingWindowBolt(_WindowBolt):
    """Every duration, the tuples since the last time; each in one window. Implement `processWindow()`.

    Configured, on the component or on the topology, with `WINDOW_DURATION_SECS`, in seconds and possibly a fraction.
    """

    WINDOW_DURATION_SECS = "tumblingwindowbolt_duration_secs"

    @classmethod
    def _span_keys(cls) -> tuple[str, ...]:
        return (cls.WINDOW_DURATION_SECS,)

    @classmethod
    def _spans(cls, config: Mapping[str, Any]) -> tuple[float, float]:
        duration = _seconds(cls, config, cls.WINDOW_DURATION_SECS)
        return duration, duration


def _seconds(cls: type, config: Mapping[str, Any], key: str) -> float:
    if key not in config:
        raise ConfigError(f"{cls.__name__} needs {key} in its configuration")
    try:
        seconds = float(config[key])
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{cls.__name__}: {key} must be a number of seconds above 0, not {config[key]!r}")
    return seconds


def _ticks(interval_s: float) -> dict[str, Any]:
    return {
        api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: interval_s * 1000,
        api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS: interval_s,
    }


def effect_errors(config: Mapping[str, Any]) -> EffectErrors:
    """What becomes of errors in windows that are due at once."""
    policy = config.get(api_constants.TOPOLOGY_EXCEPTION_POLICY)
    return EffectErrors(goes_on=policy == api_constants.TopologyExceptionPolicy.FAIL)


def wall_clock_s() -> Callable[[], float]:
    """A clock of seconds since the epoch that setting the time does not move."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class WindowClock:
    """A clock of windows of arrival, which does not go back with a restore.

    On a host whose clock is behind, which may be the one that is right, it goes on from where it was. If it stood still
    until the host's is there, windows would wait for that long; if it went back, there would be two of one name.
    """

    def __init__(self, clock_s: Callable[[], float], log: logging.Logger) -> None:
        self._clock_s, self._log = clock_s, log
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return self._clock_s() + self._ahead_s

    def go_on_from(self, then_s: float) -> None:
        """It was as late as this when what is restored was saved."""
        behind_s = then_s - self()
        if behind_s > 0:
            self._ahead_s += behind_s
        if behind_s > _BEHIND_S:
            self._log.warning(
                "this host's clock is %.0f s behind that of the checkpoint: time goes on from there", behind_s
            )


_BEHIND_S = 1.0
