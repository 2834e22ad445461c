"""From a program to what a batch job computes. Pure: nothing is read, nothing runs.

Every store and every sink needs what feeds it. An archive takes the place of its parent: whatever the parent feeds is
read from the archive, and what is upstream of it is not run. Element-wise operations run where their elements are;
the others are *exchanges*, to which elements travel. An exchange's level is the number of exchanges before it, plus
one: all exchanges of one level share one shuffle, so a job has as many shuffles as levels, and reads its input once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from heronpy.connectors import Source
from heronpy.errors import TopologyError
from heronpy.pipeline.batch import KEPT
from heronpy.pipeline.job import Job
from heronpy.pipeline.partials import OpenSessions, Partials
from heronpy.stores import SqliteStore
from heronpy.streamlet.graph import (
    KEYED,
    WINDOWED,
    ArchiveNode,
    ConsumeNode,
    EventTimeNode,
    JoinNode,
    LateNode,
    LogNode,
    Node,
    ReduceByKeyAndWindowNode,
    ReduceByKeyNode,
    ReduceByWindowNode,
    SinkNode,
    SourceNode,
    StoreNode,
    is_sessions,
)
from heronpy.streamlet.monoid import Monoid
from heronpy.streamlet.windowconfig import WindowConfig

EXCHANGES = (*KEYED, *WINDOWED, SinkNode)
"""Operations that elements travel to. A sink's travel so that each batch has few files."""
_TWINS: dict[type[Node], tuple[str, str]] = {
    ReduceByKeyNode: ("go on from the values", "call set_name() on one of them"),
    ReduceByWindowNode: ("go on with the open sessions", "call set_name() on one of them"),
    ReduceByKeyAndWindowNode: ("go on with the open sessions", "call set_name() on one of them"),
    JoinNode: ("go on with the open sessions", "call set_name() on one of them"),
    SinkNode: ("have the files", "give one a name, to_sink(…, name=…)"),
}
"""What one could do with another's, and what is done against it."""
_EFFECTS = "{} cannot run in batch: consume() is done for effects, which it would repeat; use to_sink() or to_store()"


