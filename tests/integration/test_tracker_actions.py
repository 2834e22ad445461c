"""Acting on topologies through the Tracker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from heron_tracker import TrackerConfig, create_app, local_state
from numbers_topology import Numbers

from heronpy.proto import state_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually

TOKEN = {"authorization": "Bearer swordfish"}


@pytest.fixture
async def tracker() -> AsyncIterator[tuple[httpx.AsyncClient, TopologyHandle]]:
    with LocalCluster() as cluster:
        handle = cluster.submit(Numbers, name="numbers").wait_running()
        app = create_app(TrackerConfig(statemgrs=(local_state(cluster.home),), token="swordfish", actions=True))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost", headers=TOKEN, timeout=120
            ) as client,
        ):
            yield client, handle


async def test_a_topology_is_paused_resumed_restarted_and_killed(
    tracker: tuple[httpx.AsyncClient, TopologyHandle],
) -> None:
    client, handle = tracker
    launch = handle.launch
    place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"

    async def act(action: str, status: int = 200, **params: str) -> dict[str, str]:
        answer = await client.post(f"{place}/{action}", params=params)
        assert answer.status_code == status, answer.text
        return answer.json()  # type: ignore[no-any-return]

    assert await act("deactivate") == {"topology": "numbers", "action": "deactivate", "status": "Paused"}
    assert (await act("activate"))["status"] == "Running"
    before = handle.processes()["stmgr-1"]
    assert "has no container 7" in await act("restart", status=404, container="7")
    assert "container belongs to restart" in await act("kill", status=400, container="1")
    assert "parameter action" in await act("explode", status=400)
    await act("restart", container="1")

    async def restarted() -> None:
        assert handle.processes().get("stmgr-1", before) != before

    await eventually(restarted)
    assert (await act("kill"))["status"] == "Killed"
    assert not launch.dir.exists()

    async def gone() -> None:
        assert (await client.get("/topologies")).json() == {}

    await eventually(gone)


async def test_a_topology_in_a_directory_of_another_topology_is_not_touched(
    tracker: tuple[httpx.AsyncClient, TopologyHandle],
) -> None:
    client, handle = tracker
    launch = handle.launch
    with open_statemgr(launch.statemgr) as state:
        raw = state.get(Kind.EXECUTIONSTATE, "numbers")
        assert raw is not None
        forged = state_pb2.ExecutionState.FromString(raw)
        forged.topology_id = "numbers-of-somebody-else"
        state.set(Kind.EXECUTIONSTATE, "numbers", forged.SerializeToString())
        place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/numbers"

        async def seen() -> None:  # before that, the real one would be killed, and rightly
            found = {
                "cluster": launch.cluster,
                "environ": launch.environ,
                "topology": "numbers",
                "component": "numbers",
            }
            answer = await client.get("/topologies/metrics", params=found)
            assert answer.status_code == 503
            assert "is the directory of another topology" in answer.text

        await eventually(seen)
        answer = await client.post(f"{place}/kill")
        assert answer.status_code == 503
        assert "is the directory of another topology" in answer.text
        assert handle.processes()["stmgr-1"] > 0
        state.set(Kind.EXECUTIONSTATE, "numbers", raw)
