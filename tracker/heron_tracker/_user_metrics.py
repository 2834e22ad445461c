"""The metrics that a topology registered itself: whatever does not begin with `__`, which the engine's own do."""

from __future__ import annotations

from heron_tracker import _models as m
from heron_tracker._metrics import check_component
from heron_tracker._tmasters import Tmasters
from heron_tracker._topology import Topology
from heronpy.proto import metrics_pb2, tmaster_pb2

LIMIT_MAX = 500
"""Most metrics in one answer. A counter per key makes any number of them: who looks for one searches."""


async def user_metrics(
    tmasters: Tmasters, topology: Topology, component: str | None, search: str, limit: int
) -> m.UserMetrics:
    """The metrics of a topology's own, sorted, each with the components that reported it.

    Args:
        component: Only this one's.
        search: Words that must all occur in a metric's name, in any case.
        limit: At most so many are returned; `total` says how many there are.

    Raises:
        NotFoundError: there is no such component.
        UnreachableError.
    """
    if component is not None:
        check_component(topology, component)
    # By component: as many series as there are names, however many instances there are. The values are not needed.
    reply = await tmasters.metrics(
        topology, tmaster_pb2.MetricsRequest(component=component or "", interval_s=-1, by_component=True)
    )
    words = search.lower().split()
    found: dict[str, m.UserMetric] = {}
    for series in reply.series:
        name = series.name
        own = series.component in topology.logical.components and not name.startswith("__")
        if own and all(word in name.lower() for word in words):
            kind = metrics_pb2.Metric.Kind.Name(series.kind).lower()
            found.setdefault(name, m.UserMetric(metric=name, kind=kind, components=[])).components.append(
                series.component
            )
    return m.UserMetrics(total=len(found), metrics=[found[name] for name in sorted(found)[:limit]])
