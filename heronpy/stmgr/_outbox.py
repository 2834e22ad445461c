"""What waits for one link: batches, bounded in bytes, with a high and a low water mark.

An outbox outlives its connection: what waits for an instance that is being restarted is delivered to the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from heronpy.config import StmgrConfig
from heronpy.proto import stmgr_pb2

BATCH_OVERHEAD_BYTES = 64
"""What a queued batch costs beside its body, about; so that many tiny batches count too."""
HARD_LIMIT = 3
"""At so many times the high water mark whoever sends to the link is held too, not only the spouts."""


class Outbox:
    """The queue of one link."""

    def __init__(
        self,
        name: str,
        config: StmgrConfig,
        over_high: Callable[[Outbox], None],
        under_low: Callable[[Outbox], None],
        full_changed: Callable[[Outbox], None] = lambda _: None,
    ) -> None:
        """Make an empty outbox.

        Args:
            name: the instance or Stream Manager at the other end.
            config: water marks and frame size.
            over_high: called when the high water mark is crossed upwards.
            under_low: called when, after that, the low water mark is crossed downwards.
            full_changed: called when `full` has changed.
        """
        self.name = name
        self.bytes = 0
        self.over = False
        self.full = False
        """At the hard limit: whoever sends here is to wait. It ends when less than the high water mark waits."""
        self._gone = False
        self._high, self._low = config.outbox_bytes_high, config.outbox_bytes_low
        self._hard = HARD_LIMIT * config.outbox_bytes_high
        self._frame_bytes = config.frame_bytes
        self._merge_s, self._merge_bytes = config.merge_interval_ms / 1e3, config.merge_bytes
        self._last_s = 0.0
        self._over_high, self._under_low, self._full_changed = over_high, under_low, full_changed
        self._batches: deque[stmgr_pb2.Batch] = deque()
        self._ready = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, batch: stmgr_pb2.Batch) -> None:
        """Queue a batch."""
        self._batches.append(batch)
        self.bytes += len(batch.body) + BATCH_OVERHEAD_BYTES
        self._ready.set()
        if self.bytes >= self._high and not self.over:
            self.over = True
            self._over_high(self)
        if self.bytes >= self._hard and not self.full and not self._gone:
            self.full = True
            self._full_changed(self)

    def leave_plan(self) -> None:
        """Nobody will ever empty it: let go whoever waits for that."""
        self._gone = True
        self.full = False
        self._room.set()

    async def has_room(self) -> None:
        """Wait while the outbox is full."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> list[stmgr_pb2.Batch]:
        """Wait for batches, and take about a frame of them. They stay in the account until `sent`."""
        await self._some()
        if self.bytes < self._merge_bytes:
            wait_s = self._last_s + self._merge_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                await self._some()  # the link that this one replaces may have taken them
        self._last_s = time.monotonic()
        taken = [self._batches.popleft()]
        size = len(taken[0].body)
        while self._batches and size + len(self._batches[0].body) <= self._frame_bytes:
            batch = self._batches.popleft()
            size += len(batch.body)
            taken.append(batch)
        return taken

    async def _some(self) -> None:
        while not self._batches:
            self._ready.clear()
            await self._ready.wait()

    def sent(self, batches: Sequence[stmgr_pb2.Batch]) -> None:
        """Batches have left, or are lost with the connection."""
        self.bytes -= sum(len(b.body) + BATCH_OVERHEAD_BYTES for b in batches)
        if self.full and self.bytes < self._high:
            self.full = False
            self._room.set()
            self._full_changed(self)
        if self.over and self.bytes < self._low:
            self.over = False
            self._under_low(self)

    def check_invariants(self) -> None:
        assert self.bytes >= sum(len(b.body) + BATCH_OVERHEAD_BYTES for b in self._batches)
        assert self.over or self.bytes < self._high
