"""The task execution thread with checkpoints: its component is replaced at every restore, in place.

    (no component) --restore--> restored --resume--> runs --failed, or a newer epoch--> stopped --restore--> restored …

The process and the thread stay. The old object is notified (`pre_restore`), cleaned up, and can emit no more; a new one
gets the state that was saved, and is initialized. It executes nothing before `resume`: all others have to be restored.
At least once a spout without state keeps its object, which knows what it has to emit again; so does one with state that
says so (`kept_through_rollbacks`).
A task that does not run passes over the batches that come: those of its epoch are kept by the gateway until it does.

What the gateway asks for comes through data-in, in order with the batches; except for what must not wait for them
(`end_epoch`, `snapshot_now`), which the task finds between two tuples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from heronpy.api.state import ITwoPhaseStatefulComponent
from heronpy.checkpoints import Saved
from heronpy.instance._bolt import BoltTask
from heronpy.instance._channel import Command
from heronpy.instance._checkpoint_runner import CheckpointRunner, make_checkpoint_runner
from heronpy.instance._core import Signal, Stopped, TaskCore, TaskFailed
from heronpy.instance._logged import UnreadableLog, UnreadableNow, check_readable
from heronpy.instance._runner import TaskQueues, make_task
from heronpy.instance._set_aside import OUTAGES, SetAside
from heronpy.instance._snapshots import EpochEnded, RollbackNeeded, SnapshotReports, Snapshots
from heronpy.instance._spout import SpoutTask
from heronpy.instance._thread import TaskThread, apply_state
from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.shown import message, said

log = logging.getLogger(__name__)

IDLE_WAIT_S = 1.0


class RestorableQueues(TaskQueues, Protocol):
    """What this uses of `ThreadChannel`; see there."""

    stopping: bool

    def command(self, command: Command) -> None:
        """Have the task thread do something between two batches."""

    def number_from(self, epoch: int) -> None:
        """Send in a restore epoch from now on."""


class TaskReports(Protocol):
    """What is reported to the gateway, in the task's thread."""

    def restored(self, epoch: int) -> None:
        """The component has the state that this epoch begins with."""

    def not_restored(self, epoch: int, checkpoint: int, reason: str, unreadable: bool) -> None:
        """It has not, because the log cannot be deserialized: `unreadable`, or not now."""

    def failed(self, epoch: int, reason: str, tup: bytes, lasting: bool) -> None:
        """It runs no more: everything has to be restored.

        Args:
            epoch: In which it has failed.
            reason: Why.
            tup: The digest of the tuple that it failed on; empty: it was none, or it is not known.
            lasting: It was none, and nothing out of reach: what failed is bound to fail again.
        """

    def of_snapshots(self, epoch: int) -> SnapshotReports:
        """For the snapshots of one epoch."""


@dataclass(frozen=True, slots=True)
class _Restore:
    plan: PhysicalPlan
    saved: Saved
    epoch: int
    checkpoint: int
    set_aside: Mapping[bytes, str]
    log: Sequence[stmgr_pb2.Batch]


