"""What a task reads before an update may have it restored, so that the spouts rest for less time.

The Topology Master says which part of which committed checkpoint. It is read and decoded in a thread, which rests for
as long as it works; a restore then reads only what is newer, if the checkpoint follows that one (`ReadAhead.fits`). It
is an optimization, and nothing else may depend on it: what fails is not read, and what no restore comes for is let go.
What is not complete when a restore comes is completed without rests. When another checkpoint is committed meanwhile, it
says to read that, too: only what is newer is read then, and put on top.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, Protocol

from heronpy.checkpoints import MergedBlock, ReadAhead, Saved
from heronpy.errors import HeronError
from heronpy.proto import checkpoint_pb2
from heronpy.state import read_entries

log = logging.getLogger(__name__)

KEPT_S: Final = 120.0
"""So long it is kept for a restore: it takes memory."""
WORK_S: Final = 0.002
"""The thread rests when it has worked for so long, or as soon as it can after that."""
REST_S_MAX: Final = 0.05
FINISH_S: Final = 10.0
"""A restore waits for what is being read, unless so long nothing of it was."""


class Readable(Protocol):
    """The Checkpoint Manager, as `heronpy.ckptmgr.client.CheckpointClient` shows it."""

    async def read_ahead(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        pause: Callable[[], None],
        ahead: ReadAhead | None = None,
    ) -> Saved:
        """What a checkpoint has of task `index` of `tasks`; `pause` is called again and again, in a thread.

        With `ahead`, only what is newer is read, if that fits.
        """

    async def reads_on(self, checkpoint: int, component: str, index: int, tasks: int, ahead: ReadAhead) -> bool:
        """Whether that fits."""


class Stopped(Exception):
    """What was being read is not wanted any more."""


class Pace:
    """Has a thread rest for as long as it works, and end when requested.

    Work is CPU time: a thread that waits for a core, or for the interpreter, need not rest for that as well. Where
    others have all cores it would be many times slower, and a topology that takes tuples meanwhile has ever more to
    restore that is newer.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.hurried = False
        """It rests no more: somebody waits for it."""
        self.steps = 0
        """How often it could have rested."""
        self._thread = 0
        self._rested_s = 0.0

    def __call__(self) -> None:
        """Rest, if it is time to.

        Raises:
            Stopped: it is to end.
        """
        if self.stopped:
            raise Stopped
        self.steps += 1
        if (thread := threading.get_ident()) != self._thread:  # each has a clock of its own
            self._thread, self._rested_s = thread, time.thread_time()
            return
        worked_s = time.thread_time() - self._rested_s
        if worked_s >= WORK_S and not self.hurried:
            time.sleep(min(worked_s, REST_S_MAX))
            self._rested_s = time.thread_time()


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
        self._share = (0, 0)
        """Index and number of tasks."""
        self._wanted = self._epoch = 0
        """The checkpoint, and a restore epoch in which it is the newest."""
        self._done = 0
        """The checkpoint that was read, or cannot be."""
        self._found: ReadAhead | None = None
        self._pace = Pace()
        self._reading: asyncio.Task[None] | None = None
        self._readings: set[asyncio.Task[None]] = set()
        """That one, and those that are about to end."""
        self._forgetting: asyncio.TimerHandle | None = None

    def order(self, order: checkpoint_pb2.ReadAhead) -> None:
        """Read what is ordered, unless that is done. It may be repeated.

        Of a newer checkpoint than one that was read, or is being read, only what is newer is read, after that.
        """
        if self._task_id not in order.shares:
            return
        share = order.shares[self._task_id]
        if (share.index, share.tasks) != self._share:
            self._forget()
            self._share, self._pace = (share.index, share.tasks), Pace()
        self._wanted, self._epoch = order.checkpoint, order.epoch
        if self._done == self._wanted:
            if (found := self._found) is not None and found.checkpoint_id == self._wanted:
                self._found = replace(found, epoch=self._epoch)
            self.report(self._wanted, self._share)
        elif self._reading is None or self._reading.done():
            self._reading = self._tasks.create_task(self._read(self._pace), name=f"{self._component}/read-ahead")
            self._readings.add(self._reading)
            self._reading.add_done_callback(self._readings.discard)
        self._keep()

    async def finish(self, checkpoint: int, index: int, tasks: int) -> None:
        """Wait for what is being read, if this task can be restored from a checkpoint with it. It takes no rests then.

        What is left of it is less than all that the restore would have to read without it. So there is no time after
        which it is let go, but one for each step.
        """
        reading, pace = self._reading, self._pace
        if (index, tasks) != self._share or self._wanted > checkpoint or reading is None:
            return
        pace.hurried = True
        before = -1
        while not reading.done() and pace.steps > before:
            before = pace.steps
            await asyncio.wait([reading], timeout=FINISH_S)

    def take(self) -> ReadAhead | None:
        """What was read, for a restore. Nothing is kept."""
        if not self._wanted:
            return None
        found = self._found
        self._forget()
        self.report(0, (0, 0))
        return found

    def stop(self) -> None:
        """Read nothing any more."""
        self._forget()
        for reading in [*self._readings]:
            reading.cancel()

    def _keep(self) -> None:
        """For so long from now on: an update that comes to nothing may be tried again."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_S, self.take)

    def _forget(self) -> None:
        self._pace.stopped = True
        self._share, self._wanted, self._done, self._found, self._reading = (0, 0), 0, 0, None, None
        if self._forgetting is not None:
            self._forgetting.cancel()

    async def _read(self, pace: Pace) -> None:
        while not pace.stopped and self._done != self._wanted:
            checkpoint, epoch = self._wanted, self._epoch
            found: Mapping[str, MergedBlock] | None = None
            try:
                found = await self._found_of(checkpoint, pace)
            except Stopped:
                return
            except HeronError as e:
                log.warning("checkpoint %d is not read ahead: %s", checkpoint, e)
            if pace.stopped:
                return
            if found is not None:
                epoch = self._epoch if self._wanted == checkpoint else epoch
                self._found = ReadAhead(checkpoint, epoch, *self._share, found) if found else None
            self._done = checkpoint
            self.report(checkpoint, self._share)

    async def _found_of(self, checkpoint: int, pace: Pace) -> Mapping[str, MergedBlock]:
        """What a checkpoint has; what was read before is part of that if it fits."""
        began_s = time.perf_counter()
        async with self._connect() as store:
            if self._found is not None:
                of_use = await store.reads_on(checkpoint, self._component, *self._share, self._found)
                if pace.stopped:
                    raise Stopped
                if not of_use:
                    self._found = None  # it would be in memory beside all that is read again
            saved = await store.read_ahead(checkpoint, self._component, *self._share, pause=pace, ahead=self._found)
        newer = await asyncio.to_thread(read_entries, saved, pace)
        if pace.stopped:
            raise Stopped
        # Here, and at once: until then a restore can have what was read before.
        blocks = {name: block for name, entries in newer.items() if (block := entries.merged()) is not None}
        log.info(
            "%d entries of checkpoint %d are read ahead in %.2f s",
            sum(entries.count for entries in newer.values()),
            checkpoint,
            time.perf_counter() - began_s,
        )
        return blocks
