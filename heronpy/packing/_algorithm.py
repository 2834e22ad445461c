"""The interface of every packing algorithm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from heronpy.plan import LogicalPlan, PackingPlan


class Packing(ABC):
    """Places the instances of one topology in containers. Pure: the same topology gives the same plan."""

    def __init__(self, logical: LogicalPlan) -> None:
        self.logical = logical

    @abstractmethod
    def pack(self) -> PackingPlan:
        """A plan for the whole topology: every task once, task ids 1 … n, containers 1 … k.

        Raises:
            TopologyError: the configuration makes no sense, or the instances do not fit.
        """

    @abstractmethod
    def repack(
        self, current: PackingPlan, component_changes: Mapping[str, int], *, containers: int | None = None
    ) -> PackingPlan:
        """The plan after adding or removing instances, with as little movement as possible.

        Instances that stay keep their task id and, unless the number of containers is given, their container. New ones
        get ids that no task of the topology ever had: a root, a checkpoint or a late batch that names a task must never
        mean another one.

        Args:
            current: The plan in force.
            component_changes: By how much the parallelism of a component grows (or, negative, shrinks).
            containers: How many there are to be; None: those that there are, and as many more as are needed.

        Raises:
            TopologyError: unknown component, fewer than one instance left, more containers than instances, or they do
                not fit.
        """
