"""What operators do to elements, in the two forms in which tasks run them, side by side.

In a topology elements come one by one. An operator is a function of one element that calls the function after it, so
an element passes it for the price of two calls. What belongs to the element but is not its value (time, id, what it
came of) is in one `Place`, which an operator that changes it puts back.

In a batch job elements come in chunks: a list with their times, one int for all of them or a list. A chunk goes through
a C loop per operator: that is what makes Python fast there. Where user code raises, the element at fault is set aside,
and the loop goes on after it: user code gets each element once, for it may remember or change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any, Protocol, TypeVar

from heronpy.api.tuple import Detached, Tuple
from heronpy.streamlet.context import Context
from heronpy.streamlet.graph import EventTimeNode, FilterNode, FlatMapNode, JoinType, MapNode, Node, RepartitionNode
from heronpy.windows import Clock, event_time_ms

Put = Callable[[Any], None]
"""Takes an element."""
Failed = Callable[[str, Any, Exception], None]
"""`failed(stage, element, error)`: user code raised. Sets the element aside, or raises."""
Times = int | Sequence[int]
Push = Callable[[list[Any], Times], None]
"""Takes a chunk."""
ChunkFailed = Callable[[str, Any, int, Exception], None]
"""`failed(stage, element, time in ms, error)`, as `Failed`."""
_Side = TypeVar("_Side")


class Place:
    """What goes with the element in hand."""

    __slots__ = ("anchors", "id", "pending", "root", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        self.id = ""
        self.anchors: Any = None
        """Bolts: the tuples that it came of."""
        self.pending: list[Any] = [None, 0]
        """Spouts: its record, and how many of the trees that it began are on their way."""
        self.root: list[Any] | None = None
        """Spouts: `pending` where trees are tracked, else None."""


class ElementTask(Protocol):
    """What operators need of a task that gives them elements."""

    place: Place

    def failed(self, stage: str, element: Any, error: Exception) -> None:
        """User code raised on an element."""
        ...

    def clock_of(self, stage: str) -> Clock:
        """The clock of an event-time node."""
        ...


class Operator(Protocol):
    """An element-wise operator, in both forms."""

    def by_element(self, then: Put, task: ElementTask, *, ided: bool) -> Put:
        """What takes an element, and hands what comes of it to `then`; with ids, if somebody reads them."""
        ...

    def by_chunk(self, then: Push, failed: ChunkFailed) -> Push:
        """What takes a chunk, and hands what comes of it to `then`."""
        ...


def operator_of(node: Node) -> Operator | None:
    """The operator of a node; None if elements pass it as they are, or it is of no such kind."""
    if isinstance(node, MapNode):
        return Map(node.stage, node.function)
    if isinstance(node, FilterNode):
        return Filter(node.stage, node.function)
    if isinstance(node, FlatMapNode):
        return FlatMap(node.stage, node.function)
    if isinstance(node, EventTimeNode):
        return EventTime(node.stage, node.function)
    return None


def results(
    stage: str, make: Callable[[Iterator[Any]], Iterator[Any]], values: list[Any], times: Times, failed: ChunkFailed
) -> tuple[list[Any], list[Any], Times]:
    """Elements, what `make` makes of each, and their times, without those at which it raises: they are set aside.

    It gets each element once, for user code may change elements. StopIteration, which ends it like any iterator, is an
    error of an element as well.
    """
    made: list[Any] = []
    refused: list[int] = []
    left = iter(values)
    while len(made) + len(refused) < len(values):
        error: Exception = StopIteration()
        try:
            made.extend(make(left))  # what was made before an error stays
        except Exception as raised:  # whatever user code raises
            error = raised
        if (at := len(made) + len(refused)) < len(values):
            refused.append(at)
            failed(stage, values[at], times if isinstance(times, int) else times[at], error)
    if refused:
        kept = [at not in refused for at in range(len(values))]
        values = list(compress(values, kept))
        times = times if isinstance(times, int) else list(compress(times, kept))
    return values, made, times


class _Function:
    """A function of the user's that an operator calls with each element."""

    def __init__(self, stage: str, function: Callable[[Any], Any]) -> None:
        self._stage, self._function = stage, function


class Map(_Function):
    """`function(element) -> element`."""

    def by_element(self, then: Put, task: ElementTask, *, ided: bool) -> Put:
        stage, function, failed = self._stage, self._function, task.failed

        def put(element: Any) -> None:
            try:
                made = function(element)
            except Exception as error:
                failed(stage, element, error)
                return
            then(made)

        return put

    def by_chunk(self, then: Push, failed: ChunkFailed) -> Push:
        stage, function = self._stage, self._function

        def push(values: list[Any], times: Times) -> None:
            _, made, times = results(stage, lambda left: map(function, left), values, times, failed)
            then(made, times)

        return push


class Filter(_Function):
    """Keeps the elements for which `function(element)` is true."""

    def by_element(self, then: Put, task: ElementTask, *, ided: bool) -> Put:
        stage, function, failed = self._stage, self._function, task.failed

        def put(element: Any) -> None:
            try:
                kept = bool(function(element))  # arrays, for one, have no truth
            except Exception as error:
                failed(stage, element, error)
                return
            if kept:
                then(element)

        return put

    def by_chunk(self, then: Push, failed: ChunkFailed) -> Push:
        stage, function = self._stage, self._function

        def push(values: list[Any], times: Times) -> None:
            values, flags, times = results(stage, lambda left: map(bool, map(function, left)), values, times, failed)
            then(list(compress(values, flags)), times if isinstance(times, int) else list(compress(times, flags)))

        return push


