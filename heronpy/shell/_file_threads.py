"""Threads for reading files: a disk or a storage that hangs keeps these, and nothing else of the process waits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from heronpy.errors import UnavailableError

T = TypeVar("T")

READS_MAX = 16
"""Most files that are read or searched at a time."""
WAIT_S = 4.0
"""A read that waits longer for its turn is refused."""


class FileThreads:
    """So many threads. A read whose caller has gone has its thread until it ends: it cannot be interrupted."""

    def __init__(self, threads: int = READS_MAX, *, wait_s: float = WAIT_S) -> None:
        """Start none yet.

        Args:
            threads: Most reads at a time.
            wait_s: How long a read may wait for its turn.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="files")
        self._free = asyncio.Semaphore(threads)
        self._wait_s = wait_s

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, or raises.

        Raises:
            UnavailableError: it was not its turn in time.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError("too many files are being read, or their storage hangs: try again later") from None
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(functools.partial(_ended, self._free))
        return await asyncio.shield(future)


def _ended(free: asyncio.Semaphore, future: asyncio.Future[object]) -> None:
    free.release()
    if not future.cancelled():
        future.exception()  # if its caller has gone, nothing else asks
