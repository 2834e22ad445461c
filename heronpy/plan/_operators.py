"""The operators of a streamlet program that one component runs, for people: their names, and what follows what.

A streamlet program fuses neighbouring operators into one component, which has the name of the first. Their own names
travel in its configuration, as plain data that anybody may have written; so they are checked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OPERATORS_KEY = "streamlet.operators"
"""Configuration key of a component: its operators, each after the one that it follows."""
OPERATORS_MAX = 200
"""Of one component; those beyond are not shown."""
_TEXT_MAX = 128


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation of a streamlet program."""

    name: str
    """What the user called it by set_name(), or `<operation>-<n>`."""
    operation: str
    """The method that made it: map, filter, reduce_by_key, …"""
    function: str = ""
    """The user's function, source or sink; empty where it has no name."""
    follows: str = ""
    """The operator of the same component whose elements it takes; empty for the first."""

    @property
    def label(self) -> str:
        """Its name, with the function's where that says more."""
        return f"{self.name} ({self.function})" if self.function and self.function != self.name else self.name


def write_operators(operators: Iterable[Operator]) -> list[dict[str, str]]:
    """The configuration's value."""
    return [asdict(operator) for operator in operators]


def operators_of(config: Mapping[str, Any]) -> tuple[Operator, ...]:
    """The operators in a component's configuration; none if it is not of a streamlet program, or is damaged."""
    raw = config.get(OPERATORS_KEY)
    found: dict[str, Operator] = {}
    for one in raw[:OPERATORS_MAX] if isinstance(raw, list) else ():
        if not isinstance(one, dict):
            return ()
        name, operation, function, follows = (one.get(key) for key in Operator.__dataclass_fields__)
        texts = (name, operation, function, follows)
        if not all(isinstance(text, str) and len(text) <= _TEXT_MAX for text in texts) or name in found:
            return ()
        operator = Operator(str(name), str(operation), str(function), str(follows))
        if operator.follows not in (found or ("",)):  # the first follows none, all others one of those before
            return ()
        found[operator.name] = operator
    return tuple(found.values())


def chain(operators: Sequence[Operator]) -> str:
    """What follows what: `lines → split (flat_map) → [a → b; c]`."""
    then: dict[str, list[Operator]] = {}
    for operator in operators:
        then.setdefault(operator.follows, []).append(operator)
    texts: dict[str, str] = {}
    for operator in reversed(operators):
        branches = [texts[next.name] for next in then.get(operator.name, ())]
        rest = branches[0] if len(branches) == 1 else f"[{'; '.join(branches)}]" if branches else ""
        texts[operator.name] = f"{operator.label} → {rest}" if rest else operator.label
    return texts[operators[0].name] if operators else ""
