"""Where batches go by a physical plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from heronpy.config import ReliabilityMode, takes_checkpoints
from heronpy.plan import Component, PhysicalPlan, feedback_edges


@dataclass(frozen=True)
class Routes:
    """The plan as the Stream Manager of one container sees it."""

    plan: PhysicalPlan
    container: int

    @cached_property
    def outbox_of(self) -> Mapping[int, str]:
        """By task, whose outbox its batches are put into: its own instance, or the Stream Manager in front of it."""
        return {
            instance.task_id: instance.instance_id(container.id) if self._is_local(container.id) else container.stmgr_id
            for container in self.plan.packing.containers
            for instance in container.instances
        }

    @cached_property
    def tasks(self) -> Mapping[str, int]:
        """Task of each instance of this container, by instance id."""
        return {
            instance.instance_id(container.id): instance.task_id
            for container in self.plan.packing.containers
            if self._is_local(container.id)
            for instance in container.instances
        }

    @cached_property
    def peers(self) -> frozenset[str]:
        """The other Stream Managers."""
        return frozenset(c.stmgr_id for c in self.plan.packing.containers if not self._is_local(c.id))

    @cached_property
    def incarnations(self) -> Mapping[str, int]:
        """The incarnation of the container of each Stream Manager, as far as the plan knows."""
        return {location.id: location.container_incarnation for location in self.plan.stmgrs}

    @cached_property
    def remote(self) -> Mapping[int, str]:
        """Instance id of each task of another container."""
        return {
            instance.task_id: instance.instance_id(container.id)
            for container in self.plan.packing.containers
            if not self._is_local(container.id)
            for instance in container.instances
        }

    @cached_property
    def locations(self) -> Mapping[str, str]:
        """The Stream Manager in front of each instance of another container."""
        return {instance: self.outbox_of[task] for task, instance in self.remote.items()}

    @cached_property
    def spouts(self) -> frozenset[str]:
        """Ids of this container's spouts."""
        return frozenset(name for name, task in self.tasks.items() if self._component(task).is_spout)

    @cached_property
    def tracked(self) -> bool:
        """Whether tuples may have roots, which fail when they are lost."""
        return ReliabilityMode.of(self.plan.logical.config).tracks_trees

    @cached_property
    def has_checkpoints(self) -> bool:
        """Whether checkpoints are taken, and any loss is a restore."""
        return takes_checkpoints(self.plan.logical.config)

    @cached_property
    def cyclic(self) -> bool:
        """Whether there are feedback edges."""
        return bool(self._feedback)

    def feedback_tasks(self, instance: str) -> frozenset[int]:
        """The tasks behind the feedback edges of an instance of this container."""
        component = self._component(self.tasks[instance]).name
        consumers = {consumer for source, consumer in self._feedback if source == component}
        return frozenset(task for name in consumers for task in self.plan.component_tasks[name])

    @cached_property
    def _feedback(self) -> frozenset[tuple[str, str]]:
        return feedback_edges(self.plan.logical)

    def _component(self, task: int) -> Component:
        return self.plan.logical.components[self.plan.tasks[task][1].component]

    def _is_local(self, container: int) -> bool:
        return container == self.container
