"""How elements are divided into windows."""

from __future__ import annotations

import datetime

from heronpy.errors import ConfigError
from heronpy.windows import Session, Sliding, Tumbling

SESSION_GAPS = 10
"""So many gaps a session is taken to last, where that has to be known."""


class WindowConfig:
    """Windows of one length, one every slide, or sessions. Make one with one of the `create_…` methods.

    Durations are timedeltas or numbers of seconds, of whole milliseconds. Windows of one length lie on a grid that
    begins at the epoch. All are made of event times where the streamlet has them (see `Streamlet.event_time`), else of
    the time at which an element arrives, as in Heron.
    """

    windows: Tumbling | Sliding | Session
    """The same for the engine."""

    def __init__(self, window_duration: datetime.timedelta | float, slide_interval: datetime.timedelta | float) -> None:
        """Describe windows.

        Args:
            window_duration: their length.
            slide_interval: the time between two beginnings; not more than the length.

        Raises:
            ConfigError: not a positive number of milliseconds, or a slide longer than the window.
        """
        self.duration_ms = _milliseconds("a window's duration", window_duration)
        """Length in ms; of sessions, their gap."""
        self.slide_ms = _milliseconds("a window's slide interval", slide_interval)
        """Time between two beginnings in ms."""
        if self.slide_ms > self.duration_ms:
            raise ConfigError(
                f"a window's slide interval ({_seconds(self.slide_ms)} s) must not be longer than its duration "
                f"({_seconds(self.duration_ms)} s): elements between two windows would be lost"
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
            ConfigError: not a positive number of milliseconds.
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
            return f"WindowConfig.create_session_window({_seconds(self.duration_ms)})"
        return f"WindowConfig({_seconds(self.duration_ms)}, {_seconds(self.slide_ms)})"


def _milliseconds(what: str, value: datetime.timedelta | float) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, datetime.timedelta)):
        raise ConfigError(f"{what} must be a timedelta or a number of seconds, not {value!r}")
    exact = value / datetime.timedelta(milliseconds=1) if isinstance(value, datetime.timedelta) else value * 1000
    if not 1 <= exact < _LONGEST_MS or abs(exact - round(exact)) > _ROUNDING_MS:
        raise ConfigError(f"{what} must be above 0, and of whole milliseconds, not {value!r}")
    return round(exact)


def _seconds(ms: int) -> float:
    """As the user gives them: 2, or 0.5."""
    return ms / 1000 if ms % 1000 else ms // 1000


_LONGEST_MS = 1 << 52
_ROUNDING_MS = 1e-3
"""Of 0.1 s and its like, which are not what a float has."""
