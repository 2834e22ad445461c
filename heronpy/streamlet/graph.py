"""What a streamlet program is: a graph of operations, which both planners read.

Nothing runs here. `heronpy.streamlet` turns the graph into a topology, `heronpy.pipeline` turns it into a Spark job.

An element travels with a time in ms since the epoch. Where the program has event times that is the element's event
time, and windows and batch ids are made of it; otherwise it is the time at which its source read it.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

from heronpy.errors import TopologyError
from heronpy.windows import Session

if TYPE_CHECKING:
    from heronpy.connectors import Sink, Source
    from heronpy.filesystem import Location
    from heronpy.stores import Store
    from heronpy.streamlet.monoid import Monoid
    from heronpy.streamlet.windowconfig import WindowConfig


class JoinType(enum.Enum):
    """Which elements without a partner a join keeps."""

    INNER = "inner"
    OUTER_LEFT = "outer_left"
    OUTER_RIGHT = "outer_right"
    OUTER = "outer"


@dataclass(eq=False, kw_only=True)
class Node:
    """One operation. Compared by identity: a program may do the same thing twice."""

    parents: tuple[Node, ...]
    """Where its elements come from; empty for a source."""
    name: str | None = None
    """Given by the user, or `<op>-<n>` once the graph is named (see `named`)."""
    partitions: int = 1
    """Tasks that run it."""
    children: list[Node] = field(default_factory=list, repr=False)
    """Operations that read what it emits, in the order of their declaration."""

    op: str = ""
    """Prefix of its default name."""
    is_numbered: bool = field(default=False, repr=False)
    """Whether it was given no name: another one has its number when the program is changed. Only after `named`."""

    OP: ClassVar[str] = "node"
    TERMINAL: ClassVar[bool] = False
    """Whether it emits nothing."""

    def __post_init__(self) -> None:
        self.op = self.op or self.OP
        for parent in self.parents:
            parent.children.append(self)

    @property
    def stage(self) -> str:
        """Its name. Only after `named`."""
        assert self.name is not None
        return self.name

    @property
    def timed(self) -> bool:
        """Whether the elements that it emits have event times."""
        return all(parent.timed for parent in self.parents)


@dataclass(eq=False, kw_only=True)
class SourceNode(Node):
    """Reads elements from outside."""

    source: Source
    discover_every_s: float | None = None
    """Effectively once, how often to look for new splits, and for more in those that had ended; None: as the source."""
    forget_after_s: float | None = None
    """For how long a file must have been gone for its position to be forgotten; None: for ever."""
    OP: ClassVar[str] = "source"

    @property
    def timed(self) -> bool:
        return self.source.timed


# Element by element: these never move an element to another task, so neighbours are fused.


@dataclass(eq=False, kw_only=True)
class MapNode(Node):
    """`function(element) -> element`."""

    function: Callable[[Any], Any]
    OP: ClassVar[str] = "map"


@dataclass(eq=False, kw_only=True)
class FlatMapNode(Node):
    """`function(element) -> iterable of elements`."""

    function: Callable[[Any], Any]
    OP: ClassVar[str] = "flatmap"


@dataclass(eq=False, kw_only=True)
class FilterNode(Node):
    """Keeps the elements for which `function(element)` is true."""

    function: Callable[[Any], Any]
    OP: ClassVar[str] = "filter"


@dataclass(eq=False, kw_only=True)
class TransformNode(Node):
    """The user's TransformOperator; see `heronpy.streamlet.transformoperator`."""

    operator: Any
    OP: ClassVar[str] = "transform"


@dataclass(eq=False, kw_only=True)
class EventTimeNode(Node):
    """Gives elements their event time: `function(element)` is in seconds since the epoch, or a datetime."""

    function: Callable[[Any], Any]
    OP: ClassVar[str] = "event_time"

    @property
    def timed(self) -> bool:
        return True


@dataclass(eq=False, kw_only=True)
class LogNode(Node):
    """Logs every element, in the topology only."""

    OP: ClassVar[str] = "log"
    TERMINAL: ClassVar[bool] = True


