"""Routes: the Tracker itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST

import heronpy
from heron_tracker import _models as m
from heron_tracker._tmasters import iso_time
from heron_tracker._topology import Topology
from heron_tracker._tracker import TheTracker, Tracker
from heronpy.errors import UnavailableError
from heronpy.runtime import Launch
from heronpy.viz import on_this_host, targets

router = APIRouter()


@router.get("/health", response_class=PlainTextResponse)
async def health() -> str:
    """`ok` while the Tracker answers."""
    return "ok"


@router.get("/version")
async def version(tracker: TheTracker) -> m.Version:
    """The version, and whether this Tracker acts on topologies. Not of Heron."""
    return m.Version(version=heronpy.__version__, actions=tracker.config.actions)


@router.get("/statemanagers")
async def state_managers(tracker: TheTracker) -> list[m.StateManagerStatus]:
    """The state managers, and whether they answer. Of one that does not, the last known topologies are served."""
    return [
        m.StateManagerStatus(
            name=follower.config.name,
            type=follower.config.spec.type,
            location=follower.config.spec.connection + follower.config.spec.root,
            connected=follower.error is None,
            since=iso_time(follower.since_s),
            error=follower.error,
            topologies=len(follower.topologies),
            damaged=follower.damaged,
        )
        for follower in tracker.directory.followers
    ]


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def own_metrics(tracker: TheTracker) -> PlainTextResponse:
    """The Tracker's own metrics, for Prometheus. Not of Heron."""
    return PlainTextResponse(tracker.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@router.get("/prometheus/targets")
async def prometheus_targets(tracker: TheTracker) -> list[m.PrometheusTarget]:
    """The Metrics Managers of topologies, for Prometheus' `http_sd_configs`. Not of Heron."""
    topologies = list(tracker.directory.topologies.values())
    launches = await asyncio.to_thread(lambda: list(_launches(tracker, topologies)))
    reported = await _reported(tracker, topologies, launches)
    found = await asyncio.to_thread(lambda: targets(launches, lambda launch: reported.get(launch.topology_id, {})))
    return [m.PrometheusTarget(**target) for target in found]


async def _reported(
    tracker: TheTracker, topologies: Iterable[Topology], launches: Iterable[Launch]
) -> dict[str, Mapping[int, str]]:
    """By topology id: what the masters know of topologies that have no container on this host."""
    elsewhere = {launch.topology_id for launch in launches if not on_this_host(launch)}
    asked = [topology for topology in topologies if topology.id in elsewhere]
    replies = await asyncio.gather(*(tracker.tmasters.status(topology) for topology in asked))
    return {topology.id: reply.prometheus for topology, (reply, _) in zip(asked, replies, strict=True) if reply}


def _launches(tracker: Tracker, topologies: Iterable[Topology]) -> Iterator[Launch]:
    for topology in topologies:
        with contextlib.suppress(UnavailableError):  # being killed, on another host, or another user's
            yield tracker.credentials.known(topology)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(tracker: TheTracker) -> StreamingResponse:
    """Server-sent events: `topologies`, `topology` and `statemanagers`, all of them first, then what changes."""
    if tracker.events.full:
        raise UnavailableError("too many streams of events are open: close some")
    return StreamingResponse(
        tracker.events.stream(), media_type="text/event-stream", headers={"cache-control": "no-store"}
    )
