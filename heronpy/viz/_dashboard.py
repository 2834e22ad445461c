"""The dashboard of one topology, from its logical and its packing plan."""

from __future__ import annotations

import hashlib

from heronpy.plan import Component, LogicalPlan, PackingPlan
from heronpy.runtime import Launch
from heronpy.viz._panels import Dashboard, Panel, Query, Row, Variable
from heronpy.viz._queries import (
    RECENT,
    UPTIME,
    both,
    capacity,
    cpu,
    execute_latency,
    gauge,
    increase,
    rate,
    restarts,
    selector,
    share_of_time,
    silent,
)
from heronpy.viz._targets import outbox_bytes_high

TOPOLOGY = selector(topology="$topology", cluster="~$cluster", role="~$role", environ="~$environ")
"""Everything of the topology."""
CHOSEN = selector(container="~$container", instance="~$instance")
"""What the reader chose of it."""
USERS = both(TOPOLOGY, 'component!~"__.*__"')
"""The instances, without the engine's own processes."""
STREAM_MANAGERS = both(TOPOLOGY, selector(component="__stmgr__", container="~$container"))


def topology_dashboard(launch: Launch, logical: LogicalPlan, packing: PackingPlan) -> Dashboard:
    """The dashboard of a topology: health, resources, each component, Stream Managers."""
    spouts_first = [*logical.spouts, *logical.bolts]
    return Dashboard(
        uid=_uid(launch),
        title=f"Heron: {launch.topology}",
        description=f"{launch.topology} in {launch.cluster}/{launch.role}/{launch.environ}",
        tags=("heron", launch.topology),
        variables=_variables(launch),
        rows=(
            _health(),
            _resources(packing),
            *(_spout(c) if c.is_spout else _bolt(c) for c in spouts_first),
            _stream_managers(outbox_bytes_high(launch)),
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


def _health() -> Row:
    def number(title: str, expr: str, description: str, unit: str = "short") -> Panel:
        return Panel(
            title=title,
            queries=(Query(expr),),
            kind="stat",
            unit=unit,
            description=description,
            width=4,
            height=4,
            warn_at=0.01 if unit == "percentunit" else 1,
        )

    spouts = both(TOPOLOGY, selector(source=""))  # bolts count by source
    return Row(
        "Health",
        (
            number(
                "Spouts held",
                share_of_time("heron_server_time_spent_back_pressure_aggr_total", TOPOLOGY),
                "How much of the time backpressure holds spouts.",
                "percentunit",
            ),
            number("Failed tuples", increase("heron_fail_count_total", spouts), "At the spouts, in the time shown."),
            number("Timed out", increase("heron_timeout_count_total", TOPOLOGY), "Part of those that failed."),
            number("Restarts", restarts(TOPOLOGY), "Processes that began anew in the time shown."),
            number("Exceptions", increase("heron_exception_count_total", TOPOLOGY), "Of user code, in the time shown."),
            number("Silent processes", silent(TOPOLOGY), "They no longer report; their last values are still shown."),
            Panel(
                title="Who holds the spouts",
                queries=(
                    Query(share_of_time("heron_time_spent_back_pressure_by_compid_total", TOPOLOGY, "key"), "{{key}}"),
                ),
                unit="percentunit",
                description="The instances that cause backpressure, and how much of the time.",
                quiet=True,
            ),
            Panel(
                title="Tuples under way",
                queries=(Query(gauge("heron_pending_acked_count", TOPOLOGY, "component"), "{{component}}"),),
                description="Emitted by the spouts and not yet acked: the lag of the topology.",
            ),
            Panel(
                title="Failures per second",
                queries=(
                    Query(rate("heron_fail_count_total", TOPOLOGY, "component"), "{{component}} fails"),
                    Query(rate("heron_timeout_count_total", TOPOLOGY, "component"), "{{component}} timeouts"),
                    Query(rate("heron_exception_count_total", TOPOLOGY, "component"), "{{component}} exceptions"),
                ),
                unit="cps",
                quiet=True,
            ),
        ),
    )


def _resources(packing: PackingPlan) -> Row:
    mine = both(TOPOLOGY, selector(component="~$component"), CHOSEN)
    instances = [i for c in packing.containers for i in c.instances]
    cores = sum(i.resources.cpu for i in instances)
    ram = sum(i.resources.ram_bytes for i in instances)

    def by_component_and_instance(title: str, unit: str, component: str, instance: str) -> tuple[Panel, Panel]:
        return (
            Panel(title=title, queries=(Query(component, "{{component}}"),), unit=unit, width=12),
            Panel(title=f"{title}, by instance", queries=(Query(instance, "{{instance}}"),), unit=unit, width=12),
        )

    memory = "heron_py_physical_memory_byte"
    return Row(
        "Resources",
        (
            Panel(
                title="Cores: used and allocated",
                queries=(Query(cpu(USERS), "used by instances"), Query(f"vector({cores:g})", "packing plan")),
                width=12,
            ),
            Panel(
                title="Memory: used and allocated",
                queries=(Query(gauge(memory, USERS), "used by instances"), Query(f"vector({ram})", "packing plan")),
                unit="bytes",
                width=12,
            ),
            *by_component_and_instance("Cores", "short", cpu(mine, "component"), cpu(mine, "instance")),
            *by_component_and_instance(
                "Memory", "bytes", gauge(memory, mine, "component"), gauge(memory, mine, "instance")
            ),
            Panel(
                title="Time in garbage collection",
                queries=(Query(share_of_time("heron_py_gc_collection_time_ms", mine, "instance"), "{{instance}}"),),
                unit="percentunit",
            ),
            Panel(
                title="File descriptors",
                queries=(
                    Query(gauge("heron_py_fd_count", mine, "instance"), "{{instance}}"),
                    Query(gauge("heron_py_fd_limit", mine, how="min"), "limit"),
                ),
            ),
            Panel(
                title="Threads",
                queries=(Query(gauge("heron_py_thread_count", mine, "instance"), "{{instance}}"),),
            ),
        ),
    )


def _spout(spout: Component) -> Row:
    mine = both(TOPOLOGY, selector(component=spout.name), CHOSEN)
    return Row(
        f"Spout {spout.name} ({_instances(spout)})",
        (
            _emitted(spout, mine),
            Panel(
                title="Acked, failed, timed out",
                queries=(
                    Query(rate("heron_ack_count_total", mine), "acked"),
                    Query(rate("heron_fail_count_total", mine), "failed"),
                    Query(rate("heron_timeout_count_total", mine), "timed out"),
                ),
                unit="cps",
                quiet=True,
                description="Tuples with an id, per second.",
            ),
            Panel(
                title="Complete latency",
                queries=(
                    Query(gauge("heron_complete_latency", mine, how="avg"), "mean of the instances"),
                    Query(gauge("heron_complete_latency", mine, how="max"), "slowest instance"),
                    Query(gauge("heron_fail_latency", mine, how="avg"), "of failed tuples"),
                ),
                unit="ns",
                quiet=True,
                description="From emit to the last ack; measured with at-least-once and effectively-once only.",
            ),
            Panel(
                title="Pending",
                queries=(Query(gauge("heron_pending_acked_count", mine, "instance"), "{{instance}}"),),
                description="Emitted and not yet acked.",
            ),
            *_queues(mine),
        ),
    )


def _bolt(bolt: Component) -> Row:
    mine = both(TOPOLOGY, selector(component=bolt.name), CHOSEN)
    inputs = "source, stream"
    legend = "{{source}}/{{stream}}"
    return Row(
        f"Bolt {bolt.name} ({_instances(bolt)})",
        (
            Panel(
                title="Executed",
                queries=(Query(rate("heron_execute_count_total", mine, inputs), legend),),
                unit="cps",
                description="Tuples per second, by source and stream.",
            ),
            *([_emitted(bolt, mine)] if bolt.outputs else []),
            Panel(
                title="Acked and failed",
                queries=(
                    Query(rate("heron_ack_count_total", mine, inputs), f"{legend} acked"),
                    Query(rate("heron_fail_count_total", mine, inputs), f"{legend} failed"),
                ),
                unit="cps",
                quiet=True,
            ),
            Panel(
                title="Execute latency",
                queries=(Query(execute_latency(mine, inputs), legend),),
                unit="ns",
                quiet=True,
                description="Mean time in process(), over all tuples of the last moments.",
            ),
            Panel(
                title="Process latency",
                queries=(Query(gauge("heron_process_latency", mine, inputs, how="avg"), legend),),
                unit="ns",
                quiet=True,
                description="From a tuple's arrival to its ack: mean of the instances.",
            ),
            Panel(
                title="Capacity",
                queries=(Query(capacity(mine, "instance"), "{{instance}}"),),
                unit="percentunit",
                warn_at=0.9,
                description="The part of the time that an instance spends in process(). Near 100 %: add instances.",
            ),
            *_queues(mine),
        ),
    )


def _emitted(component: Component, mine: str) -> Panel:
    return Panel(
        title="Emitted",
        queries=(Query(rate("heron_emit_count_total", mine, "stream"), "{{stream}}"),),
        unit="cps",
        quiet=not component.is_spout,
        description="Tuples per second, by stream.",
    )


def _queues(mine: str) -> tuple[Panel, ...]:
    """The queues between an instance's gateway and its task."""
    full = ("heron_gateway_in_queue_full_count_total", "heron_out_queue_full_count_total")
    return (
        Panel(
            title="Queued in instances",
            queries=(
                Query(gauge("heron_gateway_in_stream_queue_size", mine, "instance"), "{{instance}} in"),
                Query(gauge("heron_gateway_out_stream_queue_size", mine, "instance"), "{{instance}} out"),
            ),
            unit="bytes",
        ),
        Panel(
            title="Full queues",
            queries=tuple(
                Query(rate(m, mine, "instance"), f"{{{{instance}}}} {way}")
                for m, way in zip(full, ("in", "out"), strict=True)
            ),
            unit="cps",
            description="How often per second a queue was found full.",
        ),
    )


def _stream_managers(outbox_high: int) -> Row:
    def ways(title: str, base: str, unit: str) -> Panel:
        names = {
            "from_workers": "from instances",
            "to_workers": "to instances",
            "from_stmgrs": "from others",
            "to_stmgrs": "to others",
        }
        return Panel(
            title=title,
            queries=tuple(
                Query(rate(f"heron_server_{base}_{way}_total", STREAM_MANAGERS, "instance"), f"{{{{instance}}}} {name}")
                for way, name in names.items()
            ),
            unit=unit,
            quiet=True,  # with one container, or one of each component in all, nothing goes between them
        )

    lost = f'sum by (instance) (rate({{__name__=~"heron_server_.*_lost_total",{STREAM_MANAGERS}}}{RECENT}))'
    return Row(
        "Stream Managers",
        (
            ways("Tuples", "tuples", "cps"),
            ways("Bytes", "bytes", "Bps"),
            ways("Acks", "ack_tuples", "cps"),
            Panel(
                title="Waiting for each receiver",
                queries=(
                    Query(
                        gauge("heron_connection_buffer_by_instanceid_bytes", STREAM_MANAGERS, "key", "max"), "{{key}}"
                    ),
                ),
                unit="bytes",
                warn_at=outbox_high,
                description="Bytes in the Stream Managers' outboxes. At the line backpressure begins.",
            ),
            Panel(
                title="Batches waiting for each receiver",
                queries=(
                    Query(
                        gauge("heron_connection_buffer_length_by_instanceid_packets", STREAM_MANAGERS, "key", "max"),
                        "{{key}}",
                    ),
                ),
            ),
            Panel(
                title="Frames",
                queries=tuple(
                    Query(
                        rate(f"heron_gateway_{way}_packets_count_total", both(TOPOLOGY, CHOSEN), "container"),
                        f"container {{{{container}}}} {name}",
                    )
                    for way, name in (("sent", "from instances"), ("received", "to instances"))
                ),
                unit="cps",
                description="Messages between instances and their Stream Manager.",
            ),
            Panel(
                title="Time in backpressure, by Stream Manager",
                queries=(
                    Query(
                        share_of_time("heron_server_time_spent_back_pressure_aggr_total", STREAM_MANAGERS, "instance"),
                        "{{instance}} held",
                    ),
                    Query(
                        share_of_time(
                            "heron_server_time_spent_back_pressure_initiated_total", STREAM_MANAGERS, "instance"
                        ),
                        "{{instance}} began it",
                    ),
                ),
                unit="percentunit",
            ),
            Panel(
                title="Time in backpressure, by culprit",
                queries=(
                    Query(
                        share_of_time("heron_time_spent_back_pressure_by_compid_total", STREAM_MANAGERS, "key"),
                        "{{key}}",
                    ),
                ),
                unit="percentunit",
                quiet=True,
            ),
            Panel(
                title="Lost with a connection",
                queries=(Query(lost, "{{instance}}"),),
                unit="cps",
                quiet=True,
                description="Tuples and acks that were under way when a process died; tuples with an id are replayed.",
            ),
        ),
    )


def _instances(component: Component) -> str:
    return "1 instance" if component.parallelism == 1 else f"{component.parallelism} instances"
