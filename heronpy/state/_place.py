"""Where a state lives: which task of which component, and which keys belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.errors import TopologyError, UsageError
from heronpy.hashing import KEY_GROUPS, groups_of, index_of_group, key_group
from heronpy.shown import shown


@dataclass(frozen=True, slots=True)
class Place:
    """A task."""

    topology_id: str
    component: str
    index: int = 0
    """Of the task in its component; not its task id."""
    tasks: int = 1
    groups: int = KEY_GROUPS
    """Number of key groups, `topology.state.key.groups`."""
    lasting: bool = True
    """Whether keys are in the groups of checkpoints: see `heronpy.hashing.key_group`."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.tasks <= self.groups:
            raise TopologyError(
                f"component {self.component!r}: task {self.index} of {self.tasks} with {self.groups} key groups"
            )

    @property
    def own(self) -> range:
        """Its key groups."""
        return groups_of(self.index, self.tasks, self.groups)

    def group_of(self, key: Any) -> int:
        """The key group of a key.

        Raises:
            TupleError: it has no stable hash, so it belongs to none.
        """
        return key_group(key, self.groups, lasting=self.lasting)

    def check_key(self, state: str, key: Any) -> None:
        """Refuse a key of another task.

        Raises:
            UsageError: it is one; names key, state and component.
            TupleError: it has no stable hash, so it belongs to no task.
        """
        owner = index_of_group(self.group_of(key), self.tasks, self.groups)
        if owner != self.index:
            raise UsageError(
                f"component {self.component!r}, state {state!r}: key {shown(key)} belongs to task {owner} of "
                f"{self.tasks}, not to this one ({self.index}): group every input by the field that is the key"
            )
