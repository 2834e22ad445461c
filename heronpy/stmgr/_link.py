"""One connection of a Stream Manager, with an instance or with a peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from heronpy.proto import stmgr_pb2
from heronpy.runtime import StreamLost, until_one_ends, write_message
from heronpy.stmgr._metrics import StmgrMetrics, Way
from heronpy.stmgr._outbox import Outbox


class Link:
    """Sends what waits in an outbox, and control frames before it, for as long as the other side is read."""

    def __init__(self, name: str, stream: Any, outbox: Outbox, metrics: StmgrMetrics, way: Way) -> None:
        self.name = name
        self._stream = stream
        self._outbox = outbox
        self._metrics = metrics
        self._way = way
        self._control: list[stmgr_pb2.Frame] = []
        self._control_ready = asyncio.Event()
        self._writing = asyncio.Lock()
        self._closing = asyncio.Event()
        self._closed_because = ""

    def send_control(self, frame: stmgr_pb2.Frame) -> None:
        """Send a plan or news of backpressure; before the data that still waits."""
        self._control.append(frame)
        self._control_ready.set()

    def close(self, because: str) -> None:
        """End the connection soon; `serve` returns."""
        self._closed_because = because
        self._closing.set()

    async def serve(self, read: Callable[[], Coroutine[Any, Any, None]]) -> str:
        """Send until the other side closes (then `read` returns), it is lost, or the link is closed here.

        A lost connection ends nothing but this call. Returns why it ended.
        """
        try:
            await until_one_ends(read(), self._send_control(), self._send_data(), self._until_closed())
        except StreamLost as lost:
            return str(lost)
        return "it closed the connection"

    async def _until_closed(self) -> None:
        await self._closing.wait()
        raise StreamLost(self._closed_because)

    async def _send_control(self) -> None:
        while True:
            await self._control_ready.wait()
            self._control_ready.clear()
            while self._control:
                frame = self._control.pop(0)
                async with self._writing:
                    await write_message(self._stream, frame.SerializeToString())

    async def _send_data(self) -> None:
        while True:
            batches = await self._outbox.next()
            written = False
            try:
                data = stmgr_pb2.Frame(batches=batches).SerializeToString()
                async with self._writing:
                    await write_message(self._stream, data)
                written = True
            finally:
                # Not sent again: executed twice with one id, a tuple would leave its tree open for ever.
                self._outbox.sent(batches)
                if not written:
                    self._metrics.lost(batches, self._way)
            self._metrics.moved(len(data), self._way)
            for batch in batches:
                self._metrics.passed(batch, self._way)
