"""State that is not divided by key: by split, one value per task, and the same in all tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from heronpy.checkpoints import ObjectWriter
from heronpy.errors import ConfigError, UsageError
from heronpy.hashing import index_of_group, key_group
from heronpy.shown import shown
from heronpy.state._dict_like import UNSET
from heronpy.state._immutable import immutable
from heronpy.state._key_bytes import check_lasting, key_bytes
from heronpy.state._layers import Values
from heronpy.state._owed import ENTRIES_AT_ONCE, Written
from heronpy.state._place import Place
from heronpy.state._schema import Schema
from heronpy.state._tracked import Tracked

Split = Callable[[Any, int], Sequence[Any]]
Merge = Callable[[Sequence[Any]], Any]


class BroadcastState(Tracked):
    """Keys and values that every task of the component has, from inputs that are grouped `all`. Behaves as a dict.

    A task that is new after a change of their number gets those of one of the former tasks.
    """

    __slots__ = ()


class Held(Tracked):
    """Its component may hold a mutable value, and change it whenever it likes, as it may with a dict that Heron pickles
    as a whole: nobody sees that. So each checkpoint has all of these, as they are at its marker; there are few."""

    __slots__ = ()

    @abstractmethod
    def _held(self) -> dict[Any, Any]:
        """The mutable values, with their keys."""

    @property
    def changed(self) -> int:
        return super().changed + len(self._held())

    def begin(self, writer: ObjectWriter, position: int, *, base: bool, at_once: int = ENTRIES_AT_ONCE) -> None:
        held = self._held()
        self._front.update(held)
        super().begin(writer, position, base=base, at_once=at_once)
        assert self._owed is not None
        for key, value in held.items():
            self._owed.save(key, value)

    def _mutable_of(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Those of some keys that have a mutable value, with it; to look for it changes nothing."""
        found = {}
        for key in keys:
            value = self._front.get(key, UNSET)
            if value is UNSET and self._is_below(key):
                value = self._find_below(key)
                value = value.value if type(value) is Written else value
            if not (value is UNSET or immutable(value)):
                found[key] = value
        return found


class TaskValue(Held):
    """The one value of a `TaskState`, under the key None."""

    __slots__ = ()

    def _held(self) -> dict[Any, Any]:
        return self._mutable_of((None,))


class ComponentState(Held):
    """What Heron's `init_state` is given: any keys of one task. Behaves as a dict.

    It cannot be divided, so it cannot be restored with another number of tasks, unless it is empty in all of them.
    """

    __slots__ = ("_mutable",)

    def __init__(self, schema: Schema, place: Place) -> None:
        self._mutable: set[Any] = set()
        """Keys that have, or had, a mutable value."""
        super().__init__(schema, place)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if not immutable(value):
            self._mutable.add(key)

    def load(self, data: Values, stamps: dict[Any, int]) -> None:
        super().load(data, stamps)
        self._mutable.update(key for key, value in data.items() if not immutable(value))

    def _held(self) -> dict[Any, Any]:
        found = self._mutable_of(self._mutable)
        self._mutable = {*found}
        return found


class SplitEntries(Tracked):
    """By split: (position,), or () for one that is finished."""

    __slots__ = ("owner",)

    owner: Callable[[Any], int]

    def _check(self, key: Any) -> None:
        if key is self._checked:
            return
        (check_lasting if self.place.lasting else key_bytes)(key)
        owner = self.owner(key)
        if owner != self.place.index:
            raise UsageError(
                f"component {self.place.component!r}, state {self.schema.name!r}: split {shown(key)} belongs to task "
                f"{owner} of {self.place.tasks}, not to this one ({self.place.index}); ask owns(split) before"
            )
        self._checked = key


class SplitState(MutableMapping[Any, Any]):
    """By split of a source (a partition, a file): the position that was reached. Behaves as a dict of own splits.

    Splits are divided among the tasks by key group, or by a number modulo the number of tasks; they are divided again
    at a restore with another number of tasks, and only there. A finished split stays known as such.
    """

    def __init__(self, schema: Schema, place: Place, index: Callable[[Any], int] | None = None) -> None:
        """Empty.

        Args:
            schema: Its name, and the form of the positions.
            place: The task.
            index: The number of a split, where splits are to be divided by number.
        """
        self._index = index
        self.entries = SplitEntries(schema, place)
        self.entries.owner = self.owner

    def owner(self, split: Any) -> int:
        """Index of the task that a split belongs to."""
        place = self.entries.place
        if self._index is not None:
            return self._index(split) % place.tasks
        return index_of_group(key_group(split, place.groups), place.tasks, place.groups)

    def owns(self, split: Any) -> bool:
        """Whether it belongs to this task."""
        return self.owner(split) == self.entries.place.index

    def finish(self, split: Any) -> None:
        """Note down that nothing more comes of a split. Its position is forgotten."""
        self.entries[split] = ()

    def is_finished(self, split: Any) -> bool:
        """Whether a split of this task is finished."""
        return split in self.entries and not self.entries[split]

    def __getitem__(self, split: Any) -> Any:
        entry = self.entries[split]
        if not entry:
            raise KeyError(split)
        return entry[0]

    def __setitem__(self, split: Any, position: Any) -> None:
        self.entries[split] = (position,)

    def __delitem__(self, split: Any) -> None:
        del self.entries[split]

    def __iter__(self) -> Iterator[Any]:
        return iter([split for split in self.entries if not self.is_finished(split)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<SplitState {self.entries.schema.name!r}: {len(self.entries)} splits>"


class TaskState:
    """One value of this task.

    When the number of tasks changes, the values of all of them are merged into one, and that is split again.
    """

    def __init__(
        self, schema: Schema, place: Place, default: Any = UNSET, split: Split | None = None, merge: Merge | None = None
    ) -> None:
        """With the default for a value.

        Args:
            schema: Its name, and the form of the value.
            place: The task.
            default: The value that was never set, or a function that makes it.
            split: `split(value, n)`: n values of it.
            merge: `merge(values)`: one value of those of all tasks that had one, in the order of their indexes.

        Raises:
            ConfigError: it has only one of the two, so not every number of tasks could restore it.
        """
        if (split is None) != (merge is None):
            raise ConfigError(
                f"component {place.component!r}, state {schema.name!r}: it has no {'split' if merge else 'merge'}, so "
                "not every number of tasks could restore it: give it both, or neither"
            )
        self.split = split
        self.merge = merge
        self.entries = TaskValue(schema, place, None if default is UNSET else default)

    @property
    def value(self) -> Any:
        """The present value. It may be held, and changed in place."""
        return self.entries[None]

    @value.setter
    def value(self, value: Any) -> None:
        self.entries[None] = value

    def __repr__(self) -> str:
        return f"<TaskState {self.entries.schema.name!r}>"
