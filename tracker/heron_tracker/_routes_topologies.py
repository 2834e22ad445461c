"""Routes: which topologies there are, and their plans and states."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response

from heron_tracker import _models as m
from heron_tracker import _pipeline_models as p
from heron_tracker import _plans
from heron_tracker._checkpoints import checkpoints_model
from heron_tracker._events import names, published
from heron_tracker._health import all_health
from heron_tracker._pipeline import complete_before, pipeline_model
from heron_tracker._rendering import rendered
from heron_tracker._summary import summary
from heron_tracker._topology import Key, Topology
from heron_tracker._tracker import TheTopology, TheTracker, TopologyAt, Tracker
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.redaction import shown_config

router = APIRouter()

Clusters = Annotated[list[str] | None, Query(alias="cluster", description="Only these clusters.")]
Environs = Annotated[list[str] | None, Query(alias="environ", description="Only these environments.")]
Names = Annotated[list[str] | None, Query(alias="topology", description="Only topologies of these names.")]
Role = Annotated[str | None, Query(description="Only those of this role.")]


@router.get("/clusters")
async def clusters(tracker: TheTracker) -> list[str]:
    """The clusters that the Tracker knows."""
    return tracker.directory.clusters


@router.get("/machines")
async def machines(
    tracker: TheTracker, cluster: Clusters = None, environ: Environs = None, topology: Names = None
) -> dict[str, dict[str, dict[str, list[str]]]]:
    """The hosts of topologies, by cluster, environment and name."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for key, one in _wanted(tracker, cluster, environ).items():
        if not topology or key.name in topology:
            hosts = found.setdefault(key.cluster, {}).setdefault(key.environ, {}).setdefault(key.name, [])
            hosts += sorted(set(one.hosts().values()) - set(hosts))
    return found


@router.get("/topologies")
async def topologies(
    tracker: TheTracker, cluster: Clusters = None, environ: Environs = None, role: Role = None
) -> dict[str, dict[str, dict[str, list[str]]]]:
    """The names of all topologies, by cluster, role and environment."""
    if not cluster and not environ and not role:
        return names(tracker.directory)
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for key in _wanted(tracker, cluster, environ, role):
        found.setdefault(key.cluster, {}).setdefault(key.role, {}).setdefault(key.environ, []).append(key.name)
    return found


@router.get("/topologies/states")
async def states(
    tracker: TheTracker, cluster: Clusters = None, environ: Environs = None, role: Role = None
) -> dict[str, dict[str, dict[str, m.ExecutionState]]]:
    """The execution states of all topologies, by cluster, environment and name."""
    found: dict[str, dict[str, dict[str, m.ExecutionState]]] = {}
    for key, topology in _wanted(tracker, cluster, environ, role).items():
        state = _plans.execution_state(topology, tracker.config.extra_links)
        found.setdefault(key.cluster, {}).setdefault(key.environ, {})[key.name] = state
    return found


@router.get("/topologies/all")
async def all_topologies(
    tracker: TheTracker, cluster: Clusters = None, environ: Environs = None, role: Role = None
) -> list[m.ListedTopology]:
    """All topologies, also those that share a name in one environment and differ in their role. Not of Heron.

    `/topologies/states` has Heron's shape, in which one of the latter hides the others.
    """
    return [
        m.ListedTopology(
            **published(topology),
            **_plans.metadata(topology, ()).model_dump(
                include={"instances", "submission_time", "submission_user", "release_version"}
            ),
        )
        for topology in _wanted(tracker, cluster, environ, role).values()
    ]


@router.get("/topologies/health")
async def topologies_health(
    tracker: TheTracker, cluster: Clusters = None, environ: Environs = None, role: Role = None, topology: Names = None
) -> list[m.TopologyHealth]:
    """How the topologies are, the worst first, with the reasons in words. Not of Heron.

    One whose Topology Master does not answer is unhealthy.
    """
    wanted = _wanted(tracker, cluster, environ, role).values()
    return await all_health(tracker.tmasters, [one for one in wanted if not topology or one.key.name in topology])


def _wanted(
    tracker: Tracker, cluster: list[str] | None, environ: list[str] | None, role: str | None = None
) -> dict[Key, Topology]:
    return {
        key: topology
        for key, topology in tracker.directory.topologies.items()
        if (not cluster or key.cluster in cluster)
        and (not environ or key.environ in environ)
        and (not role or key.role == role)
    }


@router.get("/topologies/info", response_model=m.Info)
async def info(tracker: TheTracker, topology: TheTopology) -> Response:
    """Everything that the state manager knows of a topology."""
    extra = tracker.config.extra_links
    runtime_state = await _runtime_state(tracker, topology)
    return await rendered(
        lambda: m.Info(
            id=topology.id,
            name=topology.key.name,
            takes_checkpoints=topology.takes_checkpoints,
            has_pipeline=topology.batch_side is not None,
            execution_state=_plans.execution_state(topology, extra),
            logical_plan=_plans.logical_plan(topology, extra),
            physical_plan=_plans.physical_plan(topology) if topology.physical is not None else None,
            packing_plan=_plans.packing_plan(topology) if topology.packing is not None else None,
            metadata=_plans.metadata(topology, extra),
            runtime_state=runtime_state,
            scheduler_location=_plans.scheduler_location(topology),
            tmanager_location=_plans.tmanager_location(topology),
        )
    )