@dataclass(eq=False, kw_only=True)
class ConsumeNode(Node):
    """Calls `function(element)` for its side effect, in the topology only."""

    function: Callable[[Any], Any]
    OP: ClassVar[str] = "consume"
    TERMINAL: ClassVar[bool] = True


@dataclass(eq=False, kw_only=True)
class SinkNode(Node):
    """Hands elements to a sink."""

    sink: Sink
    OP: ClassVar[str] = "sink"
    TERMINAL: ClassVar[bool] = True


@dataclass(eq=False, kw_only=True)
class LateNode(Node):
    """What is too late for the windows of its parent, as it came there. In the same task as these."""

    OP: ClassVar[str] = "late"


# These move elements between tasks.


@dataclass(eq=False, kw_only=True)
class RepartitionNode(Node):
    """Divides elements anew among `partitions` tasks: evenly, or where `function(element)` says.

    `function` returns a partition or a list of them: an element goes to each.
    """

    function: Callable[[Any], Any] | None
    OP: ClassVar[str] = "repartition"


@dataclass(eq=False, kw_only=True)
class UnionNode(Node):
    """The elements of all parents."""

    OP: ClassVar[str] = "union"


@dataclass(eq=False, kw_only=True)
class ReduceByKeyNode(Node):
    """Elements are pairs (key, value); emits (key, value so far) for each.

    `function(value, value) -> value` is associative.
    """

    function: Callable[[Any, Any], Any]
    place: str = ""
    """Where it is in its program, in words: what it keeps is known by that if it has no name. See `named`."""
    OP: ClassVar[str] = "reduce_by_key"


@dataclass(eq=False, kw_only=True)
class ReduceByWindowNode(Node):
    """Reduces all elements of each window; emits (Window, value). One task sees all elements of a window."""

    window: WindowConfig
    function: Callable[[Any, Any], Any]
    place: str = ""
    """Of sessions: as that of a `ReduceByKeyNode`."""
    OP: ClassVar[str] = "reduce_by_window"


@dataclass(eq=False, kw_only=True)
class ReduceByKeyAndWindowNode(Node):
    """Elements are pairs (key, value); emits (KeyedWindow, value)."""

    window: WindowConfig
    function: Callable[[Any, Any], Any]
    place: str = ""
    """Of sessions: as that of a `ReduceByKeyNode`."""
    OP: ClassVar[str] = "reduce_by_key_and_window"


@dataclass(eq=False, kw_only=True)
class JoinNode(Node):
    """Pairs (key, left value) with (key, right value) in each window; emits (KeyedWindow, function(left, right)).

    Parents are (left, right). A side without a partner is None in outer joins.
    """

    window: WindowConfig
    function: Callable[[Any, Any], Any]
    how: JoinType
    place: str = ""
    """Of sessions: as that of a `ReduceByKeyNode`."""
    OP: ClassVar[str] = "join"


@dataclass(eq=False, kw_only=True)
class StoreNode(Node):
    """Elements are pairs (key, value); each value is merged into a store, per batch id and key."""

    store_name: str
    """Name of the view: part of paths, unique in the program."""
    monoid: Monoid
    store: Store
    chosen: bool = True
    """Whether the view was given a store of its own; otherwise it is in that of the program."""
    OP: ClassVar[str] = "store"
    TERMINAL: ClassVar[bool] = True


@dataclass(eq=False, kw_only=True)
class ArchiveNode(Node):
    """Writes every element to the archive, and emits it unchanged.

    To the batch planner this node is the source of everything that its parent feeds.
    """

    archive_name: str
    """Part of paths, unique in the program."""
    path: Location | None
    """The archive's directory; None: `archive/<archive_name>` in the job's directory."""
    codec: str = "columns"
    """How elements become Parquet columns; see `heronpy.archive`."""
    OP: ClassVar[str] = "archive"


