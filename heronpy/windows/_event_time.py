"""Event times as users give them, in ms. All who are given some ask here, so that they agree."""

from __future__ import annotations

import contextlib
import datetime
import operator
from typing import Any


def event_time_ms(value: Any) -> int:
    """A time in seconds since the epoch, or a datetime (UTC, if it names no zone), in ms.

    Raises:
        TypeError: neither.
        ValueError: not within the years 1 to 9999. It would move the clock of all elements after it, and what is far
            beyond is mostly milliseconds taken for seconds.
    """
    if isinstance(value, bool):
        raise TypeError(f"an event time must be seconds since the epoch or a datetime, not {value!r}")
    if isinstance(value, datetime.datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        # Not timestamp(): a float of seconds is exact to the microsecond only for some centuries.
        ms = int((at - _EPOCH) // _MILLISECOND)
    else:
        if not isinstance(value, float):
            with contextlib.suppress(TypeError):
                value = operator.index(value)  # numpy's integers have a width, and their products wrap
        try:
            ms = round(value * 1000)
        except (TypeError, OverflowError):
            raise TypeError(f"an event time must be seconds since the epoch or a datetime, not {value!r:.60}") from None
    if not _FIRST_MS <= ms < _END_MS:
        raise ValueError(f"an event time must be in the years 1 to 9999: {value!r:.60} is not")
    return ms


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_FIRST_MS = (datetime.datetime(1, 1, 1, tzinfo=datetime.UTC) - _EPOCH) // _MILLISECOND
_END_MS = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // _MILLISECOND + 1
