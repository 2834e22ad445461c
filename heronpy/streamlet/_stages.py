"""From a program's graph to the stages of a topology. Pure.

A stage is what one component runs: a node that has to be where it is (a source, what moves elements between tasks), and
the element-wise nodes after it that have the same number of tasks. Between two stages runs a stream, which carries
times and ids only where somebody downstream reads them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.archive import require_arrow
from heronpy.errors import TopologyError
from heronpy.plan import DEFAULT_STREAM, Operator
from heronpy.streamlet._generated import SupplierSource
from heronpy.streamlet.graph import (
    ELEMENTWISE,
    KEYED,
    WINDOWED,
    ArchiveNode,
    EventTimeNode,
    Graph,
    JoinNode,
    LateNode,
    Node,
    ReduceByKeyNode,
    ReduceByWindowNode,
    RepartitionNode,
    SinkNode,
    SourceNode,
    StoreNode,
)
from heronpy.windows import Global

_FUNCTION_NAME_MAX = 64


@dataclass(frozen=True, slots=True)
class Exit:
    """A stream that elements of a node leave their stage by."""

    stream: str
    keyed: bool = False
    """Its tuples begin (key, value) instead of (element)."""
    direct: Callable[[Any], Any] | None = None
    """Says which partitions get an element; None where the engine chooses."""
    consumer: str = ""
    """The stage that reads a keyed or direct stream: who is to blame for an element that it cannot take."""
    timed: bool = False
    """Its tuples carry the time."""
    ided: bool = False
    """And then the id."""

    @property
    def fields(self) -> list[str]:
        """Names of the values."""
        names = ["key", "value"] if self.keyed else ["element"]
        return [*names, *(["time"] if self.timed else []), *(["id"] if self.ided else [])]


@dataclass(frozen=True, slots=True)
class Step:
    """A node as its task knows it."""

    node: Node
    """Without parents and children."""
    then: tuple[Step, ...] = ()
    """What treats its elements in the same stage."""
    exits: tuple[Exit, ...] = ()
    """Where they leave the stage."""
    ided: bool = False
    """Whether somebody downstream reads the ids of its elements."""

    def steps(self) -> Iterator[Step]:
        """This one, and all after it."""
        yield self
        for step in self.then:
            yield from step.steps()

    @property
    def name(self) -> str:
        return self.node.stage


@dataclass(frozen=True, slots=True)
class Entrance:
    """A stream that a stage reads."""

    component: str
    stream: str
    grouping: str
    """`shuffle`, `local`, `fields` or `direct`."""
    side: int = 0
    """Of a join: 0 for the left."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one component runs."""

    head: Step
    partitions: int
    entrances: tuple[Entrance, ...]
    timed: bool
    """Whether windows at its head are made of event times."""
    times_in: bool
    """Whether it reads the times of elements."""
    ids_in: bool
    """Whether it reads their ids."""
    watermarks_in: bool
    """Whether it reads watermarks."""
    watermarks_out: bool
    """Whether it sends watermarks."""
    clocks: frozenset[str]
    """Whose times its watermark is made of: names of event-time nodes in it, its head's for what comes in."""

    @property
    def name(self) -> str:
        return self.head.name

    @property
    def exits(self) -> list[Exit]:
        return [exit for step in self.head.steps() for exit in step.exits]

    def operators(self) -> list[Operator]:
        """What it runs, for people: each operator after the one that it follows."""
        return list(_operators(self.head, ""))

    @property
    def upstream(self) -> list[str]:
        """Components that it reads from, each once."""
        return list(dict.fromkeys(entrance.component for entrance in self.entrances))


def _operators(step: Step, follows: str) -> Iterator[Operator]:
    yield Operator(step.name, step.node.op, function_name(step.node), follows)
    for after in step.then:
        yield from _operators(after, step.name)


def function_name(node: Node) -> str:
    """What the user calls that a node runs: a function, or the class of a source, sink or operator; else empty."""
    for part in ("function", "source", "sink", "operator"):
        found = getattr(node, part, None)
        if isinstance(found, SupplierSource):
            found = found.function
        if isinstance(found, functools.partial):
            found = found.func
        if found is not None:
            name = str(getattr(found, "__name__", None) or type(found).__name__)
            return "" if name.startswith(("<", "_")) else name[:_FUNCTION_NAME_MAX]
    return ""


@dataclass
class _Draft:
    """A stage in the making."""

    head: Node
    members: list[Node] = field(default_factory=list)
    entrances: list[Entrance] = field(default_factory=list)


def tasks_of(node: Node) -> int:
    """How many tasks run a node. All elements of a window meet in one."""
    if isinstance(node, LateNode):
        return tasks_of(node.parents[0])
    return 1 if isinstance(node, ReduceByWindowNode) else node.partitions


