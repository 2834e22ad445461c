"""First-fit decreasing bin packing: Heron's FirstFitDecreasingPacking.

The instances with the largest demand are placed first (by RAM and then CPU, or the other way round:
`topology.packing.ffd.sorting.strategy`), each in the first container that has room for it; if none has, another one is
opened. There are as many containers as that takes, whatever `topology.stmgrs` says: at most 11/9 of the fewest that are
possible, plus one, where one resource alone decides (Johnson 1973; Dósa 2007).
"""

from __future__ import annotations

from collections.abc import Sequence

from heronpy.errors import TopologyError
from heronpy.packing._placement import Placed, Placement, all_instances
from heronpy.packing._sized import SizedPacking
from heronpy.plan import LogicalPlan, PackingPlan

STRATEGY_KEY = "topology.packing.ffd.sorting.strategy"
RAM_FIRST, CPU_FIRST = "RAM_FIRST", "CPU_FIRST"


class FirstFitDecreasingPacking(SizedPacking):
    """Fills one container after the other, with the largest instances first."""

    def __init__(self, logical: LogicalPlan) -> None:
        super().__init__(logical)
        strategy = logical.config.get(STRATEGY_KEY, RAM_FIRST)
        if strategy not in (RAM_FIRST, CPU_FIRST):
            raise TopologyError(f"{STRATEGY_KEY} must be {RAM_FIRST} or {CPU_FIRST}, not {strategy!r}")
        self._cpu_first = strategy == CPU_FIRST

    def pack(self) -> PackingPlan:
        placed: Placement = {1: []}
        before, container = "", 1
        for instance in self._ordered(all_instances(self.logical)):
            if instance.component != before:  # another of the same component does not fit where this one did not
                before, container = instance.component, 1
            while not self.fits((*placed.setdefault(container, []), instance)):
                container += 1
            placed[container].append(instance)
        return self._plan(placed)

    def preference(self, container: int, instances: Sequence[Placed]) -> tuple[int, int]:
        return bool(instances), container

    def _ordered(self, instances: Sequence[Placed]) -> list[Placed]:
        cpu, ram = self._size.model.cpu, self._size.model.ram

        def demand(instance: Placed) -> tuple[float, float, int]:
            cores = cpu.by_component.get(instance.component, cpu.default)
            ram_bytes = ram.by_component.get(instance.component, ram.default)
            first, second = (cores, ram_bytes) if self._cpu_first else (ram_bytes, cores)
            return -first, -second, instance.task

        return sorted(instances, key=demand)
