"""The task execution thread: runs user code, and nothing else."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from heronpy.instance._bolt import BoltTask
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal, Stopped, TaskCore
from heronpy.instance._spout import SpoutTask
from heronpy.plan import PhysicalPlan, TopologyState
from heronpy.proto import stmgr_pb2

log = logging.getLogger(__name__)

OUT_FULL_WAIT_S = 0.02


class TaskThread:
    """One thread, one task. Ends when told to stop, or when user code fails and the policy is `restart`."""

    def __init__(
        self,
        make_core: Callable[[], TaskCore],
        channel: ThreadChannel,
        signal: Signal,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        """Make the thread; `ended` is called in it as its last deed."""
        self._make_core = make_core
        self._channel = channel
        self._signal = signal
        self._ended = ended
        self.rounds = 0
        """Rounds of the task's loop: a batch, a command, or a look at what is due."""
        self.continued = 0
        """Rounds after which there was more to do at once."""
        self.executed = 0
        """Rounds that ran user code: a bolt's for a batch, a spout's for its next tuples."""
        # A daemon: user code that blocks for ever must not keep the process alive after its shutdown timeout.
        self._thread = threading.Thread(target=self._run, name="task", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell the task to stop; any thread."""
        self._channel.stopping = True
        self._signal.stopping = True
        self._signal.due = True
        self._channel.command(lambda _task: None)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            core = self._make_core()
            task = (SpoutTask if core.component.is_spout else BoltTask)(core)
            task.open()
            log.info("%s is initialized", core.plan.instance_id(core.task_id))
            apply_state(task, core.plan)
            try:
                self._drive(task)
            finally:
                task.close()
        except BaseException as e:
            error = e
        self._ended(error)

    def _drive(self, task: SpoutTask | BoltTask) -> None:
        channel, signal = self._channel, self._signal
        is_bolt = isinstance(task, BoltTask)
        with contextlib.suppress(Stopped):
            while not signal.stopping:
                self.rounds += 1
                if is_bolt and channel.out_full:
                    channel.wait_out_room(OUT_FULL_WAIT_S)
                    if signal.due:
                        task.look_up()  # type: ignore[union-attr]  # is_bolt
                    continue
                item = channel.take(0)
                if item is None:
                    wait_s = OUT_FULL_WAIT_S
                    if not channel.out_full:
                        wait_s = task.poll()
                        self.executed += not is_bolt
                    if wait_s <= 0:
                        self.continued += 1
                        continue
                    item = channel.take(wait_s)
                    if item is None:
                        continue
                if not isinstance(item, stmgr_pb2.Batch):
                    item(task)
                    continue
                self.executed += is_bolt
                try:
                    task.offer(item)
                finally:
                    channel.done(item)
                if is_bolt and signal.due:
                    task.look_up()  # type: ignore[union-attr]  # is_bolt


def apply_state(task: SpoutTask | BoltTask, plan: PhysicalPlan) -> None:
    """Activate or deactivate a task as the plan says."""
    if plan.state is TopologyState.RUNNING:
        task.activate()
    else:
        task.deactivate()


def apply_plan(task: SpoutTask | BoltTask, plan: PhysicalPlan) -> None:
    """Take a new plan, in the task thread."""
    task.replan(plan)
    apply_state(task, plan)
