"""The rows of a topology's components."""

from __future__ import annotations

from heronpy.plan import Component
from heronpy.viz._panels import Panel, Query, Row
from heronpy.viz._queries import both, capacity, execute_latency, gauge, quantile, rate, selector
from heronpy.viz._scope import CHOSEN, TOPOLOGY


def spout_row(spout: Component) -> Row:
    """What a spout emits, and what becomes of it."""
    mine = both(TOPOLOGY, selector(component=spout.name), CHOSEN)
    return Row(
        f"Spout {spout.name} ({_instances(spout)})",
        (
            _emitted(spout, mine),
            Panel(
                title="Acked, failed, timed out",
                queries=tuple(
                    Query(rate(f"heron_{what}_count_total", mine, "stream"), f"{{{{stream}}}} {done}")
                    for what, done in (("ack", "acked"), ("fail", "failed"), ("timeout", "timed out"))
                ),
                unit="cps",
                quiet=True,
                description="Tuples per second, by stream. Those that timed out are among the failed.",
            ),
            Panel(
                title="Complete latency",
                queries=(
                    *percentiles("heron_complete_latency_seconds", mine, "stream", "{{stream}}"),
                    Query(gauge("heron_fail_latency_seconds", mine, "stream", "avg"), "{{stream}}, of failed tuples"),
                ),
                unit="s",
                quiet=True,
                description="From emit to the last ack: percentiles by stream; not measured at most once.",
            ),
            Panel(
                title="Pending",
                queries=(Query(gauge("heron_pending_acked_count", mine, "instance"), "{{instance}}"),),
                description="Emitted and not yet acked.",
            ),
            *_next_tuple(mine),
            *_queues(mine),
        ),
    )


def bolt_row(bolt: Component) -> Row:
    """What a bolt executes and emits, and whether it keeps up."""
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
                unit="s",
                quiet=True,
                description="Mean time in process(), over all tuples of the last moments.",
            ),
            Panel(
                title="Process latency",
                queries=percentiles("heron_process_latency_seconds", mine, inputs, legend),
                unit="s",
                quiet=True,
                description="From a tuple's arrival to its ack: percentiles.",
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


def percentiles(histogram: str, mine: str, by: str, legend: str) -> tuple[Query, ...]:
    """The usual percentiles of a latency."""
    return tuple(Query(quantile(q, histogram, mine, by), f"{legend} p{100 * q:g}") for q in (0.5, 0.95, 0.99))


def _emitted(component: Component, mine: str) -> Panel:
    return Panel(
        title="Emitted",
        queries=(Query(rate("heron_emit_count_total", mine, "stream"), "{{stream}}"),),
        unit="cps",
        quiet=not component.is_spout,
        description="Tuples per second, by stream.",
    )


def _next_tuple(mine: str) -> tuple[Panel, ...]:
    """What the user's code of a spout costs, apart from what becomes of its tuples."""
    return (
        Panel(
            title="Calls of next_tuple()",
            queries=(Query(rate("heron_next_tuple_count_total", mine, "instance"), "{{instance}}"),),
            unit="cps",
            description="Per second. Far more than tuples: the source has nothing to emit.",
        ),
        Panel(
            title="Time in next_tuple()",
            queries=(Query(gauge("heron_next_tuple_latency_seconds", mine, "instance", "avg"), "{{instance}}"),),
            unit="s",
            description="Mean time of a call. A long one delays acks and timeouts of the instance, too.",
        ),
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


def _instances(component: Component) -> str:
    return "1 instance" if component.parallelism == 1 else f"{component.parallelism} instances"
