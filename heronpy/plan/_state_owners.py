"""Which operators of a streamlet program have state, and what distinguishes them after the program was changed.

State is restored by the names of component and operator. A name that the user gave says which operator is meant. One
that was generated is a number, and another operator has it when some are inserted, removed or swapped: so the place of
such an operator in its program is recorded with its state, in the manifest of each checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heronpy.config import ReliabilityMode
from heronpy.plan._logical import LogicalPlan

STATE_OWNERS_KEY: Final = "streamlet.state"
"""Configuration key of a component: which of its operators have state."""
_WITH_POSITIONS_OR_OUTPUT: Final = ("source ", "sink ", "store ")
"""Kinds that have state effectively once; otherwise they are replayed, or written at least once."""
_FIELDS: Final = ("name", "kind", "place")


@dataclass(frozen=True, slots=True)
class StateOwner:
    """An operator with state."""

    component: str
    """The one that runs it."""
    name: str
    """What the user called it, or `<operation>-<n>`."""
    kind: str
    """The operation: no other can restore its state. With the class of a source or sink, or the name of a view."""
    place: str = ""
    """Where it is in the program, as a digest; empty: the user gave it its name, and may move it."""


def write_state_owners(owners: Iterable[StateOwner]) -> list[dict[str, str]]:
    """The configuration's value, for one component."""
    return [{field: getattr(owner, field) for field in _FIELDS} for owner in owners]


def state_owners(logical: LogicalPlan) -> list[StateOwner]:
    """The operators with state; none of components that are not of a streamlet program, or of an earlier heronpy."""
    owners = [owner for name, component in logical.components.items() for owner in _read(name, component.config)]
    if ReliabilityMode.of(logical.config).tracks_trees:
        return [owner for owner in owners if not owner.kind.startswith(_WITH_POSITIONS_OR_OUTPUT)]
    return owners


def _read(component: str, config: Mapping[str, Any]) -> list[StateOwner]:
    raw = config.get(STATE_OWNERS_KEY)
    found = []
    for one in raw if isinstance(raw, list) else ():
        texts = [one.get(field) if isinstance(one, dict) else None for field in _FIELDS]
        if all(isinstance(text, str) for text in texts):
            found.append(StateOwner(component, *map(str, texts)))
    return found
