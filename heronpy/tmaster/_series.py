"""Numbers of many series by minute, as arrays.

A series (one metric of one process) has a slot: its index in every array. A minute is one array over all slots, made
when the first number of that minute arrives and dropped when it is too old. So memory is what was reported times eight
bytes, a new minute costs one allocation, and neither a new process nor a new name ever moves the past: the arrays of
minutes before it are merely shorter. The obvious alternative, a matrix of processes by names, wastes nearly all of its
cells on Stream Managers, whose names contain the ids of their own instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLOTS_MIN = 16


class SeriesSpace:
    """The slots of one kind of series, and their numbers.

    Args:
        width: numbers per slot and minute: 1, or 2 for means (sum and count).
        fill: what a slot has in a minute in which nothing was reported: 0, or NaN for gauges.
    """

    def __init__(self, *, width: int, fill: float) -> None:
        self._width, self._fill = width, fill
        self._slots: dict[tuple[int, str], int] = {}
        self._free: list[int] = []
        self._names: dict[str, int] = {}
        self._name_list: list[str] = []
        self._size = 0
        """Slots that were ever given out; those in `_free` are among them."""
        self._source_of: Ints = np.full(SLOTS_MIN, -1, dtype=np.int64)
        self._name_of: Ints = np.full(SLOTS_MIN, -1, dtype=np.int64)
        self._minutes: dict[int, Floats] = {}
        self._all_time = self._blank(SLOTS_MIN)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def names(self) -> Sequence[str]:
        """Every name that ever had a slot; its index is the name's number."""
        return self._name_list

    @property
    def next_slot(self) -> int:
        """The slot that the next new series gets."""
        return self._free[-1] if self._free else self._size

    def slots_of(self, source: int, names: Iterable[str], *, room: int) -> Ints:
        """The slot of each name; -1 for new ones for which there is no room.

        Args:
            source: the number of the process.
            names: of its metrics.
            room: how many new slots may be made.
        """
        found: list[int] = []
        for name in names:
            slot = self._slots.get((source, name), -1)
            if slot < 0 and room > 0:
                slot = self._new_slot(source, name)
                room -= 1
            found.append(slot)
        return np.array(found, dtype=np.int64)

    def add(self, minute: int, slots: Ints, numbers: Floats) -> None:
        """Add to what the slots have in a minute. `numbers` is width by slots; no slot may be there twice."""
        self._minute(minute)[:, slots] += numbers

    def add_all_time(self, slots: Ints, numbers: Floats) -> None:
        """Add to the slots' sums of all time."""
        self._all_time[:, slots] += numbers

    def put(self, minute: int, slots: Ints, numbers: Floats) -> None:
        """Replace what the slots have in a minute, and as their latest number."""
        self._minute(minute)[:, slots] = numbers
        self._all_time[:, slots] = numbers

    def forget(self, source: int) -> None:
        """Free the slots of a process and wipe their past: somebody else gets them."""
        gone = [key for key in self._slots if key[0] == source]
        slots = np.array([self._slots.pop(key) for key in gone], dtype=np.int64)
        self._source_of[slots] = self._name_of[slots] = -1
        for block in (*self._minutes.values(), self._all_time):
            block[:, slots[slots < block.shape[1]]] = self._fill
        self._free.extend(slots.tolist())

    def keep(self, first: int, last: int) -> None:
        """Drop the minutes outside of these."""
        for minute in [m for m in self._minutes if not first <= m <= last]:
            del self._minutes[minute]

    def select(self, sources: Ints | None, names: Ints | None) -> Ints:
        """The slots in use of these processes and names; None: of all."""
        wanted = self._name_of[: self._size] >= 0
        if sources is not None:
            wanted &= np.isin(self._source_of[: self._size], sources)
        if names is not None:
            wanted &= np.isin(self._name_of[: self._size], names)
        return np.flatnonzero(wanted)

    def source_of(self, slots: Ints) -> Ints:
        return self._source_of[slots]

    def name_of(self, slots: Ints) -> Ints:
        return self._name_of[slots]

    def all_time(self, slots: Ints) -> Floats:
        """Width by slots: sums of all time, or the latest numbers."""
        return self._all_time[:, slots]

    def summed(self, slots: Ints, first: int, last: int) -> Floats:
        """Width by slots: the sums over these minutes."""
        # Whole rows are added and the slots picked at the end: picking costs ten times more than adding.
        total = np.zeros((self._width, self._size))
        for minute, block in self._minutes.items():
            if first <= minute <= last:
                size = min(self._size, block.shape[1])
                total[:, :size] += block[:, :size]
        return total[:, slots]

    def latest(self, slots: Ints, first: int, last: int) -> Floats:
        """Width by slots: the latest numbers in these minutes; NaN where there are none."""
        found = np.full((self._width, len(slots)), np.nan)
        for _, numbers in self.each(slots, first, last, backwards=True):
            missing = np.isnan(found)
            if not missing.any():
                break
            found[missing] = numbers[missing]
        return found

    def each(self, slots: Ints, first: int, last: int, *, backwards: bool = False) -> Iterator[tuple[int, Floats]]:
        """The minutes that have anything, in order, with their numbers: width by slots."""
        highest = int(slots.max(initial=-1))
        for minute in sorted((m for m in self._minutes if first <= m <= last), reverse=backwards):
            block = self._minutes[minute]
            if highest >= block.shape[1]:
                block = self._resized(block, highest + 1)
            yield minute, block[:, slots]

    def check_invariants(self) -> None:
        assert len(self._slots) + len(self._free) == self._size
        assert not set(self._free) & set(self._slots.values()), "a free slot is in use"
        for (source, name), slot in self._slots.items():
            assert self._source_of[slot] == source
            assert self._name_list[self._name_of[slot]] == name

    def _minute(self, minute: int) -> Floats:
        block = self._minutes.get(minute)
        if block is None or block.shape[1] < self._size:
            block = self._blank(_capacity(self._size)) if block is None else self._resized(block, _capacity(self._size))
            self._minutes[minute] = block
        return block

    def _new_slot(self, source: int, name: str) -> int:
        number = self._names.setdefault(name, len(self._names))
        if number == len(self._name_list):
            self._name_list.append(name)
        slot = self.next_slot
        if self._free:
            self._free.pop()
        if slot == self._size:
            self._size += 1
            if self._size > len(self._source_of):
                self._make_room()
        self._slots[source, name] = slot
        self._source_of[slot], self._name_of[slot] = source, number
        return slot

    def _make_room(self) -> None:
        size = _capacity(self._size)
        more = np.full(size - len(self._source_of), -1, dtype=np.int64)
        self._source_of = np.concatenate((self._source_of, more))
        self._name_of = np.concatenate((self._name_of, more))
        self._all_time = self._resized(self._all_time, size)

    def _blank(self, size: int) -> Floats:
        return np.full((self._width, size), self._fill) if self._fill else np.zeros((self._width, size))

    def _resized(self, block: Floats, size: int) -> Floats:
        larger = self._blank(size)
        larger[:, : block.shape[1]] = block
        return larger


def _capacity(size: int) -> int:
    return max(SLOTS_MIN, size + size // 8)
