"""What spout and bolt tasks share: the user's component, its context, and what it may call.

A task is driven from outside, by one thread: it is offered batches, polled, flushed. It owns no thread and no socket,
so the simulator runs the very same code.
"""

from __future__ import annotations

import logging
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.api.bolt import Bolt
from heronpy.api.serializer import IHeronSerializer, PythonSerializer
from heronpy.api.spout import Spout
from heronpy.api.task_hook import ITaskHook
from heronpy.api.topology_context import TopologyContext
from heronpy.config import InstanceConfig
from heronpy.errors import ConfigError, NotFoundError
from heronpy.instance._edges import Edge
from heronpy.instance._error_log import ErrorLog
from heronpy.instance._grouping import CustomGrouping
from heronpy.instance._metrics import TaskMetrics
from heronpy.instance._outputs import Outputs, Part, Rejected, Serialize, pickled, serialized
from heronpy.loader import load_class
from heronpy.plan import Component, InputDecl, PhysicalPlan
from heronpy.proto import stmgr_pb2

LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}
LEVELS |= {"warning": logging.WARNING, "error": logging.ERROR}

Deserialize = Callable[[bytes], list[list[Any]]]
Send = Callable[[list[stmgr_pb2.Batch]], None]


class Signal:
    """How other threads reach a task that is busy in user code.

    `due` is read after every tuple (15 ns); it means "look up from your work": something may have to be flushed, ticked
    or stopped.
    """

    __slots__ = ("due", "stopping")

    def __init__(self) -> None:
        self.due = False
        self.stopping = False


class Stopped(BaseException):
    """Raised through a task's loops when it is told to stop. No Exception, so that nobody catches it by accident."""


class TaskFailed(BaseException):
    """User code failed and the exception policy is `restart`: the process ends.

    No Exception either: it may come out of an emit, and user code that catches everything must not keep it.
    """


@dataclass(kw_only=True)
class TaskCore:
    """Everything a task needs, made once."""

    plan: PhysicalPlan
    task_id: int
    config: InstanceConfig
    send: Send
    """Takes batches on their way. Whoever drives the task looks at the queue before polling it, so it rarely blocks."""
    report_exception: Callable[[str], None] = lambda _stacktrace: None
    signal: Signal = field(default_factory=Signal)
    clock: Callable[[], int] = time.monotonic_ns
    """The time in ns. Tests give their own."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics)

    def __post_init__(self) -> None:
        _, instance = self.plan.tasks[self.task_id]
        self.component: Component = self.plan.logical.components[instance.component]
        self.settings: dict[str, Any] = self.plan.logical.config_of(self.component.name)
        """The component's configuration over the topology's. User code may change it in initialize()."""
        self.context = TopologyContext(self.plan, self.task_id, self.settings, metrics=self.metrics)
        self.serialize, self.deserialize = _serializer(self.settings)
        self.tracking = self.settings.get("topology.reliability.mode", "ATMOST_ONCE") == "ATLEAST_ONCE"
        self.fail_only = self.settings.get("topology.exception.policy", "restart") == "fail"
        self.logger = logging.getLogger(f"{self.component.name}.{self.task_id}")
        self._errors = ErrorLog(self.logger, self.component.name, self.clock)
        self.debug = str(self.settings.get("topology.debug", "false")).lower() == "true"
        self.outputs = Outputs(self.plan, self.task_id, self._load_grouping)
        self.component_of: dict[int, str] = {}
        """Component of every task, also of those that were in an earlier plan: tuples of theirs may still arrive."""
        self._learn_tasks()
        for path in _class_paths(self.settings.get("topology.auto.task.hooks")):
            self.context.add_task_hook(_make(path, ITaskHook))

    @property
    def hooks(self) -> Sequence[ITaskHook]:
        return self.context.task_hooks

    def replan(self, plan: PhysicalPlan) -> None:
        """Take a new plan: tasks may have moved, appeared or gone. Call with nothing unsent on the edges."""
        if plan.packing != self.plan.packing:
            self.plan = plan
            self.context.replan(plan)
            self.outputs = Outputs(plan, self.task_id, self._load_grouping)
        self.plan = plan
        self._learn_tasks()

    def _learn_tasks(self) -> None:
        self.component_of.update((id, instance.component) for id, (_, instance) in self.plan.tasks.items())

    def make_component(self, delegate: Any) -> Any:
        """The user's spout or bolt, built as Heron builds it."""
        cls = load_class(self.component.class_name)
        component = cls(delegate=delegate)
        # The engine's own emit, ack and fail run without a detour through the base class, unless they are overridden.
        base, names = (Spout, ("emit",)) if self.component.is_spout else (Bolt, ("emit", "ack", "fail"))
        for name in names:
            if getattr(cls, name, None) is getattr(base, name):
                setattr(component, name, getattr(delegate, name))
        return component

    def serialized(self, edge: Edge) -> list[Part | Rejected]:
        """An edge's values as parts of at most a frame; their number and size and the time that took are counted."""
        began_ns = self.clock()
        parts = list(serialized(self.component, edge, self.serialize, self.config))
        took_ns = self.clock() - began_ns
        sent = [part for part in parts if not isinstance(part, Rejected)]
        size = sum(len(data) for _, _, data in sent)
        self.metrics.queued(edge.stream, sum(stop - start for start, stop, _ in sent), size, took_ns)
        return parts

    def user_error(self, where: str, error: BaseException) -> None:
        """Log, count and report an exception of user code."""
        text = "".join(traceback.format_exception(error))
        self._errors.log(where, error, text)
        self.metrics.add("__exception-count", 1)
        self.report_exception(text)

    def _load_grouping(self, decl: InputDecl, targets: list[int]) -> CustomGrouping:
        found = pickle.loads(decl.custom)
        grouping = _make(found, object) if isinstance(found, str) else found
        grouping.prepare(self.context, decl.component, decl.stream, targets)
        return grouping  # type: ignore[no-any-return]  # unpickled: the API checked that it is an ICustomGrouping


class Delegate:
    """What a user's component holds as `self.delegate`."""

    def __init__(self, core: TaskCore) -> None:
        self.logger = core.logger
        self.context = core.context

    def log(self, message: str, level: str | None = None) -> None:
        """Log for the component; level trace, debug, info (default), warn or error."""
        self.logger.log(LEVELS.get((level or "info").lower(), logging.INFO), "%s", message)


def _serializer(settings: dict[str, Any]) -> tuple[Serialize, Deserialize]:
    path = settings.get("topology.serializer.classname")
    if not path or path == f"{PythonSerializer.__module__}.{PythonSerializer.__qualname__}":
        return pickled, pickle.loads
    serializer = _make(str(path), IHeronSerializer)
    serializer.initialize(settings)
    return serializer.serialize, serializer.deserialize


def _make(path: str, kind: type) -> Any:
    """An instance of the class at a dotted path."""
    try:
        made = load_class(path)()
    except NotFoundError:
        raise
    except Exception as e:
        raise ConfigError(f"{path} cannot be made: {e}") from e
    if not isinstance(made, kind):
        raise ConfigError(f"{path} is no {kind.__name__}")
    return made


def _class_paths(value: Any) -> list[str]:
    if not value:
        return []
    return [str(v) for v in value] if isinstance(value, (list, tuple)) else [p for p in str(value).split(",") if p]


__all__ = ["Delegate", "Signal", "Stopped", "TaskCore", "TaskFailed"]
