"""The last numbers that were measured of each topology, for as long as its Topology Master does not answer.

Kept in memory alone: a Tracker that was just started knows none. What is kept is bounded by the number of instances it
speaks of (of each about 2 KiB); the topologies that were measured last stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

INSTANCES_MAX = 20_000
"""Of how many instances numbers are kept, counted anew for each interval."""
INTERVALS_MAX = 8
"""Of how many intervals of one topology: the UI has four, anybody may ask for others."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Numbers(Generic[T]):
    """What was measured at one time."""

    measured: Mapping[str, T]
    """By instance."""
    interval_s: int
    """The time that they speak of; -1: all time."""
    at_s: float
    """When they were measured, since the epoch."""


class Remembered(Generic[T]):
    """The last numbers by topology, and by the interval that was asked for."""

    def __init__(self, instances_max: int = INSTANCES_MAX) -> None:
        """Know none yet.

        Args:
            instances_max: Of how many instances they are kept; those of the last topology are kept in any case.
        """
        self._by_topology: OrderedDict[str, OrderedDict[int, Numbers[T]]] = OrderedDict()
        self._instances_max = instances_max
        self._instances = 0

    def add(self, topology_id: str, interval: int, numbers: Numbers[T]) -> None:
        """Remember these instead of earlier ones."""
        kept = self._by_topology.setdefault(topology_id, OrderedDict())
        self._by_topology.move_to_end(topology_id)
        if interval in kept:
            self._drop(kept, interval)
        kept[interval] = numbers
        self._instances += len(numbers.measured)
        while len(kept) > INTERVALS_MAX:
            self._drop(kept, next(iter(kept)))
        while self._instances > self._instances_max and (len(self._by_topology) > 1 or len(kept) > 1):
            oldest = next(iter(self._by_topology))
            self._drop(self._by_topology[oldest], next(iter(self._by_topology[oldest])))
            if not self._by_topology[oldest]:
                del self._by_topology[oldest]

    def get(self, topology_id: str, interval: int) -> Numbers[T] | None:
        """The last numbers; None if none are known."""
        kept = self._by_topology.get(topology_id)
        return kept.get(interval) if kept is not None else None

    def keep(self, topology_ids: Iterable[str]) -> None:
        """Forget all topologies but these."""
        for id in self._by_topology.keys() - set(topology_ids):
            gone = self._by_topology.pop(id)
            self._instances -= sum(len(numbers.measured) for numbers in gone.values())

    def _drop(self, kept: OrderedDict[int, Numbers[T]], interval: int) -> None:
        self._instances -= len(kept.pop(interval).measured)