def plan_stages(
    graph: Graph, *, fusion: bool = True, has_directory: bool = False, open_ends: bool = False
) -> list[Stage]:
    """The stages of a named graph, each after all that it reads from.

    Args:
        graph: the program; see `Graph.named`.
        fusion: whether element-wise nodes join the stage before them.
        has_directory: whether the program has a batch side; then unwindowed reductions need times, too.
        open_ends: whether the elements of streamlets that nothing reads leave their stage, by the default stream.

    Raises:
        TopologyError: the program is not valid.
    """
    nodes = list(graph.nodes())
    check_graph(nodes)
    drafts: dict[Node, _Draft] = {}
    for node in nodes:
        fused = fusion and isinstance(node, ELEMENTWISE) and tasks_of(node.parents[0]) == tasks_of(node)
        if fused or isinstance(node, LateNode):
            drafts[node] = drafts[node.parents[0]]
        else:
            drafts[node] = _Draft(node)
        drafts[node].members.append(node)
    _part_sinks(drafts)
    needs = Needs(nodes, has_directory=has_directory)
    exits = {node: _exits(node, drafts, needs) for node in nodes}
    if open_ends:
        exits |= {node: (Exit(DEFAULT_STREAM),) for node in nodes if _ends_open(node)}
    return [_stage(drafts[node], exits, drafts, needs) for node in nodes if drafts[node].head is node]


def _ends_open(node: Node) -> bool:
    """Whether nothing reads what a node emits. Of windows, that is their results, whoever reads what is late."""
    read = any(not isinstance(child, LateNode) for child in node.children)
    return not read and not node.TERMINAL and not isinstance(node, LateNode)


def _part_sinks(drafts: dict[Node, _Draft]) -> None:
    """Give sinks a stage of their own where a source's stage also sends elements to others.

    A spout is not called while what it has sent is held up somewhere, and so could not flush its sinks either. One that
    sends nothing is never held up by it, and keeps its sinks, which is several times as fast.
    """
    for draft in {id(draft): draft for draft in drafts.values()}.values():
        leaves = any(drafts[child] is not draft for node in draft.members for child in node.children)
        if not leaves or not isinstance(draft.head, SourceNode):
            continue
        for sink in [node for node in draft.members if isinstance(node, SinkNode)]:
            draft.members.remove(sink)
            drafts[sink] = _Draft(sink, [sink])


class Needs:
    """What nodes read of the elements that come to them, for themselves or for those after them."""

    def __init__(self, nodes: Sequence[Node], *, has_directory: bool = False) -> None:
        """Work it out for all nodes, of which each comes after its parents."""
        self.times: set[Node] = set()
        self.ids: set[Node] = set()
        self.watermarks: set[Node] = set()
        for node in reversed(nodes):
            windowed = isinstance(node, WINDOWED)
            reads = isinstance(node, (StoreNode, ArchiveNode)) or (windowed and node.timed)
            reads = reads or (has_directory and isinstance(node, ReduceByKeyNode))  # to leave out what is in its state
            hands_on = not windowed and not isinstance(node, EventTimeNode) and self.time_after(node)
            if reads or hands_on:
                self.times.add(node)
            if isinstance(node, ArchiveNode) or (not isinstance(node, KEYED + WINDOWED) and self.id_after(node)):
                self.ids.add(node)
                self.times.add(node)  # a stream that carries ids carries times before them
            fires = isinstance(node, WINDOWED) and (node.timed or isinstance(node.window.windows, Global))
            if isinstance(node, ArchiveNode) or fires or self.watermark_after(node):
                self.watermarks.add(node)

    def time_after(self, node: Node) -> bool:
        """Whether the times of what a node emits are read."""
        return any(child in self.times for child in node.children)

    def id_after(self, node: Node) -> bool:
        """Whether the ids of what a node emits are read."""
        return any(child in self.ids for child in node.children)

    def watermark_after(self, node: Node) -> bool:
        """Whether somebody waits for watermarks after a node."""
        return any(child in self.watermarks for child in node.children)


def check_graph(nodes: Sequence[Node]) -> None:
    """Refuse what no planner can run.

    Raises:
        TopologyError: names the stage.
    """
    known = set(nodes)
    for node in nodes:
        for child in node.children:
            if child not in known:
                raise TopologyError(f"{node.stage} meets a streamlet of another Builder: begin both with the same one")
        if isinstance(node, ArchiveNode):
            _check_archive(node)
        if isinstance(node, WINDOWED) and node.window.allowed_lateness_ms is not None and not node.timed:
            raise TopologyError(
                f"{node.stage} allows a lateness, but its windows are made of arrival times, for which nothing is "
                "late: give its elements event times with event_time() before it"
            )


