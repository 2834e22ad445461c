"""Where emitted tuples wait: one pair for each (this task, destination task), whatever the streams.

Storm and Heron keep the order of emit between two tasks, across streams. So a pair holds the tuples of all streams in
one list, and an `Edge` is the way into it for one stream. Entering costs one call into C, `put`, which is also all that
makes it safe from any thread: a list's `append`, and `extend` with a tuple, are atomic.

A tuple takes one to three consecutive items of the list: its values; its tag where tuples are tracked (what it is
anchored to, or its message id); the number of its stream, where the pair has several.

While much waits, values are serialized every few hundred tuples (`stage`), long before they are sent: they are still in
the caches then, and the memory of their tuples is used again at once, for the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heronpy.wire import U16

Values = Sequence[Any]
Put = Callable[[Any], None]
"""Takes a tuple's values; where tuples are tagged, `(values, tag)`."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Tuples on their way to one task, taken out of its pair."""

    task: int
    streams: Sequence[str]
    stream_indexes: NDArray[np.uint16] | None
    """For each tuple the index in `streams`; None if all are of one."""
    values: list[Values]
    """Those that are not serialized yet: the last ones."""
    tags: list[Any]
    """One for each tuple; empty if they are not tagged."""
    parts: Sequence[tuple[int, bytes]] = ()
    """Those that are: number of tuples and serialized values of each part."""

    @property
    def count(self) -> int:
        """How many tuples."""
        return sum(count for count, _ in self.parts) + len(self.values)

    def stream_of(self, index: int) -> str:
        return self.streams[0 if self.stream_indexes is None else int(self.stream_indexes[index])]

    def counts(self, start: int, stop: int) -> list[tuple[str, int]]:
        """How many of the tuples from `start` to `stop` are of each stream."""
        if self.stream_indexes is None:
            return [(self.streams[0], stop - start)]
        counts = np.bincount(self.stream_indexes[start:stop]).tolist()
        return [(stream, count) for stream, count in zip(self.streams, counts, strict=False) if count]


class Pair:
    """What waits for one task. Any thread may put, one at a time may take."""

    __slots__ = ("_items", "_left", "_numbers", "_parts", "_streams", "_tagged", "_tags", "task")

    def __init__(self, task: int, *, tagged: bool = False) -> None:
        """Nothing waits.

        Args:
            task: the receiver.
            tagged: whether tuples come with tags.
        """
        self.task = task
        self._tagged = tagged
        self._items: list[Any] = []
        self._streams: list[str] = []
        # Of what is serialized: its parts, and for each tuple its tag and its stream's number.
        self._parts: list[tuple[int, bytes]] = []
        self._tags: list[Any] = []
        self._numbers: list[int] = []
        self._left = False
        """What waits is left to the sender: to try again with more after it would cost more each time."""

    def __len__(self) -> int:
        """Items, not tuples: 0 if nothing waits."""
        return len(self._items) + len(self._parts)

    def stream(self, stream: str) -> int:
        """The number of a stream of this pair, from 0. Call for all of them before the first `put_of`."""
        if stream not in self._streams:
            self._streams.append(stream)
        return self._streams.index(stream)

    def put_of(self, stream: str) -> Put:
        """How a tuple of a stream enters."""
        number, extend = self._streams.index(stream), self._items.extend
        if len(self._streams) == 1:
            return extend if self._tagged else self._items.append
        if self._tagged:
            return lambda item: extend((*item, number))
        return lambda values: extend((values, number))

    def take(self) -> Taken:
        """All that waits, in the order in which it was put."""
        values, tags, numbers = self._split(self._take_items())
        parts: Sequence[tuple[int, bytes]] = ()
        self._left = False
        if self._parts:
            parts, tags, numbers = self._parts, self._tags + tags, self._numbers + numbers
            self._parts, self._tags, self._numbers = [], [], []
        if not numbers:
            return Taken(self.task, self._streams, None, values, tags, parts)
        if numbers.count(numbers[0]) == len(numbers):
            return Taken(self.task, (self._streams[numbers[0]],), None, values, tags, parts)
        return Taken(self.task, self._streams, np.array(numbers, dtype=U16), values, tags, parts)

    def stage(self, serialize: Callable[[list[Values]], bytes], bytes_max: int) -> None:
        """Serialize what waits, unless that fails, or makes more bytes than that: then it is left to the sender."""
        # Nothing is taken out before it is serialized: a caller meanwhile must not read that nothing waits.
        if self._left or not (waiting := self._items[:]):
            return
        values, tags, numbers = self._split(waiting)
        self._left = True
        try:
            data = serialize(values)
        except BaseException:  # it is tried again, tuple by tuple, where the user is notified of it
            return
        if len(data) > bytes_max:
            return
        self._left = False
        self._parts.append((len(values), data))
        self._tags += tags
        self._numbers += numbers
        del self._items[: len(waiting)]

    def _take_items(self) -> list[Any]:
        waiting = self._items[: len(self._items)]
        del self._items[: len(waiting)]
        return waiting

    def _split(self, waiting: list[Any]) -> tuple[list[Values], list[Any], list[int]]:
        """Values, tags and numbers of streams; the last two empty where there are none."""
        several = len(self._streams) > 1
        width = 1 + self._tagged + several
        if width == 1:
            return waiting, [], []
        tags = waiting[1::width] if self._tagged else []
        return waiting[::width], tags, waiting[width - 1 :: width] if several else []


class Edge:
    """The way to one task on one stream."""

    __slots__ = ("ids", "pair", "put", "stream", "task")

    put: Put

    def __init__(self, stream: str, pair: Pair) -> None:
        self.stream = stream
        self.pair = pair
        self.task = pair.task
        self.ids = [pair.task]
        """What emit returns."""
        pair.stream(stream)

    def seal(self) -> None:
        """Make `put`, when all streams of the pair are known."""
        self.put = self.pair.put_of(self.stream)

    @property
    def edges(self) -> Sequence[Edge]:
        return (self,)


class Fan:
    """Several edges that get the same tuple (all grouping, several consumers), or none."""

    __slots__ = ("edges", "ids", "put")

    put: Put

    def __init__(self, edges: Sequence[Edge], stream: str = "") -> None:
        self.edges = tuple(edges)
        self.ids = [edge.task for edge in edges]
        self.put = self._put_of([edge.put for edge in edges])

    # Every destination gets a list of its own: in the simulator two bolts would otherwise share one object.
    def _put_of(self, puts: Sequence[Put]) -> Put:
        def put(values: Values) -> None:
            for each in puts:
                each([*values])

        return put


class AnchoredFan(Fan):
    """A fan of a bolt whose tuples are tracked: every copy has the same anchors."""

    __slots__ = ()

    def _put_of(self, puts: Sequence[Put]) -> Put:
        def put(item: tuple[Values, Any]) -> None:
            values, anchors = item
            for each in puts:
                each(([*values], anchors))

        return put


@dataclass(slots=True, eq=False)
class SharedRoot:
    """The tag of a tuple that a spout sent to several tasks, or to none: all copies belong to one tree."""

    message_id: Any
    stream: str
    number: int = -1
    """Of the root among those that are sent together; -1 while it has none."""


Target = Edge | Fan
MakeFan = Callable[[Sequence[Edge]], Fan]
