"""The rows that every topology's dashboard has: health, resources, Stream Managers."""

from __future__ import annotations

from heronpy.plan import PackingPlan
from heronpy.viz._panels import Panel, Query, Row
from heronpy.viz._queries import both, cpu, gauge, increase, rate, restarts, selector, share_of_time, silent
from heronpy.viz._scope import CHOSEN, STREAM_MANAGERS, TOPOLOGY, USERS


def health() -> Row:
    """Whether all is well, and who is at fault if not."""

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
                "Spouts throttled",
                share_of_time("heron_server_time_spent_back_pressure_aggr_seconds_total", TOPOLOGY),
                "How much of the time backpressure throttles spouts.",
                "percentunit",
            ),
            number("Failed tuples", increase("heron_fail_count_total", spouts), "At the spouts, in the time shown."),
            number("Timed out", increase("heron_timeout_count_total", TOPOLOGY), "Part of those that failed."),
            number("Restarts", restarts(TOPOLOGY), "Of processes, in the time shown."),
            number("Exceptions", increase("heron_exception_count_total", TOPOLOGY), "Of user code, in the time shown."),
            number("Silent processes", silent(TOPOLOGY), "They no longer report; their last values are still shown."),
            Panel(
                title="Who throttles the spouts",
                queries=(
                    Query(
                        share_of_time("heron_time_spent_back_pressure_by_compid_seconds_total", TOPOLOGY, "key"),
                        "{{key}}",
                    ),
                ),
                unit="percentunit",
                description="The instances that cause backpressure, and how much of the time.",
                quiet=True,
            ),
            Panel(
                title="Tuples in flight",
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


def resources(packing: PackingPlan) -> Row:
    """What is used, beside what the packing plan gives."""
    mine = both(TOPOLOGY, selector(component="~$component"), CHOSEN)
    instances = [i for c in packing.containers for i in c.instances]
    cores = sum(i.resources.cpu for i in instances)
    ram = sum(i.resources.ram_bytes for i in instances)

    def by_component_and_instance(title: str, unit: str, component: str, instance: str) -> tuple[Panel, Panel]:
        return (
            Panel(title=title, queries=(Query(component, "{{component}}"),), unit=unit, width=12),
            Panel(title=f"{title}, by instance", queries=(Query(instance, "{{instance}}"),), unit=unit, width=12),
        )

    memory = "heron_py_physical_memory_bytes"
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
                queries=(
                    Query(share_of_time("heron_py_gc_collection_time_seconds", mine, "instance"), "{{instance}}"),
                ),
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


def stream_managers(outbox_high: int) -> Row:
    """What passes the Stream Managers, and what waits in them.

    Args:
        outbox_high: Bytes for one receiver at which backpressure begins.
    """

    def ways(title: str, base: str, unit: str) -> Panel:
        names = {
            f"server_{base}_from_workers": "from instances",
            f"server_{base}_to_workers": "to instances",
            f"server_{base}_from_stmgrs": "from others",
            f"client_{base}_to_stmgrs": "to others",
        }
        return Panel(
            title=title,
            queries=tuple(
                Query(rate(f"heron_{name}_total", STREAM_MANAGERS, "instance"), f"{{{{instance}}}} {way}")
                for name, way in names.items()
            ),
            unit=unit,
            quiet=True,  # with one container, or one of each component in all, nothing goes between them
        )

    def lost() -> tuple[Query, ...]:
        # One query for each: the rate of several names at once is refused as soon as two have the same labels.
        ends = {"server": ("workers", "to instances"), "client": ("stmgrs", "to others")}
        kinds = {"tuples": "tuples", "ack_tuples": "acks", "fail_tuples": "fails"}
        return tuple(
            Query(
                rate(f"heron_{side}_{what}_to_{whom}_lost_total", STREAM_MANAGERS, "instance"),
                f"{{{{instance}}}} {kind} {way}",
            )
            for what, kind in kinds.items()
            for side, (whom, way) in ends.items()
        )

    return Row(
        "Stream Managers",
        (
            ways("Tuples", "tuples", "cps"),
            ways("Bytes", "bytes", "Bps"),
            ways("Acks", "ack_tuples", "cps"),
            _links("Bytes on each link", "bytes", "Bps"),
            _links("Tuples on each link", "tuples", "cps"),
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
                        share_of_time(
                            "heron_server_time_spent_back_pressure_aggr_seconds_total", STREAM_MANAGERS, "instance"
                        ),
                        "{{instance}} throttled",
                    ),
                    Query(
                        share_of_time(
                            "heron_server_time_spent_back_pressure_initiated_seconds_total", STREAM_MANAGERS, "instance"
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
                        share_of_time("heron_time_spent_back_pressure_by_compid_seconds_total", STREAM_MANAGERS, "key"),
                        "{{key}}",
                    ),
                ),
                unit="percentunit",
                quiet=True,
            ),
            Panel(
                title="Lost with a connection",
                queries=lost(),
                unit="cps",
                quiet=True,
                description="Tuples and acks that were under way when a process died; tuples with an id are replayed.",
            ),
        ),
    )


def _links(title: str, base: str, unit: str) -> Panel:
    """What goes from one Stream Manager to another."""
    return Panel(
        title=title,
        queries=(
            Query(
                rate(f"heron_client_{base}_to_stmgrs_total", STREAM_MANAGERS, "instance, key"),
                "{{instance}} → {{key}}",
            ),
        ),
        unit=unit,
        quiet=True,  # with one container there are none
        description="From one Stream Manager to another.",
    )
