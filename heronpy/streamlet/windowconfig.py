"""How elements are divided into windows, when there are results, and what these are made of."""

from __future__ import annotations

import copy
import datetime

from heronpy.errors import ConfigError
from heronpy.windows import (
    FOREVER,
    AfterProcessingTime,
    AfterWatermark,
    Counted,
    Global,
    Session,
    Sliding,
    Trigger,
    Tumbling,
    Windowing,
)

GRACE_MS = 1000
"""How long late panes wait for more, unless a trigger says otherwise: what is replayed after a kill comes together."""
SESSION_GAPS = 10
"""So many gaps a session is taken to last, where that has to be known."""


class WindowConfig:
    """Windows by time, by number, by activity, or one of everything. Make one with one of the `create_…` methods.

    The `with_…` and `keep_…` methods return a copy with something else said:

        WindowConfig.create_tumbling_window(60)
            .with_trigger(AfterWatermark(early=AfterCount(1000)), accumulating=True)
            .with_allowed_lateness(timedelta(minutes=5))

    Durations are timedeltas or numbers of seconds, of whole milliseconds. Windows of one length lie on a grid that
    begins at the epoch. All are made of event times where the streamlet has them (see `Streamlet.event_time`), else of
    the time at which an element arrives, as in Heron. See docs/windows.md.
    """

    def __init__(self, window_duration: datetime.timedelta | float, slide_interval: datetime.timedelta | float) -> None:
        """Describe windows of one length.

        Args:
            window_duration: their length.
            slide_interval: the time between two beginnings; not more than the length.

        Raises:
            ConfigError: not a positive number of milliseconds, or a slide longer than the window.
        """
        duration_ms = _milliseconds("a window's duration", window_duration)
        slide_ms = _milliseconds("a window's slide interval", slide_interval)
        if slide_ms > duration_ms:
            raise ConfigError(
                f"a window's slide interval ({_seconds(slide_ms)} s) must not be longer than its duration "
                f"({_seconds(duration_ms)} s): elements between two windows would be lost"
            )
        tumbling = duration_ms == slide_ms
        self._set(Tumbling(duration_ms) if tumbling else Sliding(duration_ms, slide_ms))

    def _set(self, windows: Tumbling | Sliding | Session | Counted | Global, trigger: Trigger | None = None) -> None:
        self.windows = windows
        """The same for the engine."""
        self.trigger = trigger
        """When a window has a pane; None: when the watermark passes its end, and with what comes after that."""
        self.accumulating = False
        """Whether a pane has everything that its window got so far, or what is new since the last one."""
        self.allowed_lateness_ms: int | None = None
        """How long after its end a window takes elements; None: nothing is too late."""
        self.kept_count: int | None = None
        """Of a window's elements, only the latest so many are reduced or joined."""
        self.kept_ms: int | None = None
        """Of a window's elements, only those less than this older than its latest are reduced or joined."""

    @staticmethod
    def _of(windows: Session | Counted | Global, trigger: Trigger | None = None) -> WindowConfig:
        config = WindowConfig.__new__(WindowConfig)
        config._set(windows, trigger)
        return config

    # Kinds

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
        return WindowConfig._of(Session(_milliseconds("a session's gap", gap)))

    @staticmethod
    def create_tumbling_count_window(window_size: int) -> WindowConfig:
        """Windows of so many elements, of each key where there are keys, in the order of their arrival.

        What does not fill a window waits until more comes.

        Raises:
            ConfigError: not a number above 0.
        """
        return WindowConfig._of(Counted(window_size, window_size))

    @staticmethod
    def create_sliding_count_window(window_size: int, slide_interval: int) -> WindowConfig:
        """The last `window_size` elements, whenever there are `slide_interval` new ones; at first there are fewer.

        Raises:
            ConfigError: not numbers above 0, or a slide larger than the window.
        """
        return WindowConfig._of(Counted(window_size, slide_interval))

    @staticmethod
    def create_global_window(trigger: Trigger, *, accumulating: bool = False) -> WindowConfig:
        """One window of everything, of each key where there are keys; the trigger says when it has a pane.

        When nothing comes any more (all sources have ended, or are idle), what is new since the last pane has one. Not
        in Heron.

        Args:
            trigger: e.g. `AfterCount(100)`, `AfterProcessingTime(timedelta(seconds=10))`.
            accumulating: whether a pane has everything so far, or what is new since the last one.

        Raises:
            ConfigError: a trigger that waits for the end of the window, which has none.
        """
        if isinstance(trigger, AfterWatermark):
            raise ConfigError("a global window has no end for the watermark to pass: give it AfterCount(…) or another")
        return WindowConfig._of(Global(), _trigger(trigger))._with(accumulating=accumulating)

    # Panes

    def with_trigger(self, trigger: Trigger, *, accumulating: bool = False) -> WindowConfig:
        """Say when a window has a pane, and what it has in it.

        Args:
            trigger: `AfterWatermark(early=…, late=…)`, `AfterCount(…)` or `AfterProcessingTime(…)`.
            accumulating: whether a pane has everything that its window got so far, and takes the place of those before
                it, or what is new since the last one, so that panes add up. The former takes an allowed lateness.

        Raises:
            ConfigError: windows by number, which have a pane when they are full.
        """
        if isinstance(self.windows, Counted):
            raise ConfigError(f"{self!r} takes no trigger: windows by number have a pane when they are full")
        if isinstance(self.windows, Global):
            return WindowConfig.create_global_window(trigger, accumulating=accumulating)._with(
                kept_count=self.kept_count, kept_ms=self.kept_ms
            )
        return self._with(trigger=_trigger(trigger), accumulating=accumulating)

    def with_allowed_lateness(self, lateness: datetime.timedelta | float) -> WindowConfig:
        """Say how long after its end, by the watermark, a window takes elements; 0: not at all.

        An element that none of its windows takes any more is in no result. It is counted, and in `Streamlet.late`.
        Without this nothing is too late: what comes for a window that has fired makes a pane with only what is new.

        Raises:
            ConfigError: not a number of milliseconds, or windows that have no end in time.
        """
        if isinstance(self.windows, (Counted, Global)):
            raise ConfigError(f"{self!r} has no end in time, so nothing is late for it")
        return self._with(allowed_lateness_ms=_milliseconds("an allowed lateness", lateness, at_least=0))

    # Evictors

    def keep_last(self, count: int) -> WindowConfig:
        """Reduce or join, of the elements of a window, only the `count` latest; of equal times those that came last.

        Raises:
            ConfigError: not a number above 0.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"keep_last() takes a number of elements above 0, not {count!r}")
        return self._with(kept_count=count)

    def keep_within(self, duration: datetime.timedelta | float) -> WindowConfig:
        """Reduce or join, of the elements of a window, only those less than this older than its latest.

        Raises:
            ConfigError: not a positive number of milliseconds.
        """
        return self._with(kept_ms=_milliseconds("the time of keep_within()", duration))

    def _with(self, **changes: object) -> WindowConfig:
        changed = copy.copy(self)
        changed.__dict__.update(changes)
        return changed

    # What planners and tasks read

    @property
    def duration_ms(self) -> int:
        """Length in ms; of sessions, their gap; 0 where windows have no length in time."""
        if isinstance(self.windows, (Tumbling, Sliding)):
            return self.windows.size_ms
        return self.windows.gap_ms if isinstance(self.windows, Session) else 0

    @property
    def slide_ms(self) -> int:
        """Time between two beginnings in ms; as `duration_ms` where windows are on no grid."""
        return self.windows.slide_ms if isinstance(self.windows, (Tumbling, Sliding)) else self.duration_ms

    @property
    def hold_ms(self) -> int:
        """How long an element may have to wait in its window, in ms."""
        longest = self.duration_ms * (SESSION_GAPS if isinstance(self.windows, Session) else 1)
        return longest + (self.allowed_lateness_ms or 0)

    @property
    def evicts(self) -> bool:
        """Whether results are made of a part of the elements."""
        return self.kept_count is not None or self.kept_ms is not None

    @property
    def bounded(self) -> bool:
        """Whether windows have an end in time."""
        return not isinstance(self.windows, (Counted, Global))

    @property
    def windowing(self) -> Windowing:
        """All of it, for the engine.

        Raises:
            ConfigError: windows that would be kept forever.
        """
        forever = self.allowed_lateness_ms is None
        trigger = AfterWatermark(late=AfterProcessingTime(GRACE_MS)) if self.trigger is None else self.trigger
        try:
            return Windowing(
                windows=self.windows,
                trigger=trigger,
                accumulating=self.accumulating,
                lateness_ms=FOREVER if self.allowed_lateness_ms is None else self.allowed_lateness_ms,
            )
        except ConfigError as error:
            hint = "; call with_allowed_lateness()" if forever else ""
            raise ConfigError(f"{self!r}: {error}{hint}") from None

    @property
    def _on_a_grid(self) -> bool:
        return isinstance(self.windows, (Tumbling, Sliding))

    @property
    def state_kind(self) -> str:
        """What its state is, if not that of windows that fold each element once: no other can go on with it."""
        kinds = {
            " by number": isinstance(self.windows, Counted),
            " in panes": isinstance(self.windows, Global) or (self._on_a_grid and not self.windowing.sliced),
            " with an evictor": self.evicts,
        }
        return "".join(kind for kind, applies in kinds.items() if applies)

    def __repr__(self) -> str:
        accumulating = ", accumulating=True" if self.accumulating else ""
        if isinstance(self.windows, Session):
            made = f"WindowConfig.create_session_window({_seconds(self.duration_ms)})"
        elif isinstance(self.windows, Counted):
            made = f"WindowConfig.create_sliding_count_window({self.windows.length}, {self.windows.slide})"
        elif isinstance(self.windows, Global):
            made = f"WindowConfig.create_global_window({self.trigger}{accumulating})"
        else:
            made = f"WindowConfig({_seconds(self.duration_ms)}, {_seconds(self.slide_ms)})"
        if self.trigger is not None and self.bounded:
            made += f".with_trigger({self.trigger}{accumulating})"
        if self.allowed_lateness_ms is not None:
            made += f".with_allowed_lateness({_seconds(self.allowed_lateness_ms)})"
        if self.kept_count is not None:
            made += f".keep_last({self.kept_count})"
        return made if self.kept_ms is None else f"{made}.keep_within({_seconds(self.kept_ms)})"


def _milliseconds(what: str, value: datetime.timedelta | float, *, at_least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, datetime.timedelta)):
        raise ConfigError(f"{what} must be a timedelta or a number of seconds, not {value!r}")
    exact = value / datetime.timedelta(milliseconds=1) if isinstance(value, datetime.timedelta) else value * 1000
    if not at_least <= exact < _LONGEST_MS or abs(exact - round(exact)) > _ROUNDING_MS:
        bound = "above 0" if at_least else "at least 0"
        raise ConfigError(f"{what} must be {bound}, and of whole milliseconds, not {value!r}")
    return round(exact)


def _seconds(ms: int) -> float:
    """As the user gives them: 2, or 0.5."""
    return ms / 1000 if ms % 1000 else ms // 1000


def _trigger(trigger: Trigger) -> Trigger:
    if not isinstance(trigger, Trigger):
        raise ConfigError(f"a trigger is AfterWatermark, AfterCount or AfterProcessingTime, not {trigger!r}")
    return trigger


_LONGEST_MS = 1 << 52
_ROUNDING_MS = 1e-3
"""Of 0.1 s and its like, which are not what a float has."""
