"""Groupings written by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class ICustomGrouping:
    """Decides which tasks of a bolt get a tuple. Runs in every instance that emits to the stream."""

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        """Called once before the first tuple.

        Args:
            context: of the emitting task.
            component: name of the component that emits.
            stream: id of the stream that is grouped.
            target_tasks: task ids of the bolt, ascending.
        """

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        """The task ids, out of `target_tasks`, that get a tuple with these values."""
        raise NotImplementedError(f"{type(self).__name__} does not implement choose_tasks()")
