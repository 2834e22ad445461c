"""Elements of windows in checkpoints, one by one: a checkpoint has those that came since the last.

Elements have numbers in the order of their arrival, which decide between equal times. Besides them there is one small
value, positions among them.

Such windows belong to a task, with all of their elements. When tasks become fewer, those of one that is no more go to
another as a whole, which finishes them apart from its own. So a number tells whose it is: it is that of the task, plus
a multiple of `_TASKS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heronpy.errors import ConfigError
from heronpy.windows._durable import DeclaresState

Row = tuple[float, Any, int]
TIME, ELEMENT, NUMBER = 0, 1, 2
_TASKS_MAX = 1 << 20


class SavedElements:
    """The elements in the windows of one task. See `saved_elements`."""

    def __init__(
        self, packed: Any, task: int, numbers: Sequence[int], pack: Callable[[Any], Any], unpack: Callable[[Any], Any]
    ) -> None:
        """What is saved, or nothing. Raises as `saved_elements`."""
        self._packed, self._pack, self._unpack = packed, pack, unpack
        self._numbers = numbers
        self._marks_key = task - _TASKS_MAX
        self._marks: Any
        self._next: int
        self._count: int
        self._next, self._count, self._marks = packed.get(self._marks_key) or (task, 0, None)
        if self._count != len(numbers) or any(number >= self._next for number in numbers):
            raise ConfigError("windows changed after the last call of their pre_save(): call super().pre_save()")

    @property
    def marks(self) -> Any:
        """What else there is to know, as it was set last; None: nothing was saved."""
        return self._marks

    @marks.setter
    def marks(self, marks: Any) -> None:
        self._marks = marks
        self._packed[self._marks_key] = (self._next, self._count, marks)

    def rows(self) -> list[Row]:
        """All elements that were saved, in the order of their times."""
        packed, unpack = self._packed, self._unpack
        saved = ((number, packed[number]) for number in self._numbers)
        rows = [(time, unpack(element), number) for number, (time, element) in saved]
        self._numbers = ()
        return sorted(rows, key=lambda row: (row[TIME], row[NUMBER]))

    def add(self, time: float, element: Any) -> int:
        """Keep an element; returns its number."""
        number = self._next
        self._packed[number] = (time, self._pack(element))
        self._next = number + _TASKS_MAX
        self._count += 1
        return number

    def remove(self, rows: Sequence[Row]) -> None:
        """Forget elements."""
        for row in rows:
            del self._packed[row[NUMBER]]
        self._count -= len(rows)

    def forget(self) -> None:
        """Forget that there were windows; their elements are removed."""
        assert not self._count
        self._packed.pop(self._marks_key, None)


def saved_elements(
    states: DeclaresState,
    name: str,
    *,
    pack: Callable[[Any], Any] = lambda element: element,
    unpack: Callable[[Any], Any] = lambda packed: packed,
) -> tuple[SavedElements, list[SavedElements]]:
    """Where the elements of a task's windows are saved, and those of tasks that are no more and are finished here.

    Args:
        states: the task's `TopologyContext`.
        name: of the state.
        pack: makes a value for the state of an element; best of what cannot be changed.
        unpack: makes an element of that.

    Raises:
        CheckpointError: what was saved cannot be restored.
        ConfigError: the component overrides `pre_save` without calling that of its base.
    """
    packed = states.split_state(name, index=_task)
    own = packed.entries.place.index
    numbers: dict[int, list[int]] = {own: []}
    for number in packed:
        of_task = numbers.setdefault(_task(number), [])
        if number >= 0:
            of_task.append(number)
    made = {task: SavedElements(packed, task, found, pack, unpack) for task, found in numbers.items()}
    return made.pop(own), list(made.values())


def _task(number: int) -> int:
    return number % _TASKS_MAX


__all__ = ["ELEMENT", "NUMBER", "TIME", "Row", "SavedElements", "saved_elements"]
