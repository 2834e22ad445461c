"""Whether the operators of a program may go on with the state that others of their names have left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from heronpy.plan import StateOwner


@dataclass(frozen=True, slots=True)
class Misplaced:
    """State that would come to the wrong operator, or to none."""

    text: str
    droppable: bool = False
    """It would come to none, which may be what the user wants."""


def misplaced(saved: Collection[StateOwner], program: Collection[StateOwner]) -> Iterator[Misplaced]:
    """What is wrong, an operator at a time.

    Args:
        saved: What has the state, of components that both programs have.
        program: What is to go on with it.
    """
    named = {owner.name: owner for owner in program}
    alike = Counter(owner.place for owner in program)
    for was in sorted(saved, key=lambda owner: owner.name):
        now = named.get(was.name)
        if now is None:
            yield Misplaced(f"component {was.component!r} has no operator {was.name!r} any more ({was.kind})", True)
        elif now.kind != was.kind:
            yield Misplaced(
                f"operator {was.name!r} is a {now.kind}, and its state that of a {was.kind}: give it another name, "
                f"{_naming(now, '…')}"
            )
        elif now.place and (now.place != was.place or alike[now.place] > 1):
            why = "is not in the same place of the program" if now.place != was.place else "is like another one"
            yield Misplaced(
                f"operator {now.name!r} was given no name, and {why}, so its state may be that of another: "
                f"call {_naming(now, repr(now.name))} on the one that is to go on with it"
            )
        elif now.component != was.component:
            yield Misplaced(
                f"operator {was.name!r} has state in component {was.component!r}, and runs in {now.component!r}", True
            )


def _naming(owner: StateOwner, name: str) -> str:
    """How a user gives an operator its name."""
    if owner.kind.startswith("sink "):
        return f"to_sink(…, name={name})"
    return f"to_store(…, stage_name={name})" if owner.kind.startswith("store ") else f"set_name({name})"
