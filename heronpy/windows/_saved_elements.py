"""Elements of windows in checkpoints: a checkpoint has those that came since the last, and no others.

Elements have numbers in the order of their arrival, which decide between equal times. They are state in blocks of
consecutive numbers, because an entry for each was two thirds of what a windowed bolt costs. A block enters the state
when it is full, or before a snapshot, and leaves it when all of its elements have been removed. Elements are removed in
the order of (time, number), so that the last one that was removed says which of a block are left.

Such windows belong to a task, with all of their elements. When tasks become fewer, those of one that is no more go to
another as a whole, which finishes them apart from its own. So the key of a block says whose it is: it is the number of
the task plus a multiple of `_TASKS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heronpy.windows._durable import DeclaresState
from heronpy.windows._spans import NEVER

Row = tuple[float, Any, int]
TIME, ELEMENT, NUMBER = 0, 1, 2
BLOCK = 256
"""Elements in a block."""
_TASKS_MAX = 1 << 20


class SavedElements:
    """The elements in the windows of one task. See `saved_elements`."""

    def __init__(
        self,
        state: Any,
        task: int,
        blocks: Sequence[int],
        size: int,
        pack: Callable[[Any], Any],
        unpack: Callable[[Any], Any],
    ) -> None:
        """What is saved, or nothing; `blocks` are the numbers of those that are in the state, of `size` elements."""
        self._state, self._task, self._size, self._pack = state, task, size, pack
        self._next: int
        self._removed: tuple[float, int]
        self.marks: Any
        """What else there is to know. `save` saves it."""
        self._next, self._removed, self.marks = state.get(self._key(-1)) or (0, (NEVER, -1), None)
        self.component: str = state.entries.place.component
        self.rows: list[Row] = []
        """The elements that were saved, in the order of their times."""
        self._gone: dict[int, int] = {}
        """How many elements were removed of each block, if some were."""
        for block in blocks:
            elements = state[self._key(block)]
            left = [
                (time, unpack(packed), number)
                for number, (time, packed) in enumerate(elements, block * self._size)
                if (time, number) > self._removed
            ]
            self.rows += left
            if len(left) < len(elements):
                self._gone[block] = len(elements) - len(left)
        self.rows.sort(key=lambda row: (row[TIME], row[NUMBER]))
        last = self._next // self._size
        self._buffer: list[tuple[float, Any]] = list(state[self._key(last)]) if self._next % self._size else []
        """Elements of the block that is not full."""

    def add(self, time: float, element: Any) -> int:
        """Keep an element; returns its number."""
        number = self._next
        self._next += 1
        self._buffer.append((time, self._pack(element)))
        if len(self._buffer) == self._size:
            self._store()
            self._buffer = []
        return number

    def remove(self, rows: Sequence[Row]) -> None:
        """Forget elements, the next ones in the order of their times."""
        gone = self._gone
        for _, _, number in rows:
            block = number // self._size
            gone[block] = gone.get(block, 0) + 1
            if gone[block] == self._size:
                del gone[block]
                del self._state[self._key(block)]
        if rows:
            time, _, number = rows[-1]
            self._removed = (time, number)

    def save(self) -> None:
        """Bring the state up to date, for a snapshot."""
        if self._buffer:
            self._store()
        self._state[self._key(-1)] = (self._next, self._removed, self.marks)

    def forget(self) -> None:
        """Forget that there were any: all are removed."""
        for block in [*self._gone, -1]:
            self._state.pop(self._key(block), None)
        self._gone, self._buffer = {}, []

    def _store(self) -> None:
        self._state[self._key((self._next - 1) // self._size)] = tuple(self._buffer)

    def _key(self, block: int) -> int:
        """Of a block; -1: of what else there is to know."""
        return self._task + block * _TASKS_MAX


def saved_elements(
    states: DeclaresState,
    name: str,
    *,
    pack: Callable[[Any], Any] = lambda element: element,
    unpack: Callable[[Any], Any] = lambda packed: packed,
    block: int = BLOCK,
) -> tuple[SavedElements, list[SavedElements]]:
    """Where the elements of a task's windows are saved, and those of tasks that are no more and are finished here.

    Args:
        states: the task's `TopologyContext`.
        name: of the state.
        pack: makes a value for the state of an element; best of what cannot be changed.
        unpack: makes an element of that.
        block: how many are in one entry of the state.

    Raises:
        CheckpointError: what was saved cannot be restored.
    """
    state = states.split_state(name, index=_task)
    own = state.entries.place.index
    blocks: dict[int, list[int]] = {own: []}
    for key in state:
        of_task = blocks.setdefault(_task(key), [])
        if key >= 0:
            of_task.append(key // _TASKS_MAX)
    made = {task: SavedElements(state, task, sorted(found), block, pack, unpack) for task, found in blocks.items()}
    return made.pop(own), list(made.values())


def _task(key: int) -> int:
    return key % _TASKS_MAX


__all__ = ["ELEMENT", "NUMBER", "TIME", "Row", "SavedElements", "saved_elements"]
