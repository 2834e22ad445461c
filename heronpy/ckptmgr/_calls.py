"""Calls of a storage, which block, for an event loop, which must not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from heronpy.checkpoints import CheckpointStorage
from heronpy.errors import UnavailableError

T = TypeVar("T")


class StorageCalls:
    """Calls of a storage, each in a thread, with a bound on their number and on the time that anybody waits.

    A storage may hang for ever, as a network file system does. So a thread that is not back in time is left alone:
    the caller is informed, and the call goes on counting until it ends. The threads are daemons: they hold up no exit.
    """

    def __init__(self, connect: Callable[[], CheckpointStorage], *, calls_max: int) -> None:
        """Connect to nothing yet.

        Args:
            connect: Opens the storage: one for each call at a time, since they are for one thread each.
            calls_max: Most calls at a time; others wait.
        """
        self._connect = connect
        self._free: list[CheckpointStorage] = []
        self._slots = asyncio.Semaphore(calls_max)

    async def run(self, work: Callable[[CheckpointStorage], T], *, timeout_s: float, what: str) -> T:
        """Do some work with a storage.

        Raises:
            UnavailableError: it did not return in time; it may still be done.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.acquire()
                return await self._started(work)
        except TimeoutError:
            raise UnavailableError(f"{what}: the storage did not answer within {timeout_s:g} s") from None

    def _started(self, work: Callable[[CheckpointStorage], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def in_thread() -> None:
            settle: Callable[[], None]
            try:
                storage = self._taken()
                try:
                    settle = partial(answer.set_result, work(storage))
                finally:
                    self._free.append(storage)
            except Exception as e:  # to the caller that waits
                settle = partial(answer.set_exception, e)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(done, settle)

        def done(settle: Callable[[], None]) -> None:
            self._slots.release()
            if not answer.done():  # else its caller has gone
                settle()

        try:
            threading.Thread(target=in_thread, daemon=True, name="storage").start()
        except RuntimeError as e:  # the system has no more
            self._slots.release()
            raise UnavailableError(f"no thread for a call of the storage: {e}") from e
        return answer

    def _taken(self) -> CheckpointStorage:
        try:
            return self._free.pop()
        except IndexError:
            return self._connect()

    def close(self) -> None:
        """Give back the connections that are unused."""
        while self._free:
            self._free.pop().close()
