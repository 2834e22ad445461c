"""The pieces of an object on their way from a stream, in an event loop, to a storage, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from heronpy.errors import StateError, UnavailableError

WAITING_MAX: Final = 8
"""Pieces; each has up to the size of a message."""


class Pieces:
    """A bounded queue. The thread that iterates waits for pieces, and the one that puts them waits for space."""

    def __init__(self, name: str, *, stall_s: float) -> None:
        """Empty.

        Args:
            name: Of the object, for errors.
            stall_s: How long the thread may let a piece wait.
        """
        self._name, self._stall_s = name, stall_s
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_MAX)
        self._broken = ""

    async def put(self, piece: bytes | None) -> None:
        """Add a piece; None after the last one. Nothing is kept once they were abandoned.

        Raises:
            UnavailableError: the thread does not take it.
        """
        if self._broken:
            return
        try:
            async with asyncio.timeout(self._stall_s):
                await self._queue.put(piece)
        except TimeoutError:
            raise UnavailableError(
                f"checkpoint object {self._name}: the storage took no data for {self._stall_s:g} s"
            ) from None

    def abandon(self, why: str) -> None:
        """No more pieces come: the iterator raises an error instead, unless it is through."""
        self._broken = self._broken or why
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    def __iter__(self) -> Iterator[bytes]:
        """All pieces, in a thread.

        Raises:
            StateError: they were abandoned.
        """
        while (piece := asyncio.run_coroutine_threadsafe(self._queue.get(), self._loop).result()) is not None:
            yield piece
        if self._broken:
            raise StateError(f"checkpoint object {self._name} is not stored: {self._broken}")
