"""When a window has a result, and what a result has in it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from heronpy.errors import ConfigError
from heronpy.windows._spans import FOREVER, Counted, Global, Session, Sliding, Tumbling, Windows


@dataclass(frozen=True, slots=True)
class AfterCount:
    """A pane whenever so many elements came since the last."""

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ConfigError(f"AfterCount takes a number of elements above 0, not {self.count!r}")


@dataclass(frozen=True, slots=True, init=False)
class AfterProcessingTime:
    """A pane so long after the first element that came since the last."""

    delay_ms: int

    def __init__(self, delay_ms: datetime.timedelta | int) -> None:
        """Take a timedelta, or a number of milliseconds."""
        delay, rest = delay_ms, datetime.timedelta()
        if isinstance(delay, datetime.timedelta):
            delay, rest = divmod(delay, datetime.timedelta(milliseconds=1))
        if isinstance(delay, bool) or not isinstance(delay, int) or delay < 0 or rest:
            raise ConfigError(f"AfterProcessingTime takes a timedelta or a number of milliseconds, not {delay_ms!r}")
        object.__setattr__(self, "delay_ms", delay)  # frozen


Repeated = AfterCount | AfterProcessingTime


@dataclass(frozen=True, slots=True)
class AfterWatermark:
    """A pane when the watermark passes the end of the window, and others before and after it."""

    early: Repeated | None = None
    """Panes before the watermark; None: there are none."""
    late: Repeated = field(default=AfterCount(1))
    """Panes of what comes after the watermark, within the allowed lateness."""


Trigger = AfterWatermark | AfterCount | AfterProcessingTime
"""What a window of its own kind is fired by. What is left over when a window closes is fired then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """How elements are divided into windows, and when there are results."""

    windows: Windows
    """The windows."""
    trigger: Trigger = field(default=AfterWatermark())
    """When a window has a pane. `Counted` windows have theirs when they are full, whatever this says."""
    accumulating: bool = False
    """Whether a pane has everything that its window got so far, or only what is new since the last pane."""
    lateness_ms: int = 0
    """How long after its end, by the watermark, a window takes elements. An element that none of its windows takes any
    more is late. With `FOREVER` nothing is: a window that has fired is forgotten, and what comes for it later makes a
    pane with only what is new; so the watermark may then go back, as it does where a source is read again."""

    def __post_init__(self) -> None:
        if self.lateness_ms < 0:
            raise ConfigError(f"a window's allowed lateness must not be below 0, as {self.lateness_ms!r} ms is")
        if self.accumulating and self.lateness_ms == FOREVER and not isinstance(self.windows, (Global, Counted)):
            raise ConfigError("windows that accumulate need an end to their lateness: they would be kept forever")
        last = self.trigger.late if isinstance(self.trigger, AfterWatermark) else self.trigger
        waits = isinstance(last, AfterCount) and last.count > 1
        if waits and self.lateness_ms == FOREVER and not isinstance(self.windows, (Global, Counted)):
            raise ConfigError(
                f"windows with {last} need an end to their lateness: of what is left when they close there is a pane "
                "only then"
            )

    @property
    def sliced(self) -> bool:
        """Whether no pane has what another had: elements are folded once for all windows."""
        fires_once = isinstance(self.trigger, AfterWatermark) and self.trigger.early is None
        return isinstance(self.windows, (Tumbling, Sliding)) and fires_once and not self.accumulating

    @property
    def kept(self) -> str:
        """What is kept of a key, in words: no other windows can go on with it. Triggers and lateness may change."""
        windows = self.windows
        if isinstance(windows, Counted):
            return f"windows of {windows.length} elements every {windows.slide}"
        if isinstance(windows, Session):
            return f"sessions with a gap of {windows.gap_ms} ms"
        if isinstance(windows, Global):
            return "a global window"
        offset_ms = windows.offset_ms % windows.slide_ms
        grid = f"windows of {windows.size_ms} ms every {windows.slide_ms} ms" + (
            f" from {offset_ms} ms" if offset_ms else ""
        )
        return grid if self.sliced else f"{grid} in panes"


__all__ = ["AfterCount", "AfterProcessingTime", "AfterWatermark", "Repeated", "Session", "Trigger", "Windowing"]
