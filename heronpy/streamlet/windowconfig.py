"""How elements are divided into windows."""

from __future__ import annotations

import datetime

from heronpy.errors import ConfigError
from heronpy.windows import Session, Sliding, Tumbling

SESSION_GAPS = 10
"""So many gaps a session is taken to last, where that has to be known."""


class WindowConfig:
    """Windows of one length, one every slide, or sessions. Make one with one of the `create_…` methods.

    Windows of one length lie on a grid that begins at the epoch. All are made of event times where the streamlet has
    them (see `Streamlet.event_time`), else of the time at which an element arrives, as in Heron.
    """

    windows: Tumbling | Sliding | Session
    """The same for the engine."""

    def __init__(self, window_duration: datetime.timedelta | float, slide_interval: datetime.timedelta | float) -> None:
        """Describe windows.

        Args:
            window_duration: their length; a number is in seconds. Whole seconds.
            slide_interval: the time between two beginnings; not more than the length. Whole seconds.

        Raises:
            ConfigError: not a positive number of whole seconds, or a slide longer than the window.
        """
        self.duration_ms = _whole_seconds("a window's duration", window_duration) * 1000
        """Length in ms; of sessions, their gap."""
        self.slide_ms = _whole_seconds("a window's slide interval", slide_interval) * 1000
        """Time between two beginnings in ms."""
        if self.slide_ms > self.duration_ms:
            raise ConfigError(
                f"a window's slide interval ({self.slide_ms // 1000} s) must not be longer than its duration "
                f"({self.duration_ms // 1000} s): elements between two windows would be lost"
            )
        tumbling = self.duration_ms == self.slide_ms
        self.windows = Tumbling(self.duration_ms) if tumbling else Sliding(self.duration_ms, self.slide_ms)

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

    @staticmethod
    def create_session_window(gap: datetime.timedelta | float) -> WindowConfig:
        """Sessions: windows that end when a key had no element for `gap`. Not in Heron.

        A window reaches from its first element to a gap after its last. An element that comes after its session has
        fired is in a session of its own. Elements are held until theirs ends: if sessions can last longer than ten
        gaps, raise `topology.message.timeout.secs`.

        Raises:
            ConfigError: not a positive number of whole seconds.
        """
        config = WindowConfig(gap, gap)
        config.windows = Session(config.duration_ms)
        return config

    @property
    def hold_ms(self) -> int:
        """How long an element may have to wait in its window, in ms."""
        return self.duration_ms * (SESSION_GAPS if isinstance(self.windows, Session) else 1)

    def __repr__(self) -> str:
        if isinstance(self.windows, Session):
            return f"WindowConfig.create_session_window({self.duration_ms // 1000})"
        return f"WindowConfig({self.duration_ms // 1000}, {self.slide_ms // 1000})"


def _whole_seconds(what: str, value: datetime.timedelta | float) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, datetime.timedelta)):
        raise ConfigError(f"{what} must be a timedelta or a number of seconds, not {value!r}")
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    if seconds <= 0 or seconds != int(seconds):
        raise ConfigError(f"{what} must be a positive number of whole seconds, not {value!r}")
    return int(seconds)
