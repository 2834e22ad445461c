"""Acting on topologies through the Tracker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from heron_tracker import TrackerConfig, create_app, local_state
from keyed_count_topology import keyed_count_topology
from numbers_topology import Small
from test_tracker_state_managers import tracking

from heronpy.proto import state_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually

TOKEN = {"authorization": "Bearer swordfish"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
async def tracker(cluster: LocalCluster) -> AsyncIterator[tuple[httpx.AsyncClient, TopologyHandle]]:
    """The one that the test before has left, if it has left one."""
    handle = next(iter(cluster.topologies()), None) or cluster.submit(Small, name="numbers")
    handle.wait_running()
    app = create_app(TrackerConfig(statemgrs=(local_state(cluster.home),), token="swordfish", actions=True))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost", headers=TOKEN, timeout=120
        ) as client,
    ):
        yield client, handle


async def test_a_topology_in_a_directory_of_another_topology_is_not_touched(
    tracker: tuple[httpx.AsyncClient, TopologyHandle],
) -> None:
    client, handle = tracker
    launch = handle.launch
    with open_statemgr(launch.statemgr) as state:
        raw = state.get(Kind.EXECUTIONSTATE, "numbers")
        assert raw is not None
        planted = state_pb2.ExecutionState.FromString(raw)
        planted.topology, planted.topology_id = "planted", "planted-by-somebody-else"
        place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/planted"
        try:
            state.set(Kind.TOPOLOGIES, "planted", state.get(Kind.TOPOLOGIES, "numbers") or b"")
            state.set(Kind.EXECUTIONSTATE, "planted", planted.SerializeToString())

            async def seen() -> None:
                found = {
                    "cluster": launch.cluster,
                    "environ": launch.environ,
                    "topology": "planted",
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
        finally:  # the next test has the same cluster
            for kind in (Kind.EXECUTIONSTATE, Kind.TOPOLOGIES):
                state.delete(kind, "planted")


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
    assert "force belongs to kill" in await act("restart", status=400, force="true")
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


def take_place(directory: Path) -> None:
    """Have a file where a directory should be."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.touch()


@pytest.mark.long
async def test_a_topology_whose_last_checkpoint_fails_is_killed_by_force_only(tmp_path: Path) -> None:
    config = {"topology.stmgrs": 1, "topology.stateful.checkpoint.interval.seconds": 600}
    with LocalCluster() as cluster:
        handle = cluster.submit(keyed_count_topology(tmp_path, numbers=10, rate=10, **config)).wait_running()
        launch = handle.launch
        take_place(Path(launch.checkpoints))
        place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"
        async with tracking(local_state(cluster.home), actions=True) as client:
            client.headers.update({"x-heron-request": "1"})
            failed = await client.post(f"{place}/kill")
            assert failed.status_code == 503
            assert "is not killed, but paused: " in failed.text
            assert handle.processes()["tmaster"] > 0
            killed = await client.post(f"{place}/kill", params={"force": "true"})
            assert (killed.status_code, killed.json()["status"]) == (200, "Killed")
        assert not launch.dir.exists()
