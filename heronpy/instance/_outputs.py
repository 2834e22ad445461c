"""What a task emits, from user code to batches.

`Outputs` holds the edges and choosers of all output streams of one task; `serialized` turns an edge's tuples into one
or more byte strings, splits what is too large, and finds the one tuple to blame when a batch cannot be serialized.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.config import InstanceConfig
from heronpy.errors import TupleError, nearest
from heronpy.instance._edges import NOWHERE, Edge, Target
from heronpy.instance._grouping import Chooser, CustomGrouping, both, chooser
from heronpy.plan import Component, GroupingKind, InputDecl, PhysicalPlan

ONE_TARGET = frozenset(
    {
        GroupingKind.SHUFFLE,
        GroupingKind.NONE,
        GroupingKind.FIELDS,
        GroupingKind.PARTIAL_KEY,
        GroupingKind.LOWEST,
        GroupingKind.LOCAL_OR_SHUFFLE,
    }
)
"""Groupings that send a tuple to exactly one task."""

Serialize = Callable[[list[list[Any]]], bytes]


class _Choosers(dict[str, Chooser]):
    """Choosers by stream. A miss is the user's mistake, told in one line."""

    component: str

    def __missing__(self, stream: str) -> Chooser:
        raise TupleError(
            f"{self.component} emits to stream {stream!r}, which it does not declare{nearest(stream, self)}"
        )


@dataclass(slots=True)
class _Counter:
    """How many tuples were emitted to a stream, without counting each where the edges know it."""

    sum_of: Sequence[Edge] = ()
    """Each tuple is on exactly one of these …"""
    counted: int = 0
    """… and these were counted one by one."""

    def take(self) -> int:
        count = self.counted + sum(len(edge.values) for edge in self.sum_of)
        self.counted = 0
        return count


class Outputs:
    """The output streams of one task."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task_id: int,
        load_grouping: Callable[[InputDecl, list[int]], CustomGrouping],
    ) -> None:
        """Build the edges and choosers of the task's streams.

        Args:
            plan: where everything is.
            task_id: the sender.
            load_grouping: makes the prepared custom grouping for an input, given the target tasks.
        """
        _, instance = plan.tasks[task_id]
        self.component = plan.logical.components[instance.component]
        self.choosers = _Choosers()
        self.choosers.component = self.component.name
        self.edges: list[Edge] = []
        self._direct: dict[tuple[str, int], Edge] = {}
        self._counters: dict[str, _Counter] = {}
        home = plan.container_of(task_id)
        for stream in self.component.outputs.values():
            choosers: list[Chooser] = []
            counter = _Counter()
            exact = False
            for consumer, decl in plan.logical.consumers(self.component.name, stream.id):
                edges = [Edge(stream.id, task) for task in plan.component_tasks[consumer.name]]
                self.edges += edges
                if decl.grouping is GroupingKind.DIRECT:
                    self._direct.update({(stream.id, edge.task): edge for edge in edges})
                    continue
                if not exact and decl.grouping in ONE_TARGET:
                    counter.sum_of, exact = edges, True
                choosers.append(
                    chooser(
                        decl.grouping,
                        edges,
                        indexes=[stream.fields.index(name) for name in decl.fields],
                        local=lambda edge: plan.container_of(edge.task) == home,
                        grouping=load_grouping(decl, [edge.task for edge in edges])
                        if decl.grouping is GroupingKind.CUSTOM
                        else None,
                        seed=task_id,
                    )
                )
            choose = both(choosers)
            self.choosers[stream.id] = choose if exact else _counting(choose, counter)
            self._counters[stream.id] = counter

    def direct(self, stream: str, task: Any) -> Target:
        """The target of an emit with `direct_task`.

        Raises:
            TupleError: no consumer reads the stream with a direct grouping at that task.
        """
        edge = self._direct.get((stream, task))
        if edge is None:
            _ = self.choosers[stream]  # an undeclared stream is the better news
            tasks = sorted(t for s, t in self._direct if s == stream)
            raise TupleError(
                f"{self.component.name} emits to task {task!r} on stream {stream!r}, which is none of the tasks "
                f"that read it with a direct grouping: {tasks}"
            )
        self._counters[stream].counted += 1
        return edge

    def emitted(self) -> dict[str, int]:
        """Tuples emitted since the last call, by stream. Call before the edges are cleared."""
        return {stream: n for stream, counter in self._counters.items() if (n := counter.take())}


def _counting(choose: Chooser, counter: _Counter) -> Chooser:
    def counted(values: list[Any]) -> Target:
        counter.counted += 1
        return choose(values)

    return counted


def as_values(tup: Any) -> list[Any]:
    """The values of an emitted tuple that is not a plain list."""
    if isinstance(tup, (list, tuple)):
        return list(tup)
    raise TupleError(f"emit() takes a list or tuple of values, not {type(tup).__qualname__} {tup!r:.60}")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A tuple that cannot be sent."""

    index: int
    error: TupleError


