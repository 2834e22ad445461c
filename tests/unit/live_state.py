"""State of a task that is alone, and what its checkpoints hold."""

from __future__ import annotations

from typing import Any

from state_kit import GROUPS, Component

from heronpy.state import KeyedState, Place, TaskStates

WORDS = [f"word-{n}" for n in range(40)]
UNTOUCHED = {f"untouched-{n}": n for n in range(8)}


def alone(**options: Any) -> tuple[TaskStates, KeyedState]:
    states = TaskStates(Place("words-1", "count", 0, 1, GROUPS))
    return states, states.keyed_state("counts", **options)


def written(states: TaskStates, checkpoint_id: int = 1) -> dict[Any, bytes | None]:
    """Begin a checkpoint and write it; its entries."""
    component = Component(lambda s: None)
    component.tasks = [states]
    component.checkpoint_id = checkpoint_id - 1
    component.begin()
    return entries_of(component)


def write_all(states: TaskStates) -> None:
    while states.pending:
        states.write()


def entries_of(component: Component) -> dict[Any, bytes | None]:
    before = set(component.objects)
    while component.writing:
        component.write()
    found: dict[Any, bytes | None] = {}
    for name in component.objects.keys() - before:
        ref = next(ref for ref in component.refs if ref.name == name)
        for block in component.opened(ref).blocks():
            found.update(zip(block.keys, block.entries.values, strict=True))
    return found
