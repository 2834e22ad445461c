"""One end of a stream of messages, whichever: a client's call or a server's context.

gRPC tells that the other side is gone in half a dozen ways, depending on which end one holds and on what was under way:
an RPC error, an InvalidStateError (the call ended between two writes), an internal or a usage error (the server's write
failed, or the server stops), a cancellation (the call was cancelled, the task was not). Here it is one exception, so
that a lost connection never looks like a bug of ours, and a bug never like a lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
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
        if (lost := _lost(error, call)) is None:
            raise
        raise lost from error


async def read_message(stream: Any) -> Any:
    """The next message; None when the other side has closed in order.

    Raises:
        StreamLost: the other side is gone.
    """
    try:
        message = await stream.read()
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.CancelledError) as error:
        if (lost := _lost(error, stream)) is None:
            raise
        raise lost from error
    return None if message is grpc.aio.EOF else message


async def write_message(stream: Any, message: Any) -> None:
    """Hand a message to the connection. It may wait for the other side to read, and may be lost with it.

    Raises:
        StreamLost: the other side is gone.
    """
    try:
        await stream.write(message)
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
        if (lost := _lost(error, stream)) is None:
            raise
        raise lost from error


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
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, StreamLost))


def _lost(error: BaseException, stream: Any) -> StreamLost | None:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if (task is not None and task.cancelling()) or not isinstance(stream, grpc.aio.Call):
            return None  # the task is what was cancelled
        return StreamLost("the call was cancelled")
    if isinstance(error, grpc.aio.AioRpcError):
        return StreamLost(f"{error.code().name}: {error.details()}")
    return StreamLost(str(error))
