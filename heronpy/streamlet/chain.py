"""A fused tree of element-wise nodes, compiled into closures.

Each node becomes a function of one element that calls the functions of the nodes after it, so an element passes a node
for the price of two calls. What belongs to the element but is not its value (time, id, what it came of) is in one
`Place`, which a node that changes it puts back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from heronpy.errors import TupleError
from heronpy.streamlet._stages import Exit, Step
from heronpy.streamlet.event_time import event_time_ms
from heronpy.streamlet.graph import (
    ConsumeNode,
    EventTimeNode,
    FilterNode,
    FlatMapNode,
    LogNode,
    MapNode,
    SinkNode,
    TransformNode,
)
from heronpy.windows import Clock

Put = Callable[[Any], None]
Failed = Callable[[str, Any, Exception], None]
"""`failed(stage, element, error)`: user code raised. Sets the element aside, or raises."""


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


class Task(Protocol):
    """What a compiled tree needs of its task."""

    place: Place

    def failed(self, stage: str, element: Any, error: Exception) -> None:
        """User code raised on an element."""
        ...

    def exit_of(self, exit: Exit) -> Put:
        """What sends elements on a stream."""
        ...

    def clock_of(self, stage: str) -> Clock:
        """The clock of an event-time node."""
        ...

    def transformer_of(self, stage: str, operator: Any) -> Callable[[Any], list[Any]]:
        """What gives all that a transform operator makes of an element."""
        ...

    def writer_of(self, stage: str, sink: Any) -> Put:
        """What takes the elements of a sink."""
        ...

    def logger_of(self, stage: str) -> Put:
        """What logs elements."""
        ...


def after(step: Step, task: Task) -> Put:
    """What everything that comes out of a node goes through."""
    puts = [node(s, task) for s in step.then] + [task.exit_of(exit) for exit in step.exits]
    return _all(puts)


def node(step: Step, task: Task) -> Put:
    """What an element that comes to a node goes through: the node, and everything after it."""
    kind = type(step.node)
    then = after(step, task)
    if kind is SinkNode:
        return _guarded(step.name, task.writer_of(step.name, step.node.sink), task.failed)  # type: ignore[attr-defined]
    if kind is LogNode:
        return task.logger_of(step.name)
    if kind is TransformNode:
        made = task.transformer_of(step.name, step.node.operator)  # type: ignore[attr-defined]
        return _flat_map(step, made, then, task)
    function = step.node.function  # type: ignore[attr-defined]  # the kinds that are left have one
    if kind is MapNode:
        return _map(step.name, function, then, task.failed)
    if kind is FilterNode:
        return _filter(step.name, function, then, task.failed)
    if kind is FlatMapNode:
        return _flat_map(step, function, then, task)
    if kind is EventTimeNode:
        return _event_time(step.name, function, then, task)
    assert kind is ConsumeNode, kind
    return _guarded(step.name, function, task.failed)


def _all(puts: Sequence[Put]) -> Put:
    if len(puts) == 1:
        return puts[0]
    if not puts:
        return lambda _element: None

    def put_all(element: Any) -> None:
        for put in puts:
            put(element)

    return put_all


def _map(stage: str, function: Callable[[Any], Any], then: Put, failed: Failed) -> Put:
    def put(element: Any) -> None:
        try:
            made = function(element)
        except Exception as error:
            failed(stage, element, error)
            return
        then(made)

    return put


def _filter(stage: str, function: Callable[[Any], Any], then: Put, failed: Failed) -> Put:
    def put(element: Any) -> None:
        try:
            kept = bool(function(element))  # arrays, for one, have no truth
        except Exception as error:
            failed(stage, element, error)
            return
        if kept:
            then(element)

    return put


def _flat_map(step: Step, function: Callable[[Any], Any], then: Put, task: Task) -> Put:
    """All elements are made before the first goes on: what fails half-way has emitted nothing."""
    stage, failed, place = step.name, task.failed, task.place

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

    return put_with_ids if step.ided else put


def _event_time(stage: str, function: Callable[[Any], Any], then: Put, task: Task) -> Put:
    place, failed, clock = task.place, task.failed, task.clock_of(stage)

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


def _guarded(stage: str, function: Callable[[Any], Any], failed: Failed) -> Put:
    def put(element: Any) -> None:
        try:
            function(element)
        except Exception as error:
            failed(stage, element, error)

    return put


def from_bolt(exit: Exit, emit: Callable[..., Any], place: Place, failed: Failed) -> Put:
    """What sends a bolt's elements on a stream, anchored to `place.anchors`."""
    stream, consumer, timed = exit.stream, exit.consumer, exit.timed

    def element(element: Any) -> None:
        emit((element,), stream, place.anchors)

    def element_timed(element: Any) -> None:
        emit((element, place.time_ms), stream, place.anchors)

    def element_ided(element: Any) -> None:
        emit((element, place.time_ms, place.id), stream, place.anchors)

    def keyed(element: Any) -> None:
        try:
            key, value = element
        except (TypeError, ValueError):
            failed(consumer, element, unpaired(element))
            return
        if type(key) is list:
            key = as_tuple(key)
        try:
            emit((key, value, place.time_ms) if timed else (key, value), stream, place.anchors)
        except TupleError as error:  # a key without a stable hash
            failed(consumer, element, error)

    if exit.keyed:
        return keyed
    return element_ided if exit.ided else element_timed if timed else element


