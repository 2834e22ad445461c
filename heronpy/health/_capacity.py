"""How busy a task is."""

from __future__ import annotations


def capacity(busy_s: float, over_s: float) -> float | None:
    """The share of a time that a task spent in user code; None if there is no time to speak of.

    Never more than all of it: counts come with reports, which may speak of a little more time than was asked for.

    Args:
        busy_s: Spent in `process()`.
        over_s: Of how much time.
    """
    return min(1.0, max(0.0, busy_s / over_s)) if over_s > 0 else None
