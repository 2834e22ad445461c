"""One end of a stream of messages, whichever: a client's call or a server's context.

gRPC reports a lost peer in half a dozen ways, depending on which end one holds and on what was in flight:
an RPC error, an InvalidStateError (the call ended between two writes), an internal or a usage error (the server's write
failed, or the server stops), a cancellation (the call was cancelled, the task was not). Here it is one exception, so
that a lost connection never looks like a bug of ours, and a bug never like a lost connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from heronpy.runtime import StreamLost


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
    """The next message; None when the peer has closed gracefully.

    Raises:
        StreamLost: the peer is gone.
    """
    try:
        message = await stream.read()
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.CancelledError) as error:
        if _is_own_end(error, stream):
            raise
        raise StreamLost(_why(error)) from error
    return None if message is grpc.aio.EOF else message


async def write_message(stream: Any, message: Any) -> None:
    """Hand a message to the connection. It may wait for the peer to read, and may be lost with it.

    Raises:
        StreamLost: the peer is gone.
    """
    try:
        await stream.write(message)
    except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
        if _is_own_end(error, stream):
            raise
        raise StreamLost(_why(error)) from error


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
