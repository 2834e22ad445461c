"""The watermarks that a bolt with event time follows: those that the tasks before it send in band."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heronpy.windows import Upstream

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext


class FollowedWatermarks:
    """Those of one task."""

    def __init__(self, context: TopologyContext) -> None:
        """Nothing is known of any of them yet."""
        self._context = context
        self._upstream: dict[str, Upstream] = {}
        self.inputs: dict[tuple[str, str], Upstream] = {}
        """By component and stream; empty: none is followed."""
        for component, stream in context.watermark_sources():
            upstream = self._upstream.setdefault(component, Upstream(context.get_component_tasks(component) or ()))
            self.inputs[component, stream] = upstream

    def mark(self, task: int, watermark: int) -> None:
        """A task has sent its watermark."""
        for component, upstream in self._upstream.items():
            upstream.follow(self._context.get_component_tasks(component) or ())  # an update may have changed them
            if task in upstream:
                upstream.mark(task, watermark)


__all__ = ["FollowedWatermarks"]