_Keeping = ReduceByKeyNode | ReduceByWindowNode | ReduceByKeyAndWindowNode | JoinNode
"""Operations that batch runs keep something of, if their windows are sessions or they have none."""
ELEMENTWISE = (MapNode, FlatMapNode, FilterNode, TransformNode, EventTimeNode, LogNode, ConsumeNode, SinkNode)
"""Operations that treat each element alone, where it is."""
KEYED = (ReduceByKeyNode, ReduceByKeyAndWindowNode, JoinNode, StoreNode)
"""Operations whose input is divided by the key of (key, value) pairs."""
WINDOWED = (ReduceByWindowNode, ReduceByKeyAndWindowNode, JoinNode)
"""Operations with a `window`."""


@dataclass(eq=False)
class Graph:
    """A whole program."""

    sources: list[SourceNode] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """All nodes, each after all of its parents."""
        done: set[Node] = set()
        ready: list[Node] = list(reversed(self.sources))
        while ready:
            node = ready.pop()
            if node in done:
                continue
            done.add(node)
            yield node
            ready += [child for child in reversed(node.children) if all(parent in done for parent in child.parents)]

    def named(self) -> Graph:
        """Give each node without a name its default, `<op>-<n>`, and reductions without one their place.

        The same every time.

        Raises:
            TopologyError: two nodes have one name, two archives or views have one name, or there is no source.
        """
        nodes = list(self.nodes())
        if not nodes:
            raise TopologyError("the program has no source: begin with Builder.new_source()")
        taken = {node.name for node in nodes if node.name is not None}
        for node in nodes:
            if node.name is None:
                node.name = next(name for n in itertools.count(1) if (name := f"{node.op}-{n}") not in taken)
                node.is_numbered = True
                taken.add(node.name)
        _unique("stages", [node.name for node in nodes])
        _unique("views", [node.store_name for node in nodes if isinstance(node, StoreNode)])
        _unique("archives", [node.archive_name for node in nodes if isinstance(node, ArchiveNode)])
        _locate(nodes)
        return self


def use_live(graph: Graph, store: Store | None, *, chosen: bool = False) -> None:
    """Keep live views in a store: those that were given none of their own, or (`chosen`) all; None: as they are."""
    for node in graph.nodes():
        if store is not None and isinstance(node, StoreNode) and (chosen or not node.chosen):
            node.store = store


def _locate(nodes: list[Node]) -> None:
    """Give reductions that batch runs keep something of, and that have no name, their place: how deep, and before what.

    Those that are in one place have it in common with the names of all that are there.
    """
    level: dict[Node, int] = {}
    for node in nodes:
        level[node] = max((level[parent] for parent in node.parents), default=0) + isinstance(node, (*KEYED, *WINDOWED))
    below: dict[Node, set[Node]] = {}
    for node in reversed(nodes):
        below[node] = {other for child in node.children if child in below for other in (child, *below[child])}
    there: dict[str, list[_Keeping]] = {}
    for node in nodes:
        if isinstance(node, ReduceByKeyNode) or is_sessions(node):
            others = sum(isinstance(other, ReduceByKeyNode) for other in below[node])
            outputs = " ".join(sorted(filter(None, map(_output_name, below[node]))))
            where = f"{node.op} of level {level[node]} before {others} others and {outputs}"
            there.setdefault(where, []).append(node)
    for where, reductions in there.items():
        among = f" among {' '.join(sorted(node.stage for node in reductions))}" if len(reductions) > 1 else ""
        for node in reductions:
            node.place = where + among if node.is_numbered else ""


def is_sessions(node: Node) -> TypeGuard[ReduceByWindowNode | ReduceByKeyAndWindowNode | JoinNode]:
    """Whether a node's windows are sessions: these may reach over any number of batches."""
    return isinstance(node, WINDOWED) and isinstance(node.window.windows, Session)


def reduces_sessions(node: Node) -> TypeGuard[ReduceByWindowNode | ReduceByKeyAndWindowNode]:
    """Whether a node reduces the elements of each session."""
    return is_sessions(node) and not isinstance(node, JoinNode)


def _output_name(node: Node) -> str | None:
    if isinstance(node, StoreNode):
        return node.store_name
    return (node.op if node.is_numbered else node.stage) if isinstance(node, SinkNode) else None


def _unique(what: str, names: list[str | None]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(f"two {what} of the program are named {name!r}: give one another name")
