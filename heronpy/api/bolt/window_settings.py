"""The windows of a windowed bolt in its configuration, under Storm's keys."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heronpy.api import api_constants as keys
from heronpy.api.tuple import Tuple
from heronpy.errors import ConfigError
from heronpy.windows import MAX_ADVANCE_MS, Count, Duration, TrailingWindows, Watermarks

if TYPE_CHECKING:
    from heronpy.api.followed_watermarks import FollowedWatermarks
    from heronpy.api.topology_context import TopologyContext

WATERMARK_INTERVAL_MS = 1000
IDLE_AFTER_MS = 60_000
TIMESTAMP_EXTRACTOR = "windowed_bolt_timestamp_extractor"
"""Not in Storm, where it is a part of the bolt: configuration key of a function that reads a tuple's time in ms."""

Extent = Count | Duration | datetime.timedelta
"""A length or a slide: a number of tuples, or a time (a `Duration` is in ms)."""


@dataclass(frozen=True, kw_only=True)
class TimeSettings:
    """What the time of tuples is, and how far it has come; read from a bolt's configuration."""

    timestamp: Callable[[Tuple], Any] | None
    """Reads a tuple's time; None: it is that of its arrival."""
    lag_ms: int
    """By how much tuples may be out of order."""
    interval_ms: int
    """How often the watermark is looked at."""
    idle_after_ms: int
    """After how long without tuples a stream is not waited for."""
    max_advance_ms: int
    """How far ahead of its stream a single tuple's time may be to be believed."""
    late_stream: str | None
    """Where late tuples go."""

    @staticmethod
    def values(config: Mapping[str, Any]) -> dict[str, Any]:
        """The fields above.

        Raises:
            ConfigError: they contradict each other.
        """
        field_name = config.get(keys.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME)
        extractor = config.get(TIMESTAMP_EXTRACTOR)
        if field_name is not None and extractor is not None:
            raise ConfigError("a windowed bolt has a timestamp field or a timestamp extractor, not both")
        timestamp = extractor if field_name is None else _field_reader(str(field_name))
        late_stream = config.get(keys.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM)
        if late_stream is not None and timestamp is None:
            raise ConfigError("a stream for late tuples needs a timestamp field or extractor: tuples arrive in time")
        return {
            "timestamp": timestamp,
            "lag_ms": int(config.get(keys.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS, 0)),
            "interval_ms": int(config.get(keys.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS, WATERMARK_INTERVAL_MS)),
            "idle_after_ms": int(config.get(keys.TOPOLOGY_BOLTS_WATERMARK_IDLE_AFTER_MS, IDLE_AFTER_MS)),
            "max_advance_ms": int(config.get(keys.TOPOLOGY_BOLTS_WATERMARK_MAX_ADVANCE_MS, MAX_ADVANCE_MS)),
            "late_stream": None if late_stream is None else str(late_stream),
        }

    @property
    def tick_ms(self) -> int:
        """How often time has to be looked at."""
        return self.interval_ms

    def watermarks(self, context: TopologyContext, now_ms: int, followed: FollowedWatermarks) -> Watermarks:
        """The watermark of all inputs of a task."""
        return Watermarks(
            [(source.component_name, source.id) for source in context.get_this_sources()],
            lag_ms=self.lag_ms,
            idle_after_ms=self.idle_after_ms,
            max_advance_ms=self.max_advance_ms,
            now_ms=now_ms,
            ignored=context.feedback_sources(),
            followed=followed.inputs,
        )


@dataclass(frozen=True, kw_only=True)
class WindowSettings(TimeSettings):
    """The windows of a windowed bolt."""

    length: Count | Duration
    slide: Count | Duration

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> WindowSettings:
        """Read and check it.

        Raises:
            ConfigError: windows are missing or make no sense.
        """
        length = _read(config, *LENGTHS)
        if length is None:
            raise ConfigError(f"a windowed bolt needs {' or '.join(LENGTHS)}: see BaseWindowedBolt.with_window()")
        slide = _read(config, *SLIDES) or Count(1)
        TrailingWindows(length, slide)
        return cls(length=length, slide=slide, **cls.values(config))

    @property
    def tick_ms(self) -> int:
        """How often time has to be looked at."""
        if self.timestamp is not None:
            return self.interval_ms
        times = [int(extent.value) for extent in (self.slide, self.length) if isinstance(extent, Duration)]
        return min([WATERMARK_INTERVAL_MS, *times]) if isinstance(self.slide, Count) else times[0]


LENGTHS = (keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT, keys.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS)
SLIDES = (keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT, keys.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS)


def _read(config: Mapping[str, Any], by_count: str, by_time: str) -> Count | Duration | None:
    if by_count in config:
        return Count(int(config[by_count]))
    return Duration(int(config[by_time])) if by_time in config else None


def extent_config(extent: Extent, by_count: str, by_time: str) -> dict[str, int]:
    """A length or slide in the configuration."""
    return {by_count: extent.value} if isinstance(extent, Count) else {by_time: duration_ms(extent)}


def duration_ms(duration: Duration | datetime.timedelta, *, at_least: int = 1) -> int:
    """In milliseconds.

    Raises:
        ConfigError: not a duration, too short, or with a part of a millisecond.
    """
    if isinstance(duration, datetime.timedelta):
        ms = duration / datetime.timedelta(milliseconds=1)
    elif isinstance(duration, Duration):
        ms = duration.value
    else:
        raise ConfigError(f"a window's length or slide must be a Count, a Duration or a timedelta, not {duration!r}")
    if ms < at_least or ms != int(ms):
        raise ConfigError(f"a duration must be at least {at_least} ms, and of whole ones, not {duration!r}")
    return int(ms)


def _field_reader(name: str) -> Callable[[Tuple], Any]:
    return lambda tup: tup[name]


def time_ms(time: Any) -> int:
    """A timestamp in ms since the epoch.

    Raises:
        TypeError: neither a number nor a datetime.
        ValueError: nan.
        OverflowError: infinite.
    """
    if type(time) is int:
        return time
    if isinstance(time, datetime.datetime):
        time = time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time
        return int((time - _EPOCH) // datetime.timedelta(milliseconds=1))
    if isinstance(time, (bool, str)):
        raise TypeError(f"a timestamp must be a number of milliseconds or a datetime, not {time!r:.60}")
    return int(time)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

__all__ = [
    "IDLE_AFTER_MS",
    "LENGTHS",
    "TIMESTAMP_EXTRACTOR",
    "WATERMARK_INTERVAL_MS",
    "Extent",
    "TimeSettings",
    "WindowSettings",
    "duration_ms",
    "extent_config",
    "time_ms",
]
