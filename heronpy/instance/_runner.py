"""How a task is driven: what it does next, given its queues. One strategy for bolts, one for spouts.

A task takes messages before it makes new work. While its data-out queue is full a bolt takes up nothing: what it emits
would have nowhere to go. A spout goes on taking acks, which end work, and only emits nothing new.
"""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Protocol

from heronpy.instance._bolt import BoltTask
from heronpy.instance._channel import Command
from heronpy.instance._core import Signal, Stopped, TaskCore
from heronpy.instance._spout import SpoutTask
from heronpy.proto import stmgr_pb2

OUT_FULL_WAIT_S = 0.02
DOZE_S = 0.01
"""A sleep that another thread's emit or ack may have to end; shorter ones end soon enough."""


class TaskQueues(Protocol):
    """What a runner uses of `ThreadChannel`; see there."""

    @property
    def out_full(self) -> bool:
        """The task is to emit nothing more."""

    @property
    def stale(self) -> bool:
        """Whether the batch that the task has taken was sent before a restore."""

    def take(self, timeout_s: float) -> stmgr_pb2.Batch | Command | None:
        """The next batch or command; None after `timeout_s`. 0 does not wait."""

    def done(self, batch: stmgr_pb2.Batch) -> None:
        """The task has finished a batch."""

    def wait_out_room(self, timeout_s: float) -> None:
        """Wait until something has left the data-out queue."""


class Runner(abc.ABC):
    """Runs one task until it is stopped."""

    def __init__(self, task: Any, channel: TaskQueues, signal: Signal) -> None:
        self.task = task
        self.rounds = 0
        """Rounds of the task's loop: a message, or a look at what is due."""
        self.continued = 0
        """Rounds after which there was more to do at once."""
        self.executed = 0
        """Rounds that ran user code: a bolt's for a batch, a spout's for its next tuples."""
        self._channel = channel
        self._signal = signal

    def run(self) -> None:
        """Run until the signal says stop."""
        with contextlib.suppress(Stopped):
            while not self._signal.stopping:
                self.rounds += 1
                self.step()

    @abc.abstractmethod
    def step(self) -> None:
        """Take one message, or do what is due and wait for one."""

    def take(self, message: stmgr_pb2.Batch | Command) -> None:
        """Hand a message to the task."""
        if not isinstance(message, stmgr_pb2.Batch):
            message(self.task)
            return
        try:
            if not self._channel.stale:
                self.task.offer(message)
        finally:
            self._channel.done(message)

    def wait(self, wait_s: float) -> None:
        """Wait for a message and take it."""
        if wait_s <= 0:
            self.continued += 1
            return
        if wait_s < DOZE_S:
            message = self._channel.take(wait_s)
        elif self.task.doze(True):
            message = self._channel.take(wait_s)
            self.task.doze(False)
        else:
            return
        if message is not None:
            self.take(message)


class BoltRunner(Runner):
    """Runs a bolt."""

    task: BoltTask

    def step(self) -> None:
        if self._channel.out_full:
            self._channel.wait_out_room(OUT_FULL_WAIT_S)
            self._service_signals()
            return
        message = self._channel.take(0)
        if message is None:
            self.wait(self.task.poll())
        else:
            self.take(message)

    def take(self, message: stmgr_pb2.Batch | Command) -> None:
        self.executed += isinstance(message, stmgr_pb2.Batch)
        super().take(message)
        self._service_signals()

    def _service_signals(self) -> None:
        if self._signal.due:
            self.task.service_signals()


class SpoutRunner(Runner):
    """Runs a spout."""

    task: SpoutTask

    def step(self) -> None:
        message = self._channel.take(0)
        if message is not None:
            self.take(message)
        elif self._channel.out_full:
            self.wait(OUT_FULL_WAIT_S)
        else:
            self.executed += 1
            self.wait(self.task.poll())


def make_task(core: TaskCore) -> SpoutTask | BoltTask:
    """The task of a component, not open yet."""
    return SpoutTask(core) if core.component.is_spout else BoltTask(core)


def make_runner(task: SpoutTask | BoltTask, channel: TaskQueues, signal: Signal) -> Runner:
    """The runner for a task."""
    return (BoltRunner if isinstance(task, BoltTask) else SpoutRunner)(task, channel, signal)