class RestorableThread(TaskThread):
    """One thread, one task. Ends when stopped, or when a component cannot be made, restored or initialized."""

    def __init__(
        self,
        make_core: Callable[[PhysicalPlan, Saved], TaskCore],
        channel: RestorableQueues,
        signal: Signal,
        ended: Callable[[BaseException | None], None],
        reports: TaskReports,
    ) -> None:
        """Make the thread; `ended` is called in it just before it exits."""
        super().__init__(self._no_core, channel, signal, ended)  # type: ignore[arg-type]  # it uses no more of one
        self._make = make_core
        self._queues = channel
        self._plan: PhysicalPlan | None = None
        self._reports = reports
        self._task: SpoutTask | BoltTask | None = None
        self._snapshots: Snapshots | None = None
        self._of_runner: CheckpointRunner | None = None
        self._to_restore: _Restore | None = None
        self._epoch = 0
        self._running = False
        self._failed = False
        """The component has failed since it was made."""
        self._tasks: Sequence[int] = ()
        """Of the component, when it was made."""
        self._held = False
        self._rounds = 0

    @property
    def rounds(self) -> int:
        return self._rounds

    @property
    def writing(self) -> bool:
        return (snapshots := self._snapshots) is not None and snapshots.writing

    @staticmethod
    def _no_core() -> TaskCore:
        raise AssertionError("a core is made for each restore")

    # What the gateway asks for; any thread

    def restore(
        self,
        plan: PhysicalPlan,
        saved: Saved,
        epoch: int,
        checkpoint: int,
        set_aside: Mapping[bytes, str],
        log: Sequence[stmgr_pb2.Batch] = (),
    ) -> None:
        """Have the component replaced by one with the state that was saved; the answer is `restored` or `not_restored`.

        Args:
            plan: That in force.
            saved: What a checkpoint has of the task.
            epoch: The restore epoch.
            checkpoint: Which one it is.
            set_aside: The tuples that a bolt is not to execute, and why each has failed.
            log: What it is to execute first.
        """
        self._ask(lambda: self._replace_with(_Restore(plan, saved, epoch, checkpoint, set_aside, log)))

    def resume(self, epoch: int, skip: int) -> None:
        """Have a restored task run; `skip` tuples of the first batch that comes are executed already."""
        self._ask(lambda: self._resume(epoch, skip))

    def end_epoch(self) -> None:
        """Have the task stop between two tuples: what it does is to be restored."""
        if (snapshots := self._snapshots) is not None:
            snapshots.end()
        self._ask(lambda: None)

    def snapshot(self, epoch: int, checkpoint: int) -> None:
        """Have a snapshot taken behind everything that was delivered before."""
        self._of_epoch(epoch, lambda snapshots: snapshots.take(checkpoint))

    def snapshot_now(self, epoch: int, checkpoint: int) -> None:
        """Have a snapshot taken between two tuples."""
        if (snapshots := self._snapshots) is not None:
            snapshots.take_now(checkpoint)
        self._ask(lambda: None)

    def commit(self, epoch: int, checkpoint: int) -> None:
        """Notify the task that a checkpoint is committed."""
        self._of_epoch(epoch, lambda snapshots: snapshots.commit(checkpoint))

    def abort(self, epoch: int, checkpoint: int, whole: bool) -> None:
        """Notify the task that a checkpoint will not be committed, and if the next one must have the whole state."""
        self._of_epoch(epoch, lambda snapshots: snapshots.abort(checkpoint, whole=whole))

    def hold(self, held: bool) -> None:
        """Have a spout emit nothing new, or go on."""
        self._ask(lambda: self._hold(held))

    def replan(self, plan: PhysicalPlan) -> None:
        """Give the task a new plan."""
        self._ask(lambda: self._replan(plan))

    def _ask(self, what: Callable[[], None]) -> None:
        self._queues.command(lambda _task: what())

    def _of_epoch(self, epoch: int, what: Callable[[Snapshots], None]) -> None:
        def do() -> None:
            if self._running and self._epoch == epoch and self._snapshots is not None:
                what(self._snapshots)

        self._ask(do)

    # The task's thread

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            try:
                while not self._signal.stopping:
                    self.round()
            finally:
                if self._task is not None:
                    self._task.close()
        except BaseException as e:
            error = e
        self._ended(error)

    def round(self) -> None:
        """Do one thing: restore, a step of the task, or wait. Tests drive it by hand."""
        self._rounds += 1
        try:
            if self._to_restore is not None:
                to_restore, self._to_restore = self._to_restore, None
                self._restore(to_restore)
            elif self._running:
                assert self._of_runner is not None
                self._of_runner.rounds += 1
                self._of_runner.step()
            else:
                self._wait()
        except Stopped:
            pass  # the signal says so as well
        except TaskFailed as failed:
            cause = failed.__cause__
            self._fail(f"{failed}: {said(cause or failed)}", lasting=not isinstance(cause, OUTAGES))
        except RollbackNeeded as needed:
            self._fail(str(needed))
        except EpochEnded:
            self._running = False
        except BaseException as error:
            if self._task is not None and self._task.core.failed is not None:
                self._fail(f"process(): {said(error)}")  # the process ends, and the tuple is to blame
            raise

    def _wait(self) -> None:
        message = self._queues.take(IDLE_WAIT_S)
        if isinstance(message, stmgr_pb2.Batch):
            self._queues.done(message)
        elif message is not None:
            message(self._task)

    def _fail(self, reason: str, *, lasting: bool = False) -> None:
        self._running, self._failed = False, True
        failed = self._task.core.failed if self._task is not None else None
        if failed is not None and failed.where not in reason:
            reason = f"{failed.where}: {reason}"
        log.error("epoch %d is to be restored: %s", self._epoch, reason)
        digest = failed.digest if failed is not None else b""
        self._reports.failed(self._epoch, reason, digest, lasting and failed is None)

    def _replace_with(self, restore: _Restore) -> None:
        self._to_restore = restore
        raise EpochEnded

    def _restore(self, to: _Restore) -> None:
        try:
            task = self._kept(to) or self._made(to)
        except (UnreadableLog, UnreadableNow) as error:
            unreadable = isinstance(error, UnreadableLog)
            log.error("restore epoch %d: checkpoint %d is not restored: %s", to.epoch, to.checkpoint, error)
            self._reports.not_restored(to.epoch, to.checkpoint, message(error), unreadable)
            return
        self._task, self._plan, core = task, to.plan, task.core
        core.context.restore_epoch = to.epoch
        self._snapshots = Snapshots(task, self._signal, self._reports.of_snapshots(to.epoch), to.epoch)
        self._hold(self._held)
        if self._of_runner is None:
            self.runner = self._of_runner = make_checkpoint_runner(task, self._queues, self._signal)
        self._of_runner.task, self._of_runner.snapshots = task, self._snapshots
        log.info("%s has the state of checkpoint %d", core.plan.instance_id(core.task_id), to.checkpoint)
        self._reports.restored(to.epoch)

    def _made(self, to: _Restore) -> SpoutTask | BoltTask:
        """A new component, with the state that was saved."""
        self._retire(to.checkpoint)
        self._number_from(to.epoch)
        core = self._make(to.plan, to.saved)
        check_readable(core, to.log)
        core.context.restore_epoch = to.epoch
        self._failed, self._tasks = False, to.plan.component_tasks[core.component.name]
        self._task = task = make_task(core)
        if to.set_aside:
            task.set_aside = SetAside(core, to.set_aside)
        task.open()
        return task

    def _kept(self, to: _Restore) -> SpoutTask | None:
        """The present component if it goes on: what is not committed of its tuples it was asked to emit again."""
        task = self._task
        if not isinstance(task, SpoutTask) or self._failed or not task.replays:
            return None
        if to.plan.component_tasks[task.core.component.name] != self._tasks:
            return None  # they divide their source anew
        with task.core.lock:  # other threads of user code may send just now
            self._number_from(to.epoch)
        try:
            task.kept(to.checkpoint, to.saved)
        except TaskFailed:
            return None
        task.replan(to.plan)
        task.set_aside = SetAside(task.core, to.set_aside) if to.set_aside else None
        return task

    def _number_from(self, epoch: int) -> None:
        if epoch != self._epoch:  # numbers go on if a component was kept at first
            self._epoch = epoch
            self._queues.number_from(epoch)

    def _retire(self, checkpoint: int) -> None:
        """Clean up the present component. What it does wrong is reported, and prevents no restore."""
        task, self._task, self._snapshots, self._running = self._task, None, None, False
        if task is None:
            return
        component = task.user_object
        steps: list[tuple[str, Callable[[], None]]] = [("ack()", lambda: task.restored(checkpoint))]
        if isinstance(component, ITwoPhaseStatefulComponent):
            steps.append(("pre_restore()", lambda: component.pre_restore(str(checkpoint))))
        for where, step in [*steps, ("cleanup()", task.retire)]:
            try:
                step()
            except TaskFailed:
                pass  # it was reported where it was raised
            except Exception as error:
                task.core.user_error(where, error)
        task.core.metrics.forget_user()
        if (states := task.core.states) is not None:
            states.close()

    def _resume(self, epoch: int, skip: int) -> None:
        if self._task is not None and self._epoch == epoch and not self._running:
            assert self._of_runner is not None
            assert self._plan is not None
            self._of_runner.skip = skip
            apply_state(self._task, self._plan)
            self._running = True

    def _hold(self, held: bool) -> None:
        self._held = held
        if isinstance(self._task, SpoutTask):
            self._task.hold(held)

    def _replan(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        if self._task is not None:
            self._task.replan(plan)
            if self._running:
                apply_state(self._task, plan)
