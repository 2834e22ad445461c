"""Element-wise operations on lists of elements.

A chunk is a list of elements with their times: one int for all of them, or a list. A chunk goes through a list
comprehension (or C loop) per operation, and not element by element through the operations: that is what makes Python
fast here. If user code raises, the chunk is done again one by one, and the elements at fault are set aside; so
functions may be called twice for an element, as after a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any, Protocol

from heronpy.api.state import HashMapState
from heronpy.api.tuple import Tuple
from heronpy.pipeline.plan import EXCHANGES, BatchPlan
from heronpy.pipeline.task import Task
from heronpy.streamlet.context import Context
from heronpy.streamlet.event_time import event_time_ms
from heronpy.streamlet.graph import (
    EventTimeNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    Node,
    RepartitionNode,
    TransformNode,
)

CHUNK = 256
"""Elements of a chunk where it begins. Few, so that what is made of them is still in the processor's cache when the
next operation takes it: of 8192 lines of 16 words the words take 16 MB, and counting them twice as long."""
_EXPANDED = 4096
"""Elements of a chunk where one element has become many; up to twice as many are left together."""

Times = int | Sequence[int]
Push = Callable[[list[Any], Times], None]


class Port(Protocol):
    """The sending side of an exchange in one task."""

    def add(self, values: list[Any], times: Times) -> None:
        """Take a chunk."""
        ...

    def flush(self) -> None:
        """Send what waits."""
        ...


def region(plan: BatchPlan, head: str, task: Task, port: Callable[[str, int], Port]) -> Push:
    """What is done with the elements of a node, up to the ports of the next exchanges.

    Args:
        plan: the job.
        head: an input, or an exchange.
        task: where it runs.
        port: the task's port for an exchange and its parent's number.
    """
    return _sliced(_consumers(plan, head, task, port), CHUNK, CHUNK)


def _consumers(plan: BatchPlan, head: str, task: Task, port: Callable[[str, int], Port]) -> Push:
    consumers = [_consumer(plan, name, side, task, port) for name, side in plan.feeds[head]]
    if len(consumers) == 1:
        return consumers[0]

    def push(values: list[Any], times: Times) -> None:
        for consumer in consumers:
            consumer(values, times)

    return push


def _sliced(push: Push, most: int, size: int) -> Push:
    """Chunks of `size`, where there are more than `most`."""

    def sliced(values: list[Any], times: Times) -> None:
        if len(values) <= most:
            if values:
                push(values, times)
            return
        for i in range(0, len(values), size):
            push(values[i : i + size], times if isinstance(times, int) else times[i : i + size])

    return sliced


def _consumer(plan: BatchPlan, name: str, side: int, task: Task, port: Callable[[str, int], Port]) -> Push:
    node = plan.nodes[name]
    if isinstance(node, EXCHANGES):
        return port(name, side).add
    return _operation(node, task, _sliced(_consumers(plan, name, task, port), 2 * _EXPANDED, _EXPANDED))


def _operation(node: Node, task: Task, push: Push) -> Push:
    if isinstance(node, MapNode):
        return _map(node, task, push)
    if isinstance(node, FlatMapNode):
        return _expand(node.stage, lambda values: map(node.function, values), node.function, task, push)
    if isinstance(node, FilterNode):
        return _filter(node, task, push)
    if isinstance(node, EventTimeNode):
        return _event_time(node, task, push)
    if isinstance(node, TransformNode):
        return _Transform(node, task, push).chunk
    if isinstance(node, RepartitionNode) and node.function is not None:
        copies = _copies(node.function)
        return _expand(node.stage, lambda values: map(copies, values), copies, task, push)
    return push  # a union; an even repartition


def each(
    stage: str, function: Callable[[Any], Any], values: Sequence[Any], times: Times, task: Task
) -> Iterator[tuple[Any, Any, int]]:
    """(element, result, time) one by one; elements for which `function` raises are set aside."""
    for value, time_ms in zip(values, repeat(times) if isinstance(times, int) else times, strict=False):
        try:
            result = function(value)
        except Exception as error:  # whatever user code raises
            task.failed(stage, value, time_ms, error)
        else:
            yield value, result, time_ms


def _map(node: MapNode, task: Task, push: Push) -> Push:
    function = node.function

    def chunk(values: list[Any], times: Times) -> None:
        try:
            push_values, push_times = list(map(function, values)), times
        except Exception:  # found one by one
            done = list(each(node.stage, function, values, times, task))
            push_values, push_times = [result for _, result, _ in done], [time for _, _, time in done]
        push(push_values, push_times)

    return chunk


def _filter(node: FilterNode, task: Task, push: Push) -> Push:
    function = node.function

    def chunk(values: list[Any], times: Times) -> None:
        try:
            if isinstance(times, int):
                kept, kept_times = list(filter(function, values)), times
            else:
                flags = list(map(function, values))
                kept, kept_times = list(compress(values, flags)), list(compress(times, flags))  # type: ignore[assignment]  # Times
        except Exception:  # found one by one
            done = [(v, t) for v, keep, t in each(node.stage, function, values, times, task) if keep]
            kept, kept_times = [v for v, _ in done], [t for _, t in done]  # type: ignore[assignment]  # Times
        push(kept, kept_times)

    return chunk


def _expand(
    stage: str, fast: Callable[[list[Any]], Any], function: Callable[[Any], Any], task: Task, push: Push
) -> Push:
    """Each element becomes those of an iterable."""

    def chunk(values: list[Any], times: Times) -> None:
        try:
            if isinstance(times, int):
                out, out_times = list(chain.from_iterable(fast(values))), times
            else:
                lists = [list(made) for made in fast(values)]
                out = list(chain.from_iterable(lists))
                out_times = list(chain.from_iterable(map(repeat, times, map(len, lists))))  # type: ignore[assignment]  # Times
        except Exception:  # found one by one
            done = [(made, t) for _, made, t in each(stage, lambda v: list(function(v)), values, times, task)]
            out = [value for made, _ in done for value in made]
            out_times = [t for made, t in done for _ in made]  # type: ignore[assignment]  # Times
        push(out, out_times)

    return chunk


def _event_time(node: EventTimeNode, task: Task, push: Push) -> Push:
    function = node.function

    def chunk(values: list[Any], times: Times) -> None:
        try:
            push_values, push_times = values, list(map(event_time_ms, map(function, values)))
        except Exception:  # found one by one
            done = list(each(node.stage, lambda v: event_time_ms(function(v)), values, times, task))
            push_values, push_times = [v for v, _, _ in done], [made for _, made, _ in done]
        push(push_values, push_times)

    return chunk


def _copies(function: Callable[[Any], int | list[int]]) -> Callable[[Any], list[Any]]:
    """In a batch job an element goes nowhere, but to each partition of a list: it is there so many times."""

    def copies(value: Any) -> list[Any]:
        partitions = function(value)
        return [value] * len(partitions) if isinstance(partitions, (list, tuple)) else [value]

    return copies


class _Transform(Context):
    """A transform operator in one task."""

    def __init__(self, node: TransformNode, task: Task, push: Push) -> None:
        self._node = node
        self._task = task
        self._push = push
        self._state = HashMapState()
        self._out: list[Any] = []
        self._operator = node.operator
        self._operator.setup(self)

    def chunk(self, values: list[Any], times: Times) -> None:
        out: list[Any] = []
        out_times: list[int] = []
        for _, made, time in each(self._node.stage, self._one, values, times, self._task):
            out += made
            out_times += [time] * len(made)
        self._push(out, out_times if not isinstance(times, int) else times)

    def _one(self, value: Any) -> list[Any]:
        made: list[Any] = []
        self._out = made
        self._operator.transform(Tuple([value], _ORIGIN, 0))
        return made

    def emit(self, values: list[Any]) -> None:
        self._out.append(values[0])

    def get_task_id(self) -> int:
        return self._task.index

    def get_config(self) -> dict[str, Any]:
        return dict(self._task.config)

    def get_stream_name(self) -> str:
        return self._node.stage

    def get_num_partitions(self) -> int:
        return self._node.partitions

    def get_partition_index(self) -> int:
        return self._task.index % self._node.partitions

    def get_state(self) -> HashMapState:
        return self._state


class _Origin:
    """Where tuples of transform operators come from: nowhere in particular."""

    component = "batch"
    stream = "default"
    task = 0
    fields = ("element",)

    def tuple_id(self, index: int) -> int:
        return 0


_ORIGIN = _Origin()
