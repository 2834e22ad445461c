"""The queues between an instance's two threads.

data-in: batches and commands, from the gateway to the task. data-out: encoded frames, from the task to the gateway.
Both are bounded in bytes; each byte counter has one writer, so no lock is needed. A full data-in queue makes the
gateway stop reading from the Stream Manager; a full data-out queue makes the task pause (emitting or executing).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from heronpy.config import InstanceConfig
from heronpy.proto import stmgr_pb2

Command = Callable[[Any], None]
"""Something for the task thread to do, given the task."""

OUT_HARD = 2
OUT_HARD_WAIT_S = 0.1


class ThreadChannel:
    """Both directions, seen from both threads."""

    def __init__(self, config: InstanceConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._frame_bytes = config.frame_bytes
        self.in_capacity = config.in_queue_bytes
        self._out_capacity = config.out_queue_bytes
        # data-in
        self._inbox: queue.SimpleQueue[stmgr_pb2.Batch | Command] = queue.SimpleQueue()
        self._batches_put = 0
        self._batches_done = 0
        self._stale_until = 0
        self._in_put = 0
        self._in_taken = 0
        self._reader_waits = False
        self._in_room = asyncio.Event()
        # data-out
        self._out: deque[bytes] = deque()
        self._reports: deque[bytes] = deque()
        self._out_put = 0
        self._out_sent = 0
        self._out_room = threading.Event()
        self._out_ready = asyncio.Event()
        self._out_empty = asyncio.Event()
        self._woken = False
        self.in_full = 0
        """How often the gateway had to wait for room in data-in."""
        self.out_waits = 0
        """How often the task had to wait for room in data-out."""
        self.busy = False
        """The task thread is at work, not waiting."""
        self.epoch = 0
        """The restore epoch that the task sends in."""
        self._number: int | None = None
        """With checkpoints: of the last frame of batches in this epoch."""
        self.stopping = False
        """The task is to stop: nothing waits for room any more."""

    # gateway thread

    def put(self, batch: stmgr_pb2.Batch) -> None:
        """Hand a batch to the task."""
        self._batches_put += 1
        self._in_put += len(batch.body)
        self._inbox.put(batch)

    def command(self, command: Command) -> None:
        """Have the task thread do something between two batches."""
        self._inbox.put(command)

    def report(self, frame: bytes) -> None:
        """Send a frame without batches, before those that wait."""
        self._reports.append(frame)
        self._out_ready.set()

    @property
    def batches_put(self) -> int:
        """How many batches were handed to the task; any thread."""
        return self._batches_put

    @property
    def batches_done(self) -> int:
        """How many of them it has finished; any thread."""
        return self._batches_done

    def enter_epoch(self) -> int:
        """Have the task pass over the batches that wait: they were sent before a restore. Returns how many wait."""
        self._stale_until = self._batches_put
        return self._batches_put - self._batches_done

    @property
    def has_work(self) -> bool:
        """The task is at work, or will be as soon as its thread is awake."""
        return self.busy or self._batches_done != self._batches_put

    async def has_in_room(self) -> None:
        """Wait while the data-in queue is full."""
        self.in_full += self.in_bytes > self.in_capacity
        while self.in_bytes > self.in_capacity:
            self._in_room.clear()
            self._reader_waits = True
            if self.in_bytes > self.in_capacity:
                await self._in_room.wait()
            self._reader_waits = False

    @property
    def in_bytes(self) -> int:
        """What the task has still before it, the batch in work included."""
        return self._in_put - self._in_taken

    @property
    def executed_bytes(self) -> int:
        """Of all batches that the task has finished."""
        return self._in_taken

    @property
    def out_bytes(self) -> int:
        """What waits for the Stream Manager."""
        return self._out_put - self._out_sent

    async def next_frame(self) -> bytes:
        """Wait for something to send. It stays in the queue's account until `sent`."""
        while not (self._out or self._reports):
            self._out_ready.clear()
            self._woken = False
            if not self._out:
                await self._out_ready.wait()
        if self._reports:
            frame = self._reports.popleft()
            self._out_sent -= len(frame)  # `sent` adds it again: it was never put
            return frame
        return self._out.popleft()

    def sent(self, frame: bytes) -> None:
        """A frame has left, or is lost with the connection."""
        self._out_sent += len(frame)
        self._out_room.set()
        if not self.out_bytes:
            self._out_empty.set()

    async def all_sent(self) -> None:
        """Wait until nothing is left to send. The task has ended."""
        while self.out_bytes:
            self._out_empty.clear()
            await self._out_empty.wait()

    # task thread

    def take(self, timeout_s: float) -> stmgr_pb2.Batch | Command | None:
        """The next batch or command; None after `timeout_s`. 0 does not wait."""
        try:
            if timeout_s <= 0:
                return self._inbox.get_nowait()
            self.busy = False
            return self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        finally:
            self.busy = True

    @property
    def stale(self) -> bool:
        """Whether the batch that the task has taken was sent before a restore."""
        return self._batches_done < self._stale_until

    def done(self, batch: stmgr_pb2.Batch) -> None:
        """The task has finished a batch."""
        self._batches_done += 1
        self._in_taken += len(batch.body)
        if self._reader_waits and self.in_bytes <= self.in_capacity:
            self._loop.call_soon_threadsafe(self._in_room.set)

    def number_from(self, epoch: int) -> None:
        """With checkpoints: send in a restore epoch from now on, and number the frames."""
        self.epoch, self._number = epoch, 0

    def send(self, batches: list[stmgr_pb2.Batch]) -> None:
        """Queue batches for the Stream Manager, in frames.

        A task looks at `out_full` before it begins something. But one process() may emit without end, so at twice the
        capacity this blocks, until there is room or the task is to stop.
        """
        frame: list[stmgr_pb2.Batch] = []
        size = 0
        for batch in batches:
            frame.append(batch)
            size += len(batch.body)
            if size >= self._frame_bytes:
                self._enqueue(frame)
                frame, size = [], 0
        if frame:
            self._enqueue(frame)
        if self.out_bytes > OUT_HARD * self._out_capacity:
            while self.out_full and not self.stopping:
                self.wait_out_room(OUT_HARD_WAIT_S)

    def _enqueue(self, batches: list[stmgr_pb2.Batch]) -> None:
        frame = stmgr_pb2.Frame(batches=batches, epoch=self.epoch)
        if self._number is not None:
            frame.number = self._number = self._number + 1
        data = frame.SerializeToString()
        self._out_put += len(data)
        self._out.append(data)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._out_ready.set)

    @property
    def out_full(self) -> bool:
        return self.out_bytes > self._out_capacity

    def wait_out_room(self, timeout_s: float) -> None:
        """Wait until something has left the data-out queue."""
        self._out_room.clear()
        if self.out_full:
            self.out_waits += 1
            self.busy = False
            self._out_room.wait(timeout_s)
            self.busy = True
