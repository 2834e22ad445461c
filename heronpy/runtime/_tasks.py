"""Tasks that belong together, as those do that use one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


class StreamLost(Exception):
    """The peer is gone, cannot be reached, or refuses the connection.

    A failed authentication counts, too: another process may listen at the address since it was published.
    """


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Work on all of them until the first one ends; then end the others. Raises what they raised, if anything.

    Whatever uses a stream reads it, writes to it and waits for reasons to leave it, and ends with the first of these.
    A TaskGroup is not up to that before Python 3.13: when a child fails while the group is being left, the task around
    it looks cancelled ever after, and when it is cancelled in that moment, the cancellation is lost. Either way
    the caller does not reconnect.

    Raises:
        StreamLost: if nothing worse was raised.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        _cancel(tasks)
        await asyncio.wait(tasks)
        errors = _errors(tasks)
        # What is raised knows this frame, and the lost connection. If the frame knew what is raised, all of them would
        # stay until the garbage collector comes by, and the connection would stay open.
        del tasks
    if errors:
        raise errors.pop()


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _errors(tasks: Iterable[asyncio.Task[None]]) -> list[BaseException]:
    """What the tasks raised, the worst last."""
    raised = (task.exception() for task in tasks if not task.cancelled())
    return sorted((e for e in raised if e is not None), key=lambda e: not isinstance(e, StreamLost))
