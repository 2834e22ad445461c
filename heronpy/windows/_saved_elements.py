"""Elements of windows in checkpoints, one by one: a checkpoint has those that came since the last.

Each has a number of its own, in the order of arrival, which decides between equal times. They are state that is divided
by number, which gives a task every n-th. Positions among them are one small value; they make sense only with all
elements of the task, so these windows cannot be divided among another number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heronpy.errors import ConfigError
from heronpy.windows._durable import DeclaresState

Row = tuple[float, Any, int]
TIME, ELEMENT, NUMBER = 0, 1, 2


class SavedElements:
    """The elements in the windows of one task."""

    def __init__(
        self,
        states: DeclaresState,
        name: str,
        *,
        pack: Callable[[Any], Any] = lambda element: element,
        unpack: Callable[[Any], Any] = lambda packed: packed,
    ) -> None:
        """What is saved, or nothing.

        Args:
            states: the task's `TopologyContext`.
            name: of the state.
            pack: makes a value for the state of an element; best of what cannot be changed.
            unpack: makes an element of that.

        Raises:
            CheckpointError: it was saved with another number of tasks.
            ConfigError: the component overrides `pre_save` without calling that of its base.
        """
        self._pack, self._unpack = pack, unpack
        self._packed = states.split_state(name, index=int)
        self._entries = self._packed.entries
        saved = states.task_state(f"{name}.marks", default=None, split=_divided, merge=_merged)
        self._saved = saved
        self._step = self._entries.place.tasks
        self._marks: Any
        self._next: int
        self._next, number, self._marks = saved.value or (self._entries.place.index, 0, None)
        if number != len(self._entries) or any(each >= self._next for each in self._entries):
            raise ConfigError("windows changed after the last call of their pre_save(): call super().pre_save()")

    @property
    def marks(self) -> Any:
        """What else there is to know, as it was set last; None: nothing was saved."""
        return self._marks

    @marks.setter
    def marks(self, marks: Any) -> None:
        self._marks = marks
        self._saved.value = (self._next, len(self._entries), marks)

    def rows(self) -> list[Row]:
        """All elements, in the order of their times."""
        unpack = self._unpack
        return sorted(
            ((time, unpack(packed), number) for number, (time, packed) in self._packed.items()),
            key=lambda row: (row[TIME], row[NUMBER]),
        )

    def add(self, time: float, element: Any) -> int:
        """Keep an element; returns its number."""
        number = self._next
        self._packed[number] = (time, self._pack(element))
        self._next = number + self._step
        return number

    def remove(self, rows: Sequence[Row]) -> None:
        """Forget elements."""
        for row in rows:
            del self._packed[row[NUMBER]]


def _merged(saved: Sequence[Any]) -> None:
    if any(number for each in saved if each is not None for number in each[1:2]):
        raise ConfigError("windows with elements belong to their task: its number cannot change before they are empty")


def _divided(_nothing: Any, tasks: int) -> list[None]:
    _merged([_nothing])
    return [None] * tasks


__all__ = ["ELEMENT", "NUMBER", "TIME", "Row", "SavedElements"]
