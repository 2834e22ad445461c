"""The element-wise operations of a batch task, from where elements come to where they leave: `operators` by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from heronpy.api.state import HashMapState
from heronpy.api.tuple import Detached
from heronpy.pipeline.plan import EXCHANGES, BatchPlan
from heronpy.pipeline.task import Task
from heronpy.streamlet.graph import Node, RepartitionNode, TransformNode
from heronpy.streamlet.operators import (
    Operator,
    Push,
    Times,
    Transform,
    TransformContext,
    Transformer,
    copies,
    operator_of,
)

CHUNK = 256
"""Elements of a chunk where it begins. Few, so that what is made of them is still in the processor's cache when the
next operation takes it: of 8192 lines of 16 words the words take 16 MB, and counting them twice as long."""
_EXPANDED = 4096
"""Elements of a chunk where one element has become many; up to twice as many are left together."""
_ORIGIN = Detached("batch", "default", 0, ("element",))
"""Where tuples of transform operators come from: nowhere in particular."""


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
    then = _sliced(_consumers(plan, name, task, port), 2 * _EXPANDED, _EXPANDED)
    operator = _operator(node, task)
    return then if operator is None else operator.by_chunk(then, task.failed)


def _operator(node: Node, task: Task) -> Operator | None:
    if isinstance(node, TransformNode):
        return Transform(node.stage, Transformer(node.operator, lambda: _BatchContext(node, task), _ORIGIN))
    if isinstance(node, RepartitionNode) and node.function is not None:
        return copies(node)
    return operator_of(node)  # None: a union, or an even repartition


class _BatchContext(TransformContext):
    """The context of a transform operator in one task."""

    def __init__(self, node: TransformNode, task: Task) -> None:
        super().__init__()
        self._node, self._task = node, task
        self._state = HashMapState()

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
