"""Key groups: the unit in which keys are divided among tasks.

A key belongs to a group for ever; a task owns a range of groups. So when the number of tasks changes, whole groups
move, and what is kept by key can be cut at their borders.

Where no checkpoint keeps anything by key, groups need not last, only be the same in all processes of a topology. There
text and numbers are in *cells*, by bits of the CRC-32 of a text and of the product of a number, and a table has the
group of each cell. To compute that for each tuple takes less CPU than a dictionary of all keys, which pushes everything
else out of the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any, Final

from heronpy.hashing._stable_hash import stable_hash, stable_hashes, text_crc

KEY_GROUPS: Final = 1024
"""Number of key groups, unless `topology.state.key.groups` says otherwise; a power of two."""


CELL_MASK: Final = 8191
"""Of 8192 cells: see `cell_of` and `groups_of_cells`."""
SPREAD: Final = 0x9E3779B1
"""What numbers are multiplied with: 2**32 divided by the golden ratio."""


def key_group(key: Any, groups: int = KEY_GROUPS, *, lasting: bool = True) -> int:
    """The group of a key, from 0.

    Args:
        key: the key.
        groups: how many there are.
        lasting: whether it is the group of a topology that takes checkpoints.

    Raises:
        TupleError: the key's type has no stable hash.
    """
    cell = None if lasting else cell_of(key)
    return stable_hash(key) % groups if cell is None else _group_of_cell(cell, groups)


def cell_of(key: Any) -> int | None:
    """The cell of text, or of a number; None: other keys have none."""
    if hasattr(key, "__stable_key__"):
        return None
    if isinstance(key, str):
        return text_crc(key) & CELL_MASK
    if isinstance(key, Number) and key == key:  # any of those that Python compares, but for NaN
        number = hash(key)
        return ((number ^ number >> 32) * SPREAD >> 19) & CELL_MASK
    if hasattr(key, "tolist"):  # numpy's booleans and arrays without dimensions equal numbers, and are none
        return cell_of(key.tolist())
    return None


def groups_of_cells(groups: int) -> list[int]:
    """Groups that need not last, by cell."""
    return [_group_of_cell(cell, groups) for cell in range(CELL_MASK + 1)]


def _group_of_cell(cell: int, groups: int) -> int:
    """A permutation, so each group has as many cells. Keys that differ in a few bits are in different cells, but those
    cells differ in a few bits, too, so without it they could be in one half of the groups."""
    cell = cell * 0x9E5 & CELL_MASK
    cell = (cell ^ cell >> 6) * 0x16AB & CELL_MASK
    return (cell ^ cell >> 7) * groups // (CELL_MASK + 1)


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
