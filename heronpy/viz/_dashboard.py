"""The dashboard of one topology, from its logical and its packing plan."""

from __future__ import annotations

import hashlib

from heronpy.plan import LogicalPlan, PackingPlan, batch_side_of
from heronpy.runtime import Launch
from heronpy.viz._checkpoints import checkpoints
from heronpy.viz._components import bolt_row, spout_row
from heronpy.viz._panels import Dashboard, Variable
from heronpy.viz._pipeline import pipeline
from heronpy.viz._queries import UPTIME
from heronpy.viz._scope import TOPOLOGY
from heronpy.viz._sections import health, resources, stream_managers
from heronpy.viz._targets import outbox_bytes_high


def topology_dashboard(launch: Launch, logical: LogicalPlan, packing: PackingPlan) -> Dashboard:
    """The dashboard of a topology: health, resources, each component, checkpoints and batch side if it has them."""
    spouts_first = [*logical.spouts, *logical.bolts]
    return Dashboard(
        uid=_uid(launch),
        title=f"Heron: {launch.topology}",
        description=f"{launch.topology} in {launch.cluster}/{launch.role}/{launch.environ}",
        tags=("heron", launch.topology),
        variables=_variables(launch),
        rows=(
            health(),
            resources(packing),
            *(spout_row(c) if c.is_spout else bolt_row(c) for c in spouts_first),
            *([checkpoints()] if launch.checkpoints else []),
            *([pipeline()] if batch_side_of(logical.config) is not None else []),
            stream_managers(outbox_bytes_high(launch)),
        ),
    )


def _uid(launch: Launch) -> str:
    # Grafana allows 40 characters. The same topology, submitted again, replaces its dashboard.
    place = f"{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"
    return f"heron-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def _variables(launch: Launch) -> tuple[Variable, ...]:
    return (
        Variable(name="topology", label="topology", metric=UPTIME, current=launch.topology, many=False),
        # Or nothing: who scrapes without our labels has only one topology of the name.
        Variable(name="cluster", constant=f"{launch.cluster}|"),
        Variable(name="role", constant=f"{launch.role}|"),
        Variable(name="environ", constant=f"{launch.environ}|"),
        Variable(name="component", label="component", metric=f"{UPTIME}{{{TOPOLOGY}}}"),
        Variable(name="container", label="container", metric=f"{UPTIME}{{{TOPOLOGY}}}"),
        Variable(name="instance", label="instance", metric=f'{UPTIME}{{{TOPOLOGY},component=~"$component"}}'),
    )
