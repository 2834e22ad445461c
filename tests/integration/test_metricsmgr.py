"""Reporter, Metrics Manager and Topology Master together, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.address import split_address
from heronpy.metricsmgr import SOCKET_NAME, Reporter
from heronpy.metricsmgr.parts import MetricsManager
from heronpy.proto import metrics_pb2, metrics_pb2_grpc, state_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import PARENT_ENV, Launch, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually, scrape
from heronpy.testing.servers import free_port
from heronpy.tmaster import TopologyMaster

INSTANCE = "container_1_word_1"
EMITTED = "__emit-count/default"
REQUEST = tmaster_pb2.TopologyRequest()
KEYS = {"heron.metrics.export.interval.ms": 50}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path, KEYS)
    with open_statemgr(launch.statemgr) as sm:
        submit(sm, 1)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def sm(launch: Launch) -> Iterator[StateManager]:
    with open_statemgr(launch.statemgr) as sm:
        yield sm


class Emitter:
    """An instance that emits something before every report."""

    def __init__(self, launch: Launch, source: str = INSTANCE) -> None:
        self.emitted = 0
        self.reporter = Reporter(launch, container=1, source=source, component="word", collect=self._collect)
        self.emits = True

    def _collect(self) -> list[metrics_pb2.Metric]:
        new = 3 if self.emits else 0
        self.emitted += new
        return [metrics_pb2.Metric(name=EMITTED, value=new)]

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncIterator[Emitter]:
        task = asyncio.create_task(self.reporter.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), "the reporter failed"


async def status(launch: Launch, sm: StateManager) -> tmaster_pb2.StatusReply:
    value = sm.get(Kind.TMASTERS, "words")
    assert value is not None, "no Topology Master has the node"
    location = state_pb2.TmasterLocation.FromString(value)
    async with channel(
        f"{location.host}:{location.port}", launch.security("heron"), container_identity(0)
    ) as to_tmaster:
        call: Any = tmaster_pb2_grpc.TmasterStub(to_tmaster).GetStatus
        try:
            reply = await call(REQUEST, metadata=launch.security("heron").metadata, timeout=120, wait_for_ready=True)
        except grpc.aio.AioRpcError as e:
            raise AssertionError(f"no status: {e.code()}") from None
    assert isinstance(reply, tmaster_pb2.StatusReply)
    return reply


async def total(launch: Launch, sm: StateManager) -> float:
    """What the Topology Master thinks the instance has emitted."""
    return (await status(launch, sm)).instances[0].totals.get(EMITTED, 0.0)


def at_least(launch: Launch, sm: StateManager, count: float) -> Any:
    async def check() -> None:
        assert await total(launch, sm) >= count

    return check


def exactly(launch: Launch, sm: StateManager, count: float) -> Any:
    async def check() -> None:
        assert await total(launch, sm) == count

    return check


def port_of(launch: Launch, container: int = 1) -> int:
    path = launch.container_dir(container) / "prometheus.address"
    assert path.exists(), "there is no Prometheus endpoint yet"
    return split_address(path.read_text())[1]


async def scraped(launch: Launch, port: int) -> dict[tuple[str, str], float]:
    """(sample name, instance) -> value; of families with more labels the last."""
    return {
        (s.name, s.labels.get("instance", "")): s.value
        for family in text_string_to_metric_families(await asyncio.to_thread(scrape, launch, port))
        for s in family.samples
    }


def exported(launch: Launch, port: Callable[[], int], emitter: Emitter) -> Any:
    async def check() -> None:
        try:
            samples = await scraped(launch, port())
        except OSError as e:
            raise AssertionError(f"no endpoint: {e}") from None
        assert samples.get(("heron_emit_count_total", INSTANCE)) == emitter.emitted

    return check


async def publish(launch: Launch, report: metrics_pb2.MetricsReport, token: str) -> None:
    security = dataclasses.replace(launch.security(INSTANCE), token=token)
    async with channel(f"unix:{launch.socket_dir(1) / SOCKET_NAME}", security) as to_metricsmgr:
        call: Any = metrics_pb2_grpc.MetricsmgrStub(to_metricsmgr).Publish
        await call(report, metadata=security.metadata, timeout=120, wait_for_ready=True)


async def test_counters_reach_the_topology_master_and_prometheus_exactly(launch: Launch, sm: StateManager) -> None:
    async with (
        running(TopologyMaster(launch)),
        running(MetricsManager(launch, 1)) as manager,
        Emitter(launch).reporting() as emitter,
    ):
        await eventually(at_least(launch, sm, 30))
        emitter.emits = False
        await eventually(exactly(launch, sm, emitter.emitted))
        samples = await scraped(launch, manager.prometheus_port)
        assert samples["heron_emit_count_total", INSTANCE] == emitter.emitted
        assert samples["heron_py_physical_memory_bytes", INSTANCE] > 1 << 20
        assert samples["heron_uptime_seconds", "metricsmgr-1"] > 0, "it reports itself, too"
        known = await status(launch, sm)
        assert known.instances[0].latest["__py-thread-count"] >= 1
        assert dict(known.prometheus) == {1: f"127.0.0.1:{manager.prometheus_port}"}, "for scrapers of other hosts"


async def test_an_executor_that_cannot_be_looked_at_is_reported_once_it_can(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    executor = os.getppid()
    short = True
    list_directory = os.listdir

    def listed(path: str) -> list[str]:
        if short and path == f"/proc/{executor}/fd":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return list_directory(path)

    def warned() -> None:
        assert "the executor is not reported: it cannot be looked at: [Errno 24] Too many open files" in caplog.text

    monkeypatch.setenv(PARENT_ENV, str(executor))
    monkeypatch.setattr(os, "listdir", listed)
    async with running(MetricsManager(launch, 1)) as manager:
        await eventually(warned)
        samples = await scraped(launch, manager.prometheus_port)
        assert samples["heron_uptime_seconds", "metricsmgr-1"] > 0
        assert ("heron_uptime_seconds", "executor-1") not in samples
        short = False

        async def reported() -> None:
            samples = await scraped(launch, manager.prometheus_port)
            assert samples.get(("heron_uptime_seconds", "executor-1"), 0) > 0

        await eventually(reported)


async def test_an_exception_reaches_the_topology_master_with_its_count(launch: Launch, sm: StateManager) -> None:
    async with (
        running(TopologyMaster(launch)),
        running(MetricsManager(launch, 1)),
        Emitter(launch).reporting() as emitter,
    ):
        for _ in range(3):
            await asyncio.to_thread(emitter.reporter.exception, "Traceback: boom", "lines before")

        async def counted() -> None:
            seen = [(e.source, e.component, e.report) for e in (await status(launch, sm)).exceptions]
            assert [(*at, e.stacktrace, e.count, e.logging) for *at, e in seen] == [
                (INSTANCE, "word", "Traceback: boom", 3, "lines before")
            ]

        await eventually(counted)


async def test_flush_delivers_what_happened_since_the_last_report(launch: Launch, sm: StateManager) -> None:
    async with running(TopologyMaster(launch)), running(MetricsManager(launch, 1)):
        emitter = Emitter(launch)
        assert await emitter.reporter.flush(120.0)
        await eventually(exactly(launch, sm, 3))


async def test_flush_without_a_metrics_manager_gives_up_in_time(launch: Launch) -> None:
    async with asyncio.timeout(120):
        assert not await Emitter(launch).reporter.flush(0.2)


async def test_no_counter_is_lost_or_doubled_when_the_metrics_manager_is_killed(
    launch: Launch, sm: StateManager
) -> None:
    async with running(TopologyMaster(launch)), Emitter(launch).reporting() as emitter:
        for _ in range(3):
            before = emitter.emitted
            with EngineProcess("metricsmgr", launch, 1):
                await eventually(at_least(launch, sm, before + 30))
        emitter.emits = False
        with EngineProcess("metricsmgr", launch, 1) as process:
            await eventually(exactly(launch, sm, emitter.emitted))
            await eventually(exported(launch, lambda: port_of(launch), emitter))
            assert process.terminate() == 0
    with pytest.raises(AssertionError):
        port_of(launch)


async def test_no_counter_is_lost_or_doubled_while_the_topology_master_is_away(
    launch: Launch, sm: StateManager
) -> None:
    async with running(MetricsManager(launch, 1)), Emitter(launch).reporting() as emitter:
        for _ in range(2):
            before = emitter.emitted
            with EngineProcess("tmaster", launch, 0):
                await eventually(at_least(launch, sm, before + 30))
        away_at = emitter.emitted

        def emitted_more() -> None:
            assert emitter.emitted > away_at + 9

        await eventually(emitted_more)
        emitter.emits = False
        with EngineProcess("tmaster", launch, 0):
            await eventually(exactly(launch, sm, emitter.emitted))


async def test_the_last_words_of_an_instance_survive_a_topology_master_that_does_not_answer(
    launch: Launch, sm: StateManager, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        assert "the Topology Master does not take metrics" in caplog.text

    dead = state_pb2.TmasterLocation(topology="words", host="127.0.0.1", port=free_port())
    sm.set(Kind.TMASTERS, "words", dead.SerializeToString())
    async with running(MetricsManager(launch, 1)):
        emitter = Emitter(launch)
        assert await emitter.reporter.flush(120.0)
        await eventually(refused)
        sm.delete(Kind.TMASTERS, "words")
        async with running(TopologyMaster(launch)):
            await eventually(exactly(launch, sm, emitter.emitted))


async def test_totals_continue_when_an_instance_restarts(launch: Launch, sm: StateManager) -> None:
    emitted = 0
    async with running(TopologyMaster(launch)), running(MetricsManager(launch, 1)) as manager:
        for life in range(1, 4):
            async with Emitter(launch).reporting() as emitter:
                await eventually(at_least(launch, sm, emitted + 9))
                emitter.emits = False
            assert await emitter.reporter.flush(120.0)
            emitted += emitter.emitted
            await eventually(exactly(launch, sm, emitted))
            samples = await scraped(launch, manager.prometheus_port)
            assert samples["heron_emit_count_total", INSTANCE] == emitted, f"life {life}"


async def test_a_silent_source_that_is_not_packed_is_no_longer_exported(launch: Launch) -> None:
    packed = ("heron_emit_count_total", INSTANCE)
    unpacked = ("heron_emit_count_total", "container_1_word_9")
    async with running(MetricsManager(launch, 1)) as manager:

        async def both() -> None:
            assert {packed, unpacked} <= (await scraped(launch, manager.prometheus_port)).keys()

        async def one() -> None:
            assert unpacked not in await scraped(launch, manager.prometheus_port)

        async with Emitter(launch).reporting(), Emitter(launch, "container_1_word_9").reporting():
            await eventually(both)
        await eventually(one)
        assert packed in await scraped(launch, manager.prometheus_port), "silent too, but it will be back"


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_publishing_needs_the_token(launch: Launch, token: str) -> None:
    assert [m.name for m in metrics_pb2.DESCRIPTOR.services_by_name["Metricsmgr"].methods] == ["Publish"]
    async with running(MetricsManager(launch, 1)) as manager:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await publish(launch, metrics_pb2.MetricsReport(source="x", sequence=1), token)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert not any(instance == "x" for _, instance in await scraped(launch, manager.prometheus_port))


async def test_it_collects_before_the_state_manager_can_be_reached(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, KEYS)
    root = Path(launch.statemgr.root)
    await asyncio.to_thread(root.write_text, "not a directory")
    async with running(MetricsManager(launch, 1)) as manager, Emitter(launch).reporting() as emitter:

        def emitted() -> None:
            assert emitter.emitted > 9

        await eventually(emitted)
        emitter.emits = False
        await eventually(exported(launch, lambda: manager.prometheus_port, emitter))
        await asyncio.to_thread(root.unlink)
        with open_statemgr(launch.statemgr) as sm:
            submit(sm, 1)
            async with running(TopologyMaster(launch)):
                await eventually(exactly(launch, sm, emitter.emitted))
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_the_prometheus_port_is_the_configured_one_plus_the_container(tmp_path: Path) -> None:
    launch = launch_in(tmp_path, {**KEYS, "heron.metricsmgr.prometheus.port": free_port() - 1})
    async with running(MetricsManager(launch, 1)) as manager:
        assert manager.prometheus_port == launch.config.metrics.prometheus_port + 1 == port_of(launch)
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def test_a_taken_prometheus_port_is_replaced_by_a_free_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        launch = launch_in(tmp_path, {**KEYS, "heron.metricsmgr.prometheus.port": taken.getsockname()[1] - 1})
        async with running(MetricsManager(launch, 1)):
            assert port_of(launch) != taken.getsockname()[1]
            assert ("heron_metrics_series_dropped", "") in await scraped(launch, port_of(launch))
    shutil.rmtree(launch.socket_root(), ignore_errors=True)
