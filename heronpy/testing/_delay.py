"""A TCP proxy that delivers everything later: what a test host sends is redirected to it (see `Host.delay`).

Linux can delay packets itself (netem), but not every kernel has that. Run as a script on the host, it prints its port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import sys

MARK = 0x7E57
"""On the proxy's own connections, so that they are not redirected to it again."""
_SO_ORIGINAL_DST = 80
_READ_BYTES = 1 << 16
_QUEUED_MAX = 256


async def serve(delay_s: float) -> None:
    """Serve until cancelled."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        server = await asyncio.start_server(lambda r, w: _connected(r, w, delay_s), sock=listening)
        print(listening.getsockname()[1], flush=True)
        await server.serve_forever()


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        await asyncio.sleep(delay_s)
        connection = await _dial(writer.get_extra_info("socket"))
        far_reader, far_writer = await asyncio.open_connection(sock=connection)
        await asyncio.gather(_copy(reader, far_writer, delay_s), _copy(far_reader, writer, delay_s))
    writer.transport.abort()


async def _dial(accepted: socket.socket) -> socket.socket:
    host, port = _original_destination(accepted)
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    await asyncio.get_running_loop().sock_connect(connection, (host, port))
    return connection


def _original_destination(accepted: socket.socket) -> tuple[str, int]:
    peer = ipaddress.IPv6Address(accepted.getpeername()[0])
    if peer.ipv4_mapped:
        port, host = struct.unpack_from("!2xH4s", accepted.getsockopt(socket.IPPROTO_IP, _SO_ORIGINAL_DST, 16))
    else:
        port, host = struct.unpack_from("!2xH4x16s", accepted.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, 28))
    return str(ipaddress.ip_address(host)), port


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Until the end or an error; then the other side's end comes as late."""
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_MAX)
    loop = asyncio.get_running_loop()

    async def read() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError:
                data = b""
            await waiting.put((loop.time() + delay_s, data))

    async def write() -> None:
        while True:
            at_s, data = await waiting.get()
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    await asyncio.gather(read(), write())


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
