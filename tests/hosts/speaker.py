"""One end of a link between two hosts, as a process of a topology.

    speaker.py serve ID TLS-DIRECTORY BIND ADVERTISE
    speaker.py say ID TLS-DIRECTORY ADDRESS PEER

The caller says "hello" every tenth of a second, and prints what comes back, or the name of the error.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heronpy.rpc import channel, listen
from heronpy.security import Security

TOPOLOGY, TOKEN = "words-1", "of the topology"


def security(process: str, tls: str) -> Security:
    return Security(process=process, topology_id=TOPOLOGY, token=TOKEN, tls=Path(tls))


async def serve(process: str, tls: str, bind: str, advertise: str) -> None:
    async def say(message: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return message

    listener = listen(bind, advertise, security(process, tls))
    method = {"Say": grpc.unary_unary_rpc_method_handler(say)}
    listener.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", method),))
    await listener.server.start()
    print(listener.address, flush=True)
    await listener.server.wait_for_termination()


async def say(process: str, tls: str, address: str, peer: str) -> None:
    me = security(process, tls)
    async with channel(address, me, peer) as link:
        while True:
            try:
                answer = await link.unary_unary("/Echo/Say")(b"hello", metadata=me.metadata, timeout=2)
            except grpc.aio.AioRpcError as e:
                answer = e.code().name.encode()
            print(answer.decode(), flush=True)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run({"serve": serve, "say": say}[sys.argv[1]](*sys.argv[2:]))
