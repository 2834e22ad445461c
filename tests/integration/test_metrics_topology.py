"""Metrics of a running topology: everybody who is asked has the same, exact numbers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from metrics_topology import TUPLES, Measured
from prometheus_client.parser import text_string_to_metric_families

from heronpy.proto import state_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import container_identity
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, eventually, scrape

SINKS = {
    "sinks": ["prometheus-sink", "file-sink"],
    "prometheus-sink": {"class": "PrometheusSink"},
    "file-sink": {"class": "FileSink", "flush-frequency-ms": 200},
}
KEYS = {"heron.metrics.export.interval.ms": 500, "heron.metricsmgr.sinks": json.dumps(SINKS)}
EXACT = {
    "__emit-count/default": TUPLES,
    "__ack-count/default": TUPLES,
    "__execute-count/numbers/default": TUPLES,
    "__ack-count/numbers/default": TUPLES,
    "seen": TUPLES,
    "lookup/count": TUPLES,
    "size/count": TUPLES,
}


INSTANCE = {
    *("__emit-count/default", "__out-queue-full-count", "__task-run-count", "__execution-count"),
    *("__continue-work-count", "__tuple-serialization-time-ns/default", "__av-tuple-serialization-time-ns/default"),
    *("__data-tuple-added-to-outgoing-queue/default", "__average-tuple-size-added-queue/default"),
    *(f"__gateway-{way}-packets-{what}" for way in ("received", "sent") for what in ("size", "count")),
    *(f"__gateway-sent-metrics-{what}" for what in ("size", "packets-count", "count")),
    *(f"__gateway-{way}-stream-queue-{what}" for way in ("in", "out") for what in ("size", "expected-capacity")),
    *("__gateway-sent-exceptions-count", "__gateway-in-queue-full-count"),
    *("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs", "__py-physical-memory-byte", "__py-generation-3-count"),
}
PROCESS = {f"__process/{what}" for what in ("__cpu_user_usec", "__cpu_system_usec", "__uptime_sec", "__mem_used_bytes")}
HERON_NAMES = {
    "numbers": INSTANCE
    | {"__ack-count/default", "__complete-latency/default", "__next-tuple-latency", "__next-tuple-count"}
    | {"__produce-tuple-count", "__pending-acked-count"},
    "looking": {name for name in INSTANCE if not name.endswith("/default")}
    | {f"__{what}/numbers/default" for what in ("execute-count", "execute-latency", "execute-time-ns")}
    | {f"__{what}/numbers/default" for what in ("process-latency", "ack-count")}
    | {f"__{what}tuple-deserialization-time-ns/numbers/default" for what in ("", "av-")},
    "__stmgr__": PROCESS
    | {f"__server/__{what}_{way}_workers" for what in ("tuples", "ack_tuples", "bytes") for way in ("to", "from")}
    | {f"__server/__{what}_from_stmgrs" for what in ("tuples", "ack_tuples", "bytes")}
    | {"__client_stmgr-2/__tuples_to_stmgrs", "__client_stmgr-1/__ack_tuples_to_stmgrs"}
    | {f"__client_stmgr-{n}/__bytes_to_stmgrs" for n in (1, 2)}
    | {"__client_stmgr-2/__hello_messages_to_stmgrs", "__clientmgr/__stmgr_new_connections"}
    | {f"__server/__time_spent_back_pressure_{what}" for what in ("initiated", "aggr")},
    "__tmaster__": PROCESS,
}
"""Heron's names, as far as they mean something here; the rest depends on failures and backpressure."""


def missing(components: dict[str, dict[str, float]], names: dict[str, set[str]]) -> dict[str, set[str]]:
    return {component: rest for component, some in names.items() if (rest := some - components[component].keys())}


async def by_component(launch: Launch) -> dict[str, dict[str, float]]:
    """The Topology Master's metrics of ten minutes."""
    with open_statemgr(launch.statemgr) as sm:
        value = sm.get(Kind.TMASTERS, launch.topology)
    assert value is not None
    location = state_pb2.TmasterLocation.FromString(value)
    async with channel(
        f"{location.host}:{location.port}", launch.security("heron"), container_identity(0)
    ) as to_tmaster:
        ask: Any = tmaster_pb2_grpc.TmasterStub(to_tmaster).GetMetrics
        request = tmaster_pb2.MetricsRequest(interval_s=600, by_component=True)
        reply = await ask(request, metadata=launch.security("heron").metadata, timeout=60)
    found: dict[str, dict[str, float]] = {}
    for series in reply.series:
        found.setdefault(series.component, {})[series.name] = series.value
    return found


def in_files(launch: Launch) -> dict[str, float]:
    """The sums over instances of what the file sink wrote last."""
    last: dict[tuple[str, str], float] = {}
    for path in [path for n in (1, 2) for path in sorted(launch.log_dir(n).glob("metrics.json.*"))]:
        for line in path.read_text().rpartition("\n")[0].splitlines():  # without one that is being written
            entry = json.loads(line)
            last.update({(entry["instance"], name): value for name, value in entry["metrics"].items()})
    sums: dict[str, float] = {}
    for (_, name), value in last.items():
        sums[name] = sums.get(name, 0.0) + value
    return sums


def scraped(launch: Launch) -> dict[tuple[str, str, str], float]:
    """By family, component and stream: the sums over instances."""
    text = ""
    for container in (1, 2):
        text += scrape(launch, (launch.container_dir(container) / "prometheus.address").read_text())
    sums: dict[tuple[str, str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, sample.labels.get("component", ""), sample.labels.get("stream", ""))
            sums[key] = sums.get(key, 0.0) + sample.value
    return sums


async def test_the_topology_master_prometheus_and_the_files_agree_on_every_count() -> None:
    with LocalCluster(KEYS) as cluster:
        topology = await asyncio.to_thread(cluster.submit, Measured)
        launch = topology.launch

        async def exact() -> None:
            components = await by_component(launch)
            everything = components.get("numbers", {}) | components.get("looking", {})
            assert {name: everything.get(name) for name in EXACT} == EXACT
            files = await asyncio.to_thread(in_files, launch)
            assert {name: files.get(name) for name in EXACT} == EXACT
            samples = await asyncio.to_thread(scraped, launch)
            assert samples.get(("heron_emit_count_total", "numbers", "default")) == TUPLES
            assert samples.get(("heron_execute_count_total", "looking", "default")) == TUPLES

        async def complete() -> dict[str, dict[str, float]]:
            components = await by_component(launch)
            assert {"__stmgr__", "__metricsmgr__", "__executor__", "__tmaster__"} <= components.keys()
            assert missing(components, HERON_NAMES) == {}
            return components

        await asyncio.to_thread(topology.wait_running)
        await eventually(exact)
        components = await eventually(complete)
        for component in ("__metricsmgr__", "__executor__", "numbers"):
            assert components[component]["__py-physical-memory-byte"] > 1 << 20
        assert components["numbers"]["__complete-latency/default"] > 0
        assert components["numbers"]["__tuple-serialization-time-ns/default"] > 0
        bolt = components["looking"]
        for name in ("__execute-latency", "__process-latency", "__tuple-deserialization-time-ns"):
            assert bolt[f"{name}/numbers/default"] > 0
        assert bolt["__process-latency/numbers/default"] < 60e9, "nanoseconds"
        assert 0 < bolt["lookup/p50"] <= bolt["lookup/p99"]
        assert bolt["size/max"] == TUPLES
