"""One connection of a Stream Manager, with an instance or with a peer: what the core decides, on a gRPC stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from heronpy.proto import stmgr_pb2
from heronpy.rpc import read_message, write_message
from heronpy.runtime import StreamLost, until_one_ends
from heronpy.stmgr.events import Event, FrameReceived, FrameWritten, WriteReady


class Link:
    """Reads frames while it may, and writes the frames that the core hands out."""

    def __init__(self, number: int, name: str, stream: Any, step: Callable[[Event], None]) -> None:
        self.number, self.name = number, name
        self._stream, self._step = stream, step
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._awake = asyncio.Event()
        self._frame: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = asyncio.Event()
        self._closed_because = ""

    # effects

    def write(self, data: bytes) -> None:
        """Have the writer, which has just reported that it can, write a frame."""
        self._frame = data

    def wake(self) -> None:
        """Have the writer report that it can write."""
        self._awake.set()

    def wake_at(self, at_ns: int) -> None:
        """The same, later."""
        delay_s = max(0, at_ns - time.monotonic_ns()) / 1e9
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._awake.set)

    def hold_reads(self) -> None:
        self._may_read.clear()

    def resume_reads(self) -> None:
        self._may_read.set()

    def close(self, reason: str) -> None:
        """End the connection soon; `serve` returns."""
        self._closed_because = reason
        self._closing.set()

    # the stream

    async def serve(self) -> str:
        """Read and write until the other side closes, it is lost, or the link is closed here. Returns why it ended.

        A lost connection ends nothing but this call.
        """
        try:
            await until_one_ends(self._read(), self._write(), self._until_closed())
        except StreamLost as lost:
            return str(lost)
        finally:
            if self._timer is not None:
                self._timer.cancel()
        return "it closed the connection"

    async def _read(self) -> None:
        while True:
            await self._may_read.wait()
            data = await read_message(self._stream)
            if data is None:
                return
            frame = stmgr_pb2.Frame.FromString(data)
            self._step(FrameReceived(self.number, frame, len(data), time.monotonic_ns()))

    async def _write(self) -> None:
        while True:
            self._awake.clear()
            self._step(WriteReady(self.number, time.monotonic_ns()))
            while (data := self._frame) is not None:
                self._frame = None
                await write_message(self._stream, data)
                self._step(FrameWritten(self.number, time.monotonic_ns()))
            await self._awake.wait()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def _until_closed(self) -> None:
        await self._closing.wait()
        raise StreamLost(self._closed_because)
