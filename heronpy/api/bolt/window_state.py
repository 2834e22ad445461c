"""The windows of window bolts as state.

With checkpoints, a tuple is acked on arrival: what it is needed for is in the state of the task, which a failure gives
back. Without, a tuple is acked when it leaves its last window, and a failure has it replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heronpy.api.tuple import Detached, Tuple
from heronpy.windows import Evaluated, Expired, SavedElements, TrailingWindows, saved_elements

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

WINDOWS = "windows"
"""Name of the state of a window bolt's tuples."""
WATERMARKS = "windows.watermarks"
"""Name of the state of how far its event time has come."""
FOREMOST = "windows.foremost"
"""Name of the state of the latest time that it has read, or those whose windows it may have."""


class TaskWindows:
    """The windows of a task and, after their number changed, those of tasks that are no more."""

    def __init__(
        self, make: Callable[[SavedElements | None, bool], TrailingWindows], context: TopologyContext, *, durable: bool
    ) -> None:
        """Those that are saved.

        Args:
            make: makes windows of what is saved of them; and whether they are the task's own, and go on.
            context: the task's.
            durable: whether they are in checkpoints.

        Raises:
            CheckpointError: what was saved cannot be restored.
        """
        own: SavedElements | None = None
        others: list[SavedElements] = []
        if durable:
            own, others = saved_elements(context, WINDOWS, pack=_packed, unpack=_unpacking(context))
            context.before_snapshot(self.save)
        self.own = make(own, True)
        self._others = [make(other, False) for other in others]
        self.add = self.own.add

    @property
    def reached(self) -> float:
        """As of `TrailingWindows`, of all of them."""
        return max(windows.reached for windows in (self.own, *self._others))

    def save(self) -> None:
        """Bring what is saved up to date."""
        for windows in (self.own, *self._others):
            windows.save()

    def advance(self, time: float) -> list[Evaluated | Expired]:
        """Time has come this far: what is due."""
        effects: list[Evaluated | Expired] = []
        for windows in self._others.copy():
            effects += windows.advance(time)
            for at, tup in windows.waiting():
                effects += self.own.add(tup, max(at, time))
            if windows.finish():
                self._others.remove(windows)
        return effects + self.own.advance(time)


def _packed(tup: Tuple) -> tuple[Any, ...]:
    origin = tup.origin_
    return (*tup.values, origin.component, origin.stream, origin.task)


def _unpacking(context: TopologyContext) -> Callable[[tuple[Any, ...]], Tuple]:
    origins: dict[tuple[str, str, int], Detached] = {}

    def unpack(packed: tuple[Any, ...]) -> Tuple:
        *values, component, stream, task = packed
        origin = origins.get((component, stream, task))
        if origin is None:
            fields = context.get_component_output_fields(component, stream) or ()
            origin = origins[component, stream, task] = Detached(component, stream, task, fields)
        return Tuple(values, origin, 0)

    return unpack


__all__ = ["FOREMOST", "WATERMARKS", "WINDOWS", "TaskWindows"]
