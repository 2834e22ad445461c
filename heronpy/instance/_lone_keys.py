"""Keys of a component that has one task: whether several tasks could have them, too.

Several tasks refuse each other's keys. One that is alone has all of them, also those that its input is not grouped by,
and an update to several would find that out when it is too late. So keys that are new are compared with what the tuple
was routed by, for the first tuples of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from heronpy.api.tuple import Tuple
from heronpy.instance._core import TaskCore
from heronpy.plan import GroupingKind, InputDecl
from heronpy.shown import shown
from heronpy.state import TaskStates

_TUPLES = 1000
_NO_GROUP = -1


class LoneKeys:
    """Compares them. Used by the task's thread."""

    def __init__(self, core: TaskCore, states: TaskStates) -> None:
        """Begin to look, after the component has declared its states."""
        self._core, self._states, self._left = core, states, _TUPLES
        components = core.plan.logical.components
        self._key_of: dict[tuple[str, str], tuple[InputDecl, Callable[[list[Any]], Any]]] = {}
        """By stream: its input, and the key by which a tuple of it was routed."""
        for each in core.component.inputs:
            if each.grouping is GroupingKind.FIELDS:
                names = components[each.component].outputs[each.stream].fields
                key_of = itemgetter(*map(names.index, each.fields))
                self._key_of[each.component, each.stream] = each, key_of

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be looked at any more."""
        return self._left <= 0 or self._states.place.tasks > 1

    def observing(self, process: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
        """A `process` that compares."""

        def observed(tup: Tuple) -> None:
            for _ in self._states.new_keys_outside(_NO_GROUP):
                pass  # not this tuple's
            process(tup)
            self._compare(tup)

        return observed

    def _compare(self, tup: Tuple) -> None:
        if self.is_done:
            return  # since this batch began
        self._left -= 1
        routed = self._key_of.get((tup.component, tup.stream))
        if routed is None:
            return
        decl, key_of = routed
        for state, key in self._states.new_keys_outside(self._states.place.group_of(key_of(tup.values))):
            by = f"{decl.component}:{decl.stream} is grouped by {', '.join(decl.fields)}"
            self._left, self._states.misgrouped = 0, f"state {state!r} with key {shown(key)}, and {by}"
            self._core.logger.warning("%s: several tasks would refuse this key", self._states.misgrouped)
            return
