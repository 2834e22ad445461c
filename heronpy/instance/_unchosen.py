"""Fields grouping by one field of text or integers: the tasks of all tuples are chosen at once, when they are sent.

A dictionary of keys costs a lookup per emit, and with more keys than the caches hold that is several cache misses, each
of which waits for the one before: with 175,000 words a fifth of a spout's CPU. To hash the keys of a whole flush, a few
calls into C for all of them, costs less beside other processes and the same alone, and remembers nothing.

The order of emit to each task is kept because this is done only where everything that a task emits goes this way: one
list takes all tuples. What has to be chosen at once (another key, which may be an error) first moves all
that waits there into the pairs; from the first such key on, all are chosen at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np

from heronpy.hashing import index_of_group, stable_hashes
from heronpy.instance._edges import Edge, Put, Taken, Values

ChooseEdge = Callable[[Values], Edge]


class TaskIds(msgspec.Struct, eq=False):
    """What emit returns for a tuple whose task is not chosen yet: chooses when it is read.

    The collector knows it: what is emitted may keep it, which is a cycle.
    """

    choose: ChooseEdge
    values: Values

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return self.choose(self.values).ids[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.choose(self.values).ids)

    def __contains__(self, task: object) -> bool:
        return task in self.choose(self.values).ids

    def __eq__(self, other: object) -> bool:
        return [*self] == ([*other] if isinstance(other, TaskIds) else other)

    def __repr__(self) -> str:
        return repr([*self])

    def __reduce__(self) -> tuple[type[list[int]], tuple[list[int]]]:
        return list, ([*self],)

    index, count = Sequence.index, Sequence.count


Sequence.register(TaskIds)


class Unchosen:
    """Tuples whose tasks are not chosen yet. Any thread may put, one at a time may choose."""

    __slots__ = ("_edges", "_items", "_key_groups", "_key_of", "_lock", "_owners", "_tagged", "choose", "ids", "put")

    put: Put
    choose: ChooseEdge
    """The edge of one tuple."""

    def __init__(
        self,
        edges: Sequence[Edge],
        index: int,
        choose: ChooseEdge,
        *,
        key_groups: int,
        tagged: bool,
        lock: AbstractContextManager[Any],
    ) -> None:
        """Nothing waits.

        Args:
            edges: the consumer's tasks, ascending by task id.
            index: position of the key field.
            choose: the chooser of single tuples, which chooses the same.
            key_groups: number of key groups.
            tagged: whether tuples come with tags.
            lock: held while tuples are taken out.
        """
        self.choose = choose
        self.ids: None = None
        """Not known yet."""
        self._edges = edges
        self._key_of = operator.itemgetter(index)
        self._key_groups = np.uint64(key_groups)
        self._owners = np.array(
            [index_of_group(group, len(edges), key_groups) for group in range(key_groups)], dtype=np.uint16
        )
        self._tagged = tagged
        self._lock = lock
        self._items: list[Any] = []
        self.put = self._items.extend if tagged else self._items.append

    def __bool__(self) -> bool:
        """Whether something waits."""
        return bool(self._items)

    @property
    def destinations(self) -> int:
        """About how many tasks what waits is for."""
        return min(len(self._edges), len(self._items))

    def chooser(self, index: int) -> Callable[[Values], Edge | Unchosen]:
        """The chooser of the stream."""
        choose, began, mixed = self.choose, False, False

        def choose_later(values: Values) -> Edge | Unchosen:
            nonlocal began, mixed
            if not mixed:
                try:
                    kind = type(values[index])
                    if kind is str or kind is int:
                        began = True
                        return self
                except IndexError:
                    pass  # chosen now, it is refused
            edge = choose(values)
            if began:
                mixed = True  # to settle costs twenty emits if each time a tuple waits
                self.settle()
            return edge

        return choose_later

    def settle(self) -> None:
        """Move all that waits into the pairs: what the caller emits next may enter its pair after it."""
        with self._lock:  # also if nothing waits: another thread may have taken it, and not put it anywhere yet
            if taken := self.take():
                self.move(taken)

    def take(self) -> list[Taken]:
        """All that waits, in the order in which it was put. Call with the lock."""
        waiting = self._items[:]
        del self._items[: len(waiting)]
        if not waiting:
            return []
        values, tags = (waiting[::2], waiting[1::2]) if self._tagged else (waiting, [])
        keys = [*map(self._key_of, values)]
        owners = self._owners[stable_hashes(keys) % self._key_groups]
        order = np.argsort(owners, kind="stable").tolist()
        values = [*map(values.__getitem__, order)]
        tags = [*map(tags.__getitem__, order)] if self._tagged else tags
        taken: list[Taken] = []
        start = 0
        for edge, count in zip(self._edges, np.bincount(owners, minlength=len(self._edges)).tolist(), strict=True):
            if count:
                stop = start + count
                taken.append(Taken(edge.task, (edge.stream,), None, values[start:stop], tags[start:stop]))
                start = stop
        return taken

    def move(self, taken: Sequence[Taken]) -> None:
        """Put what was taken into the pairs, after what waits there."""
        put_of = {edge.task: edge.put for edge in self._edges}
        for each in taken:
            put = put_of[each.task]
            for item in zip(each.values, each.tags, strict=True) if self._tagged else each.values:
                put(item)
