"""What the beginning of an object says of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

U64_MAX = (1 << 64) - 1
U32_MAX = (1 << 32) - 1
GROUPS_MAX = 1 << 20
STATES_MAX = 1 << 12
NAME_CHARACTERS_MAX = 256


class Kind(StrEnum):
    """How the entries of a state are divided among tasks."""

    KEYED = "keyed"
    """By key group."""
    SPLIT = "split"
    """By split (a partition, a file)."""
    TASK = "task"
    """One value per task, divided by the user's functions."""
    BROADCAST = "broadcast"
    """Every task has them all."""


def check_name(what: str, name: str) -> None:
    """Refuse names that are empty, or too long for a file.

    Raises:
        ValueError: it is one of those.
    """
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"the {what} has {len(name)} characters; 1 to {NAME_CHARACTERS_MAX} are allowed")


class StateEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A state that has blocks in an object. Entries of an older version or codec have a `StateEntry` of their own."""

    name: str
    kind: Kind
    codec: str
    """How its values are encoded."""
    version: int
    """Of the user's schema."""

    def __post_init__(self) -> None:
        check_name("name of a state", self.name)
        check_name("codec of a state", self.codec)
        if not 0 <= self.version <= U32_MAX:
            raise ValueError(f"state {self.name!r} has version {self.version}")


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose state an object has, and as of when."""

    topology_id: str
    component: str
    index: int
    """Of the task in its component."""
    tasks: int
    """Of the component, when this was written."""
    generation: int
    """Checkpoint from which the component was restored with another number of tasks; 0: never was. What is divided
    otherwise than by key group is complete in the objects of one generation."""
    checkpoint_id: int
    since: int
    """Checkpoint that the changes in this object are relative to; 0: it is a base, and needs no older object."""
    epoch: int
    groups: int
    """Number of key groups of the topology; another number is refused, never mapped."""
    first_group: int
    end_group: int
    """One after the last key group."""
    states: tuple[StateEntry, ...]

    def __post_init__(self) -> None:
        check_name("topology id", self.topology_id)
        check_name("component", self.component)
        if not 1 <= self.groups <= GROUPS_MAX or self.groups & (self.groups - 1):
            raise ValueError(f"the number of key groups is {self.groups}")
        if not 0 <= self.index < self.tasks <= self.groups:
            raise ValueError(f"task {self.index} of {self.tasks}")
        if not 0 <= self.first_group < self.end_group <= self.groups:
            raise ValueError(f"key groups {self.first_group} to {self.end_group} of {self.groups}")
        if not (0 <= self.generation <= U64_MAX and 0 <= self.since < self.checkpoint_id <= U64_MAX):
            raise ValueError(f"checkpoint {self.checkpoint_id}, since {self.since}, generation {self.generation}")
        if not 0 <= self.epoch <= U32_MAX:
            raise ValueError(f"epoch {self.epoch}")
        if len(self.states) > STATES_MAX:
            raise ValueError(f"{len(self.states)} states; {STATES_MAX} are allowed")

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint_id} of {self.component!r}, task {self.index} of {self.tasks}, "
            f"topology {self.topology_id}"
        )
