"""The snapshots of one task, taken by its thread.

A snapshot is taken between two tuples: user code prepares (`pre_save`), what was emitted is sent, then the markers, and
what the states are at this moment belongs to the checkpoint (`TaskStates.begin`). They are written in slices between
the batches that follow, or while the task has nothing to do.

A caller whose request cannot wait for the batch in hand (a snapshot at once, a restore, a rollback) leaves a
note here, and has the task look at it between two tuples by `Signal.due`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from heronpy.api.state import ITwoPhaseStatefulComponent, StatefulComponent
from heronpy.checkpoints import ObjectRef
from heronpy.errors import CheckpointError, UnavailableError
from heronpy.instance._core import Signal, TaskFailed, Unwinding
from heronpy.instance._task import Task
from heronpy.shown import message
from heronpy.state import SLICE_S, TaskStates

UNSAVED_BYTES_MAX: Final = 8 << 20
"""While so much waits for the Checkpoint Manager, nothing more is written."""
IDLE_SLICE_S: Final = 0.001
"""A slice of a task that has nothing else to do: for so long waits what comes just then."""


SETTLE_STEP_S: Final = 0.01
SETTLE_STEPS: Final = 500
"""So often it is checked whether a bolt still holds tuples; then its snapshot fails."""


class EpochEnded(Unwinding):
    """The task is to be restored."""


class RollbackNeeded(EpochEnded):
    """The same, and the task itself is the reason."""


class SnapshotReports(Protocol):
    """What is reported to the gateway, in the task's thread."""

    @property
    def unsaved_bytes(self) -> int:
        """Of pieces that wait for the Checkpoint Manager."""

    def taken(self, checkpoint: int, begun: int, name: str, undivided: str, whole: bool) -> None:
        """A snapshot is taken.

        Args:
            checkpoint: Of which checkpoint.
            begun: How many tuples of the batch in hand it covers; 0 if there is none.
            name: Of the object that is written from now on; empty: nothing has changed, and there is none.
            undivided: A state that only this number of tasks can restore, in words; empty: there is none.
            whole: Whether it needs nothing that an earlier checkpoint has.
        """

    def written(self, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        """More of the object; `ref` with the last pieces."""

    def failed(self, checkpoint: int, reason: str, *, lasting: bool = False) -> None:
        """The object will not be complete; `lasting`: nor will the next be."""

    def committed(self, checkpoint: int) -> None:
        """User code knows that a checkpoint is committed."""


class Snapshots:
    """The snapshots of one component object, in one restore epoch."""

    def __init__(
        self,
        task: Task,
        signal: Signal,
        reports: SnapshotReports,
        epoch: int,
        *,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is under way; the component is initialized.

        Args:
            task: Whose core has states.
            signal: The task's.
            reports: Where they go.
            epoch: The restore epoch.
            pause: Waits for so many seconds.
            clock: In seconds.
        """
        assert task.core.states is not None
        self._task = task
        self._states: TaskStates = task.core.states
        self._signal = signal
        self._reports = reports
        self._epoch = epoch
        self._pause, self._clock = pause, clock
        self._next_slice_s = 0.0
        """When a task that has other work writes again: it works for as long as it wrote."""
        self._last = 0
        """The newest checkpoint of which a snapshot was taken."""
        self._releases = False
        self._now = 0
        self._rollback = ""
        self._ended = False
        task.core.roll_back = self.roll_back
        signal.interrupt = self._interrupt

    # Any thread

    def take_now(self, checkpoint: int) -> None:
        """Have a snapshot taken between two tuples."""
        self._now = checkpoint
        self._signal.due = True

    def roll_back(self, reason: str) -> None:
        """Have the task stop for a restore; the first reason counts."""
        self._rollback = self._rollback or reason
        self._signal.due = True

    def end(self) -> None:
        """Have the task stop: a newer epoch has begun."""
        self._ended = True
        self._signal.due = True

    # The task's thread

    @property
    def writing(self) -> bool:
        """Whether a snapshot is not written yet."""
        return self._states.pending

    def service(self) -> None:
        """Between two tuples: do what was asked for.

        Raises:
            EpochEnded: the task is to stop.
            TaskFailed: user code failed.
        """
        if self._ended:
            raise EpochEnded
        if self._rollback:
            raise RollbackNeeded(self._rollback)
        if self._now:
            checkpoint, self._now = self._now, 0
            self.take(checkpoint)

    def _interrupt(self) -> None:
        """Within a batch: the same, and a slice, since a batch takes longer than one.

        The sooner all is written, the less changes meanwhile, which has to be kept apart.
        """
        self.service()
        if self._states.pending and self._task.begun:
            self.write(idle=False)

    def take(self, checkpoint: int) -> None:
        """Take a snapshot: what was executed and emitted before belongs to it. An older one is given up.

        Raises:
            TaskFailed: user code failed, or something that was emitted cannot be sent.
            EpochEnded: the task is to stop, and nothing was taken.
        """
        if checkpoint <= self._last:
            return
        if self._ended or self._rollback:
            self.service()
        self._abort_writing()
        self._last = checkpoint
        task, component = self._task, self._task.user_object
        if not self._settled(checkpoint):
            return
        if isinstance(component, StatefulComponent) and not self._prepared(component, checkpoint):
            return
        task.send_marker(checkpoint)
        name = ""
        if self._states.begin(checkpoint, self._epoch):
            name = self._states.object_name
        self._reports.taken(checkpoint, task.begun, name, self._states.undivided, self._states.whole)

    def _prepared(self, component: StatefulComponent, checkpoint: int) -> bool:
        """Call `pre_save`. At least once, what is out of reach is waited for by acks, and only fails the checkpoint."""
        try:
            component.pre_save(str(checkpoint))
        except Exception as error:
            if self._task.core.tracking and isinstance(error, UnavailableError):
                self._reports.failed(checkpoint, f"component {self._task.core.component.name!r}: {message(error)}")
                return False
            self._task.core.user_error("pre_save()", error)
            raise TaskFailed("pre_save()") from error
        return True

    def _settled(self, checkpoint: int) -> bool:
        """Wait for tuples that were executed and are still held: they are in no state, and come not again."""
        task = self._task
        task.flush()
        for _ in range(SETTLE_STEPS):
            if not task.unsettled:
                return True
            self._pause(SETTLE_STEP_S)
            self.service()
            if self._last != checkpoint:
                return False  # a newer snapshot was asked for, and is taken
            task.settle_more()
        if not task.unsettled:
            return True
        name = task.core.component.name
        self._reports.failed(
            checkpoint,
            f"component {name!r} holds {task.unsettled} tuples that it has neither acked nor failed: it is to ack "
            "each, and keep what it needs of them in its state",
        )
        return False

    def write(self, *, idle: bool = True) -> bool:
        """Write a slice, or free what is not needed any more. Whether there is more to do now.

        Args:
            idle: Whether the task has nothing else to do. Else batches get as much of its time as snapshots, so that
                those that come while much is written do not pile up.
        """
        if not (self._states.pending or self._releases):
            return False
        began_s = self._clock()
        if not idle and began_s < self._next_slice_s:
            return True
        more = self._write(IDLE_SLICE_S if idle else SLICE_S)
        ended_s = self._clock()
        self._next_slice_s = ended_s + (ended_s - began_s)
        return more

    def _write(self, budget_s: float) -> bool:
        if self._states.pending:
            if self._reports.unsaved_bytes > UNSAVED_BYTES_MAX:
                return False
            try:
                pieces, ref = self._states.write(budget_s)
            except CheckpointError as error:
                self._reports.failed(self._last, str(error), lasting=True)
                return False
            self._reports.written(self._last, pieces, ref)
            return True
        self._releases = not self._states.release(budget_s)
        return self._releases

    def commit(self, checkpoint: int) -> None:
        """A checkpoint is committed. Repeated or late, it changes nothing in the states.

        Raises:
            TaskFailed: user code failed; it will be notified again.
        """
        self._states.commit(checkpoint)
        self._releases = True
        component = self._task.user_object
        if isinstance(component, ITwoPhaseStatefulComponent):
            self._call("post_save()", component.post_save, checkpoint)
        self._task.committed(checkpoint)
        self._reports.committed(checkpoint)

    def abort(self, checkpoint: int, *, whole: bool = False) -> None:
        """A checkpoint will not be committed. The next one must have the `whole` state if what is committed is lost."""
        self._states.abort(checkpoint)
        if whole:
            self._states.write_whole()

    def _abort_writing(self) -> None:
        if self._states.pending:
            self._states.abort(self._last)

    def _call(self, where: str, hook: Callable[[str], None], checkpoint: int) -> None:
        try:
            hook(str(checkpoint))
        except Exception as error:
            self._task.core.user_error(where, error)
            raise TaskFailed(where) from error
