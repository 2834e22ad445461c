"""The topology planner: one component for each stage of a streamlet program."""

from __future__ import annotations

from typing import Any

from heronpy.api import Grouping, Stream, TopologyBuilder, TopologyReliabilityMode, api_constants
from heronpy.api.component import GlobalStreamId
from heronpy.config import ALLOW_LOSSY_SPOUTS, INEXACT_KEY, is_set, takes_checkpoints
from heronpy.errors import TopologyError
from heronpy.filesystem import UrlPath
from heronpy.loader import MODULES_KEY
from heronpy.plan import (
    BATCH_SIDE_KEY,
    OPERATORS_KEY,
    STATE_OWNERS_KEY,
    BatchSide,
    StateOwner,
    write_operators,
    write_state_owners,
)
from heronpy.streamlet._archive_bolt import ArchiveBolt
from heronpy.streamlet._bolts import PassBolt, ReduceByKeyBolt, StageBolt
from heronpy.streamlet._definition import STAGE_KEY, Definition, dumps
from heronpy.streamlet._spout import SourceSpout, can_go_back, no_positions
from heronpy.streamlet._stages import Entrance, Stage, hold_ms, plan_stages
from heronpy.streamlet._state_owners import owners_by_component
from heronpy.streamlet._store_bolt import StoreBolt, repeats
from heronpy.streamlet._window_bolts import JoinBolt, ReduceByKeyAndWindowBolt, ReduceByWindowBolt
from heronpy.streamlet.config import DIRECTORY_KEY, Config
from heronpy.streamlet.graph import (
    WINDOWED,
    ArchiveNode,
    Graph,
    JoinNode,
    Node,
    ReduceByKeyAndWindowNode,
    ReduceByKeyNode,
    ReduceByWindowNode,
    SinkNode,
    SourceNode,
    StoreNode,
    use_live,
)
from heronpy.streamlet.live_length import check_length
from heronpy.streamlet.places import check_archives

TICK_MS = 100
PENDING = 50_000
"""Trees that a spout may have on their way where tuples wait for commits. The engine's own limit follows the rate of
acks within 250 ms (`instance/_pending.py`), and would throttle them to a thousand."""
PENDING_IN_WINDOWS = 1_000_000
TIMEOUT_MARGIN_S = 30
"""How long a tuple may be on its way beyond its time in windows."""

_BOLTS: dict[type[Node], type[StageBolt]] = {
    ReduceByKeyNode: ReduceByKeyBolt,
    ReduceByWindowNode: ReduceByWindowBolt,
    ReduceByKeyAndWindowNode: ReduceByKeyAndWindowBolt,
    JoinNode: JoinBolt,
    StoreNode: StoreBolt,
    ArchiveNode: ArchiveBolt,
}


