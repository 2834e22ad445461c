"""What a task reads before an update may have it restored, so that the spouts rest for less time.

The Topology Master says which part of which committed checkpoint. It is read and decoded in a thread, which rests for
as long as it works; a restore then reads only what is newer, if the checkpoint follows that one (`ReadAhead.fits`). It
is an optimization, and nothing else may depend on it: what fails is not read, and what is not complete when a restore
comes is let go, as is what no restore comes for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from heronpy.checkpoints import MergedBlock, ReadAhead, Saved
from heronpy.errors import HeronError
from heronpy.proto import checkpoint_pb2
from heronpy.state import merged_blocks

log = logging.getLogger(__name__)

KEPT_S: Final = 120.0
"""So long it is kept for a restore: it takes memory."""
WORK_S: Final = 0.002
"""The thread rests when it has worked for so long, or as soon as it can after that."""
REST_S_MAX: Final = 0.05


class Readable(Protocol):
    """The Checkpoint Manager, as `heronpy.ckptmgr.client.CheckpointClient` shows it."""

    async def read_ahead(
        self, checkpoint: int, component: str, index: int, tasks: int, *, pause: Callable[[], None]
    ) -> Saved:
        """What a checkpoint has of task `index` of `tasks`; `pause` is called again and again, in a thread."""


class Stopped(Exception):
    """What was being read is not wanted any more."""


class Pace:
    """Has a thread rest for as long as it works, and end when requested."""

    def __init__(self) -> None:
        self.stopped = False
        self._rested_s = time.perf_counter()

    def __call__(self) -> None:
        """Rest, if it is time to.

        Raises:
            Stopped: it is to end.
        """
        if self.stopped:
            raise Stopped
        worked_s = time.perf_counter() - self._rested_s
        if worked_s >= WORK_S:
            time.sleep(min(worked_s, REST_S_MAX))
            self._rested_s = time.perf_counter()


class ReadingAhead:
    """What one task has read ahead. Used in the gateway's event loop."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Readable]],
        component: str,
        task_id: int,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Nothing is read.

        Args:
            connect: Makes a connection to the Checkpoint Manager.
            component: The task's.
            task_id: Of the task.
            tasks: Where it is read.
        """
        self.report: Callable[[int, tuple[int, int]], None] = lambda checkpoint, share: None
        """Given the checkpoint that was read, or cannot be, and which part; 0: nothing is kept any more."""
        self._connect, self._component, self._task_id, self._tasks = connect, component, task_id, tasks
        self._wanted = (0, 0, 0)
        """Checkpoint, index and number of tasks."""
        self._epoch = 0
        self._done = False
        self._blocks: Mapping[str, MergedBlock] = {}
        self._pace = Pace()
        self._reading: asyncio.Task[None] | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    def order(self, order: checkpoint_pb2.ReadAhead) -> None:
        """Read what is ordered, unless that is done. It may be repeated."""
        if self._task_id not in order.shares:
            return
        share = order.shares[self._task_id]
        wanted = (order.checkpoint, share.index, share.tasks)
        self._epoch = order.epoch  # in this one, too, it is the newest
        if wanted != self._wanted:
            self._forget()
            self._wanted, self._pace = wanted, Pace()
            reading = self._read(*wanted, self._pace)
            self._reading = self._tasks.create_task(reading, name=f"{self._component}/read-ahead")
        elif self._done:
            self.report(order.checkpoint, wanted[1:])
        self._keep()

    def take(self) -> ReadAhead | None:
        """What was read, for a restore. Nothing is kept."""
        (checkpoint, index, tasks), blocks = self._wanted, self._blocks
        if not checkpoint:
            return None
        self._forget()
        self.report(0, (0, 0))
        return ReadAhead(checkpoint, self._epoch, index, tasks, blocks) if blocks else None

    def stop(self) -> None:
        """Read nothing any more."""
        self._forget()
        if self._reading is not None:
            self._reading.cancel()

    def _keep(self) -> None:
        """For so long from now on: an update that comes to nothing may be tried again."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_S, self.take)

    def _forget(self) -> None:
        self._pace.stopped = True
        self._wanted, self._done, self._blocks = (0, 0, 0), False, {}
        if self._forgetting is not None:
            self._forgetting.cancel()

    async def _read(self, checkpoint: int, index: int, tasks: int, pace: Pace) -> None:
        began_s = time.perf_counter()
        blocks: Mapping[str, MergedBlock] = {}
        try:
            async with self._connect() as store:
                saved = await store.read_ahead(checkpoint, self._component, index, tasks, pause=pace)
            blocks = await asyncio.to_thread(merged_blocks, saved, pace)
        except Stopped:
            return
        except HeronError as e:
            log.warning("checkpoint %d is not read ahead: %s", checkpoint, e)
        if pace.stopped:
            return
        self._blocks, self._done = blocks, True
        took_s = time.perf_counter() - began_s
        entries = sum(len(block.merged) for block in blocks.values())
        log.info("%d entries of checkpoint %d are read ahead in %.2f s", entries, checkpoint, took_s)
        self.report(checkpoint, (index, tasks))
