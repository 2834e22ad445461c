"""Waiting for a time of the clock that decisions are made by."""

from __future__ import annotations

import asyncio
import time


async def sleep_until(at_s: float) -> None:
    """Sleep until `time.monotonic()` has reached a time, and not a moment less.

    `asyncio.sleep` ends up to a timer's resolution early (1.3 ms was seen with uvloop, in a fifth of all sleeps). What
    is due then is not due yet, and a single check misses it for ever.

    Args:
        at_s: in seconds of `time.monotonic()`.
    """
    while (left_s := at_s - time.monotonic()) > 0:  # noqa: ASYNC110  # no event: it is the clock that is waited for
        await asyncio.sleep(left_s)
