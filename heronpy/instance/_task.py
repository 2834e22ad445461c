"""What spout and bolt tasks do alike: they send, and they are replaced."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from heronpy.errors import TupleError
from heronpy.instance._core import TaskCore
from heronpy.instance._emitter import Emitter
from heronpy.instance._sender import markers, watermarks
from heronpy.instance._set_aside import FailedTuple, SetAside
from heronpy.proto import stmgr_pb2


class Task(abc.ABC):
    """One task. See TaskCore for who may call it."""

    core: TaskCore
    user_object: Any
    set_aside: SetAside | None = None
    """Of tuples that have failed again and again, if there are any."""
    _emitter: Emitter

    @abc.abstractmethod
    def flush(self) -> None:
        """Send everything emitted so far; any thread."""

    @abc.abstractmethod
    def close(self) -> None:
        """Clean up the user's component, and flush."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Report to user code what sending has brought to light.

        Raises:
            TaskFailed: a tuple could not be sent.
        """

    @abc.abstractmethod
    def _dispatch(self, batches: list[stmgr_pb2.Batch]) -> None:
        """Send batches."""

    @abc.abstractmethod
    def _user_error(self, where: str, error: Exception) -> None:
        """Report an exception of user code. Raises TaskFailed where that ends the task, or is a rollback."""

    def _cannot_send(self, errors: Sequence[TupleError]) -> None:
        """Report tuples that could not be sent, except for those that are set aside."""
        core, aside = self.core, self.set_aside
        if aside:
            errors = [error for error in errors if not aside.has(core, error, self._emitter.emit)]
        for other in errors[1:]:
            core.user_error("emit()", other)
        if errors:
            if core.states is not None and not core.tracking:
                core.failed = core.failed or FailedTuple.emitted(core, errors[0])
            self._user_error("emit()", errors[0])

    @abc.abstractmethod
    def _observe(self) -> None:
        """Have task hooks called, and what is emitted logged: slower, so only where there is a hook, or `debug`."""

    def _observe_hooks(self) -> None:
        """Begin to observe now, or when user code adds the first hook."""
        if self.core.settings.debug or self.core.hooks:
            self._observe()
        else:
            self.core.context.on_task_hook = self._first_hook_added

    def _first_hook_added(self) -> None:
        self.core.context.on_task_hook = lambda: None
        self._observe()

    @property
    def begun(self) -> int:
        """How many tuples of the batch in hand are executed, between two of them; 0 if there is none."""
        return 0

    @property
    def unsettled(self) -> int:
        """With checkpoints: of what was executed, how many tuples are neither acked nor failed as of the last flush."""
        return 0

    def settle_more(self) -> None:
        """Do what may have more of them settled, but execute nothing.

        Raises:
            TaskFailed: user code failed.
        """

    def committed(self, checkpoint: int) -> None:
        """A checkpoint is committed. Called by the task's thread."""
        if self.set_aside is not None:
            self.set_aside.committed()

    def restored(self, checkpoint: int) -> None:
        """All tasks are restored from a checkpoint, of whose commit this one may not know."""
        self.committed(checkpoint)

    def send_watermark(self, watermark: int) -> None:
        """Send a watermark to every task that reads this one, after what was emitted before."""
        with self.core.lock:
            self.flush()
            self._dispatch(watermarks(self.core, watermark))

    def send_marker(self, checkpoint: int) -> None:
        """Send a marker to every task that reads this one, after all that was emitted before.

        States are up to date then.

        Raises:
            TaskFailed: as `settle`.
        """
        self.core.context.snapshot_begins()
        self.flush()
        self.settle()  # dead letters of what could not be sent come before the marker, too
        with self.core.lock:
            self.flush()
            self._dispatch(markers(self.core, checkpoint))
        self.settle()

    def replan(self, plan: Any) -> None:
        """Take a new plan; what was emitted before is sent by the old one."""
        with self.core.lock:
            self.flush()
            self.core.replan(plan)
            self._emitter.rebind()

    def retire(self) -> None:
        """Clean up a component that another one replaces: whatever it sends is dropped, and an emit raises."""
        self.core.retire()
        self.close()
