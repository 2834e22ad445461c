"""Round robin into containers of a given size: Heron's ResourceCompliantRRPacking.

The instances are dealt to `topology.stmgrs` containers as by round robin. If one does not fit where it comes to lie,
all are dealt again to one container more: `topology.stmgrs` is the least number of containers.
"""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.packing._placement import CONTAINERS_KEY, Placed, all_instances, container_count
from heronpy.packing._round_robin import dealt
from heronpy.packing._sized import SizedPacking
from heronpy.plan import PackingPlan


class ResourceCompliantRRPacking(SizedPacking):
    """Deals the instances to at least `topology.stmgrs` containers (default 1), none of them over its size."""

    def pack(self) -> PackingPlan:
        instances = all_instances(self.logical)
        count = container_count(self.logical.config.get(CONTAINERS_KEY, 1), len(instances))
        while not all(map(self.fits, (placed := dealt(instances, count)).values())):
            count += 1  # ends at the latest with each by itself: `Size` has seen to that
        return self._plan(placed)

    def preference(self, container: int, instances: Sequence[Placed]) -> tuple[int, int]:
        return len(instances), container

    def _ordered(self, instances: Sequence[Placed]) -> list[Placed]:
        return list(instances)
