"""What spout and bolt tasks share: the user's component, its context, and what it may call.

A task is driven from outside, by one thread: it is offered batches, polled, flushed. It owns no thread and no socket,
so the simulator runs the very same code.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

from heronpy.api.bolt import Bolt
from heronpy.api.serializer import IHeronSerializer, PythonSerializer
from heronpy.api.spout import Spout
from heronpy.api.state import StatefulComponent
from heronpy.api.task_hook import ITaskHook
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.config import ALLOW_DROPPED_STATE, ALLOW_LOSSY_SPOUTS, InstanceConfig, is_set
from heronpy.errors import ConfigError, NotFoundError
from heronpy.instance._edges import Fan, Taken
from heronpy.instance._error_log import ErrorLog
from heronpy.instance._grouping import CustomGrouping
from heronpy.instance._metrics import TaskMetrics
from heronpy.instance._outputs import Outputs
from heronpy.instance._serializing import Part, Rejected, Serialize, pickled, serialized
from heronpy.instance._task_config import PICKLE, TaskConfig
from heronpy.loader import load_class
from heronpy.plan import Component, InputDecl, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.shown import message, said, traceback_of
from heronpy.usersecrets import NO_SECRETS, Secrets
from heronpy.wire import MalformedBatch

if TYPE_CHECKING:
    from heronpy.checkpoints import Saved
    from heronpy.instance._set_aside import FailedTuple

LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}
LEVELS |= {"warning": logging.WARNING, "error": logging.ERROR}

Deserialize = Callable[[bytes], Any]
Send = Callable[[list[stmgr_pb2.Batch]], None]


class Signal:
    """How other threads reach a task that is busy in user code.

    `due` is read after every tuple (15 ns); it means that something may have to be flushed, ticked
    or stopped.
    """

    __slots__ = ("dozing", "due", "interrupt", "stopping")

    def __init__(self) -> None:
        self.due = False
        self.interrupt: Callable[[], None] | None = None
        """With checkpoints: what else is to be done between two tuples. It may raise."""
        self.stopping = False
        self.dozing = False
        """The task sleeps until something comes: another thread of user code that emits or acks has to wake it."""


class Unwinding(BaseException):
    """Raised through a task's loops by the engine itself. Not an Exception: user code must not catch it by accident.

    It may come out of an emit, too.
    """


class Stopped(Unwinding):
    """The task has to stop."""


class TaskFailed(Unwinding):
    """User code failed and the exception policy is `restart`: the process ends."""


@dataclass(kw_only=True)
class TaskCore:
    """Everything a task needs, made once."""

    plan: PhysicalPlan
    task_id: int
    config: InstanceConfig
    send: Send
    """Sends batches. The runner checks the queue before it polls the task, so it rarely blocks."""
    report_exception: Callable[[str], None] = lambda _stacktrace: None
    wake: Callable[[], None] = lambda: None
    """Ends the sleep of the task; any thread."""
    signal: Signal = field(default_factory=Signal)
    clock: Callable[[], int] = time.monotonic_ns
    """The time in ns. Tests give their own."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)
    saved: InitVar[Saved | None] = None
    """With checkpoints: what the task is restored from, maybe nothing. Without: None, and all state is in memory. It is
    not kept: it may take as much space as the state."""
    roll_back: Callable[[str], None] = lambda _reason: None
    """With checkpoints: ask that all tasks are restored; any thread."""
    secrets: Secrets = field(default_factory=lambda: NO_SECRETS)
    """What the configuration may use, and the context has."""
    failed: FailedTuple | None = None
    """With checkpoints: the tuple that is the reason."""

    def __post_init__(self, saved: Saved | None) -> None:
        _, instance = self.plan.tasks[self.task_id]
        self.component: Component = self.plan.logical.components[instance.component]
        self.user_config: dict[str, Any] = self.plan.logical.config_of(self.component.name)
        """The component's configuration over the topology's. User code may change it in initialize()."""
        self.context = TopologyContext(
            self.plan, self.task_id, self.user_config, metrics=self.metrics, secrets=self.secrets
        )
        self.secrets.fill(self.user_config)
        self.states = None if saved is None else self.context.restore_states(saved)
        """Of which checkpoints are taken; None: of none."""
        self.settings = TaskConfig.of(self.user_config, self.plan.logical.components.values())
        self.tracking = self.settings.reliability.tracks_trees
        self.serialize, self.deserialize = self._serializer(self.settings.serializer)
        self._deserializers: dict[str, Deserialize] = {}
        """Of other serializers, whose batches are in the log of a checkpoint."""
        self.lock = threading.RLock()
        """Held by the thread that takes emitted tuples out and sends them: the task's, or one of user code."""
        self.outputs: Outputs
        self.apart = False
        """Whether each tuple is serialized alone, so that one that cannot be read can be told from the others."""
        self.staging = False
        """What waits is being serialized, with the lock."""
        self.staged_ns = 0
        """What that has taken since the last were sent."""
        self._make_fan: Callable[..., Fan] = Fan
        self.logger = logging.getLogger(f"{self.component.name}.{self.task_id}")
        self._errors = ErrorLog(self.logger, self.component.name, self.clock)
        self.component_of: dict[int, str] = {}
        """Component of every task, also of those that were in an earlier plan: tuples of theirs may still arrive."""
        self.spout_tasks: int
        """Of all spouts, in the plan of now."""
        self._learn_tasks()
        for path in self.settings.hooks:
            self.context.add_task_hook(_make(path, ITaskHook))

    def open_outputs(self, make_fan: Callable[..., Fan]) -> None:
        """Make the outputs, before anything is emitted.

        Args:
            make_fan: makes the target of a tuple that goes to several tasks, or to none.
        """
        self._make_fan = make_fan
        self.outputs = self._make_outputs()

    def _make_outputs(self) -> Outputs:
        return Outputs(
            self.plan,
            self.task_id,
            self._load_grouping,
            key_groups=self.plan.logical.key_groups,
            lasting=self.plan.logical.lasting_key_groups,
            tagged=self.tracking,
            make_fan=self._make_fan,
        )

    @property
    def hooks(self) -> Sequence[ITaskHook]:
        return self.context.task_hooks

    def replan(self, plan: PhysicalPlan) -> None:
        """Take a new plan: tasks may have moved, appeared or gone. Call with nothing unsent on the edges."""
        if plan.packing != self.plan.packing:
            self.plan = plan
            self.context.replan(plan)
            self.outputs = self._make_outputs()
        self.plan = plan
        self._learn_tasks()

    def retire(self) -> None:
        """Another object takes the component's place: what this one sends is dropped, and its emit raises."""
        self.send = lambda _batches: None
        self.outputs.retire()

    def _learn_tasks(self) -> None:
        self.component_of.update((id, instance.component) for id, (_, instance) in self.plan.tasks.items())
        components = self.plan.logical.components
        self.spout_tasks = sum(components[instance.component].is_spout for _, instance in self.plan.tasks.values())

    def make_component(self, delegate: Delegate) -> Any:
        """The user's spout or bolt, built as Heron builds it."""
        cls = load_class(self.component.class_name)
        component = cls(delegate=delegate)
        self.bind(component, delegate)
        return component

    def bind(self, component: Any, delegate: Delegate) -> None:
        """Have emit, ack and fail run without a detour through the base class, unless they are overridden."""
        cls = type(component)
        base, names = (Spout, ("emit",)) if self.component.is_spout else (Bolt, ("emit", "ack", "fail"))
        for name in names:
            if getattr(cls, name, None) is getattr(base, name):
                setattr(component, name, getattr(delegate, name))

    def initialize(self, component: Any) -> None:
        """Give the user's spout or bolt its state, and call its initialize().

        Raises:
            CheckpointError: what was saved cannot be restored, or is of a state that is not declared.
        """
        if isinstance(component, StatefulComponent):
            component.init_state(self.context.component_state())
        component.initialize(self.user_config, self.context)
        self.context.initialized()
        if self.states is not None:
            dropped: Sequence[str] = ()
            if is_set(self.user_config, ALLOW_DROPPED_STATE) and (dropped := self.states.unclaimed):
                self.logger.warning("state that is not declared is dropped: %s", ", ".join(dropped))
            self.states.check_claimed(dropped)
            if self.component.is_spout and not self.states.declared and not self.tracking:
                self._check_lossy()

    def _check_lossy(self) -> None:
        """Take note of a spout without state."""
        if not is_set(self.user_config, ALLOW_LOSSY_SPOUTS):
            raise ConfigError(
                f"spout {self.component.name!r} keeps no position in a state, so a rollback would lose what is in "
                f"flight: have it declare one, or set {ALLOW_LOSSY_SPOUTS} if that may be lost"
            )
        self.logger.warning("it keeps no position in a state: a rollback loses what is in flight")

    def serialized(self, taken: Taken) -> list[Part | Rejected]:
        """Tuples as parts of at most a frame; their number and size and the time that took are counted."""
        began_ns = self.clock()
        parts = list(serialized(self.component, taken, self.serialize, self.config, apart=self.apart))
        took_ns, self.staged_ns = self.clock() - began_ns + self.staged_ns, 0
        sent = sum(part[1] - part[0] for part in parts if not isinstance(part, Rejected))
        size = sum(len(part[2]) for part in parts if not isinstance(part, Rejected))
        if sent:
            total = taken.count
            for stream, count in taken.counts(0, total):
                share = count / total
                self.metrics.queued(stream, round(sent * share), round(size * share), round(took_ns * share))
        return parts

    def stage(self) -> None:
        """Serialize what waits. With the lock."""
        if self.apart:
            return
        began_ns = self.clock()
        self.staging = True
        try:
            for pair in self.outputs.pairs:
                pair.stage(self.serialize, self.config.frame_bytes)
        finally:
            self.staging = False
        self.staged_ns += self.clock() - began_ns

    def malformed(self, error: MalformedBatch) -> None:
        """Log and count a batch that cannot be read: a bug of the sender. What it held times out, or is restored."""
        self.roll_back(f"a batch cannot be read: {message(error)}")
        self._errors.log("receiving", error, message(error))
        self.metrics.add("__malformed-batch-count", 1)

    def user_error(self, where: str, error: BaseException) -> None:
        """Log, count and report an exception of user code."""
        text = traceback_of(error)
        self._errors.log(where, error, text)
        self.metrics.add("__exception-count", 1)
        self.report_exception(text)

    def deserializer(self, path: str) -> Deserialize:
        """What reads the values that a serializer has written; empty: the task's own."""
        if path and path != self.settings.serializer and path not in self._deserializers:
            self._deserializers[path] = self._serializer(path)[1]
        return self._deserializers.get(path, self.deserialize)

    def _serializer(self, path: str) -> tuple[Serialize, Deserialize]:
        if path in (PICKLE, f"{PythonSerializer.__module__}.{PythonSerializer.__qualname__}"):
            return pickled, pickle.loads
        serializer = _make(path, IHeronSerializer)
        serializer.initialize(self.user_config)
        return serializer.serialize, serializer.deserialize

    def _load_grouping(self, decl: InputDecl, targets: list[int]) -> CustomGrouping:
        found = pickle.loads(decl.custom)
        grouping = _make(found, object) if isinstance(found, str) else found
        grouping.prepare(self.context, decl.component, decl.stream, targets)
        return grouping  # type: ignore[no-any-return]  # unpickled: the API checked that it is an ICustomGrouping


class Delegate:
    """What a user's component holds as `self.delegate`."""

    emit: Callable[..., list[int]]
    send_watermark: Callable[[int], None]
    ack: Callable[[Tuple], None]
    """A bolt's, as the following."""
    fail: Callable[[Tuple], None]
    reset_timeout: Callable[[Tuple], None]

    def __init__(self, core: TaskCore) -> None:
        self.logger = core.logger
        self.context = core.context

    def log(self, message: str, level: str | None = None) -> None:
        """Log for the component; level trace, debug, info (default), warn or error."""
        self.logger.log(LEVELS.get((level or "info").lower(), logging.INFO), "%s", message)


def _make(path: str, kind: type) -> Any:
    """An instance of the class at a dotted path."""
    try:
        made = load_class(path)()
    except NotFoundError:
        raise
    except Exception as e:
        raise ConfigError(f"{path} cannot be made: {said(e)}") from e
    if not isinstance(made, kind):
        raise ConfigError(f"{path} is not a {kind.__name__}")
    return made


__all__ = ["Delegate", "Signal", "Stopped", "TaskCore", "TaskFailed", "Unwinding"]
