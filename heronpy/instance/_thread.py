"""The task execution thread: runs user code, and nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from heronpy.instance._bolt import BoltTask
from heronpy.instance._channel import ThreadChannel
from heronpy.instance._core import Signal, TaskCore
from heronpy.instance._runner import Runner, make_runner, make_task
from heronpy.instance._spout import SpoutTask
from heronpy.plan import PhysicalPlan, TopologyState

log = logging.getLogger(__name__)


class TaskThread:
    """One thread, one task. Ends when stopped, or when user code fails and the policy is `restart`."""

    def __init__(
        self,
        make_core: Callable[[], TaskCore],
        channel: ThreadChannel,
        signal: Signal,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        """Make the thread; `ended` is called in it just before it exits."""
        self._make_core = make_core
        self._channel = channel
        self._signal = signal
        self._ended = ended
        self.runner: Runner | None = None
        """What drives the task; None before it is initialized."""
        # A daemon: user code that blocks for ever must not keep the process alive after its shutdown timeout.
        self._thread = threading.Thread(target=self._run, name="task", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def rounds(self) -> int:
        """How often the task's loop has gone round; 0 until the task is initialized."""
        return 0 if self.runner is None else self.runner.rounds

    @property
    def writing(self) -> bool:
        """Whether a snapshot is being written, a slice at each prompt; any thread."""
        return False

    def stop(self) -> None:
        """Ask the task to stop; any thread."""
        self._channel.stopping = True
        self._signal.stopping = True
        self._signal.due = True
        self._channel.command(lambda _task: None)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            core = self._make_core()
            task = make_task(core)
            task.open()
            log.info("%s is initialized", core.plan.instance_id(core.task_id))
            apply_state(task, core.plan)
            try:
                self.runner = make_runner(task, self._channel, self._signal)
                self.runner.run()
            finally:
                task.close()
        except BaseException as e:
            error = e
        self._ended(error)


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