@router.get("/topologies/config", response_model=m.Config)
async def config(topology: TheTopology) -> Response:
    """The topology's configuration. Values whose keys speak of secrets are hidden."""
    return await rendered(lambda: shown_config(topology.logical.config))


@router.get("/topologies/logicalplan", response_model=m.LogicalPlan)
async def logical_plan(tracker: TheTracker, topology: TheTopology) -> Response:
    """Components, streams and groupings."""
    return await rendered(lambda: _plans.logical_plan(topology, tracker.config.extra_links))


@router.get("/topologies/physicalplan", response_model=m.PhysicalPlan)
async def physical_plan(topology: TheTopology) -> Response:
    """Instances, Stream Managers and hosts. 404 before there is one."""
    return await rendered(lambda: _plans.physical_plan(topology))


@router.get("/topologies/packingplan", response_model=m.PackingPlan)
async def packing_plan(topology: TheTopology) -> Response:
    """Which instances share a container."""
    return await rendered(lambda: _plans.packing_plan(topology))


@router.get("/topologies/executionstate")
async def execution_state(tracker: TheTracker, topology: TheTopology) -> m.ExecutionState:
    """Who submitted it and when, and how it is."""
    return _plans.execution_state(topology, tracker.config.extra_links)


@router.get("/topologies/metadata")
async def metadata(tracker: TheTracker, topology: TheTopology) -> m.Metadata:
    """Who submitted it, and when."""
    return _plans.metadata(topology, tracker.config.extra_links)


@router.get("/topologies/schedulerlocation")
async def scheduler_location(topology: TheTopology) -> m.SchedulerLocation:
    """Where its scheduler is. 404 if there is none now."""
    found = _plans.scheduler_location(topology)
    if found is None:
        raise NotFoundError(f"topology {topology.key.name} has no scheduler location: its scheduler has reported none")
    return found


@router.get("/topologies/runtimestate")
async def runtime_state(tracker: TheTracker, topology: TheTopology) -> m.RuntimeState:
    """Which Stream Managers are registered, by the Topology Master or, while it is unreachable, as it last said."""
    return await _runtime_state(tracker, topology)


async def _runtime_state(tracker: Tracker, topology: Topology) -> m.RuntimeState:
    status, health = await tracker.tmasters.status(topology)
    registered = {c.stmgr_id: False for c in topology.packing.containers} if topology.packing is not None else {}
    registered |= {s.location.id: s.registered for s in status.stmgrs} if status is not None else {}
    return m.RuntimeState(
        **_plans.has_parts(topology),
        stmgrs={id: m.Registered(is_registered=yes) for id, yes in registered.items()},
        tmaster=health,
    )


@router.get("/topologies/checkpoints", response_model=m.Checkpoints)
async def checkpoints(tracker: TheTracker, topology: TheTopology) -> Response:
    """Checkpoints that were taken, failed or are under way, with sizes and reasons, and rollbacks. Not of Heron.

    By the Topology Master and by what is stored: where one does not answer, what the other knows. 404 for a topology
    that takes none.
    """
    if not topology.takes_checkpoints:
        raise NotFoundError(f"topology {topology.key.name} takes no checkpoints")
    (status, tmaster), stored = await asyncio.gather(tracker.tmasters.status(topology), tracker.stored.of(topology))
    reported = status.checkpoints if status is not None and status.HasField("checkpoints") else None
    return await rendered(lambda: checkpoints_model(topology, reported, tmaster, stored))


@router.get("/topologies/pipeline")
async def pipeline(tracker: TheTracker, topology: TheTopology) -> p.Pipeline:
    """The batch side of a streamlet program: archive, batches, their lag, dead letters, drift. Not of Heron.

    By what the last batch run has reported, and how far the archive is by now. 404 for a topology without a batch side.
    """
    side = topology.batch_side
    if side is None:
        raise NotFoundError(
            f"topology {topology.key.name} has no batch side: its program has no set_pipeline(directory)"
        )
    live, tmaster = await complete_before(tracker.tmasters, topology, side)
    return pipeline_model(topology, side, live, tmaster, time.time_ns() // 1_000_000)


@router.get("/topologies/{cluster}/{role}/{environ}/{name}/effectiveconfig", response_model=m.EffectiveConfig)
async def effective_config(tracker: TheTracker, topology: TopologyAt) -> Response:
    """Every value that is in force, and where it was set. Secrets are hidden. Not of Heron."""
    launch, why = None, None
    try:
        launch = await tracker.credentials.launch(topology)
    except UnavailableError as e:
        why = str(e)
    return await rendered(lambda: _plans.effective_config(topology, launch, why))


@router.get("/topologies/{cluster}/{role}/{environ}/{name}/summary")
async def topology_summary(
    tracker: TheTracker,
    topology: TopologyAt,
    interval: Annotated[int, Query(description="Seconds, up to 10800; other values: all time.")] = -1,
) -> m.Summary:
    """Components and instances with their counts, latencies, capacity, CPU, memory and backpressure, in one answer.

    Not of Heron. While the Topology Master is unreachable: the last known numbers, with their time in `as_of`.
    """
    return await summary(tracker.tmasters, tracker.remembered, topology, interval)