def _check_archive(node: ArchiveNode) -> None:
    require_arrow(node.stage)  # found out where the program is defined, and not by a task in a crash loop
    # An element's id in an archive is what duplicates are known by: it must lead back to one record of one source.
    above = node.parents[0]
    while not isinstance(above, SourceNode):
        if len(above.parents) != 1:
            raise TopologyError(
                f"{node.stage} archives what {above.stage} puts together from {len(above.parents)} streamlets: "
                "archive each of them before"
            )
        if isinstance(above, KEYED + WINDOWED):
            raise TopologyError(
                f"{node.stage} archives what {above.stage} makes of several elements: archive its input instead"
            )
        above = above.parents[0]


def _exits(node: Node, drafts: dict[Node, _Draft], needs: Needs) -> tuple[Exit, ...]:
    """The streams of a node, and their entrances noted at the stages that read them."""
    made: list[Exit] = []
    readers: list[list[Node]] = []
    met: dict[Node, int] = {}
    outside = [child for child in node.children if drafts[child] is not drafts[node]]
    for child in outside:
        keyed = isinstance(child, KEYED)
        direct = child.function if isinstance(child, RepartitionNode) else None
        place = met.get(child, 0)
        met[child] = place + 1
        # A child that is there twice (a join with itself) reads two streams, to distinguish its sides.
        free = [
            i
            for i, exit in enumerate(made)
            if exit.keyed == keyed and exit.direct is None and direct is None and child not in readers[i]
        ]
        if not free:
            kind = "direct" if direct else "keyed" if keyed else "all"
            stream = f"{node.stage}:{kind}-{len(made) + 1}"
            blamed = child.stage if keyed or direct else ""
            made.append(Exit(stream, keyed=keyed, direct=direct, consumer=blamed))
            readers.append([])
            free = [len(made) - 1]
        readers[free[0]].append(child)
        sides = [i for i, parent in enumerate(child.parents) if parent is node]
        grouping = (
            "fields" if keyed else "direct" if direct else "local" if isinstance(child, ArchiveNode) else "shuffle"
        )
        entrance = Entrance(drafts[node].head.stage, made[free[0]].stream, grouping, sides[place])
        drafts[child].entrances.append(entrance)
    return tuple(
        Exit(
            exit.stream,
            exit.keyed,
            exit.direct,
            exit.consumer,
            timed=any(child in needs.times for child in children),
            ided=any(child in needs.ids for child in children),
        )
        for exit, children in zip(made, readers, strict=True)
    )


def _stage(draft: _Draft, exits: dict[Node, tuple[Exit, ...]], drafts: dict[Node, _Draft], needs: Needs) -> Stage:
    head = draft.head
    members = set(draft.members)
    inside = {node: [child for child in node.children if child in members] for node in draft.members}
    clocks: set[str] = set()
    for node in draft.members:
        if any(child in needs.watermarks and child not in members for child in node.children):
            clocks.add(_clock(node, head).stage)
    return Stage(
        head=_step(head, inside, exits, needs),
        partitions=tasks_of(head),
        entrances=tuple(sorted(draft.entrances, key=lambda entrance: entrance.side)),
        timed=isinstance(head, WINDOWED) and head.timed,
        times_in=head in needs.times,
        ids_in=head in needs.ids,
        watermarks_in=bool(head.parents) and head in needs.watermarks,
        watermarks_out=bool(clocks),
        clocks=frozenset(clocks),
    )


def _clock(node: Node, head: Node) -> Node:
    """Where a node's elements have their times from, as far as its stage knows."""
    while node is not head and not isinstance(node, EventTimeNode):
        node = node.parents[0]
    return node


def _step(node: Node, inside: dict[Node, list[Node]], exits: dict[Node, tuple[Exit, ...]], needs: Needs) -> Step:
    bare = copy.copy(node)
    bare.parents, bare.children = (), []  # a task must not be sent the whole program
    return Step(
        bare,
        tuple(_step(child, inside, exits, needs) for child in inside[node]),
        exits[node],
        ided=needs.id_after(node),
    )


def hold_ms(graph: Graph) -> int:
    """The longest time for which windows keep an element on one of its ways, if event times pass as time does."""
    longest: dict[Node, int] = {}
    for node in graph.nodes():
        before = max((longest[parent] for parent in node.parents), default=0)
        longest[node] = before + (node.window.hold_ms if isinstance(node, WINDOWED) else 0)
    return max(longest.values(), default=0)


__all__ = [
    "Entrance",
    "Exit",
    "JoinNode",
    "Needs",
    "Stage",
    "Step",
    "check_graph",
    "hold_ms",
    "plan_stages",
    "tasks_of",
]
