"""One end of a stream of messages, whichever: a client's call or a server's context.

gRPC tells that the other side is gone in half a dozen ways, depending on which end one holds and on what was under way:
an RPC error, an InvalidStateError (the call ended between two writes), an internal or a usage error (the server's write
failed, or the server stops), a cancellation (the call was cancelled, the task was not). Here it is one exception, so
that a lost connection never looks like a bug of ours, and a bug never like a lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import grpc
import grpc.aio


class StreamLost(Exception):
    """The other side is gone, cannot be reached, or does not want us.

    A wrong token counts too: the address may have been given to somebody else since it was told to us.
    """


async def wait_connected(call: Any) -> None:
    """Wait until a client's call has reached the server.

    Raises:
        StreamLost: it cannot be reached.
    """
    try:
        await call.wait_for_connection()
    except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
        if _is_own_end(error, call):
            raise
        raise StreamLost(_why(error)) from error


async def read_message(stream: Any) -> Any:
    """The next message; None when the other side has closed in order.

    Raises:
        StreamLost: the other side is gone.
    """
    try:
        message = await stream.read()
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.CancelledError) as error:
        if _is_own_end(error, stream):
            raise
        raise StreamLost(_why(error)) from error
    return None if message is grpc.aio.EOF else message


async def write_message(stream: Any, message: Any) -> None:
    """Hand a message to the connection. It may wait for the other side to read, and may be lost with it.

    Raises:
        StreamLost: the other side is gone.
    """
    try:
        await stream.write(message)
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
        if _is_own_end(error, stream):
            raise
        raise StreamLost(_why(error)) from error


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Work on all of them until the first one ends; then end the others. Raises what they raised, if anything.

    Whatever uses a stream reads it, writes to it and waits for reasons to leave it, and ends with the first of these.
    A TaskGroup is not up to that before Python 3.13: when a child fails while the group is being left, the task around
    it looks cancelled ever after, and when it is cancelled in that moment, the cancellation is lost. Either way
    whoever wants to connect again does not.

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


def _is_own_end(error: BaseException, stream: Any) -> bool:
    """Whether the task is what was cancelled, not the call."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return (task is not None and bool(task.cancelling())) or not isinstance(stream, grpc.aio.Call)


def _why(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "the call was cancelled"
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
