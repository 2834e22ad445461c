"""Which windows a time falls into, and how users see them. Both planners ask here, so that they agree."""

from __future__ import annotations

from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig
from heronpy.windows import Sliding, Span, Tumbling


def window_starts(time_ms: int, config: WindowConfig) -> range:
    """The beginnings in ms of all windows that contain `time_ms`, earliest first. Only those on a grid have any."""
    assert isinstance(config.windows, (Tumbling, Sliding))
    return config.windows.starts(time_ms)


def window_of(span: Span) -> Window:
    """A window as users see it."""
    return Window(span.start_ms / 1000, span.end_ms / 1000)


def window_at(start_ms: int, config: WindowConfig) -> Window:
    """The window that begins at `start_ms`, as users see it."""
    return window_of(Span(start_ms, start_ms + config.duration_ms))


def result_time_ms(start_ms: int, config: WindowConfig) -> int:
    """The time of what a window emits: its last millisecond."""
    return start_ms + config.duration_ms - 1
