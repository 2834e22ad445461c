"""Round robin: Heron's default packing.

The instances are taken component by component (spouts first, in the order of declaration) and dealt to the containers
like cards. Every container gets about the same number, and the instances of one component are spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heronpy.errors import TopologyError, nearest
from heronpy.packing._algorithm import Packing
from heronpy.packing._resources import ResourceModel
from heronpy.plan import ContainerPacking, InstancePacking, LogicalPlan, PackingPlan

CONTAINERS_KEY = "topology.stmgrs"

_Placed = tuple[str, int, int]  # component, task id, index within the component


class RoundRobinPacking(Packing):
    """Deals the instances to `topology.stmgrs` containers (default 1), one at a time, round and round."""

    def __init__(self, logical: LogicalPlan) -> None:
        super().__init__(logical)
        self._resources = ResourceModel(logical.config, list(logical.components))

    def pack(self) -> PackingPlan:
        instances = [
            (component.name, index)
            for component in (*self.logical.spouts, *self.logical.bolts)
            for index in range(component.parallelism)
        ]
        count = _container_count(self.logical.config.get(CONTAINERS_KEY, 1), len(instances))
        dealt: dict[int, list[_Placed]] = {container: [] for container in range(1, count + 1)}
        for n, (component, index) in enumerate(instances):
            dealt[n % count + 1].append((component, n + 1, index))
        return self._plan(dealt)

    def repack(
        self, current: PackingPlan, component_changes: Mapping[str, int], *, containers: int | None = None
    ) -> PackingPlan:
        placed: dict[int, list[_Placed]] = {
            c.id: [(i.component, i.task_id, i.component_index) for i in c.instances] for c in current.containers
        }
        # A container takes as many instances as the fullest one has now; then another one is opened.
        full = max(len(instances) for instances in placed.values())
        next_task = current.highest_task_id + 1
        parallelism = {component: self._parallelism(placed, component) for component in component_changes}
        for component, change in component_changes.items():
            if parallelism[component] + change < 1:
                raise TopologyError(
                    f"{component!r} has {parallelism[component]} instances: it cannot lose {-change}, one must stay"
                )
        kept = {component: parallelism[component] + change for component, change in component_changes.items()}
        for container, instances in placed.items():
            placed[container] = [i for i in instances if i[0] not in kept or i[2] < kept[i[0]]]
        if containers is not None:
            added = sum(max(0, change) for change in component_changes.values())
            _container_count(containers, sum(map(len, placed.values())) + added)
            _open_or_close(placed, containers)
        for component, change in component_changes.items():
            for index in range(parallelism[component], parallelism[component] + change):
                container = min(placed, key=lambda c: (len(placed[c]), c))
                if containers is None and len(placed[container]) >= full:
                    container = max(placed) + 1
                    placed[container] = []
                placed[container].append((component, next_task, index))
                next_task += 1
        if containers is not None:
            _balance(placed)
        left = {container: instances for container, instances in placed.items() if instances}
        return self._plan(left, highest_task_id=next_task - 1)

    def _parallelism(self, placed: Mapping[int, Sequence[_Placed]], component: str) -> int:
        if component not in self.logical.components:
            raise TopologyError(f"unknown component {component!r}{nearest(component, self.logical.components)}")
        return sum(i[0] == component for instances in placed.values() for i in instances)

    def _plan(self, placed: Mapping[int, Sequence[_Placed]], *, highest_task_id: int = 0) -> PackingPlan:
        containers = []
        for container, instances in sorted(placed.items()):
            shares, required = self._resources.divide(container, [component for component, _, _ in instances])
            containers.append(
                ContainerPacking(
                    id=container,
                    instances=tuple(
                        InstancePacking(component, task, index, share)
                        for (component, task, index), share in zip(instances, shares, strict=True)
                    ),
                    required=required,
                )
            )
        return PackingPlan(self.logical.id, tuple(containers), highest_task_id)


def _open_or_close(placed: dict[int, list[_Placed]], containers: int) -> None:
    """Add empty containers, or move the instances of the emptiest ones to the others."""
    while len(placed) < containers:
        placed[max(placed) + 1] = []
    while len(placed) > containers:
        closed = placed.pop(min(placed, key=lambda c: (len(placed[c]), -c)))
        for instance in closed:
            placed[min(placed, key=lambda c: (len(placed[c]), c))].append(instance)


def _balance(placed: dict[int, list[_Placed]]) -> None:
    """Move as few instances as possible, those with the highest ids, until no container has two more than another."""
    while True:
        fullest = max(placed, key=lambda c: (len(placed[c]), c))
        emptiest = min(placed, key=lambda c: (len(placed[c]), c))
        if len(placed[fullest]) - len(placed[emptiest]) < 2:
            return
        moved = max(placed[fullest], key=lambda instance: instance[1])
        placed[fullest].remove(moved)
        placed[emptiest].append(moved)


def _container_count(raw: Any, instances: int) -> int:
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
