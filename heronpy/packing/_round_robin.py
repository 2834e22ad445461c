"""Round robin: Heron's default packing.

The instances are taken component by component (spouts first, in the order of declaration) and dealt to the containers
like cards. Every container gets about the same number, and the instances of one component are spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heronpy.packing._algorithm import Packing
from heronpy.packing._placement import (
    CONTAINERS_KEY,
    Placed,
    Placement,
    all_instances,
    changed,
    container_count,
    plan_of,
)
from heronpy.packing._resources import ResourceModel
from heronpy.plan import LogicalPlan, PackingPlan


class RoundRobinPacking(Packing):
    """Deals the instances to `topology.stmgrs` containers (default 1), one at a time, round and round."""

    def __init__(self, logical: LogicalPlan) -> None:
        super().__init__(logical)
        self._resources = ResourceModel(logical.config, list(logical.components))

    def pack(self) -> PackingPlan:
        instances = all_instances(self.logical)
        count = container_count(self.logical.config.get(CONTAINERS_KEY, 1), len(instances))
        return self._plan(dealt(instances, count))

    def repack(
        self, current: PackingPlan, component_changes: Mapping[str, int], *, containers: int | None = None
    ) -> PackingPlan:
        # A container takes as many instances as the fullest one has now; then another one is opened.
        full = max(len(container.instances) for container in current.containers)
        placed, new = changed(self.logical, current, component_changes)
        if containers is not None:
            container_count(containers, sum(map(len, placed.values())) + len(new))
            _open_or_close(placed, containers)
        for instance in new:
            container = min(placed, key=lambda c: (len(placed[c]), c))
            if containers is None and len(placed[container]) >= full:
                container = max(placed) + 1
                placed[container] = []
            placed[container].append(instance)
        if containers is not None:
            _balance(placed)
        return self._plan(placed, highest_task_id=current.highest_task_id + len(new))

    def _plan(self, placed: Placement, *, highest_task_id: int = 0) -> PackingPlan:
        divide = self._resources.divide
        return plan_of(self.logical, self._resources, placed, divide, highest_task_id=highest_task_id)


def dealt(instances: Sequence[Placed], count: int) -> Placement:
    """Instances dealt to containers 1 … count."""
    return {container: list(instances[container - 1 :: count]) for container in range(1, count + 1)}


def _open_or_close(placed: Placement, containers: int) -> None:
    """Add empty containers, or move the instances of the emptiest ones to the others."""
    while len(placed) < containers:
        placed[max(placed) + 1] = []
    while len(placed) > containers:
        closed = placed.pop(min(placed, key=lambda c: (len(placed[c]), -c)))
        for instance in closed:
            placed[min(placed, key=lambda c: (len(placed[c]), c))].append(instance)


def _balance(placed: Placement) -> None:
    """Move as few instances as possible, those with the highest ids, until no container has two more than another."""
    while True:
        fullest = max(placed, key=lambda c: (len(placed[c]), c))
        emptiest = min(placed, key=lambda c: (len(placed[c]), c))
        if len(placed[fullest]) - len(placed[emptiest]) < 2:
            return
        moved = max(placed[fullest], key=lambda instance: instance.task)
        placed[fullest].remove(moved)
        placed[emptiest].append(moved)
