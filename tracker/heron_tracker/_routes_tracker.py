"""Routes: the Tracker itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST

import heronpy
from heron_tracker import _models as m
from heron_tracker._tmasters import iso_time
from heron_tracker._tracker import TheTracker
from heronpy.errors import HeronError, UnavailableError
from heronpy.runtime import Launch
from heronpy.viz import targets

router = APIRouter()


@router.get("/health", response_class=PlainTextResponse)
async def health() -> str:
    """`ok` while the Tracker answers."""
    return "ok"


@router.get("/version")
async def version() -> m.Version:
    """The version. Not of Heron."""
    return m.Version(version=heronpy.__version__)


@router.get("/statemanagers")
async def state_managers(tracker: TheTracker) -> list[m.StateManagerStatus]:
    """The state managers, and whether they answer. Of one that does not, the last known topologies are told."""
    return [
        m.StateManagerStatus(
            name=follower.config.name,
            type=follower.config.spec.type,
            location=follower.config.spec.connection + follower.config.spec.root,
            connected=follower.error is None,
            since=iso_time(follower.since_s),
            error=follower.error,
            topologies=len(follower.topologies),
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
    """The Metrics Managers of this host's topologies, for Prometheus' `http_sd_configs`. Not of Heron."""
    directories = [topology.directory for topology in tracker.directory.topologies.values()]
    found = await asyncio.to_thread(lambda: targets(_launches(directories)))
    return [m.PrometheusTarget(**target) for target in found]


def _launches(directories: Iterable[Path]) -> Iterator[Launch]:
    for directory in directories:
        with contextlib.suppress(HeronError):  # being killed, or on another host
            yield Launch.load(directory)


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
