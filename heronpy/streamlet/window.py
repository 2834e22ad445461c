"""A span of time."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """From `start` (inclusive) to `end` (exclusive), in seconds since the epoch."""

    start: float
    end: float
