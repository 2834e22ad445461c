"""A topology of 1,000 instances, of which a real Topology Master and a real Tracker have heard.

The instances do not run: what they would report is sent to the Topology Master, as Metrics Managers send it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heronpy.plan import (
    ContainerPacking,
    InstancePacking,
    LogicalPlan,
    PackingPlan,
    PhysicalPlan,
    Resources,
    StmgrLocation,
)
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2_grpc, topology_pb2
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from topology_on_disk import EngineProcess, launch_in

PARALLELISM = {"events": 100, "parse": 300, "enrich": 200, "count": 350, "alerts": 50}
READS = {"parse": ("events",), "enrich": ("parse",), "count": ("enrich", "parse"), "alerts": ("count",)}
CONTAINERS = 50
HOSTS = 10
OTHER_COUNTERS = (
    *(f"__gateway-{way}-packets-{what}" for way in ("received", "sent") for what in ("count", "size")),
    *(f"__gateway-sent-metrics-{what}" for what in ("size", "packets-count", "count")),
    *("__gateway-sent-exceptions-count", "__gateway-in-queue-full-count", "__out-queue-full-count"),
    *("__task-run-count", "__continue-work-count", "__execution-count"),
    *(f"__{what}/default" for what in ("data-tuple-added-to-outgoing-queue", "tuple-serialization-time-ns")),
)
OTHER_GAUGES = (
    *(f"__gateway-{way}-stream-queue-{what}" for way in ("in", "out") for what in ("size", "expected-capacity")),
    *(f"__py-generation-{n}-{what}" for n in (1, 2, 3) for what in ("count", "collection-threshold")),
    *(f"__py-{what}" for what in ("user-cpu-time-secs", "sys-cpu-time-secs", "thread-count", "fd-count", "fd-limit")),
    *(f"__py-gc-collection-{what}" for what in ("count", "time-ms")),
    *(f"mine/{n}" for n in range(8)),
)
"""What real instances report, too."""
COUNTER, MEAN, GAUGE = metrics_pb2.Metric.COUNTER, metrics_pb2.Metric.MEAN, metrics_pb2.Metric.GAUGE


def definition() -> topology_pb2.Topology:
    topology = topology_pb2.Topology(id="words-1", name="words", state=topology_pb2.RUNNING)
    for name, parallelism in PARALLELISM.items():
        one = topology.bolts.add() if name in READS else topology.spouts.add()
        one.comp.name, one.comp.class_name = name, f"words.{name.title()}"
        one.comp.config.kvs.add(key="topology.component.parallelism", value=str(parallelism))
        out = one.outputs.add()
        out.stream.id, out.stream.component_name = "default", name
        out.schema.keys.add(key="word", type=topology_pb2.OBJECT)
        for source in READS.get(name, ()):
            read = one.inputs.add(gtype=topology_pb2.SHUFFLE)
            read.stream.id, read.stream.component_name = "default", source
    return topology


def packing() -> PackingPlan:
    names = [name for name, parallelism in PARALLELISM.items() for _ in range(parallelism)]
    resources = Resources(1.0, 512 << 20, 0)
    packed: dict[int, list[InstancePacking]] = {c: [] for c in range(1, CONTAINERS + 1)}
    for n, name in enumerate(names):
        packed[1 + n % CONTAINERS].append(InstancePacking(name, n + 1, n, resources))
    return PackingPlan("packing", tuple(ContainerPacking(c, tuple(i), resources) for c, i in packed.items()))


def write_state(state: StateManager, launch: Launch) -> PackingPlan:
    """What a submission and fifty Stream Managers leave."""
    topology, plan = definition(), packing()
    stmgrs = tuple(
        StmgrLocation(f"stmgr-{c}", c, f"10.0.0.{1 + c % HOSTS}", 4000 + c, 100 + c, 1)
        for c in range(1, CONTAINERS + 1)
    )
    execution = state_pb2.ExecutionState(
        topology="words",
        topology_id=launch.topology_id,
        cluster="local",
        role="me",
        environ="default",
        submission_user="me",
        submission_time_s=int(time.time()),
        topology_dir=str(launch.dir),
        release_version="0.1.0",
    )
    physical = PhysicalPlan(1, LogicalPlan.from_proto(topology), plan, stmgrs)
    state.set(Kind.TOPOLOGIES, "words", topology.SerializeToString())
    state.set(Kind.PACKINGPLANS, "words", plan.to_proto().SerializeToString())
    state.set(Kind.PPLANS, "words", physical.to_proto().SerializeToString())
    state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
    return plan


def report(source: str, component: str, container: int, n: int, metrics: list[Any]) -> metrics_pb2.MetricsReport:
    now_ms = int(time.time() * 1000)
    return metrics_pb2.MetricsReport(
        source=source,
        component=component,
        container=container,
        time_ms=now_ms,
        metrics=metrics,
        pid=1000 + n,
        started_ms=now_ms,
        sequence=1,
    )


def load(component: str, n: int) -> list[Any]:
    """What instance `n` has to report: the higher its number, the busier."""
    metric = metrics_pb2.Metric
    metrics = [
        metric(name="__uptime-secs", value=600, kind=GAUGE),
        metric(name="__py-physical-memory-byte", value=(60 + n % 350) << 20, kind=GAUGE),
        metric(name="__emit-count/default", value=10_000 + n, kind=COUNTER),
        metric(name="__ack-count/default", value=10_000, kind=COUNTER),
        metric(name="__fail-count/default", value=n % 7, kind=COUNTER),
    ]
    metrics += [metric(name=name, value=n, kind=COUNTER) for name in OTHER_COUNTERS]
    metrics += [metric(name=name, value=n, kind=GAUGE) for name in OTHER_GAUGES]
    for source in READS.get(component, ()):
        each_ns = 40_000 * (n % 25)
        latency = metric(
            name=f"__execute-latency/{source}/default", value=each_ns, kind=MEAN, sum=each_ns * 10.0, count=10
        )
        metrics += [metric(name=f"__execute-count/{source}/default", value=10_000 + n, kind=COUNTER), latency]
    if component == "events":
        metrics.append(metric(name="__complete-latency/default", value=25e6, kind=MEAN, sum=250e6, count=10))
    return metrics


async def publish(state: StateManager, launch: Launch, plan: PackingPlan) -> str:
    """Report for everybody. Returns who causes the most backpressure."""
    instances = [(c.id, i) for c in plan.containers for i in c.instances]
    reports = [report(i.instance_id(c), i.component, c, n, load(i.component, n)) for n, (c, i) in enumerate(instances)]
    slow = [(c, i.instance_id(c)) for c, i in instances if i.component == "count"][:3]
    for n, (c, id) in enumerate(slow):
        held = metrics_pb2.Metric(
            name=f"__time_spent_back_pressure_by_compid/{id}", value=45_000 / (n + 1), kind=COUNTER
        )
        reports.append(report(f"stmgr-{c}", "__stmgr__", c, n, [held]))
    raw = state.get(Kind.TMASTERS, "words")
    assert raw is not None
    location = state_pb2.TmasterLocation.FromString(raw)
    async with channel(f"{location.host}:{location.port}", launch.security("heron"), container_identity(0)) as link:
        stub: Any = tmaster_pb2_grpc.TmasterStub(link)
        for at in range(0, len(reports), 100):
            batch = metrics_pb2.MetricsReports(reports=reports[at : at + 100])
            await stub.PublishMetrics(batch, metadata=launch.security("heron").metadata, timeout=120)
    return slow[0][1]


@dataclass(frozen=True)
class LargeTopology:
    """Where it is."""

    directory: Path
    launch: Launch
    worst: str
    """The instance that causes the most backpressure."""

    def tracker_args(self) -> list[str]:
        """What `heron tracker` must be given to follow it."""
        return ["--no-token", "--type", "file", "--rootpath", self.launch.statemgr.root]


@contextmanager
def large_topology(directory: Path) -> Iterator[LargeTopology]:
    """A Topology Master that has heard of all instances, for as long as the block lasts."""
    launch = launch_in(directory)
    try:
        with open_statemgr(launch.statemgr) as state:
            plan = write_state(state, launch)
            with EngineProcess("tmaster", launch, 0):

                def located() -> None:
                    assert state.get(Kind.TMASTERS, "words") is not None

                eventually_sync(located)
                yield LargeTopology(directory, launch, in_a_thread(publish(state, launch, plan)))
    finally:
        shutil.rmtree(launch.socket_root(), ignore_errors=True)


def in_a_thread(work: Any) -> Any:
    """Run a coroutine, also if this thread has an event loop already, as with a browser."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result(300)
