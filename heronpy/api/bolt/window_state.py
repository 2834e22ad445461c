"""The windows of window bolts as state.

Effectively once, a tuple is acked on arrival: what it is needed for is in the state of the task, which a failure gives
back. In the other modes a tuple is acked when it leaves its last window, and a failure has it replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heronpy.api.tuple import Detached, Tuple
from heronpy.windows import SavedElements

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

WINDOWS = "windows"
"""Name of the state of a window bolt's tuples."""
WATERMARKS = "windows.watermarks"
"""Name of the state of how far its event time has come."""


def saved_tuples(context: TopologyContext) -> SavedElements:
    """Where the tuples of a task's windows are saved."""
    return SavedElements(context, WINDOWS, pack=_packed, unpack=_unpacking(context))


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


__all__ = ["WATERMARKS", "WINDOWS", "saved_tuples"]
