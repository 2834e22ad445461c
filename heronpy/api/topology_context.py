"""What a task knows of the topology that it runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from heronpy.api._config import typed_config
from heronpy.api._state_context import StateContext
from heronpy.api.metrics import CountMetric, GaugeMetric, HistogramMetric, IMetric, MeterMetric, TimerMetric
from heronpy.api.task_hook import ITaskHook
from heronpy.errors import ConfigError

if TYPE_CHECKING:
    from heronpy.plan import PhysicalPlan

PACKAGE_ENV = "HERON_PACKAGE"
"""Set in the processes of a running topology: the directory that the user's modules are imported from."""
METRIC_EVERY_S = 5
"""Seconds between two readings of a metric, unless the user says otherwise."""

M = TypeVar("M", bound=IMetric)


class StreamId(NamedTuple):
    """A stream of a component."""

    id: str
    component_name: str


class MetricsRegistry(Protocol):
    """Where metrics are registered."""

    def register(self, name: str, metric: IMetric, time_bucket_in_sec: int) -> Any: ...


class TopologyContext(StateContext):
    """Made by the engine for every task, and passed to `initialize()`."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task_id: int,
        config: dict[str, Any],
        metrics: MetricsRegistry | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """The context of a task.

        Args:
            plan: the topology as it runs now.
            task_id: this task.
            config: the topology's configuration, overridden by the component's. Its values are typed in place (see
                `heronpy.api.typed_config`), so that the engine and the user's code see the same.
            metrics: where the user's metrics go.
            secrets: what `topology.secrets` declares, by name.

        Raises:
            UserCodeError: a configuration value cannot be unpickled.
        """
        super().__init__(plan, task_id)
        self._component = plan.tasks[task_id][1].component
        config.update(typed_config(config))
        self._config = config
        self._metrics = metrics
        self._secrets = secrets
        self.task_hooks: list[ITaskHook] = []
        self.on_task_hook: Callable[[], None] = lambda: None
        """Called when a hook was added. The engine's."""
        """The hooks of this task, in the order of their addition."""
        self.restore_epoch = 0
        """Effectively once: in which restore the component was made; it grows with each. A fence for what is written
        outside of the topology: an object of an older epoch may still run somewhere."""

    def get_task_id(self) -> int:
        """Id of this task, unique in the topology."""
        return self._task_id

    def get_component_id(self) -> str:
        """Name of this task's component."""
        return self._component

    def get_cluster_config(self) -> dict[str, Any]:
        """The configuration that `initialize()` gets."""
        return self._config

    def get_secret(self, name: str) -> str:
        """The value of a secret that `topology.secrets` declares.

        Raises:
            ConfigError: it declares none of this name.
        """
        if self._secrets is None:
            raise ConfigError(f"topology.secrets declares no secret {name!r}")
        return self._secrets[name]

    def get_topology_name(self) -> str:
        """Name of the topology."""
        return self._plan.logical.name

    def get_topology_id(self) -> str:
        """Id of the topology: its name and what distinguishes this submission from others of the name."""
        return self._plan.logical.id

    def get_topology_pex_path(self) -> str:
        """The directory that the topology's modules are imported from; it is on `sys.path`. Heron has a PEX file here.

        Without a submitted package, as in a simulator inside of a test, the first entry of `sys.path`.
        """
        return os.environ.get(PACKAGE_ENV) or os.path.abspath(sys.path[0])

    def register_metric(self, name: str, metric: IMetric, time_bucket_in_sec: int) -> IMetric:
        """Have a metric reported, and get it back.

        Args:
            name: the name that it is reported under.
            metric: what to read.
            time_bucket_in_sec: seconds between two readings.

        Raises:
            TypeError: not a metric.
        """
        if not callable(getattr(metric, "get_value_and_reset", None)):
            raise TypeError(f"{metric!r} is not a metric: it has no get_value_and_reset()")
        if self._metrics is not None:
            self._metrics.register(name, metric, time_bucket_in_sec)
        return metric

    def register_counter(self, name: str, time_bucket_in_sec: int = METRIC_EVERY_S) -> CountMetric:
        """A new counter, reported as `name`."""
        return self._registered(name, CountMetric(), time_bucket_in_sec)

    def register_meter(self, name: str, time_bucket_in_sec: int = METRIC_EVERY_S) -> MeterMetric:
        """A new meter, reported as `name/count` and `name/m1_rate`."""
        return self._registered(name, MeterMetric(), time_bucket_in_sec)

    def register_timer(self, name: str, time_bucket_in_sec: int = METRIC_EVERY_S) -> TimerMetric:
        """A new timer, reported in ms as `name/count`, `name/mean`, ... `name/p99`."""
        return self._registered(name, TimerMetric(), time_bucket_in_sec)

    def register_histogram(self, name: str, time_bucket_in_sec: int = METRIC_EVERY_S) -> HistogramMetric:
        """A new histogram, reported as `name/count`, `name/mean`, ... `name/p99`."""
        return self._registered(name, HistogramMetric(), time_bucket_in_sec)

    def register_gauge(
        self, name: str, read: Callable[[], float | None], time_bucket_in_sec: int = METRIC_EVERY_S
    ) -> GaugeMetric:
        """A value that `read` returns whenever it is reported as `name`."""
        return self._registered(name, GaugeMetric(read), time_bucket_in_sec)

    def _registered(self, name: str, metric: M, time_bucket_in_sec: int) -> M:
        self.register_metric(name, metric, time_bucket_in_sec)
        return metric

    def get_sources(self, component_id: str) -> dict[StreamId, int] | None:
        """The inputs of a component and their groupings (numbers of `Grouping`); None for an unknown component."""
        component = self._plan.logical.components.get(component_id)
        if component is None:
            return None
        return {StreamId(i.stream, i.component): int(i.grouping) for i in component.inputs}

    def get_this_sources(self) -> dict[StreamId, int]:
        """The inputs of this component and their groupings; empty for a spout."""
        return self.get_sources(self._component) or {}

    def feedback_sources(self) -> frozenset[tuple[str, str]]:
        """Those of the inputs (component, stream) that close a cycle: what they bring has been here before."""
        from heronpy.plan import feedback_edges  # by bolts with event time

        back = feedback_edges(self._plan.logical)
        inputs = self._plan.logical.components[self._component].inputs
        return frozenset((i.component, i.stream) for i in inputs if (i.component, self._component) in back)

    def watermark_sources(self) -> frozenset[tuple[str, str]]:
        """Those of the inputs (component, stream) whose watermarks the event time of this bolt follows."""
        from heronpy.plan import followed_inputs  # by bolts with event time

        return followed_inputs(self._plan.logical, self._component)

    def sends_watermarks(self) -> bool:
        """Whether this component sends watermarks that somebody follows; see `topology.component.watermark.field`."""
        from heronpy.plan import sends_watermarks

        return sends_watermarks(self._plan.logical, self._component)

    def get_component_tasks(self, component_id: str) -> list[int] | None:
        """Task ids of a component, ascending; None for an unknown one."""
        tasks = self._plan.component_tasks.get(component_id)
        return None if tasks is None else list(tasks)

    def add_task_hook(self, task_hook: ITaskHook) -> None:
        """Have a hook called from now on. Add them in `initialize()`: later ones are not prepared.

        Raises:
            TypeError: not an ITaskHook.
            RuntimeError: the first hook of a spout comes while tuples are on their way, whose ids were not kept.
        """
        if not isinstance(task_hook, ITaskHook):
            raise TypeError(f"{task_hook!r} is no ITaskHook")
        self.task_hooks.append(task_hook)
        self.on_task_hook()

    def get_this_task_index(self) -> int:
        """Number of this task within its component, from 0."""
        return self._plan.tasks[self._task_id][1].component_index

    def get_component_ids(self) -> list[str]:
        """Names of all components."""
        return list(self._plan.logical.components)

    def get_component_streams(self, component_id: str) -> list[str] | None:
        """Ids of a component's output streams; None for an unknown component."""
        component = self._plan.logical.components.get(component_id)
        return None if component is None else list(component.outputs)

    def get_this_streams(self) -> list[str]:
        """Ids of this component's output streams."""
        return self.get_component_streams(self._component) or []

    def get_component_output_fields(self, component_id: str, stream_id: str) -> tuple[str, ...] | None:
        """Names of the fields of a component's output stream; None for an unknown one."""
        component = self._plan.logical.components.get(component_id)
        if component is None or stream_id not in component.outputs:
            return None
        return component.outputs[stream_id].fields

    def get_task_to_component(self) -> dict[int, str]:
        """Component of every task id."""
        return {task_id: instance.component for task_id, (_, instance) in self._plan.tasks.items()}
