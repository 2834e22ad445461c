"""The Tracker in this process: several state managers, ones that are away, Topology Masters that die, and its token."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from heron_tracker import StateManagerConfig, TrackerConfig, create_app, local_state
from heron_tracker.parts import iso_time
from numbers_topology import Numbers
from topology_on_disk import launch_in, submit

from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch, StatemgrSpec, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import LocalCluster, eventually
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.tmaster import TopologyMaster

FAST = {"heron.metrics.export.interval.ms": 500}


@contextlib.asynccontextmanager
async def tracking(*statemgrs: StateManagerConfig, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(TrackerConfig(statemgrs=statemgrs, hosts=("tracker",), **more))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tracker", timeout=120) as client,
    ):
        yield client


def files(name: str, root: Path) -> StateManagerConfig:
    return StateManagerConfig(name, StatemgrSpec(root=str(root)))


def record(state: StateManager, launch: Launch, *, cluster: str, role: str = "me") -> None:
    """What a submission writes."""
    submit(state, 1)
    execution = state_pb2.ExecutionState(
        topology=launch.topology,
        topology_id=launch.topology_id,
        cluster=cluster,
        role=role,
        environ="default",
        submission_user=role,
        submission_time_s=int(time.time()),
        topology_dir=str(launch.dir),
    )
    state.set(Kind.EXECUTIONSTATE, launch.topology, execution.SerializeToString())


def told(answer: httpx.Response) -> Any:
    """What a Tracker says; a check of `eventually` waits while it cannot say."""
    assert answer.is_success, answer.text
    return answer.json()


def words(cluster: str) -> dict[str, str]:
    return {"cluster": cluster, "environ": "default", "topology": "words"}


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return launch_in(tmp_path)


@pytest.mark.long
async def test_files_and_zookeeper_are_followed_side_by_side_and_one_may_be_away(
    launch: Launch, tmp_path: Path
) -> None:
    if why := zookeeper_missing():
        pytest.skip(why)
    spec = StatemgrSpec(type="zookeeper", root="/heron")
    with ZookeeperServer(tmp_path / "zookeeper") as zookeeper, open_statemgr(launch.statemgr) as in_files:
        spec = StatemgrSpec(type="zookeeper", connection=zookeeper.connection, root="/heron")
        with open_statemgr(spec) as in_zookeeper:
            record(in_files, launch, cluster="laptop")
            async with tracking(
                StateManagerConfig("laptop", launch.statemgr), StateManagerConfig("farm", spec)
            ) as tracker:
                assert (await tracker.get("/clusters")).json() == ["farm", "laptop"]
                assert (await tracker.get("/topologies")).json() == {"laptop": {"me": {"default": ["words"]}}}

                await asyncio.to_thread(record, in_zookeeper, launch, cluster="farm", role="you")

                async def both() -> None:
                    names = {"farm": {"you": {"default": ["words"]}}, "laptop": {"me": {"default": ["words"]}}}
                    assert (await tracker.get("/topologies")).json() == names

                await eventually(both)
                for cluster, role in (("farm", "you"), ("laptop", "me")):
                    state = (await tracker.get("/topologies/executionstate", params=words(cluster))).json()
                    assert (state["role"], state["status"]) == (role, "Running")

                zookeeper.freeze()
                try:

                    async def away() -> None:
                        states = {s["name"]: s for s in (await tracker.get("/statemanagers")).json()}
                        assert states["laptop"]["connected"]
                        assert not states["farm"]["connected"]
                        assert "ZooKeeper at" in states["farm"]["error"]
                        assert states["farm"]["topologies"] == 1

                    await eventually(away)
                    await both()  # what it said last goes on being told
                    gone = await tracker.get("/topologies/info", params={**words("farm"), "topology": "x"})
                    assert (gone.status_code, "do not answer: farm" in gone.json()) == (404, True)
                    in_files.delete(Kind.EXECUTIONSTATE, "words")

                    async def without_the_files() -> None:
                        assert (await tracker.get("/topologies")).json() == {"farm": {"you": {"default": ["words"]}}}

                    await eventually(without_the_files)
                finally:
                    zookeeper.thaw()
                in_zookeeper.delete(Kind.EXECUTIONSTATE, "words")

                async def empty() -> None:
                    assert (await tracker.get("/topologies")).json() == {}
                    assert all(s["connected"] for s in (await tracker.get("/statemanagers")).json())

                await eventually(empty)


async def test_a_state_that_does_not_exist_yet_is_not_made_and_found_when_it_is(launch: Launch) -> None:
    root = Path(launch.statemgr.root)
    async with tracking(files("local", root)) as tracker:
        assert (await tracker.get("/topologies")).json() == {}
        assert not await asyncio.to_thread(root.exists)
        with open_statemgr(launch.statemgr) as state:
            record(state, launch, cluster="local")

            async def found() -> None:
                assert (await tracker.get("/topologies")).json() == {"local": {"me": {"default": ["words"]}}}

            await eventually(found)


async def test_a_damaged_topology_hides_no_other(launch: Launch) -> None:
    with open_statemgr(launch.statemgr) as state:
        for kind in (Kind.EXECUTIONSTATE, Kind.TOPOLOGIES):
            state.set(kind, "damaged", b"\xff\xff")
        record(state, launch, cluster="local")
        async with tracking(StateManagerConfig("local", launch.statemgr)) as tracker:

            async def found() -> None:
                assert (await tracker.get("/topologies")).json() == {"local": {"me": {"default": ["words"]}}}

            await eventually(found)


async def test_what_is_not_there_yet_is_told_so(launch: Launch) -> None:
    with open_statemgr(launch.statemgr) as state:
        record(state, launch, cluster="local")
        async with tracking(StateManagerConfig("local", launch.statemgr)) as tracker:
            for path, status, reason in (
                ("physicalplan", 404, "no physical plan yet"),
                ("schedulerlocation", 404, "no scheduler location"),
                ("metrics?component=word", 503, "no Topology Master since"),
                ("exceptions?component=word", 503, "no Topology Master since"),
                ("pid?instance=container_1_word_1", 501, "are on another host"),
                ("container/filedata?container=1&path=x.log", 501, "are on another host"),
            ):
                path, _, query = path.partition("?")
                params = {**words("local"), **dict(httpx.QueryParams(query))}
                answer = await tracker.get(f"/topologies/{path}", params=params)
                assert (answer.status_code, reason in answer.json()) == (status, True), answer.text
            info = (await tracker.get("/topologies/info", params=words("local"))).json()
            assert (info["physical_plan"], info["tmanager_location"]) == (None, None)
            assert info["runtime_state"]["tmaster"].startswith("unreachable since ")
            summary = (await tracker.get("/topologies/local/me/default/words/summary")).json()
            assert (summary["ready"], summary["components"][0]["instances"][0]["attached"]) == (False, False)


async def test_a_dead_topology_master_is_told_of_with_the_last_known_state() -> None:
    # The executor that the test stops is not to be taken for hung meanwhile.
    with LocalCluster({**FAST, "heron.executor.heartbeat.timeout.ms": 600_000}) as cluster:
        handle = await asyncio.to_thread(lambda: cluster.submit(Numbers, name="words").wait_running())
        place = f"/topologies/local/{handle.launch.role}/default/words/summary"
        async with tracking(local_state(cluster.home)) as tracker:

            async def alive() -> None:
                summary = told(await tracker.get(place))
                assert (summary["tmaster"], summary["ready"]) == ("ok", True)
                metrics = await tracker.get(
                    "/topologies/metrics",
                    params={**words("local"), "component": "numbers", "metricname": "__emit-count/default"},
                )
                assert sum(map(int, told(metrics)["metrics"].get("__emit-count/default", {}).values())) == 2000

            await eventually(alive)
            processes = handle.processes()
            os.kill(processes["executor-0"], signal.SIGSTOP)  # else it would be started again at once
            try:
                os.kill(processes["tmaster"], signal.SIGKILL)

                async def dead() -> None:
                    runtime = told(await tracker.get("/topologies/runtimestate", params=words("local")))
                    assert runtime["tmaster"].startswith("unreachable since 2")
                    assert runtime["stmgrs"] == {s: {"is_registered": True} for s in ("stmgr-1", "stmgr-2")}
                    metrics = await tracker.get(
                        "/topologies/metrics", params={**words("local"), "component": "numbers"}
                    )
                    assert metrics.status_code == 503
                    assert "since" in metrics.json()
                    summary = told(await tracker.get(place))
                    assert summary["tmaster"].startswith("unreachable since 2")
                    assert not summary["ready"]
                    assert len(summary["components"]) == 2
                    assert summary["as_of"] < iso_time(time.time())
                    for path in ("info", "physicalplan", "logicalplan", "executionstate", "packingplan"):
                        answer = await tracker.get(f"/topologies/{path}", params=words("local"))
                        assert answer.status_code == 200
                    state = told(await tracker.get("/topologies/executionstate", params=words("local")))
                    assert (state["status"], state["has_tmanager_location"]) == ("Running", False)

                await eventually(dead)
            finally:
                os.kill(processes["executor-0"], signal.SIGCONT)

            async def back() -> None:
                assert told(await tracker.get(place))["tmaster"] == "ok"

            await eventually(back)


async def test_nobody_is_answered_without_the_token_but_health(tmp_path: Path) -> None:
    async with tracking(files("local", tmp_path), token="swordfish", cors_origins=("http://friend",)) as tracker:
        refused = await tracker.get("/clusters")
        assert (refused.status_code, refused.headers["www-authenticate"].split()[0]) == (401, "Bearer")
        assert refused.json().startswith("request failed: ")
        assert float(refused.headers["x-process-time"]) >= 0
        for wrong in ("Bearer x", "swordfish", "Bearer", "Basic swordfish", "Basic %%%", "Bearer swordfishes"):
            assert (await tracker.get("/clusters", headers={"authorization": wrong})).status_code == 401, wrong
        assert (await tracker.get("/metrics")).status_code == 401
        assert (await tracker.get("/health")).text == "ok"
        basic = "Basic " + base64.b64encode(b"me:swordfish").decode()
        for right in ("Bearer swordfish", "bearer swordfish", basic):
            assert (await tracker.get("/clusters", headers={"authorization": right})).json() == ["local"]
        asked = {"origin": "http://friend", "access-control-request-method": "GET"}
        preflight = await tracker.options("/clusters", headers=asked)
        assert preflight.headers["access-control-allow-origin"] == "http://friend"
        stranger = await tracker.options("/clusters", headers={**asked, "origin": "http://stranger"})
        assert "access-control-allow-origin" not in stranger.headers


async def test_the_files_of_the_web_ui_are_open_and_nothing_else(tmp_path: Path) -> None:
    async with tracking(files("local", tmp_path), token="swordfish") as tracker:
        page = await tracker.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        (in_page,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page.text)
        # The page says it, too: a proxy may serve it without headers.
        assert policy == f"{in_page}; frame-ancestors 'none'"
        assert "unsafe" not in policy
        assert "swordfish" not in page.text
        for path in ("/index.html", "/app.js", "/css/base.css", "/pages/list.js", "/vendor/uplot/uPlot.esm.js"):
            found = await tracker.get(path)
            assert (found.status_code, found.headers["x-content-type-options"]) == (200, "nosniff"), path
            assert found.headers["content-security-policy"] == policy
            again = await tracker.get(path, headers={"if-none-match": found.headers["etag"]})
            assert (again.status_code, again.headers["content-security-policy"]) == (304, policy)
        closed = ["/events", "/metrics", "/topologies", "/topologies/all", "/statemanagers"]
        closed += ["/app.js/", "/css", "/css/../clusters", "/css/%2e%2e/clusters", "/nothing.js"]
        for path in closed:
            refused = await tracker.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["x-content-type-options"] == "nosniff"
        assert (await tracker.post("/index.html")).status_code == 401
        assert (await tracker.head("/index.html")).status_code == 200


async def test_a_folder_with_an_index_is_served_as_the_web_ui(tmp_path: Path) -> None:
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "index.html").write_text("<h1>herons</h1>")
    app = create_app(
        TrackerConfig(statemgrs=(files("local", tmp_path / "state"),), hosts=("tracker",)), ui=tmp_path / "ui"
    )
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tracker") as client,
    ):
        assert (await client.get("/")).text == "<h1>herons</h1>"
        assert (await client.get("/clusters")).json() == ["local"]
        missing = await client.get("/nothing.js")
        assert (missing.status_code, missing.json()) == (404, "request failed: there is no /nothing.js: see /docs")


MANY = 1000
METRICS = 40


async def test_metrics_of_a_thousand_instances_are_cheap_to_answer(launch: Launch) -> None:
    resources = Resources(1.0, 1 << 20, 0)
    containers = [
        ContainerPacking(
            c, tuple(InstancePacking("word", c * 10 + i, c * 10 + i, resources) for i in range(10)), resources
        )
        for c in range(1, MANY // 10 + 1)
    ]
    packing = PackingPlan("many", tuple(containers))
    ids = [i.instance_id(c.id) for c in containers for i in c.instances]
    with open_statemgr(launch.statemgr) as state:
        record(state, launch, cluster="local")
        state.set(Kind.PACKINGPLANS, "words", packing.to_proto().SerializeToString())
        async with running(TopologyMaster(launch)):
            await _publish(state, launch, ids)
            async with tracking(StateManagerConfig("local", launch.statemgr)) as tracker:
                params = {**words("local"), "component": "word", "metricname": "__emit-count/default"}
                for interval in (-1, 600):
                    found, cpu_s = await _cheapest(tracker, "/topologies/metrics", {**params, "interval": interval})
                    values = found["metrics"]["__emit-count/default"]
                    assert values == {id: str(n) for n, id in enumerate(ids)}
                    assert cpu_s < 0.3, "with the Topology Master, which is in this process"
                summary, cpu_s = await _cheapest(tracker, "/topologies/local/me/default/words/summary", {})
                print(f"summary of {MANY} instances: {cpu_s * 1000:.0f} ms of CPU")
                assert summary["components"][0]["emitted"] == sum(range(MANY))
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


async def _cheapest(tracker: httpx.AsyncClient, path: str, params: dict[str, Any]) -> tuple[Any, float]:
    """The answer, and what the cheapest of five took of CPU seconds."""
    times = []
    for _ in range(5):
        began_s = time.process_time()
        answer = await tracker.get(path, params=params)
        times.append(time.process_time() - began_s)
    print(f"{path} {params.get('interval', '')}: {', '.join(f'{t * 1000:.0f}' for t in sorted(times))} ms of CPU")
    return answer.json(), min(times)


async def _publish(state: StateManager, launch: Launch, ids: list[str]) -> None:
    raw = state.get(Kind.TMASTERS, launch.topology)
    assert raw is not None
    location = state_pb2.TmasterLocation.FromString(raw)
    now_ms = int(time.time() * 1000)
    reports = [
        metrics_pb2.MetricsReport(
            source=id,
            component="word",
            container=int(id.split("_")[1]),
            time_ms=now_ms,
            metrics=[
                metrics_pb2.Metric(name="__emit-count/default", value=n),
                *(metrics_pb2.Metric(name=f"__other-{m}", value=m) for m in range(METRICS - 1)),
            ],
            pid=n + 1,
            started_ms=now_ms,
            sequence=1,
        )
        for n, id in enumerate(ids)
    ]
    async with channel(f"{location.host}:{location.port}", launch.security("heron"), container_identity(0)) as link:
        stub = tmaster_pb2_grpc.TmasterStub(link)
        for at in range(0, len(reports), 100):
            await stub.PublishMetrics(
                metrics_pb2.MetricsReports(reports=reports[at : at + 100]),
                metadata=launch.security("heron").metadata,
                timeout=120,
            )
