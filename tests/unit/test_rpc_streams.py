"""Streams end for their callers, however their handlers do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import pytest

from heronpy.rpc import listen
from heronpy.security import Security

SECURITY = Security(process="stmgr-1", topology_id="words-1", token="secret")


class OneMethod(grpc.GenericRpcHandler):
    def __init__(self, handler: Any) -> None:
        self.handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self.handler


@pytest.mark.parametrize("raises", [True, False])
async def test_a_stream_ends_though_its_first_message_was_cancelled_while_it_was_written(raises: bool) -> None:
    async def handler(requests: Any, context: Any) -> None:
        writing = asyncio.create_task(context.write(b"first"))
        await asyncio.sleep(0)
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        if raises:
            raise ValueError("garbage came")

    listener = listen("127.0.0.1:0", "127.0.0.1", SECURITY)
    server = listener.server
    server.add_generic_rpc_handlers((OneMethod(grpc.stream_stream_rpc_method_handler(handler)),))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(listener.address) as channel:
            call = channel.stream_stream("/some/method")(metadata=SECURITY.metadata)
            async with asyncio.timeout(60):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    while await call.read() is not grpc.aio.EOF:
                        pass
                assert await call.code() is (grpc.StatusCode.UNKNOWN if raises else grpc.StatusCode.OK)
    finally:
        await server.stop(0)
