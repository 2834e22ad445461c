"""The health of topologies: what their Topology Masters say, or that they say nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from heron_tracker import _models as m
from heron_tracker._tmasters import Tmasters
from heron_tracker._topology import Topology
from heronpy.errors import UnavailableError
from heronpy.health import Health, HealthState, unreachable

_WORST_FIRST = {state.word: -state for state in HealthState}


async def health(tmasters: Tmasters, topology: Topology) -> Health:
    """How a topology is. Never raises for a Topology Master that does not answer: that is unhealthy."""
    try:
        return Health.from_proto(await tmasters.health(topology))
    except UnavailableError as e:
        return silent(tmasters, topology, str(e))


def silent(tmasters: Tmasters, topology: Topology, why: str) -> Health:
    """The health of a topology whose Topology Master does not answer."""
    since = tmasters.unreachable_since(topology)
    awaited_s = time.time() - topology.execution.submission_time_s if topology.tmaster is None else None
    return unreachable(f"since {since}" if since else why, awaited_s)


async def all_health(tmasters: Tmasters, topologies: Iterable[Topology]) -> list[m.TopologyHealth]:
    """The health of many topologies, the worst first."""
    asked = list(topologies)
    found = await asyncio.gather(*(health(tmasters, topology) for topology in asked))
    verdicts = [
        m.TopologyHealth(
            **model(verdict).model_dump(),
            cluster=topology.key.cluster,
            role=topology.key.role,
            environ=topology.key.environ,
            name=topology.key.name,
        )
        for topology, verdict in zip(asked, found, strict=True)
    ]
    return sorted(verdicts, key=lambda one: (_WORST_FIRST[one.state], one.cluster, one.role, one.environ, one.name))


def model(verdict: Health) -> m.Health:
    """A verdict in the Tracker's shape."""
    reasons = [m.HealthReason(kind=r.kind.value, state=r.state.word, text=r.text) for r in verdict.reasons]
    return m.Health(state=verdict.state.word, restarts=verdict.restarts, reasons=reasons)