Part = tuple[int, int, bytes]
"""Start, stop and serialized values of some of an edge's tuples."""


def serialized(
    component: Component, edge: Edge, serialize: Serialize, config: InstanceConfig
) -> Iterator[Part | Rejected]:
    """An edge's tuples as `(start, stop, bytes)` in order, and the tuples that cannot be sent.

    A batch larger than `frame_bytes` is cut in two, again and again. If a batch cannot be serialized, its halves are
    tried, until the tuples to blame stand alone.
    """
    pending = [(0, len(edge.values))]
    while pending:
        start, stop = pending.pop()
        values = edge.values if stop - start == len(edge.values) else edge.values[start:stop]
        try:
            data = serialize(values)
        except Exception as error:
            if stop - start == 1:
                yield Rejected(start, _blame(component, edge, values[0], serialize, error))
                continue
        else:
            if len(data) <= config.frame_bytes:
                yield start, stop, data
                continue
            if stop - start == 1:
                if len(data) <= config.tuple_bytes_max:
                    yield start, stop, data
                else:
                    yield Rejected(start, _too_large(component, edge, values[0], len(data), serialize, config))
                continue
        middle = (start + stop) // 2
        pending += [(middle, stop), (start, middle)]


def _blame(component: Component, edge: Edge, values: list[Any], serialize: Serialize, error: Exception) -> TupleError:
    """Say which field of which stream cannot be serialized."""
    for position, value in enumerate(values):
        try:
            serialize([[value]])
        except Exception as cause:
            return TupleError(
                f"{component.name} emitted a tuple on stream {edge.stream!r} whose field "
                f"{_field(component, edge, position)} cannot be serialized: {type(value).__qualname__}: {cause}"
            )
    return TupleError(f"{component.name} emitted a tuple on stream {edge.stream!r} that cannot be serialized: {error}")


def _too_large(
    component: Component, edge: Edge, values: list[Any], size: int, serialize: Serialize, config: InstanceConfig
) -> TupleError:
    sizes = [len(serialize([[value]])) for value in values]
    largest = sizes.index(max(sizes)) if sizes else 0
    return TupleError(
        f"{component.name} emitted a tuple of {size} bytes on stream {edge.stream!r}, more than "
        f"heron.instance.network.options.maximum.packetsize.bytes = {config.tuple_bytes_max}; its largest field is "
        f"{_field(component, edge, largest)}"
    )


def _field(component: Component, edge: Edge, position: int) -> str:
    fields = component.outputs[edge.stream].fields
    return repr(fields[position]) if position < len(fields) else f"number {position}"


def pickled(values: list[list[Any]]) -> bytes:
    """The default serialization: one pickle for the whole batch; cloudpickle for what pickle cannot (lambdas, …)."""
    try:
        return pickle.dumps(values, 5)
    except Exception:
        import cloudpickle  # costs 30 ms, and nearly nobody emits functions

        return bytes(cloudpickle.dumps(values, 5))


__all__ = ["NOWHERE", "Outputs", "Part", "Rejected", "as_values", "pickled", "serialized"]
