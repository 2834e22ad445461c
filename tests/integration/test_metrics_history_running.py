"""A Topology Master as a process, with the reports of many instances: what it answers, how fast, and after a kill."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.metricsmgr.parts import Accumulator
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import container_identity
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from simulated_instances import SimulatedInstances

INSTANCES, METRICS = 1000, 60


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    with open_statemgr(launch.statemgr) as sm:
        submit(sm, 1)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def target_of(launch: Launch, *, not_pid: int = 0) -> tuple[str, int]:
    """Where the Topology Master listens, and its pid."""
    found: list[tuple[str, int]] = []

    def check() -> None:
        with open_statemgr(launch.statemgr) as sm:
            value = sm.get(Kind.TMASTERS, "words")
        assert value is not None, "no Topology Master has the node"
        location = state_pb2.TmasterLocation.FromString(value)
        assert location.pid != not_pid
        found.append((f"{location.host}:{location.port}", location.pid))

    await eventually(check)
    return found[-1]


class Asking:
    """A client of the Topology Master."""

    def __init__(self, launch: Launch, stub: Any) -> None:
        self._metadata, self._stub = launch.security("heron").metadata, stub

    async def metrics(self, **request: Any) -> tmaster_pb2.MetricsReply:
        return await self._call("GetMetrics", tmaster_pb2.MetricsRequest(**request))  # type: ignore[no-any-return]

    async def exceptions(self, **request: Any) -> list[tmaster_pb2.NamedException]:
        return list((await self._call("GetExceptions", tmaster_pb2.ExceptionsRequest(**request))).exceptions)

    async def summary(self, **request: Any) -> list[tmaster_pb2.ExceptionClass]:
        return list((await self._call("GetExceptionSummary", tmaster_pb2.ExceptionsRequest(**request))).classes)

    async def publish(self, report: metrics_pb2.MetricsReport) -> None:
        await self._call("PublishMetrics", metrics_pb2.MetricsReports(reports=[report]))

    async def _call(self, name: str, request: Any) -> Any:
        return await getattr(self._stub, name)(request, metadata=self._metadata, timeout=60, wait_for_ready=True)


@contextlib.asynccontextmanager
async def asking(launch: Launch, target: str) -> AsyncIterator[Asking]:
    async with channel(target, launch.security("heron"), container_identity(0)) as to_tmaster:
        yield Asking(launch, tmaster_pb2_grpc.TmasterStub(to_tmaster))


def now_ms() -> int:
    return int(time.time() * 1000)


def cpu_s(pid: int) -> float:
    """What a process has calculated so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def test_a_component_of_a_thousand_instances_is_answered_exactly_and_fast(launch: Launch) -> None:
    with EngineProcess("tmaster", launch, 0):
        target, pid = await target_of(launch)
        simulated = SimulatedInstances(INSTANCES, METRICS, started_ms=now_ms())
        for _ in range(2):
            await simulated.report_to(target, launch.security("metricsmgr-1"), now_ms())
        async with asking(launch, target) as client:
            times: list[float] = []
            for _ in range(10):
                start_s = cpu_s(pid)
                reply = await client.metrics(component="word", interval_s=600, by_component=True)
                times.append(cpu_s(pid) - start_s)
            values = {s.name: s.value for s in reply.series}
            assert len(values) == METRICS
            for n in range(METRICS // 3):
                assert values[f"__emit-count/stream{n}"] == INSTANCES * simulated.total(n)
                assert values[f"__execute-latency/source/stream{n}"] == 6
                assert values[f"__gateway-{n}-queue-size"] == INSTANCES * simulated.rounds
            assert min(times) < 0.2, f"the cheapest of {len(times)} answers took {min(times) * 1e3:.0f} ms of CPU"

            one = await client.metrics(
                component="word", instances=simulated.ids[:2], metrics=["__emit-count/stream1"], interval_s=-1
            )
            assert {s.instance: s.value for s in one.series} == dict.fromkeys(simulated.ids[:2], simulated.total(1))


async def test_totals_are_right_again_after_the_topology_master_was_killed(launch: Launch) -> None:
    simulated = SimulatedInstances(20, 6, started_ms=now_ms() - 600_000)
    with EngineProcess("tmaster", launch, 0) as first:
        target, pid = await target_of(launch)
        await simulated.report_to(target, launch.security("metricsmgr-1"), now_ms())
        first.kill()
    with EngineProcess("tmaster", launch, 0):
        target, _ = await target_of(launch, not_pid=pid)
        await simulated.report_to(target, launch.security("metricsmgr-1"), now_ms())
        async with asking(launch, target) as client:
            all_time = await client.metrics(component="word", metrics=["__emit-count/stream1"], by_component=True)
            assert [s.value for s in all_time.series] == [20 * simulated.total(1)]
            # Nobody knows in which minutes it was counted before: it is in none of them.
            minutely = await client.metrics(component="word", metrics=["__emit-count/stream1"], minutely=True)
            assert sum(v for s in minutely.series for v in s.minutes.values()) == 0


def stacktrace(error: Exception) -> str:
    try:
        raise error
    except Exception:
        return traceback.format_exc()


async def test_exceptions_are_listed_by_component_and_summed_by_class(launch: Launch) -> None:
    with EngineProcess("tmaster", launch, 0):
        target, _ = await target_of(launch)
        async with asking(launch, target) as client:
            for n, component in enumerate(("word", "word", "count"), start=1):
                source = f"container_1_{component}_{n}"
                process = Accumulator(source=source, component=component, container=1, pid=n, started_ms=1000)
                for time_ms in (1000 * n, 5000 * n):
                    process.raised(stacktrace(ValueError("no number")), "", time_ms)
                process.raised(stacktrace(KeyError(f"missing {n}")), "", 2000)
                await client.publish(process.report(9000))

            assert [e.report.count for e in await client.exceptions(component="count")] == [2, 1]
            (only,) = {e.source for e in await client.exceptions(component="word", instances=["container_1_word_2"])}
            assert only == "container_1_word_2"
            classes = {c.class_name: (c.count, c.first_time_ms, c.last_time_ms) for c in await client.summary()}
            assert classes == {"ValueError": (6, 1000, 15_000), "KeyError": (3, 2000, 2000)}
            assert [c.count for c in await client.summary(component="word")] == [4, 2]


async def test_a_request_for_too_much_is_refused_with_what_to_do(launch: Launch) -> None:
    with EngineProcess("tmaster", launch, 0):
        target, _ = await target_of(launch)
        await SimulatedInstances(100, 60, started_ms=now_ms()).report_to(
            target, launch.security("metricsmgr-1"), now_ms()
        )
        async with asking(launch, target) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="ask for fewer metrics") as refused:
                await client.metrics(minutely=True)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
