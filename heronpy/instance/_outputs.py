"""The output streams of one task: where `emit` finds the target of a tuple, and what waits to be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from heronpy.errors import TupleError, nearest
from heronpy.instance._edges import Edge, Fan, MakeFan, Pair, Taken, Target
from heronpy.instance._grouping import Chooser, CustomGrouping, chooser, for_all
from heronpy.plan import GroupingKind, InputDecl, PhysicalPlan

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


class _Choosers(dict[str, Chooser]):
    """Choosers by stream. A miss is the user's mistake, reported in one line."""

    component: str
    retired = False

    def __missing__(self, stream: str) -> Chooser:
        if self.retired:
            raise TupleError(f"{self.component} emits after another object has taken its place, at a restore")
        raise TupleError(
            f"{self.component} emits to stream {stream!r}, which it does not declare{nearest(stream, self)}"
        )


@dataclass(slots=True)
class _Counter:
    """How many tuples were emitted to a stream, without counting each where the pairs know it."""

    tasks: Sequence[int] = ()
    """Each tuple went to exactly one of these …"""
    counted: list[None] = field(default_factory=list)
    """… and these were counted one by one; a list, because appending is safe from any thread."""

    def take(self, stream: str, sent: dict[tuple[int, str], int]) -> int:
        count = len(self.counted)
        del self.counted[:count]
        return count + sum(sent.get((task, stream), 0) for task in self.tasks)


class Outputs:
    """The output streams of one task."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task_id: int,
        load_grouping: Callable[[InputDecl, list[int]], CustomGrouping],
        *,
        key_groups: int,
        lasting: bool,
        tagged: bool = False,
        make_fan: Callable[[Sequence[Edge], str], Fan] = Fan,
    ) -> None:
        """Build the pairs and choosers of the task's streams.

        Args:
            plan: where everything is.
            task_id: the sender.
            load_grouping: makes the prepared custom grouping for an input, given the target tasks.
            key_groups: number of key groups of the topology.
            lasting: whether they are those of checkpoints.
            tagged: whether tuples are emitted with tags.
            make_fan: makes the target of a tuple that goes to several tasks, or to none, given the stream.
        """
        _, instance = plan.tasks[task_id]
        self.component = plan.logical.components[instance.component]
        self.choosers = _Choosers()
        self.choosers.component = self.component.name
        self._direct: dict[tuple[str, int], Edge] = {}
        self._counters: dict[str, _Counter] = {}
        pairs: dict[int, Pair] = {}
        home = plan.container_of(task_id)
        read: list[tuple[str, list[tuple[InputDecl, list[Edge]]]]] = []
        for stream in self.component.outputs:
            consumers = []
            for consumer, decl in plan.logical.consumers(self.component.name, stream):
                tasks = plan.component_tasks[consumer.name]
                consumers.append(
                    (decl, [Edge(stream, pairs.setdefault(task, Pair(task, tagged=tagged))) for task in tasks])
                )
            read.append((stream, consumers))
        self.pairs: Sequence[Pair] = tuple(pairs.values())
        for stream, consumers in read:
            choosers: list[Chooser] = []
            fan_of: MakeFan = partial(make_fan, stream=stream)  # type: ignore[call-arg]  # every kind of fan has it
            counter = self._counters[stream] = _Counter()
            exact = False
            for decl, edges in consumers:
                for edge in edges:
                    edge.seal()
                if decl.grouping is GroupingKind.DIRECT:
                    self._direct.update({(stream, edge.task): edge for edge in edges})
                    continue
                if not exact and decl.grouping in ONE_TARGET:
                    counter.tasks, exact = [edge.task for edge in edges], True
                fields = self.component.outputs[stream].fields
                choosers.append(
                    chooser(
                        decl.grouping,
                        edges,
                        indexes=[fields.index(name) for name in decl.fields],
                        key_groups=key_groups,
                        lasting=lasting,
                        local=lambda edge: plan.container_of(edge.task) == home,
                        grouping=load_grouping(decl, [edge.task for edge in edges])
                        if decl.grouping is GroupingKind.CUSTOM
                        else None,
                        seed=task_id,
                        make_fan=fan_of,
                    )
                )
            choose = for_all(choosers, fan_of)
            self.choosers[stream] = choose if exact else _counting(choose, counter)

    def direct(self, stream: str, task: Any) -> Target:
        """The target of an emit with `direct_task`.

        Raises:
            TupleError: no consumer reads the stream with a direct grouping at that task.
        """
        edge = self._direct.get((stream, task))
        if edge is None:
            _ = self.choosers[stream]  # an undeclared stream is the more helpful error
            tasks = sorted(t for s, t in self._direct if s == stream)
            raise TupleError(
                f"{self.component.name} emits to task {task!r} on stream {stream!r}, which is none of the tasks "
                f"that read it with a direct grouping: {tasks}"
            )
        self._counters[stream].counted.append(None)
        return edge

    def retire(self) -> None:
        """Have every emit raise from now on: the component that emits is replaced."""
        self.choosers.retired = True
        self.choosers.clear()
        self._direct.clear()

    def take(self) -> list[Taken]:
        """All that waits, by destination."""
        return [pair.take() for pair in self.pairs if pair]

    def emitted(self, taken: Iterable[Taken]) -> dict[str, int]:
        """Tuples emitted by stream, given what was taken since the last call."""
        sent = {(t.task, stream): n for t in taken for stream, n in t.counts(0, t.count)}
        return {stream: n for stream, counter in self._counters.items() if (n := counter.take(stream, sent))}


def _counting(choose: Chooser, counter: _Counter) -> Chooser:
    count = counter.counted.append

    def counted(values: Sequence[Any]) -> Target:
        count(None)
        return choose(values)

    return counted


def as_values(tup: Any) -> list[Any]:
    """The values of an emitted tuple that is not a plain list."""
    if isinstance(tup, (list, tuple)):
        return list(tup)
    raise TupleError(f"emit() takes a list or tuple of values, not {type(tup).__qualname__} {tup!r:.60}")
