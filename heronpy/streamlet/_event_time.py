"""Event times as users give them, in ms. Both planners ask here, so that they agree."""

from __future__ import annotations

import datetime
from typing import Any


def event_time_ms(value: Any) -> int:
    """A time in seconds since the epoch, or a datetime (UTC, if it names no zone), in ms.

    Raises:
        TypeError: neither.
        ValueError: not finite.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        # Not timestamp(): a float of seconds is exact to the microsecond only for some centuries.
        return int((value - _EPOCH) // _MILLISECOND)
    if isinstance(value, bool):
        raise TypeError(f"an event time must be seconds since the epoch or a datetime, not {value!r}")
    try:
        ms: int = round(value * 1000)
        return ms
    except (TypeError, OverflowError):
        raise TypeError(f"an event time must be seconds since the epoch or a datetime, not {value!r:.60}") from None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
