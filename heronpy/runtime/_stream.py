"""One end of a stream of messages, whichever: a client's call or a server's context.

gRPC tells that the other side is gone in half a dozen ways, depending on which end one holds and on what was under way:
an RPC error, an InvalidStateError (the call ended between two writes), an internal or a usage error (the server's write
failed, or the server stops), a cancellation (the call was cancelled, the task was not). Here it is one exception, so
that a lost connection never looks like a bug of ours, and a bug never like a lost connection.
"""

from __future__ import annotations

import asyncio
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


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled. Call it where the end of a TaskGroup was caught.

    A TaskGroup that ends with an error of a child, in the same moment as it is cancelled from outside, raises the error
    only (until Python 3.13): whoever catches that and goes on could never be cancelled again.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _lost(error: BaseException, stream: Any) -> StreamLost | None:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if (task is not None and task.cancelling()) or not isinstance(stream, grpc.aio.Call):
            return None  # the task is what was cancelled
        return StreamLost("the call was cancelled")
    if isinstance(error, grpc.aio.AioRpcError):
        return StreamLost(f"{error.code().name}: {error.details()}")
    return StreamLost(str(error))
