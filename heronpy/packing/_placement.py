"""Which instances there are, and which container has each: what every packing algorithm works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from heronpy.errors import TopologyError, nearest
from heronpy.packing._resources import ResourceModel
from heronpy.plan import ContainerPacking, InstancePacking, LogicalPlan, PackingPlan, Resources

CONTAINERS_KEY = "topology.stmgrs"


class Placed(NamedTuple):
    """One instance."""

    component: str
    task: int
    component_index: int


Placement = dict[int, list[Placed]]
"""Instances by container."""
Divide = Callable[[int, Sequence[str]], tuple[list[Resources], Resources]]


def all_instances(logical: LogicalPlan) -> list[Placed]:
    """Every instance of a topology: spouts first, in the order of declaration, with task ids from 1."""
    named = [
        (component.name, index)
        for component in (*logical.spouts, *logical.bolts)
        for index in range(component.parallelism)
    ]
    return [Placed(component, task, index) for task, (component, index) in enumerate(named, start=1)]


def changed(logical: LogicalPlan, current: PackingPlan, changes: Mapping[str, int]) -> tuple[Placement, list[Placed]]:
    """What stays of a plan, by container (some may be empty), and what is new, with ids that no task ever had.

    Of a component that shrinks, the instances with the highest indices go: those that stay are 0 … n-1.

    Raises:
        TopologyError: unknown component, or fewer than one instance left.
    """
    before = current.parallelism
    kept: dict[str, int] = {}
    for component, change in changes.items():
        if component not in logical.components:
            raise TopologyError(f"unknown component {component!r}{nearest(component, logical.components)}")
        kept[component] = before.get(component, 0) + change
        if kept[component] < 1:
            raise TopologyError(
                f"{component!r} has {before.get(component, 0)} instances: it cannot lose {-change}, one must stay"
            )
    placed = {
        c.id: [
            Placed(i.component, i.task_id, i.component_index)
            for i in c.instances
            if i.component not in kept or i.component_index < kept[i.component]
        ]
        for c in current.containers
    }
    new = [(name, index) for name in changes for index in range(before.get(name, 0), kept[name])]
    first = current.highest_task_id + 1
    return placed, [Placed(component, first + n, index) for n, (component, index) in enumerate(new)]


def plan_of(
    logical: LogicalPlan, model: ResourceModel, placed: Placement, divide: Divide, *, highest_task_id: int = 0
) -> PackingPlan:
    """The packing plan of a placement; empty containers go.

    Args:
        model: What the configuration says of resources.
        divide: From a container's number and the components of its instances to the resources of each and of all.
        highest_task_id: See `PackingPlan`.
    """
    containers = []
    for container, instances in sorted(placed.items()):
        if not instances:
            continue
        shares, required = divide(container, [instance.component for instance in instances])
        packed = tuple(
            InstancePacking(
                component,
                task,
                index,
                share,
                ram_given=component in model.ram.by_component,
                cpu_given=component in model.cpu.by_component,
            )
            for (component, task, index), share in zip(instances, shares, strict=True)
        )
        containers.append(ContainerPacking(container, packed, required))
    return PackingPlan(logical.id, tuple(containers), highest_task_id, model.master)


def container_count(raw: Any, instances: int) -> int:
    """How many containers there are to be, from the configuration's value.

    Raises:
        TopologyError: it is no number from 1, or there are fewer instances.
    """
    try:
        count = int(raw)
        exact = not isinstance(raw, bool) and float(raw) == count
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact or count < 1:
        raise TopologyError(f"{CONTAINERS_KEY} must be a number of containers from 1, not {raw!r}")
    if count > instances:
        raise TopologyError(
            f"{CONTAINERS_KEY} = {count}: more containers than the {instances} instances there are to put into them"
        )
    return count
