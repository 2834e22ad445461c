"""What happens to the layers of a state: they are merged, sink into the base, and are freed, in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Values = dict[Any, Any]
Layer = tuple[Values, Values]
"""Values by key, and the keys that were deleted, which something below it has. No key is in both."""
Clock = Callable[[], float]

_AT_ONCE = 256


def merged(older: Layer, newer: Layer) -> Layer:
    """Two layers in one: the smaller in the larger, so that it takes time only for the smaller."""
    values, deleted = older
    for key in newer[1]:
        values.pop(key, None)
        deleted[key] = None
    for key in [key for key in deleted if key in newer[0]]:
        del deleted[key]
    if len(newer[0]) <= len(values):
        values.update(newer[0])
        return values, deleted
    for key, value in values.items():
        newer[0].setdefault(key, value)
    return newer[0], deleted


def sunk(values: Values, deleted: Values, base: Values, deadline_s: float, clock: Clock) -> bool:
    """Move a layer into the base, until a time. Whether nothing of it is left."""
    while deleted:
        for _ in range(min(_AT_ONCE, len(deleted))):
            base.pop(deleted.popitem()[0], None)
        if clock() >= deadline_s:
            return False
    while values:
        for _ in range(min(_AT_ONCE, len(values))):
            key, value = values.popitem()
            base[key] = value
        if clock() >= deadline_s:
            break
    return not values


def freed(garbage: Values, deadline_s: float, clock: Clock) -> bool:
    """Empty a dict until a time, since a million keys at once take tens of milliseconds. Whether nothing is left."""
    while garbage:
        for _ in range(min(_AT_ONCE, len(garbage))):
            garbage.popitem()
        if clock() >= deadline_s:
            break
    return not garbage