def from_spout(exit: Exit, emit: Callable[..., Any], place: Place, failed: Failed) -> Put:
    """What sends a spout's elements on a stream. Each is a tree of its own, which `place.pending` counts.

    The engine begins a tree with every emit, also with an id that it was given before.
    """
    stream, consumer, timed = exit.stream, exit.consumer, exit.timed

    def element(element: Any) -> None:
        place.pending[1] += 1
        emit((element,), place.root, stream)

    def element_timed(element: Any) -> None:
        place.pending[1] += 1
        emit((element, place.time_ms), place.root, stream)

    def element_ided(element: Any) -> None:
        place.pending[1] += 1
        emit((element, place.time_ms, place.id), place.root, stream)

    def keyed(element: Any) -> None:
        try:
            key, value = element
        except (TypeError, ValueError):
            failed(consumer, element, unpaired(element))
            return
        if type(key) is list:
            key = as_tuple(key)
        place.pending[1] += 1
        try:
            emit((key, value, place.time_ms) if timed else (key, value), place.root, stream)
        except TupleError as error:
            place.pending[1] -= 1
            failed(consumer, element, error)

    if exit.keyed:
        return keyed
    return element_ided if exit.ided else element_timed if timed else element


def directed(
    exit: Exit, send: Callable[[tuple[Any, ...], int], None], tasks: Sequence[int], place: Place, failed: Failed
) -> Put:
    """What sends elements to the partitions that the user's function names.

    Args:
        exit: a direct stream.
        send: sends values to a task.
        tasks: the task of each partition.
        place: of the element.
        failed: called for what has no partition.
    """
    function, stage = exit.direct, exit.consumer
    assert function is not None

    def chosen(element: Any) -> list[Any]:
        partitions = function(element)
        found = list(partitions) if isinstance(partitions, (list, tuple, set, frozenset)) else [partitions]
        for partition in found:
            if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < len(tasks):
                raise ValueError(f"{partition!r} is not a partition: there are 0 to {len(tasks) - 1}")
        return found

    def put(element: Any) -> None:
        try:
            partitions = chosen(element)
        except Exception as error:
            failed(stage, element, error)
            return
        for partition in partitions:
            # A copy in another partition is another element: an archive must not take it for a duplicate.
            id = place.id if len(partitions) == 1 else f"{place.id}@{partition}"
            values = (element, place.time_ms, id)[: 3 if exit.ided else 2 if exit.timed else 1]
            send(values, tasks[partition])

    return put


def as_tuple(key: Any) -> Any:
    """A list as the tuple that stands for it as a key, at any depth; JSON has no tuples. Both planners ask here."""
    return tuple(map(as_tuple, key)) if isinstance(key, (list, tuple)) else key


def unpaired(element: Any) -> Exception:
    """Why an element cannot go to a keyed stage."""
    return TypeError(f"an element must be a pair (key, value) here, not {element!r:.60}")


__all__ = [
    "Failed",
    "Place",
    "Put",
    "Task",
    "after",
    "as_tuple",
    "directed",
    "from_bolt",
    "from_spout",
    "node",
    "unpaired",
]
