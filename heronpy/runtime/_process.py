"""One skeleton for every process.

A service has `run()`, which serves until cancelled, and an event `started`, set when it can answer. `main` runs one as
a process: SIGTERM and SIGINT cancel it, an unexpected error ends the process with a traceback in the log, and the
process never outlives its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

import uvloop

from heronpy.errors import HeronError
from heronpy.parent import die_with_parent
from heronpy.runtime._diagnosis import answer_signals
from heronpy.runtime._heartbeat import keep_beating
from heronpy.runtime._logging import bound_output, log_file
from heronpy.runtime._profile import answer_profiling
from heronpy.runtime._tasks import until_one_ends
from heronpy.start import imports_done

log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_FROM_BYTES = 8 << 20
_KEPT_BYTES = 16 << 20
"""At the end of a heap, so at most this is more than what is in use."""


class Service(Protocol):
    """What `running` and `main` run."""

    started: asyncio.Event

    async def run(self) -> None:
        """Serve until cancelled. On return every child task has ended and every socket is closed."""


S = TypeVar("S", bound=Service)


@contextlib.asynccontextmanager
async def running(service: S, *, within_s: float = 120.0) -> AsyncIterator[S]:
    """Run a service for the duration of the block. Entered when the service can answer; its error is raised here."""
    task = asyncio.create_task(service.run(), name=type(service).__name__)
    started = asyncio.create_task(service.started.wait())
    try:
        async with asyncio.timeout(within_s):
            await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            raise RuntimeError(f"{type(service).__name__} ended before it had started")
        yield service
    finally:
        started.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def essential(work: Coroutine[Any, Any, None]) -> NoReturn:
    """Do work that goes on for as long as its process: for a task of the TaskGroup that is the process.

    A TaskGroup does not mind that a task has returned, or was cancelled by something in its depths, and the process
    would live on without it. Here that is an error, so the process ends, and is started again.

    Raises:
        RuntimeError: the work has ended, and this task was not cancelled.
    """
    await until_one_ends(work)
    raise RuntimeError(f"{getattr(work, '__qualname__', work)} has ended, and was not asked to")


def main(make: Callable[[], Awaitable[Service]], *, name: str) -> None:
    """Run a service as this process until SIGTERM or SIGINT. Exits with 1 after an error."""
    die_with_parent()
    imports_done()
    try:
        uvloop.run(_serve(make))
    except HeronError as e:
        # It says all that there is to say. An error of user code was logged with its traceback where it was raised;
        # one of the engine after it would only hide it.
        log.error("%s ends: %s", name, e)
        logging.shutdown()
        sys.exit(1)
    except Exception:
        # The one broad except: whatever was not foreseen ends the process, and the executor starts it again.
        log.exception("%s ends: unexpected error", name)
        logging.shutdown()
        sys.exit(1)


async def _serve(make: Callable[[], Awaitable[Service]]) -> None:
    service = await make()
    task = asyncio.create_task(service.run(), name=type(service).__name__)
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()

    def end() -> None:
        requested.set()
        task.cancel()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # blocked until here in a container of its own
    _leave_signals_of_children(loop)
    beside = [asyncio.create_task(keep_beating(service), name="heartbeat")]
    if (file := log_file()) is not None:
        answer_signals(file.path)
        answer_profiling(file.path)
        beside.append(asyncio.create_task(bound_output(file), name="bound_output"))
    try:
        await task
    except asyncio.CancelledError:
        if not requested.is_set():
            raise RuntimeError(f"{type(service).__name__} was cancelled, and was not asked to end") from None
    finally:
        for one in beside:
            one.cancel()


def _leave_signals_of_children(loop: asyncio.AbstractEventLoop) -> None:
    """Have children that are forked from now on, by user code with multiprocessing say, end when they are told to.

    Else they would have the handlers of the loop, and its descriptor: a SIGTERM to a child would end this process
    instead. Until the child has reset them it gets no signal.
    """
    blocked = threading.local()

    def before() -> None:
        blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked.before)

    def after_in_child() -> None:
        if not loop.is_closed():
            signal.set_wakeup_fd(-1)
            for signum in signal.valid_signals():
                loop.remove_signal_handler(signum)  # those that it has not set stay
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, up to some megabytes, instead of giving it back to the kernel.

    Frames are some hundred kilobytes. By default malloc maps such a block, or grows its heap, for each of them, and
    gives it back right afterwards: then every page of it is a fault again. A libc without `mallopt` does as it likes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
