"""The row of checkpoints, for topologies that take some."""

from __future__ import annotations

from heronpy.viz._panels import Panel, Query, Row
from heronpy.viz._queries import gauge, increase
from heronpy.viz._scope import TOPOLOGY

AGE, INTERVAL = "heron_checkpoint_age_seconds", "heron_checkpoint_interval_seconds"


def checkpoints() -> Row:
    """How checkpoints get on, what they cost, and what was rolled back."""

    def number(title: str, metric: str, description: str, warn_at: float | None = 1) -> Panel:
        return Panel(
            title=title,
            queries=(Query(increase(metric, TOPOLOGY)),),
            kind="stat",
            description=description,
            width=6,
            height=4,
            warn_at=warn_at,
        )

    return Row(
        "Checkpoints",
        (
            number("Committed", "heron_checkpoint_count_total", "In the time shown.", None),
            number("Failed", "heron_checkpoint_failure_count_total", "In the time shown; the web UI has the reasons."),
            number("Rollbacks", "heron_restore_count_total", "Each repeats the work since the last checkpoint."),
            number("Damaged", "heron_checkpoint_damaged_count_total", "An older checkpoint was restored instead."),
            Panel(
                title="Age of the last checkpoint",
                queries=(
                    Query(gauge(AGE, TOPOLOGY, how="max"), "age"),
                    Query(gauge(INTERVAL, TOPOLOGY, how="max"), "wanted interval"),
                ),
                unit="s",
                description="What a failure repeats. Above five intervals the topology is not healthy.",
            ),
            Panel(
                title="Duration of a checkpoint",
                queries=(Query(gauge("heron_checkpoint_duration_seconds", TOPOLOGY, how="max"), "duration"),),
                unit="s",
                description="From its beginning to its commit.",
            ),
            Panel(
                title="Size of a checkpoint",
                queries=(
                    Query(gauge("heron_checkpoint_size_bytes", TOPOLOGY), "all of it"),
                    Query(gauge("heron_checkpoint_added_bytes", TOPOLOGY), "new"),
                    Query(gauge("heron_checkpoint_logged_bytes", TOPOLOGY), "logged: to be executed yet"),
                ),
                unit="bytes",
            ),
        ),
    )
