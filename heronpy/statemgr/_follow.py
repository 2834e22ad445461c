"""Following a node from asyncio: the one bridge from a state manager's threads to an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from heronpy.errors import StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr._base import Kind, StateManager
from heronpy.statemgr._open import open_statemgr

log = logging.getLogger(__name__)

RETRY_S = 1.0


def on_loop(callback: Callable[..., None]) -> Callable[..., None]:
    """A function for any thread, which has `callback` called soon on the event loop that runs now.

    Once that loop has ended, calls do nothing.
    """
    loop = asyncio.get_running_loop()

    def call(*args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(callback, *args)

    return call


async def follow(state: StateManager, kind: Kind, topology: str) -> AsyncGenerator[bytes | None, None]:
    """Yield a node's value now, and then each new one; None while there is no such node.

    A slow consumer misses values that were replaced meanwhile, never the last one. While the store is out of reach
    nothing is yielded. Ends only by cancellation, or when the state manager is closed.

    Raises:
        StateError: the state manager is closed.
        UsageError: the name cannot be a node's.
    """
    changed = asyncio.Event()
    newest: list[bytes | None] = []

    def store(value: bytes | None) -> None:
        newest[:] = [value]
        changed.set()

    watch = await asyncio.to_thread(state.watch, kind, topology, on_loop(store))
    try:
        while True:
            await changed.wait()
            changed.clear()
            yield newest.pop()
    finally:
        watch.cancel()


@contextlib.asynccontextmanager
async def opened(
    spec: StatemgrSpec, *, session_timeout_s: float | None = None, call_timeout_s: float = 10.0
) -> AsyncIterator[StateManager]:
    """An open state manager for the duration of the block, opened as soon as the store can be reached.

    Args are those of `open_statemgr`.

    Raises:
        ConfigError: the specification makes no sense.
    """
    warned = ""
    while True:
        try:
            state = await asyncio.to_thread(
                open_statemgr, spec, session_timeout_s=session_timeout_s, call_timeout_s=call_timeout_s, parents=False
            )
            break
        except StateError as e:
            if str(e) != warned:
                log.warning("%s; trying again", e)
            warned = str(e)
        await asyncio.sleep(RETRY_S)
    try:
        yield state
    finally:
        # Shielded: a cancelled process must still end its session, and closing takes a bounded time.
        await asyncio.shield(asyncio.to_thread(state.close))