class FlatMap(_Function):
    """`function(element) -> iterable of elements`. All are made before the first goes on: who fails emits nothing."""

    def by_element(self, then: Put, task: ElementTask, *, ided: bool) -> Put:
        stage, function, failed, place = self._stage, self._function, task.failed, task.place

        def put(element: Any) -> None:
            try:
                made = function(element)
                if type(made) is not list:
                    made = list(made)
            except Exception as error:
                failed(stage, element, error)
                return
            for one in made:
                then(one)

        def put_with_ids(element: Any) -> None:
            try:
                made = list(function(element))
            except Exception as error:
                failed(stage, element, error)
                return
            before = place.id
            for number, one in enumerate(made):
                place.id = f"{before}/{number}"
                then(one)
            place.id = before

        return put_with_ids if ided else put

    def by_chunk(self, then: Push, failed: ChunkFailed) -> Push:
        stage, function = self._stage, self._function

        def push(values: list[Any], times: Times) -> None:
            _, lists, times = results(stage, lambda left: map(list, map(function, left)), values, times, failed)
            if not isinstance(times, int):
                times = list(chain.from_iterable(map(repeat, times, map(len, lists))))
            then(list(chain.from_iterable(lists)), times)

        return push


class Transform(FlatMap):
    """The user's operator, by its `Transformer`."""


class EventTime(_Function):
    """Gives elements their time."""

    def by_element(self, then: Put, task: ElementTask, *, ided: bool) -> Put:
        stage, function, failed, place = self._stage, self._function, task.failed, task.place
        clock = task.clock_of(stage)

        def put(element: Any) -> None:
            try:
                time_ms = event_time_ms(function(element))
            except Exception as error:
                failed(stage, element, error)
                return
            if time_ms > clock.latest_ms:
                clock.observe(time_ms)
            clock.fresh = True
            before = place.time_ms
            place.time_ms = time_ms
            then(element)
            place.time_ms = before

        return put

    def by_chunk(self, then: Push, failed: ChunkFailed) -> Push:
        stage, function = self._stage, self._function

        def push(values: list[Any], times: Times) -> None:
            values, new_times, _ = results(
                stage, lambda left: map(event_time_ms, map(function, left)), values, times, failed
            )
            then(values, new_times)

        return push


class TransformContext(Context):
    """The context of a transform operator, without what depends on where it runs."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        """What it has emitted for the element in hand."""

    def emit(self, values: list[Any]) -> None:
        (element,) = values
        self.made.append(element)


class Transformer:
    """A transform operator in one task. Call it with an element: it gives all that the operator makes of that."""

    def __init__(self, operator: Any, context: Callable[[], TransformContext], origin: Detached) -> None:
        """Set the operator up.

        Args:
            operator: the user's.
            context: makes one for an operator.
            origin: where its tuples seem to come from.
        """
        self._context, self._origin = context, origin
        self.set_up(operator)

    def set_up(self, operator: Any) -> None:
        """Put an operator into the place of the one before."""
        context = self._context()
        self._made = context.made
        operator.setup(context)
        self._transform: Callable[[Any], Any] = operator.transform

    def __call__(self, element: Any) -> list[Any]:
        made = self._made
        try:
            self._transform(Tuple([element], self._origin, 0))
            return made.copy()
        finally:
            made.clear()


def partitions_of(function: Callable[[Any], Any], element: Any, count: int) -> list[int]:
    """Where `repartition` with a function sends an element.

    Raises:
        ValueError: one is no number of a partition.
    """
    partitions = function(element)
    found = list(partitions) if isinstance(partitions, (list, tuple, set, frozenset)) else [partitions]
    for partition in found:
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < count:
            raise ValueError(f"{partition!r} is not a partition: there are 0 to {count - 1}")
    return found


def copies(node: RepartitionNode) -> FlatMap:
    """`repartition` with a function in a batch job: an element goes nowhere, and is there once for each partition."""
    function = node.function
    assert function is not None
    return FlatMap(node.stage, lambda element: [element] * len(partitions_of(function, element, node.partitions)))


def joined(
    how: JoinType, lefts: Sequence[_Side], rights: Sequence[_Side], unmatched: _Side
) -> Iterator[tuple[_Side, _Side]]:
    """The pairs of a join of what one key has in one window, with `unmatched` where a side without partner is kept."""
    for left in lefts:
        for right in rights:
            yield left, right
    if not rights and how in (JoinType.OUTER_LEFT, JoinType.OUTER):
        for left in lefts:
            yield left, unmatched
    if not lefts and how in (JoinType.OUTER_RIGHT, JoinType.OUTER):
        for right in rights:
            yield unmatched, right


def as_tuple(key: Any) -> Any:
    """A list as the tuple that stands for it as a key, at any depth; JSON has no tuples."""
    return tuple(map(as_tuple, key)) if isinstance(key, (list, tuple)) else key
