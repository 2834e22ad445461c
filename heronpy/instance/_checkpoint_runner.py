"""How a task with checkpoints is driven: as any other, but it writes snapshots between batches and while it waits.

Batches come first: a slice is written when none waits, or when those that wait have had as much time as the last one.
"""

from __future__ import annotations

from typing import Any

from heronpy.instance._bolt import BoltTask
from heronpy.instance._channel import Command
from heronpy.instance._core import Signal
from heronpy.instance._runner import BoltRunner, Runner, SpoutRunner, TaskQueues
from heronpy.instance._snapshots import Snapshots
from heronpy.instance._spout import SpoutTask
from heronpy.proto import stmgr_pb2

SLOW_SAVE_WAIT_S = 0.01
"""Sleep while the Checkpoint Manager has to take what was written."""
BETWEEN_SLICES_S = 0.0005
"""For so long a task without work waits for some between two slices; meanwhile the gateway has the interpreter."""


class CheckpointRunner(Runner):
    """What runners of spouts and bolts have more with checkpoints. One for the life of the process."""

    snapshots: Snapshots
    """Of the present component object."""
    skip = 0
    """So many tuples at the beginning of the first batch are executed already: what a log begins with."""
    _more = False
    _idle = False
    """Nothing came the last time that the task waited for something."""

    def step(self) -> None:
        """As without checkpoints.

        Raises:
            EpochEnded: the task is to stop.
        """
        self.snapshots.service()
        self._more = self.snapshots.write(idle=self._idle)
        self._idle = False
        super().step()  # type: ignore[safe-super]  # of the runner that this is mixed with

    def take(self, message: stmgr_pb2.Batch | Command) -> None:
        self._idle = False
        if not self.skip or not isinstance(message, stmgr_pb2.Batch) or self._channel.stale:
            super().take(message)
            return
        skip, self.skip = self.skip, 0
        try:
            self.task.offer(message, skip)
        finally:
            self._channel.done(message)

    def wait(self, wait_s: float) -> None:
        if self._more:
            wait_s = min(wait_s, BETWEEN_SLICES_S)
        elif self.snapshots.writing:
            wait_s = min(wait_s, SLOW_SAVE_WAIT_S)
        self._idle = wait_s > 0
        super().wait(wait_s)


class _CheckpointBoltRunner(CheckpointRunner, BoltRunner):
    pass


class _CheckpointSpoutRunner(CheckpointRunner, SpoutRunner):
    pass


def make_checkpoint_runner(task: SpoutTask | BoltTask, channel: TaskQueues, signal: Signal) -> CheckpointRunner:
    """The runner for a task; give it its snapshots."""
    kind: Any = _CheckpointBoltRunner if isinstance(task, BoltTask) else _CheckpointSpoutRunner
    return kind(task, channel, signal)  # type: ignore[no-any-return]  # one of the two
