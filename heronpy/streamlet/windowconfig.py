"""How elements are divided into windows."""

from __future__ import annotations

import datetime

from heronpy.errors import ConfigError


class WindowConfig:
    """Windows of one length, one every slide. Make one with `create_tumbling_window` or `create_sliding_window`.

    Windows lie on a grid that begins at the epoch. They are made of event times where the streamlet has them (see
    `Streamlet.event_time`), else of the time at which an element arrives, as in Heron.
    """

    def __init__(self, window_duration: datetime.timedelta | float, slide_interval: datetime.timedelta | float) -> None:
        """Describe windows.

        Args:
            window_duration: their length; a number is in seconds. Whole seconds.
            slide_interval: the time between two beginnings; not more than the length. Whole seconds.

        Raises:
            ConfigError: not a positive number of whole seconds, or a slide longer than the window.
        """
        self.duration_ms = _whole_seconds("a window's duration", window_duration) * 1000
        """Length in ms."""
        self.slide_ms = _whole_seconds("a window's slide interval", slide_interval) * 1000
        """Time between two beginnings in ms."""
        if self.slide_ms > self.duration_ms:
            raise ConfigError(
                f"a window's slide interval ({self.slide_ms // 1000} s) must not be longer than its duration "
                f"({self.duration_ms // 1000} s): elements between two windows would be lost"
            )

    @staticmethod
    def create_tumbling_window(window_duration: datetime.timedelta | float) -> WindowConfig:
        """Windows that follow one another: every element is in one."""
        return WindowConfig(window_duration, window_duration)

    @staticmethod
    def create_sliding_window(
        window_duration: datetime.timedelta | float, slide_interval: datetime.timedelta | float
    ) -> WindowConfig:
        """Windows that overlap: every element is in several."""
        return WindowConfig(window_duration, slide_interval)

    def __repr__(self) -> str:
        return f"WindowConfig({self.duration_ms // 1000}, {self.slide_ms // 1000})"


def _whole_seconds(what: str, value: datetime.timedelta | float) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, datetime.timedelta)):
        raise ConfigError(f"{what} must be a timedelta or a number of seconds, not {value!r}")
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    if seconds <= 0 or seconds != int(seconds):
        raise ConfigError(f"{what} must be a positive number of whole seconds, not {value!r}")
    return int(seconds)
