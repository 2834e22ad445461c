"""What the algorithms share that fill containers of a given size: how much fits, and repacking with few moves.

The size of a container is the smallest of `topology.container.max.<ram|cpu|disk>.hint` and
`topology.container.<ram|cpu|disk>` that is given; without both, `topology.container.max.instances` (default 4)
instances of the default size, or the largest instance if that is more, with the padding. A container *asks* only for
its own instances and their padding, so containers differ.

**Repacking.** Task ids stay, and so does every instance that can. A larger plan moves none, as a container can always
be opened. Instances move for three reasons: their container is over its size (the plan is another algorithm's, or the
size is a new one), there are to be fewer containers, or more than there are new instances to put into them. For up to
`EXACT_MAX` instances that could move, sets of them are tried from the smallest on, so that no other repacking moves
fewer. Beyond that, the largest instances of an overfull container leave it, and the containers with the fewest
instances are closed: bin packing is NP-hard, and a plan must be had in a moment.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from heronpy.errors import TopologyError
from heronpy.packing._algorithm import Packing
from heronpy.packing._placement import Placed, Placement, changed, container_count, plan_of
from heronpy.packing._resources import Dimension, ResourceModel, exceeds, format_bytes, format_cores
from heronpy.plan import LogicalPlan, PackingPlan, Resources

INSTANCES_DEFAULT = 4
"""A container has the size of so many default instances, as in Heron, if nothing says otherwise."""
EXACT_MAX = 8
SEARCH_STEPS = 50_000
"""How many placements of one instance are tried in all, before a repacking is given up."""


class Size:
    """How large a container may be, and what instances take of it."""

    def __init__(self, config: Mapping[str, object], components: Sequence[str]) -> None:
        """Read the topology's configuration.

        Raises:
            TopologyError: it makes no sense, or one instance is too large for a container by itself.
        """
        self.model = ResourceModel(config, components)
        given = (self.model.cpu, self.model.ram, self.model.disk)
        self.instances_max = self.model.instances_max
        self._shares = {c: tuple(d.by_component.get(c, d.default) for d in given) for c in components}
        # What is asked for is the sum: without `requested` nothing is divided, and a percentage is one of the sum.
        self._dimensions = tuple(replace(d, requested=None) for d in given)
        self._limits = tuple(self._limit(n, d) for n, d in enumerate(given))
        for component in components:
            for dimension, share, limit in zip(given, self._shares[component], self._limits, strict=True):
                padding = replace(dimension, requested=None).padding_of(share)
                if exceeds(share + padding, limit):
                    raise TopologyError(
                        f"no container can take an instance of {component!r}: it needs {dimension.show(share)} of "
                        f"{dimension.what} and {dimension.show(padding)} are padding, but a container may have "
                        f"{dimension.show(limit)} ({_key(dimension, limit)})"
                    )

    @property
    def words(self) -> str:
        """The size of a container, for messages."""
        cpu, ram, disk = self._limits
        most = f", {self.instances_max} instances" if self.instances_max is not None else ""
        return f"{format_cores(cpu)}, {format_bytes(ram)} RAM, {format_bytes(disk)} disk{most}"

    def weight(self, component: str) -> float:
        """The largest share of a container's size that one instance takes, in any dimension."""
        shares = zip(self._shares[component], self._limits, strict=True)
        return max(share / limit if limit else 0.0 for share, limit in shares)

    def fits(self, components: Sequence[str]) -> bool:
        """Whether instances of these components may share a container."""
        if self.instances_max is not None and len(components) > self.instances_max:
            return False
        used = (sum(self._shares[c][n] for c in components) for n in range(3))
        return not any(
            exceeds(total + dimension.padding_of(total), limit)
            for total, dimension, limit in zip(used, self._dimensions, self._limits, strict=True)
        )

    def divide(self, container: int, components: Sequence[str]) -> tuple[list[Resources], Resources]:
        """The resources of each instance, and of their container."""
        cpus, rams, disks = zip(*(self._shares[c] for c in components), strict=True)
        cpu, ram, disk = (
            sum(shares) + d.padding_of(sum(shares))
            for shares, d in zip((cpus, rams, disks), self._dimensions, strict=True)
        )
        each = [Resources(c, int(r), int(d)) for c, r, d in zip(cpus, rams, disks, strict=True)]
        return each, Resources(cpu, int(ram), int(disk))

    def _limit(self, n: int, dimension: Dimension) -> float:
        given = [amount for amount in (dimension.maximum, dimension.requested) if amount is not None]
        if given:
            return min(given)
        instances = max(
            (self.instances_max or INSTANCES_DEFAULT) * dimension.default,
            max(shares[n] for shares in self._shares.values()),
        )
        return instances + self._dimensions[n].padding_of(instances)


def _key(dimension: Dimension, limit: float) -> str:
    return dimension.maximum_key if dimension.maximum == limit else dimension.container_key


