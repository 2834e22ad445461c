"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 120.0
"""Long, because only a failure takes it: on a busy machine a process may need half a minute to start."""
_INTERVAL_S = 0.02
_INTERVAL_MAX_S = 0.25
_PAUSE = 3.0
"""A pause is so many times what the check took: a check that asks processes would else take a core from them."""


async def eventually(check: Callable[[], T | Awaitable[T]], *, within_s: float = WITHIN_S) -> T:
    """Call `check` until it stops failing, and return what it returned.

    `check` fails by raising AssertionError, as a test does; anything else is raised at once. It may be a coroutine
    function. It is called every 20 ms, less often if it takes long. After `within_s` its own last AssertionError is
    raised, so that the message says what was still wrong.
    """
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        try:
            result = check()
            return await result if inspect.isawaitable(result) else result
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_pause_s(began))


def eventually_sync(check: Callable[[], T], *, within_s: float = WITHIN_S) -> T:
    """`eventually` for code without an event loop."""
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_pause_s(began))


def _pause_s(began: float) -> float:
    return min(max(_INTERVAL_S, _PAUSE * (time.monotonic() - began)), _INTERVAL_MAX_S)
