"""A fused tree of element-wise nodes in a topology's task: their `operators`, compiled into closures, and its ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from heronpy.errors import TupleError
from heronpy.shown import shown
from heronpy.streamlet._stages import Exit, Step
from heronpy.streamlet.graph import ConsumeNode, LogNode, SinkNode, TransformNode
from heronpy.streamlet.operators import (
    ElementTask,
    Failed,
    Place,
    Put,
    Transform,
    as_tuple,
    operator_of,
    partitions_of,
)


class Task(ElementTask, Protocol):
    """What a compiled tree needs of its task."""

    def exit_of(self, exit: Exit) -> Put:
        """What sends elements on a stream."""
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
        return Transform(step.name, made).by_element(then, task, ided=step.ided)
    operator = operator_of(step.node)
    if operator is not None:
        return operator.by_element(then, task, ided=step.ided)
    assert kind is ConsumeNode, kind
    return _guarded(step.name, step.node.function, task.failed)  # type: ignore[attr-defined]


def _all(puts: Sequence[Put]) -> Put:
    if len(puts) == 1:
        return puts[0]
    if not puts:
        return lambda _element: None

    def put_all(element: Any) -> None:
        for put in puts:
            put(element)

    return put_all


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
        except Exception:  # also what iterating over an object of the user's raises
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
        except Exception:  # also what iterating over an object of the user's raises
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

    def put(element: Any) -> None:
        try:
            partitions = partitions_of(function, element, len(tasks))
        except Exception as error:
            failed(stage, element, error)
            return
        for partition in partitions:
            # A copy in another partition is another element: an archive must not take it for a duplicate.
            id = place.id if len(partitions) == 1 else f"{place.id}@{partition}"
            values = (element, place.time_ms, id)[: 3 if exit.ided else 2 if exit.timed else 1]
            send(values, tasks[partition])

    return put


def unpaired(element: Any) -> Exception:
    """Why an element cannot go to a keyed stage."""
    return TypeError(f"an element must be a pair (key, value) here, not {shown(element, 60)}")


__all__ = ["Task", "after", "directed", "from_bolt", "from_spout", "node", "unpaired"]
