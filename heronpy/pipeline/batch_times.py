"""Batches as people call them: by the time at which they begin, in UTC. Ids are for files and programs."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

_UNITS = ((60_000, "minutes"), (1000, "seconds"))


def batch_name(batch: int, length_ms: int) -> str:
    """When a batch begins, as precise as its length needs: `2026-11-21 10:05`; its id where that is not a date.

    Args:
        batch: Its id.
        length_ms: Of all batches, in milliseconds.
    """
    return time_name(batch * length_ms, length_ms) or str(batch)


def batch_names(batches: Sequence[int], length_ms: int) -> str:
    """The first and the last of some batches, ascending, and how many they are: `3 batches (… to …)`."""
    first, last = (batch_name(batch, length_ms) for batch in (batches[0], batches[-1]))
    return f"batch {first}" if len(batches) == 1 else f"{len(batches):,} batches ({first} to {last})"


def time_name(at_ms: int, length_ms: int) -> str:
    """A time at which a batch could begin or end, in UTC; empty where that is not a date.

    Args:
        at_ms: Milliseconds since the epoch.
        length_ms: Of a batch: decides how much of the time is written.
    """
    try:
        at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    unit = next((name for unit_ms, name in _UNITS if length_ms % unit_ms == 0), "milliseconds")
    return at.replace(tzinfo=None).isoformat(" ", unit)