@dataclass
class BatchPlan:
    """What to compute. Nodes are known by their stage names, and are without parents and children."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """Every node that is needed."""
    feeds: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Where the elements of a node go: (stage, which of its parents this is)."""
    inputs: list[str] = field(default_factory=list)
    """Archives and sources that are read."""
    outputs: list[str] = field(default_factory=list)
    """Stores and sinks."""
    levels: dict[str, int] = field(default_factory=dict)
    """Of the exchanges, from 1."""
    back_ms: dict[str, int | None] = field(default_factory=dict)
    """How long before the result of a batch job elements of a node are read; None: from the beginning."""
    reach_ms: int = 0
    """How long after an element something computed from it may lie."""
    exact: set[str] = field(default_factory=set)
    """Inputs and exchanges whose elements' times are read, not only their batch ids."""
    notes: list[str] = field(default_factory=list)
    """What the job leaves out, for people."""
    refused: list[str] = field(default_factory=list)
    """Of `notes` what the job leaves out though it has results."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Views that it does not compute, by name, and why."""
    partials: dict[str, str] = field(default_factory=dict)
    """The outputs in which reductions without a window keep what they have of each batch, by the reductions."""
    opens: dict[str, str] = field(default_factory=dict)
    """The outputs in which sessions are kept that are open at the end of each batch, by what reduces or joins them."""
    batch_length_ms: int = 1
    """The program's."""
    running: set[str] = field(default_factory=set)
    """Exchanges whose results follow from all batches before: reductions, and what is behind them. What a reduction
    keeps is of its batch alone, unless there is another before it."""
    can_carry: bool = False
    """Whether what is behind reductions follows from their results alone: then it needs no archive where their own
    input is as it was, only what they have kept."""
    is_resumed: bool = False
    """Whether tasks are given what is kept of the batches before those that they read."""
    is_carried: bool = False
    """Whether tasks are given also what is kept of those batches that nothing is read of."""

    @property
    def lookback_ms(self) -> int | None:
        """How long before a batch its input begins; None: at the beginning of all data."""
        backs = [self.back_ms[name] for name in self.inputs]
        return None if None in backs else max((back for back in backs if back is not None), default=0)

    @property
    def kept(self) -> dict[str, str]:
        """All outputs that only runs read, by what they are kept of."""
        return self.partials | self.opens

    @property
    def depth(self) -> int:
        """The number of shuffles."""
        return max(self.levels.values())

    def resumed(self) -> BatchPlan:
        """The same for tasks that are given what reductions and sessions have kept, and so do not read it all again."""
        return replace(self, back_ms=_backs(self, resumed=True), is_resumed=True)

    def carried(self) -> BatchPlan:
        """The same for tasks that are given what reductions have kept of each batch whose input is as it was.

        Its look-back is that of what does not follow from all batches before.
        """
        assert self.can_carry, "results of reductions meet elements of an archive"
        return replace(self, back_ms=_backs(self, resumed=True, carried=True), is_resumed=True, is_carried=True)

    def is_first(self, reduction: str) -> bool:
        """Whether there is no other reduction without a window before it, so what it keeps is of each batch alone."""
        return self.partials[reduction] not in self.running

    @property
    def is_nested(self) -> bool:
        """Whether there are reductions of what others have reduced."""
        return not all(map(self.is_first, self.partials))

    def begins(self, stage: str, first: int) -> int | None:
        """The first batch whose elements a reduction takes that something is kept of; what is before it, it is given.

        Args:
            stage: the reduction.
            first: of the batches that are computed.
        """
        back_ms = self.back_ms[stage]
        return None if not self.is_resumed or back_ms is None else first - -(-back_ms // self.batch_length_ms)

    def stores(self) -> dict[str, StoreNode]:
        """Outputs that are views, by name; also those that only runs read."""
        nodes = [self.nodes[name] for name in self.outputs]
        return {node.store_name: node for node in nodes if isinstance(node, StoreNode)}

    def stored(self, output: str) -> StoreNode:
        """An output that is a view."""
        node = self.nodes[output]
        assert isinstance(node, StoreNode), output
        return node

    def windows(self) -> dict[str, str]:
        """In what windows the results of each output are made, by its stage."""
        found: dict[str, list[str]] = {name: [] for name in self.outputs}
        for name, node in self.nodes.items():
            if isinstance(node, WINDOWED):
                for output in {*_below(self, name)}.intersection(found):
                    kind = "sessions" if is_sessions(node) else node.window.slide_ms
                    found[output].append(f"{node.window.duration_ms}/{kind} ms")
        return {output: ", ".join(sorted(windows)) for output, windows in found.items()}

    def archives(self) -> list[ArchiveNode]:
        """Inputs that are archives."""
        return [node for name in self.inputs if isinstance(node := self.nodes[name], ArchiveNode)]

    def sources(self) -> list[SourceNode]:
        """Inputs that are read by their sources' batch face."""
        return [node for name in self.inputs if isinstance(node := self.nodes[name], SourceNode)]


def plan_batch(job: Job, outputs: Sequence[Node] | None = None) -> BatchPlan:
    """Plan the batch job of a program.

    Args:
        job: the program.
        outputs: compute these instead of its stores and sinks.

    Raises:
        TopologyError: a batch job can do nothing of it, or not all of `outputs`; names the stage.
    """
    nodes = list(job.graph.nodes())
    if outputs is not None:
        return _planned(job, nodes, outputs, keeps=False)
    ends = [node for node in nodes if isinstance(node, (StoreNode, SinkNode))]
    refused: dict[Node, TopologyError] = {}
    for node in ends:
        try:
            _planned(job, nodes, [node], keeps=False)
        except TopologyError as error:
            refused[node] = error
    kept = [node for node in ends if node not in refused]
    refused |= {node: TopologyError(_EFFECTS.format(node.stage)) for node in nodes if isinstance(node, ConsumeNode)}
    if not kept and refused:
        raise next(iter(refused.values()))
    if not kept:
        raise TopologyError(f"{job.name} has nothing to compute in batch: end a streamlet with to_store() or to_sink()")
    plan = _planned(job, nodes, kept, keeps=True)
    plan.left_out = {node.store_name: str(why) for node, why in refused.items() if isinstance(node, StoreNode)}
    plan.refused = [_left_out(node, why) for node, why in refused.items()]
    plan.notes += plan.refused
    return plan


def live_only(job: Job) -> dict[str, str]:
    """The views of a program that no batch run computes, by name, and why; all of them, if it computes nothing."""
    try:
        return plan_batch(job).left_out
    except TopologyError as error:
        return dict.fromkeys(job.stores(), str(error))


def only_live(job: Job) -> list[str]:
    """What of a program with an archive runs live only, a line each for people."""
    if not job.archives():
        return []
    try:
        return plan_batch(job).refused
    except TopologyError as error:
        outputs = any(isinstance(node, (StoreNode, SinkNode)) for node in job.graph.nodes())
        return [f"nothing of {job.name} is computed in batch: {error}"] if outputs else []


def _left_out(node: Node, why: TopologyError) -> str:
    if isinstance(node, StoreNode):
        return f"view {node.store_name} has no batch side: {why}"
    return str(why) if str(why).startswith(node.stage) else f"{node.stage} has no batch side: {why}"


def _planned(job: Job, nodes: Sequence[Node], outputs: Sequence[Node], *, keeps: bool) -> BatchPlan:
    needed = _needed(outputs)
    plan = BatchPlan(batch_length_ms=job.batch_length_ms)
    for node in nodes:  # parents come first
        if node in needed:
            _check(node)
            plan.nodes[node.stage] = _bare(node)
            plan.feeds[node.stage] = []
            if _is_input(node):
                plan.inputs.append(node.stage)
    for node in nodes:
        if node in needed and not _is_input(node):
            for side, parent in enumerate(node.parents):
                plan.feeds[_origin(parent).stage].append((node.stage, side))
    plan.outputs = [node.stage for node in outputs]
    plan.notes += [f"{node.stage} is left out: log() is for topologies" for node in nodes if isinstance(node, LogNode)]
    for node in nodes:
        if node in needed and isinstance(node, WINDOWED) and node.window.allowed_lateness_ms is not None:
            plan.notes.append(f"{node.stage} takes all elements: its allowed lateness is for topologies")
    _measure(plan, [node.stage for node in nodes if node in needed])
    _refuse_late_times(plan)
    if keeps and not plan.sources():  # without archives nothing is done before, and all is read
        refuse_twins(plan.nodes.values())
        _keep(plan)
        _trace(plan)
    return plan


def _origin(parent: Node) -> Node:
    """What a child of `parent` is computed from: the first archive beside it, if there is one."""
    if isinstance(parent, ArchiveNode):
        return parent
    return next((child for child in parent.children if isinstance(child, ArchiveNode)), parent)


def _is_input(node: Node) -> bool:
    return isinstance(node, (ArchiveNode, SourceNode))


def _needed(outputs: Sequence[Node]) -> set[Node]:
    needed: set[Node] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            if not _is_input(node):
                waiting += [_origin(parent) for parent in node.parents]
    return needed


def _check(node: Node) -> None:
    if isinstance(node, WINDOWED) and (why := _unknown_in_batch(node.window)):
        raise TopologyError(f"{node.stage} cannot run in batch: {why} in what is computed in batch")
    if isinstance(node, WINDOWED) and not node.timed:
        raise TopologyError(
            f"{node.stage} cannot run in batch: its windows are made of arrival times; "
            "give its elements event times with event_time() before it"
        )
    if isinstance(node, LateNode):
        raise TopologyError(
            f"{node.stage} cannot run in batch: nothing is late there; end it with a sink or a view of its own, which "
            "is left out"
        )
    if isinstance(node, SourceNode) and type(node.source).splits is Source.splits:
        raise TopologyError(
            f"{node.stage} cannot be read in batch: {type(node.source).__name__} has no past; "
            "put archive() after it and run the topology"
        )
    if isinstance(node, SinkNode) and not node.sink.supports_batch:
        raise TopologyError(
            f"{node.stage} cannot run in batch: {type(node.sink).__name__} only takes streams; "
            "use a sink that writes files, or to_store()"
        )


def _unknown_in_batch(window: WindowConfig) -> str | None:
    """Why a batch job cannot compute such windows, and what to use; None: it can."""
    if not window.bounded:
        return (
            "windows by number, and the global one, are of the order in which elements arrive; use tumbling or sliding "
            "windows of time"
        )
    if window.trigger is not None:
        return (
            "its trigger divides the results of a window into panes, and a batch job has one result for each window; "
            "call no with_trigger()"
        )
    if window.evicts:
        return "its evictor needs all elements of a window at once; call neither keep_last() nor keep_within()"
    return None


def _bare(node: Node) -> Node:
    bare = copy.copy(node)
    bare.parents, bare.children = (), []  # a task must not be sent the whole program
    if isinstance(bare, StoreNode):
        bare.store = SqliteStore()  # nor a live store's URL, which may have a password: only the driver reads it
    return bare


def _measure(plan: BatchPlan, order: Sequence[str]) -> None:
    """Levels, look-backs and needs of times, for nodes of which each comes after its parents."""
    depth = dict.fromkeys(order, 0)
    reach = dict.fromkeys(order, 0)
    for name in _sorted(plan, order):
        node = plan.nodes[name]
        if isinstance(node, EXCHANGES):
            depth[name] += 1
            plan.levels[name] = depth[name]
        if isinstance(node, WINDOWED):
            reach[name] += node.window.duration_ms
        plan.reach_ms = max(plan.reach_ms, reach[name])
        for child, _ in plan.feeds[name]:
            depth[child] = max(depth[child], depth[name])
            reach[child] = max(reach[child], reach[name])
    reads: dict[str, bool] = {}
    plan.back_ms = _backs(plan, resumed=False)
    for name in reversed(_sorted(plan, order)):
        reads[name] = any(_reads_time(plan.nodes[child], reads[child]) for child, _ in plan.feeds[name])
    plan.exact = {name for name, exact in reads.items() if exact}


def _sorted(plan: BatchPlan, order: Sequence[str]) -> list[str]:
    """Nodes after what they are computed from; an archive's siblings may be declared before the archive."""
    done: dict[str, None] = {}
    sources: dict[str, set[str]] = {name: set() for name in order}
    for name in order:
        for child, _ in plan.feeds[name]:
            sources[child].add(name)
    while len(done) < len(order):
        done |= dict.fromkeys(name for name in order if name not in done and sources[name] <= done.keys())
    return list(done)


def _backs(plan: BatchPlan, *, resumed: bool, carried: bool = False) -> dict[str, int | None]:
    """How far back the elements that each node emits are read."""
    backs: dict[str, int | None] = {}
    for name in reversed(_sorted(plan, list(plan.nodes))):
        backs[name] = _back(plan, name, backs, resumed=resumed, carried=carried)
    return backs


def _back(
    plan: BatchPlan, name: str, backs: dict[str, int | None], *, resumed: bool, carried: bool = False
) -> int | None:
    longest = 0
    for child, _ in plan.feeds[name]:
        node, after = plan.nodes[child], backs[child]
        if carried and child in plan.partials and plan.is_first(child):
            after = 0  # of batches that are not computed from elements, it is given what it has kept
        reads_all = isinstance(node, ReduceByKeyNode) or is_sessions(node)
        if after is None or (reads_all and not (resumed and child in plan.kept)):
            return None
        if reads_all:  # what is kept is of whole batches
            after = -(-after // plan.batch_length_ms) * plan.batch_length_ms
        elif isinstance(node, WINDOWED):
            after += node.window.duration_ms
        longest = max(longest, after)
    return longest


def _keep(plan: BatchPlan) -> None:
    """Add a view that only runs read for each reduction without a window, or of sessions; no other has such a name."""
    for name, node in list(plan.nodes.items()):
        if isinstance(node, ReduceByKeyNode):
            monoid: Monoid = Partials(node.function, timed=name in plan.exact, place=node.place)
            plan.partials[name] = _kept_in(plan, name, monoid)
        elif is_sessions(node):
            what = "joined sessions" if isinstance(node, JoinNode) else "sessions"
            plan.opens[name] = _kept_in(plan, name, OpenSessions(node.window.duration_ms, what, place=node.place))


def _kept_in(plan: BatchPlan, name: str, monoid: Monoid) -> str:
    view = KEPT + name
    node = StoreNode(parents=(), name=view, store_name=view, monoid=monoid, store=SqliteStore())
    plan.nodes[node.stage] = node
    plan.feeds[node.stage] = []
    plan.back_ms[node.stage] = 0
    plan.levels[node.stage] = plan.levels[name] + 1
    plan.outputs.append(node.stage)
    return node.stage


def refuse_twins(nodes: Iterable[Node]) -> None:
    """Refuse reductions that something is kept of, and sinks, that have only a number to tell them apart.

    Raises:
        TopologyError: there are two.
    """
    known: dict[str, str] = {}
    for node in nodes:
        if not node.is_numbered:
            continue
        place = node.op if isinstance(node, SinkNode) else getattr(node, "place", "")
        if place:
            other = known.setdefault(place, node.stage)
            if other != node.stage:
                one, how = _TWINS[type(node)]
                raise TopologyError(
                    f"{other} and {node.stage} have no names, and nothing else tells them apart: after a change of the "
                    f"program one could {one} of the other; {how}"
                )


def _trace(plan: BatchPlan) -> None:
    """Find what follows from reductions, and whether something there follows from elements of archives, too."""
    behind = {below for name in plan.partials for below in _below(plan, name)}
    plan.running = {*plan.partials, *behind}
    plan.running |= {kept for name, kept in plan.partials.items() if name in behind}
    firsts = plan.partials.keys() - behind
    into = [(name, child) for name in plan.nodes for child, _ in plan.feeds[name] if child in behind]
    meets_none = all(name in behind or name in firsts for name, _ in into)
    plan.can_carry = bool(plan.partials) and not plan.opens and meets_none


def _below(plan: BatchPlan, name: str) -> Iterator[str]:
    for child, _ in plan.feeds[name]:
        yield child
        yield from _below(plan, child)


def _reads_time(node: Node, after: bool) -> bool:
    if isinstance(node, (StoreNode, SinkNode, EventTimeNode)):
        return False
    return isinstance(node, (*WINDOWED, ReduceByKeyNode, JoinNode)) or after


def _refuse_late_times(plan: BatchPlan) -> None:
    for archive in plan.archives():
        for node in _after(plan, archive.stage):
            if isinstance(node, EventTimeNode):
                raise TopologyError(
                    f"{node.stage} gives new times to what {archive.stage} has filed by the old ones: "
                    "put event_time() before archive()"
                )


def _after(plan: BatchPlan, name: str) -> Iterator[Node]:
    for child, _ in plan.feeds[name]:
        yield plan.nodes[child]
        yield from _after(plan, child)
