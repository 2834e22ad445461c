"""A Topology Master that is really stopped: nobody waits twice for it, and the last numbers go on being told."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from heron_tracker import StateManagerConfig, local_state
from heron_tracker.parts import CALLS_PER_TOPOLOGY_MAX
from numbers_topology import Numbers
from test_tracker_state_managers import record, told, tracking, words
from topology_on_disk import launch_in

from heronpy.proto import state_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually

TIMEOUT_S = 1.0
PATHS = ("metrics?component=numbers", "exceptions?component=all", "exceptionsummary?component=all", "runtimestate")


async def timed(tracker: httpx.AsyncClient, path: str) -> tuple[httpx.Response, float]:
    path, _, query = path.partition("?")
    began_s = time.monotonic()
    answer = await tracker.get(f"/topologies/{path}", params={**words("local"), **dict(httpx.QueryParams(query))})
    return answer, time.monotonic() - began_s


def check_told(answer: httpx.Response) -> None:
    """Everybody is told of the silence; who asks for the state gets the last one that is known."""
    if answer.url.path.endswith("runtimestate"):
        last = answer.json()
        assert last["tmaster"].startswith("unreachable since 2")
        assert last["stmgrs"] == {s: {"is_registered": True} for s in ("stmgr-1", "stmgr-2")}
    else:
        assert answer.status_code == 503
        assert "unreachable since 2" in answer.json()


def calls(metrics: str) -> float:
    """How many calls to Topology Masters were not answered, by the Tracker's own metrics."""
    lines = [line for line in metrics.splitlines() if line.startswith("heron_tracker_tmaster_calls_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'answered="no"' in line)


async def alive(tracker: httpx.AsyncClient, place: str) -> dict[str, Any]:
    summary: dict[str, Any] = {}

    async def known() -> None:
        summary.update(told(await tracker.get(place, params={"interval": 600})))
        assert (summary["tmaster"], summary["as_of"], summary["ready"]) == ("ok", None, True)
        assert sum(c["emitted"] for c in summary["components"]) >= 2000

    await eventually(known)
    return summary


async def test_only_those_who_find_out_wait_for_a_silent_topology_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._tmasters.CALL_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr("heron_tracker._tmasters.STATUS_AGE_S", 0.0)
    # The Topology Master that the test stops is not to be taken for hung meanwhile.
    keys = {"heron.metrics.export.interval.ms": 500, "heron.executor.heartbeat.timeout.ms": 600_000}
    with LocalCluster(keys) as cluster:
        handle = await asyncio.to_thread(lambda: cluster.submit(Numbers, name="words").wait_running())
        place = f"/topologies/local/{handle.launch.role}/default/words/summary"
        async with tracking(local_state(cluster.home)) as tracker:
            before = await alive(tracker, place)
            tmaster = handle.processes()["tmaster"]
            os.kill(tmaster, signal.SIGSTOP)
            try:
                await nobody_waits_twice(tracker)
                await the_last_numbers_are_told(tracker, place, before)
            finally:
                os.kill(tmaster, signal.SIGCONT)
            await alive(tracker, place)
            await a_new_one_is_asked_at_once(tracker, handle, place)


async def nobody_waits_twice(tracker: httpx.AsyncClient) -> None:
    """By counting calls to the Topology Master: a caller who makes none has nothing to wait for."""

    async def unanswered() -> float:
        return calls((await tracker.get("/metrics")).text)

    before, began_s = await unanswered(), time.monotonic()
    for answer, _ in await asyncio.gather(*(timed(tracker, path) for path in PATHS * 10)):
        check_told(answer)
    probes = time.monotonic() - began_s + 1  # one a second, however many ask
    assert 1 <= await unanswered() - before <= CALLS_PER_TOPOLOGY_MAX + probes
    before, began_s = await unanswered(), time.monotonic()
    while time.monotonic() - began_s < 2.5 or await unanswered() == before:
        for answer, _ in await asyncio.gather(*(timed(tracker, path) for path in PATHS * 3)):
            check_told(answer)
        await asyncio.sleep(0.1)
    assert 1 <= await unanswered() - before <= time.monotonic() - began_s + 1


async def the_last_numbers_are_told(tracker: httpx.AsyncClient, place: str, before: dict[str, Any]) -> None:
    for _ in range(2):
        old = (await tracker.get(place, params={"interval": 600})).json()
        assert old["as_of"] < old["tmaster"].removeprefix("unreachable since ")
        assert not old["ready"]
        assert old["interval"] >= before["interval"]
        numbers = [(c["name"], c["emitted"], c["executed"], len(c["instances"])) for c in old["components"]]
        assert numbers == [(c["name"], c["emitted"], c["executed"], len(c["instances"])) for c in before["components"]]
        assert not any(i["attached"] for c in old["components"] for i in c["instances"])
    never = (await tracker.get(place, params={"interval": 60})).json()
    assert (never["as_of"], never["components"][0]["emitted"]) == (None, 0)


async def a_new_one_is_asked_at_once(tracker: httpx.AsyncClient, handle: TopologyHandle, place: str) -> None:
    os.kill(handle.processes()["tmaster"], signal.SIGSTOP)
    waiting = [asyncio.create_task(timed(tracker, PATHS[0])) for _ in range(8)]
    await asyncio.sleep(0.2)  # they wait now
    os.kill(handle.processes()["tmaster"], signal.SIGKILL)
    for answer, _ in await asyncio.gather(*waiting):
        assert answer.status_code in (200, 503)

    async def back() -> None:
        answer, _ = await timed(tracker, "runtimestate")
        assert told(answer)["tmaster"] == "ok"
        assert told(await tracker.get(place))["as_of"] is None

    await eventually(back)


class Mute:
    """A server that accepts connections and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.asked.set()
        await reader.read()
        writer.close()

    def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


async def test_a_call_to_an_address_that_is_given_up_is_answered_and_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_tracker._tmasters.CALL_TIMEOUT_S", 100.0)  # only the new address can end the call
    launch = launch_in(tmp_path)
    first, second = Mute(), Mute()
    await first.start()
    await second.start()
    with open_statemgr(launch.statemgr) as state:

        def place_at(server: Mute, pid: int) -> None:
            location = state_pb2.TmasterLocation(topology="words", host="127.0.0.1", port=server.port, pid=pid)
            state.set(Kind.TMASTERS, "words", location.SerializeToString())

        record(state, launch, cluster="local")
        place_at(first, 1)
        async with tracking(StateManagerConfig("local", launch.statemgr)) as tracker:
            early = asyncio.create_task(timed(tracker, "metrics?component=word"))
            await asyncio.wait_for(first.asked.wait(), 120)
            place_at(second, 2)

            async def moved() -> None:
                late = asyncio.create_task(timed(tracker, "metrics?component=word"))
                await asyncio.wait({late}, timeout=0.1)
                others.append(late)
                assert second.asked.is_set()

            others: list[asyncio.Task[Any]] = []
            await eventually(moved)
            answer, _ = await asyncio.wait_for(early, 120)
            assert answer.status_code == 503
            assert "it has moved, ask again" in answer.json()
            second.stop()
            assert {(await asyncio.wait_for(other, 120))[0].status_code for other in others} == {503}
    first.stop()
