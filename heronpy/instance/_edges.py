"""Where emitted tuples wait: one edge for each (stream, destination task), and fans of edges.

An edge is the sending end of one channel of the topology. `append` and `tag` are the bound methods of its two lists, so
that putting a tuple there costs two calls into C: the values, and what the tuple is tracked by (a spout: the root's
sequence number, -1 for none; a bolt: the anchors, None for none). In at-most-once mode nothing is tagged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Edge:
    """The tuples on their way to one task on one stream."""

    __slots__ = ("append", "ids", "stream", "tag", "tags", "task", "values")

    def __init__(self, stream: str, task: int) -> None:
        self.stream = stream
        self.task = task
        self.ids = [task]
        """What emit returns."""
        self.values: list[list[Any]] = []
        self.tags: list[Any] = []
        self.append: Callable[[list[Any]], None] = self.values.append
        self.tag: Callable[[Any], None] = self.tags.append

    @property
    def edges(self) -> Sequence[Edge]:
        return (self,)

    def clear(self) -> None:
        self.values.clear()
        self.tags.clear()


class Fan:
    """Several edges that get the same tuple (all grouping, several consumers), or none."""

    __slots__ = ("append", "edges", "ids", "tag")

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.edges = tuple(edges)
        self.ids = [edge.task for edge in edges]
        appends = tuple(edge.append for edge in edges)
        tags = tuple(edge.tag for edge in edges)

        # Every destination gets a list of its own: in the simulator two bolts would otherwise share one object.
        def append(values: list[Any]) -> None:
            for put in appends:
                put([*values])

        def tag(value: Any) -> None:
            for put in tags:
                put(value)

        self.append = append
        self.tag = tag


Target = Edge | Fan
NOWHERE = Fan(())
"""The target of a tuple that nobody reads."""
