"""Routes: metrics and exceptions. 503 while the Topology Master, which alone has them, is unreachable."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from heron_tracker import _metrics, _user_metrics
from heron_tracker import _models as m
from heron_tracker._rendering import rendered
from heron_tracker._tracker import (
    Component,
    Endtime,
    Instances,
    Metricnames,
    Starttime,
    TheTopology,
    TheTracker,
    TopologyAt,
)

router = APIRouter()


@router.get("/topologies/metrics", response_model=m.Metrics)
async def metrics(
    tracker: TheTracker,
    topology: TheTopology,
    component: Component,
    metricname: Metricnames = None,
    instance: Instances = None,
    interval: Annotated[int, Query(description="Of the last so many seconds; -1 or more than 10800: all time.")] = -1,
) -> Response:
    """Values of metrics by instance: counters summed, means averaged, of gauges the last one.

    404 if none of the named metrics was ever reported by the component.
    """
    return await rendered(
        await _metrics.metrics(tracker.tmasters, topology, component, metricname or [], instance or [], interval)
    )


@router.get("/topologies/metrics/timeline", response_model=m.Timeline)
@router.get("/topologies/metricstimeline", deprecated=True, response_model=m.Timeline)
async def timeline(
    tracker: TheTracker,
    topology: TheTopology,
    component: Component,
    starttime: Starttime,
    endtime: Endtime,
    metricname: Metricnames = None,
    instance: Instances = None,
) -> Response:
    """Values of metrics by instance and minute."""
    return await rendered(
        await _metrics.timeline(
            tracker.tmasters, topology, component, metricname or [], instance or [], starttime, endtime
        )
    )


@router.get("/topologies/metrics/query", response_model=m.QueryResult)
@router.get("/topologies/metricsquery", deprecated=True, response_model=m.QueryResult)
async def query(
    tracker: TheTracker,
    topology: TheTopology,
    query: Annotated[str, Query(description="E.g. SUM(DEFAULT(0, TS(word, *, __emit-count/default))).")],
    starttime: Starttime,
    endtime: Endtime,
) -> Response:
    """Evaluate a query. 400 if it is malformed, with the position of what is wrong, and if it calculates too much."""
    found = await _metrics.query(tracker.tmasters, topology, query, starttime, endtime, tracker.calculating)
    return Response(found, media_type="application/json")


@router.get("/topologies/exceptions")
async def exceptions(
    tracker: TheTracker, topology: TheTopology, component: Component, instance: Instances = None
) -> list[m.ExceptionEntry]:
    """The exceptions of a component (or `all`), one entry per instance and stack; the latest last."""
    return await _metrics.exceptions(tracker.tmasters, topology, component, instance or [])


@router.get("/topologies/exceptionsummary")
async def exception_summary(
    tracker: TheTracker, topology: TheTopology, component: Component, instance: Instances = None
) -> list[m.ExceptionClass]:
    """The exceptions of a component (or `all`) by class; the most frequent first."""
    return await _metrics.exception_summary(tracker.tmasters, topology, component, instance or [])


@router.get("/topologies/{cluster}/{role}/{environ}/{name}/history")
async def history(
    tracker: TheTracker,
    topology: TopologyAt,
    component: Component,
    metricname: Metricnames = None,
    interval: Annotated[int, Query(description="The last so many seconds, up to 10800.")] = _metrics.HISTORY_S,
    points: Annotated[int, Query(ge=1, le=1000, description="At most so many points a line.")] = 60,
    percentiles: Annotated[bool, Query(description="Of latencies, over all streams.")] = False,
) -> m.History:
    """A component's metrics over time, aggregated over its instances, for charts. Not of Heron."""
    names = metricname or []
    return await _metrics.history(tracker.tmasters, topology, component, names, interval, points, percentiles)


@router.get("/topologies/{cluster}/{role}/{environ}/{name}/usermetrics")
async def user_metrics(
    tracker: TheTracker,
    topology: TopologyAt,
    component: Annotated[str | None, Query(description="Only this component's; without it, all components'.")] = None,
    search: Annotated[str, Query(max_length=200, description="Words that occur in the metric's name.")] = "",
    limit: Annotated[int, Query(ge=1, le=_user_metrics.LIMIT_MAX, description="At most so many.")] = 100,
) -> m.UserMetrics:
    """The metrics that the topology registered itself, by name, with the components that report them. Not of Heron."""
    return await _user_metrics.user_metrics(tracker.tmasters, topology, component, search, limit)