class SizedPacking(Packing):
    """Fills containers up to their size."""

    def __init__(self, logical: LogicalPlan) -> None:
        super().__init__(logical)
        self._size = Size(logical.config, list(logical.components))

    def repack(
        self, current: PackingPlan, component_changes: Mapping[str, int], *, containers: int | None = None
    ) -> PackingPlan:
        placed, new = changed(self.logical, current, component_changes)
        placed = {container: instances for container, instances in placed.items() if instances}
        if containers is not None:
            container_count(containers, sum(map(len, placed.values())) + len(new))
        first = max(container.id for container in current.containers) + 1
        search = _Search(self, first, containers)
        for movers in self._movers(placed, len(new), containers):
            away = set(movers)
            stay = {c: [i for i in instances if i not in away] for c, instances in placed.items()}
            result = search.place(stay, self._ordered([*movers, *new]))
            if result is not None:
                return self._plan(result, highest_task_id=current.highest_task_id + len(new))
        raise TopologyError(
            f"topology.stmgrs = {containers}: {sum(map(len, placed.values())) + len(new)} instances cannot be divided "
            f"among so many containers of {self._size.words}"
        )

    def fits(self, instances: Iterable[Placed]) -> bool:
        """Whether these may share a container."""
        return self._size.fits([instance.component for instance in instances])

    @abstractmethod
    def preference(self, container: int, instances: Sequence[Placed]) -> tuple[int, int]:
        """A new instance goes to the container with the smallest that has room for it. Empty ones come first."""

    @abstractmethod
    def _ordered(self, instances: Sequence[Placed]) -> list[Placed]:
        """The order in which instances are placed."""

    def _plan(self, placed: Placement, *, highest_task_id: int = 0) -> PackingPlan:
        size = self._size
        return plan_of(self.logical, size.model, placed, size.divide, highest_task_id=highest_task_id)

    def _movers(self, placed: Placement, new: int, containers: int | None) -> Iterator[tuple[Placed, ...]]:
        """Sets of instances that may move; the smallest first, as far as that can be had."""
        overfull = {container for container, instances in placed.items() if not self.fits(instances)}
        pool = [i for c, instances in placed.items() for i in instances if containers is not None or c in overfull]
        pool.sort(key=lambda instance: -instance.task)
        if len(pool) <= EXACT_MAX:
            yield from itertools.chain.from_iterable(
                itertools.combinations(pool, count) for count in range(len(pool) + 1)
            )
            return
        evicted = [instance for container in sorted(overfull) for instance in self._evicted(placed[container])]
        rest = {c: [i for i in instances if i not in evicted] for c, instances in placed.items()}
        fewest = sorted((c for c in rest if rest[c]), key=lambda c: (len(rest[c]), -c))
        close = len(fewest) - containers if containers is not None else 0
        for at in range(len(fewest) - close + 1 if close > 0 else 0):
            yield (*evicted, *(i for c in fewest[at : at + close] for i in rest[c]))
        if close > 0:
            return
        lacking = containers - len(fewest) - new - len(evicted) if containers is not None else 0
        for _ in range(lacking):
            fullest = max(rest, key=lambda c: (len(rest[c]), c))
            evicted.append(rest[fullest].pop())
        yield tuple(evicted)

    def _evicted(self, instances: Sequence[Placed]) -> list[Placed]:
        """The instances that leave an overfull container: the largest, until the others fit."""
        left = sorted(instances, key=lambda i: (-self._size.weight(i.component), -i.task))
        evicted = []
        while not self.fits(left):
            evicted.append(left.pop(0))
        return evicted


class _Search:
    """Places instances beside those that stay. Backtracks where there are few."""

    def __init__(self, packing: SizedPacking, first: int, containers: int | None) -> None:
        """Args: first: The number of the first container that is opened; containers: how many there are to be."""
        self._packing = packing
        self._first = first
        self._containers = containers
        self._steps = SEARCH_STEPS

    def place(self, stay: Placement, loose: Sequence[Placed]) -> Placement | None:
        """Every container with its instances; None if they cannot be placed, or it was not found how."""
        bins = {c: list(instances) for c, instances in stay.items() if instances}
        if not all(self._packing.fits(instances) for instances in bins.values()):
            return None
        if self._containers is not None:
            if not len(bins) <= self._containers <= len(bins) + len(loose):
                return None
            bins |= {self._first + n: [] for n in range(self._containers - len(bins))}
        if len(loose) > EXACT_MAX:
            return self._fill(bins, loose)
        return bins if self._try(bins, loose) else None

    def _fill(self, bins: Placement, loose: Sequence[Placed]) -> Placement | None:
        for instance in loose:
            container = next(self._choices(bins, instance), None)
            if container is None:
                return None
            bins.setdefault(container, []).append(instance)
        return bins

    def _try(self, bins: Placement, loose: Sequence[Placed]) -> bool:
        if not loose:
            return all(bins.values()) or self._containers is None
        if self._containers is not None and sum(not instances for instances in bins.values()) > len(loose):
            return False
        for container in self._choices(bins, loose[0]):
            self._steps -= 1
            if self._steps < 0:
                return False
            bins.setdefault(container, []).append(loose[0])
            if self._try(bins, loose[1:]):
                return True
            bins[container].pop()
            if not bins[container] and self._containers is None:
                del bins[container]
        return False

    def _choices(self, bins: Placement, instance: Placed) -> Iterator[int]:
        """Containers that have room, the best first; the last is a new one, if any number is allowed."""
        tried_empty = False
        for container in sorted(bins, key=lambda c: self._packing.preference(c, bins[c])):
            if not bins[container]:
                if tried_empty:
                    continue  # one empty container is like another
                tried_empty = True
            if self._packing.fits((*bins[container], instance)):
                yield container
        if self._containers is None:
            yield max(self._first, max(bins, default=0) + 1)
