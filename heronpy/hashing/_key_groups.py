"""Key groups: the unit in which keys are divided among tasks.

A key belongs to a group for ever; a task owns a range of groups. So when the number of tasks changes, whole groups
move, and what is kept by key can be cut at their borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from heronpy.hashing._stable_hash import stable_hash, stable_hashes

KEY_GROUPS: Final = 1024
"""Number of key groups, unless `topology.state.key.groups` says otherwise; a power of two."""


def key_group(key: Any, groups: int = KEY_GROUPS) -> int:
    """The group of a key, from 0.

    Raises:
        TupleError: the key's type has no stable hash.
    """
    return stable_hash(key) % groups


def key_groups(keys: Sequence[Any], groups: int = KEY_GROUPS) -> list[int]:
    """The groups of many keys at once: the same as of each, in a fraction of the time.

    Raises:
        TupleError: as `key_group`.
    """
    return [hash_ % groups for hash_ in stable_hashes(keys).tolist()]


def index_of_group(group: int, tasks: int, groups: int = KEY_GROUPS) -> int:
    """Which of a component's tasks, by index, owns a group: each a range, and no two of very different size."""
    return group * tasks // groups


def groups_of(index: int, tasks: int, groups: int = KEY_GROUPS) -> range:
    """The groups that a component's task, by index, owns: those that `index_of_group` gives to it."""
    return range(-(-index * groups // tasks), -(-(index + 1) * groups // tasks))
