"""Which windows a time falls into. Both planners ask here, so that they agree."""

from __future__ import annotations

from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig


def window_starts(time_ms: int, config: WindowConfig) -> range:
    """The beginnings in ms of all windows that contain `time_ms`, earliest first."""
    last = time_ms - time_ms % config.slide_ms
    count = -((time_ms - config.duration_ms - last) // config.slide_ms)
    return range(last - (count - 1) * config.slide_ms, last + 1, config.slide_ms)


def window_at(start_ms: int, config: WindowConfig) -> Window:
    """The window that begins at `start_ms`, as users see it."""
    return Window(start_ms / 1000, (start_ms + config.duration_ms) / 1000)


def result_time_ms(start_ms: int, config: WindowConfig) -> int:
    """The time of what a window emits: its last millisecond."""
    return start_ms + config.duration_ms - 1