def add_stages(bldr: TopologyBuilder, graph: Graph, config: Config) -> None:
    """Add a program's stages to a topology, and set its configuration.

    Raises:
        TopologyError: the program is not valid; names the stage.
        ConfigError: its directory has live views of another batch length.
    """
    graph.named()
    use_live(graph, config.live)
    given = {**bldr._topology_config, **config.api_config}
    _check(graph, config)
    if given.get(api_constants.TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.EFFECTIVELY_ONCE:
        allowed = is_set(given, ALLOW_LOSSY_SPOUTS)
        for node in graph.nodes():
            if (why := inexact(node)) and not (allowed and isinstance(node, SourceNode)):
                raise TopologyError(f"{node.stage} cannot be effectively once: {why}")
    stages = plan_stages(
        graph,
        fusion=config.fusion,
        has_directory=config.directory is not None,
        # A builder of the user's own may add components that read what the program leaves over, as in Heron.
        open_ends=type(bldr) is not TopologyBuilder,
    )
    owners = owners_by_component(graph, stages)
    for stage in stages:
        _add(bldr, stage, config, owners[stage.name])
    made = settings(graph, given, config)
    _refuse_holding_forever(graph, made)
    bldr.set_config({**bldr._topology_config, **made})


def settings(graph: Graph, given: dict[str, Any], config: Config) -> dict[str, Any]:
    """The topology's configuration: what was given, and what the program needs where nothing was."""
    made = dict(given)
    if config.directory is not None:
        made[DIRECTORY_KEY] = str(config.directory)
        made[BATCH_SIDE_KEY] = batch_side(graph, config).to_value()
    mode = TopologyReliabilityMode.ATMOST_ONCE if config.directory is None else TopologyReliabilityMode.ATLEAST_ONCE
    made.setdefault(api_constants.TOPOLOGY_RELIABILITY_MODE, mode)
    nodes = list(graph.nodes())
    windowed = any(isinstance(node, WINDOWED) for node in nodes)
    if windowed and not takes_checkpoints(made):
        made.setdefault(api_constants.TOPOLOGY_MAX_SPOUT_PENDING, PENDING_IN_WINDOWS)
    elif any(isinstance(node, (StoreNode, SinkNode, ArchiveNode)) for node in nodes):
        made.setdefault(api_constants.TOPOLOGY_MAX_SPOUT_PENDING, PENDING)
    if windowed:
        waits_ms = hold_ms(graph) + config.max_lateness_ms + config.idle_timeout_ms
        made.setdefault(api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS, -(-waits_ms // 1000) + TIMEOUT_MARGIN_S)
    return made


def batch_side(graph: Graph, config: Config) -> BatchSide:
    """What the Tracker shows of a program's batch side before a batch run has reported anything."""
    nodes = list(graph.nodes())
    return BatchSide(
        batch_length_ms=config.batch_length_ms,
        archives={node.archive_name: node.stage for node in nodes if isinstance(node, ArchiveNode)},
        views=tuple(node.store_name for node in nodes if isinstance(node, StoreNode)),
    )


def _check(graph: Graph, config: Config) -> None:
    for node in graph.nodes():
        if isinstance(node, StoreNode) and node.store.needs_directory and isinstance(config.directory, UrlPath):
            raise TopologyError(
                f"{node.stage} (view {node.store_name}): {node.store!r} keeps live views in a directory, not in "
                f"{config.directory}: give set_pipeline() a place for them, live='redis://…', 'postgresql://…' or a "
                "directory"
            )
        if isinstance(node, StoreNode) and config.directory is None:
            raise TopologyError(
                f"{node.stage} (view {node.store_name}) needs a place: give the Config one with set_pipeline(directory)"
            )
        if isinstance(node, ArchiveNode) and node.path is None and config.directory is None:
            raise TopologyError(
                f"{node.stage} (archive {node.archive_name}) needs a place: give the Config one with "
                "set_pipeline(directory), or archive() a path"
            )
    check_archives(graph, config.directory)
    if config.directory is not None:
        check_length(config.directory, config.batch_length_ms)


def _refuse_holding_forever(graph: Graph, made: dict[str, Any]) -> None:
    if takes_checkpoints(made) or made[api_constants.TOPOLOGY_RELIABILITY_MODE] != TopologyReliabilityMode.ATLEAST_ONCE:
        return
    for node in graph.nodes():
        if isinstance(node, WINDOWED) and node.window.accumulating and not node.window.bounded:
            raise TopologyError(
                f"{node.stage} accumulates without an end, and at least once without checkpoints it would hold all "
                "tuples for ever: set topology.stateful.checkpoint.interval.seconds, or have panes of only what is new"
            )


def inexact(node: Node) -> str | None:
    """Why a node cannot be effectively once; None if it can."""
    if isinstance(node, SourceNode) and not can_go_back(node.source):
        return no_positions(node.source)
    if isinstance(node, StoreNode) and not node.store.exactly_once:
        return repeats(node)
    return None


def _add(bldr: TopologyBuilder, stage: Stage, config: Config, owners: list[StateOwner]) -> None:
    definition = Definition(
        stage=stage,
        directory=config.directory,
        batch_length_ms=config.batch_length_ms,
        max_lateness_ms=config.max_lateness_ms,
        idle_timeout_ms=config.idle_timeout_ms,
    )
    pickled, modules = dumps(definition)
    own: dict[str, Any] = {
        STAGE_KEY: pickled,
        OPERATORS_KEY: write_operators(stage.operators()),
        STATE_OWNERS_KEY: write_state_owners(owners),
        MODULES_KEY: " ".join(sorted(modules)),
    }
    for step in stage.head.steps():
        if why := inexact(step.node):
            own[INEXACT_KEY] = why
    if not stage.entrances:
        bldr.add_spout(stage.name, SourceSpout, stage.partitions, own, _outputs(stage) or [Stream(["element"])])
        return
    bolt = _BOLTS.get(type(stage.head.node), PassBolt)
    if isinstance(stage.head.node, WINDOWED):
        own[api_constants.TOPOLOGY_COMPONENT_WINDOWS_HOLD_TUPLES] = True
    if bolt is not PassBolt or stage.watermarks_out or any(isinstance(s.node, SinkNode) for s in stage.head.steps()):
        own[api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS] = TICK_MS
    bldr.add_bolt(stage.name, bolt, stage.partitions, _inputs(stage), own, _outputs(stage))


def _outputs(stage: Stage) -> list[str | Stream]:
    return [Stream(exit.fields, exit.stream, direct=exit.direct is not None) for exit in stage.exits]


def _inputs(stage: Stage) -> dict[GlobalStreamId, Any]:
    return {GlobalStreamId(e.component, e.stream): _grouping(e) for e in stage.entrances}


def _grouping(entrance: Entrance) -> Any:
    kinds: dict[str, Any] = {
        "shuffle": Grouping.SHUFFLE,
        "local": Grouping.LOCAL_OR_SHUFFLE,
        "fields": Grouping.fields("key"),
        "direct": Grouping.DIRECT,
    }
    return kinds[entrance.grouping]
