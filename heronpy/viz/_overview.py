"""The dashboard of all topologies."""

from __future__ import annotations

from heronpy.viz._panels import Dashboard, Panel, Query, Row, Variable
from heronpy.viz._queries import (
    UPTIME,
    both,
    capacity,
    cpu,
    gauge,
    increase,
    quantile,
    rate,
    restarts,
    selector,
    share_of_time,
)

CHOSEN = selector(topology="~$topology", cluster="~$cluster", role="~$role", environ="~$environ")
ALL = "cluster, role, environ, topology"
NAME = "{{topology}} {{cluster}}/{{role}}/{{environ}}"


def overview_dashboard() -> Dashboard:
    """All topologies, side by side."""
    return Dashboard(
        uid="heron-overview",
        title="Heron: all topologies",
        description="Every topology that Prometheus knows. The dashboards of single topologies: `heron viz`.",
        tags=("heron",),
        variables=tuple(
            Variable(name=name, label=label, metric=UPTIME)
            for name, label in (
                ("cluster", "cluster"),
                ("role", "role"),
                ("environ", "environment"),
                ("topology", "topology"),
            )
        ),
        rows=(_state(), _work(), _trouble(), _use()),
    )


def _state() -> Row:
    def number(title: str, expr: str, warn_at: float | None = None) -> Panel:
        return Panel(title=title, queries=(Query(expr),), kind="stat", width=4, height=4, warn_at=warn_at)

    return Row(
        "State",
        (
            number("Topologies", f"count(group by ({ALL}) ({UPTIME}{{{CHOSEN}}})) or vector(0)"),
            number("Processes", f"count({UPTIME}{{{CHOSEN}}}) or vector(0)"),
            number("Containers that do not answer", f"count(up{{{CHOSEN}}} == 0) or vector(0)", 1),
            number("Unhealthy topologies", f"count(heron_health{{{CHOSEN}}} >= 3) or vector(0)", 1),
            number("Restarts", f"{restarts(CHOSEN)} or vector(0)", 1),
            number("Exceptions", increase("heron_exception_count_total", CHOSEN), 1),
            Panel(
                title="Alerts",
                queries=(Query(f'ALERTS{{alertname=~"Heron.*",alertstate="firing",{CHOSEN}}}'),),
                kind="table",
                width=24,
                quiet=True,
                description="Those of heron.rules.yml that fire.",
            ),
        ),
    )


def _work() -> Row:
    spouts = both(CHOSEN, selector(source=""))  # bolts count by source
    return Row(
        "Work",
        (
            Panel(title="Emitted", queries=(Query(rate("heron_emit_count_total", CHOSEN, ALL), NAME),), unit="cps"),
            Panel(title="Executed", queries=(Query(rate("heron_execute_count_total", CHOSEN, ALL), NAME),), unit="cps"),
            Panel(
                title="Acked at the spouts",
                queries=(Query(rate("heron_ack_count_total", spouts, ALL), NAME),),
                unit="cps",
                quiet=True,
            ),
            Panel(
                title="Complete latency (p99)",
                queries=(Query(quantile(0.99, "heron_complete_latency_seconds", CHOSEN, ALL), NAME),),
                unit="s",
                quiet=True,
                description="The 99th percentile, of all spouts.",
            ),
            Panel(title="Tuples in flight", queries=(Query(gauge("heron_pending_acked_count", CHOSEN, ALL), NAME),)),
            Panel(
                title="Busiest bolt",
                queries=(Query(capacity(CHOSEN, "topology, component"), "{{topology}} {{component}}"),),
                unit="percentunit",
                warn_at=0.9,
                description="The part of the time that an instance spends in process().",
            ),
        ),
    )


def _trouble() -> Row:
    return Row(
        "Trouble",
        (
            Panel(
                title="Spouts throttled",
                queries=(
                    Query(share_of_time("heron_server_time_spent_back_pressure_aggr_seconds_total", CHOSEN, ALL), NAME),
                ),
                unit="percentunit",
            ),
            Panel(
                title="Who throttles them",
                queries=(
                    Query(
                        share_of_time(
                            "heron_time_spent_back_pressure_by_compid_seconds_total", CHOSEN, "topology, key"
                        ),
                        "{{topology}} {{key}}",
                    ),
                ),
                unit="percentunit",
                quiet=True,
            ),
            Panel(
                title="Failures",
                queries=(
                    Query(rate("heron_fail_count_total", both(CHOSEN, selector(source="")), ALL), f"{NAME} fails"),
                    Query(rate("heron_timeout_count_total", CHOSEN, ALL), f"{NAME} timeouts"),
                    Query(rate("heron_exception_count_total", CHOSEN, ALL), f"{NAME} exceptions"),
                ),
                unit="cps",
                quiet=True,
            ),
            Panel(
                title="Age of the last checkpoint",
                queries=(
                    Query(
                        f"{gauge('heron_checkpoint_age_seconds', CHOSEN, ALL, 'max')}"
                        f" / {gauge('heron_checkpoint_interval_seconds', CHOSEN, ALL, 'max')}",
                        NAME,
                    ),
                ),
                description="In intervals: above five the topology is not healthy.",
                width=12,
                warn_at=5,
                quiet=True,
            ),
            Panel(
                title="Failed checkpoints and rollbacks per second",
                queries=(
                    Query(rate("heron_checkpoint_failure_count_total", CHOSEN, ALL), f"{NAME} failed"),
                    Query(rate("heron_restore_count_total", CHOSEN, ALL), f"{NAME} rollbacks"),
                ),
                unit="cps",
                width=12,
                quiet=True,
            ),
        ),
    )


def _use() -> Row:
    memory = "heron_py_physical_memory_bytes"
    return Row(
        "Resources",
        (
            Panel(title="Cores", queries=(Query(cpu(CHOSEN, ALL), NAME),)),
            Panel(title="Memory", queries=(Query(gauge(memory, CHOSEN, ALL), NAME),), unit="bytes"),
            Panel(
                title="Bytes between processes",
                queries=(
                    Query(
                        f"{rate('heron_gateway_sent_packets_size_total', CHOSEN, ALL)}"
                        f" + {rate('heron_gateway_received_packets_size_total', CHOSEN, ALL)}",
                        NAME,
                    ),
                ),
                unit="Bps",
            ),
        ),
    )
