"""The Tracker as a process beside a topology: every answer, by Heron's paths and shapes."""

from __future__ import annotations

import asyncio
import html
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from test_tracker_state_managers import told
from tracker_topology import BAD, NUMBERS, Tracked

import heronpy
from heronpy.errors import UnavailableError
from heronpy.host import HostProcess, write_pid
from heronpy.shell import Container, parts
from heronpy.testing import LocalCluster, TopologyHandle, eventually, eventually_sync, scrape

TOTAL = 2 * NUMBERS
SPOUTS = ("container_1_numbers_1", "container_1_numbers_2")
HERON = [sys.executable, "-m", "heronpy.cli"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster({"heron.metrics.export.interval.ms": 500}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topology(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Tracked, name="tracked").wait_running()


class Served:
    """`heron tracker` as a process."""

    def __init__(self, home: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [*HERON, "tracker", "--port", "0", "--json", *args],
            env={**os.environ, "HERON_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready["pid"] == self.process.pid
        self.url: str = ready["url"]
        self.login_url: str = ready["login_url"]
        self.auth = {"authorization": f"Bearer {Path(ready['token_file']).read_text().strip()}"}
        self.http = httpx.Client(base_url=self.url, timeout=120, headers=self.auth)

    def stop(self) -> int:
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(300)


@pytest.fixture(scope="module")
def served(cluster: LocalCluster, topology: TopologyHandle) -> Iterator[Served]:
    served = Served(cluster.home)
    yield served
    assert served.stop() == 0


class Asking:
    """Asks for one topology; every answer must be JSON and tell how long it took."""

    def __init__(self, served: Served, topology: TopologyHandle) -> None:
        launch = topology.launch
        self.http = served.http
        self.place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"
        self.common = {"cluster": launch.cluster, "environ": launch.environ, "topology": launch.topology}

    def __call__(self, path: str, /, *, status: int = 200, **params: Any) -> Any:
        def answer() -> httpx.Response:
            response = self.http.get(f"/topologies/{path}", params={**self.common, **params})
            # On a busy machine a Topology Master may not answer at once.
            assert status == 503 or response.status_code != 503, response.text
            return response

        response = eventually_sync(answer)
        assert response.status_code == status, response.text
        assert float(response.headers["x-process-time"]) >= 0
        return response.json()

    def post(self, path: str, **params: Any) -> Any:
        response = self.http.post(f"/topologies/{path}", params={**self.common, **params})
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture
def ask(served: Served, topology: TopologyHandle) -> Asking:
    return Asking(served, topology)


def test_lists_name_the_topology(served: Served, topology: TopologyHandle) -> None:
    role = topology.launch.role
    assert served.http.get("/clusters").json() == ["local"]
    names = {"local": {role: {"default": ["tracked"]}}}
    assert served.http.get("/topologies").json() == names
    assert served.http.get("/topologies", params={"cluster": ["local", "x"], "role": role}).json() == names
    assert served.http.get("/topologies", params={"role": "nobody"}).json() == {}
    assert served.http.get("/topologies", params={"environ": "x"}).json() == {}
    assert served.http.get("/machines").json() == {"local": {"default": {"tracked": ["127.0.0.1"]}}}
    state = served.http.get("/topologies/states").json()["local"]["default"]["tracked"]
    assert state["status"] == "Running"


def test_the_tracker_tells_of_itself(served: Served) -> None:
    health = served.http.get("/health")
    assert (health.text, health.headers["content-type"]) == ("ok", "text/plain; charset=utf-8")
    assert served.http.get("/version").json() == {"version": heronpy.__version__, "actions": False}
    (state,) = served.http.get("/statemanagers").json()
    assert (state["name"], state["type"], state["connected"], state["error"]) == ("local", "file", True, None)
    assert served.http.get("/", follow_redirects=True).status_code == 200
    assert "access-control-allow-origin" not in served.http.get("/clusters", headers={"origin": "http://x"}).headers


def test_prometheus_finds_every_metrics_manager(served: Served, topology: TopologyHandle) -> None:
    def found() -> None:
        targets = served.http.get("/prometheus/targets").json()
        assert {t["labels"]["instance"] for t in targets} == {"metricsmgr-0", "metricsmgr-1"}

    eventually_sync(found)
    for target in served.http.get("/prometheus/targets").json():
        assert target["labels"]["topology"] == topology.launch.topology
        [address] = target["targets"]
        assert target["labels"]["__scheme__"] == "https"
        text = scrape(topology.launch, int(address.rpartition(":")[2]), timeout_s=120)
        assert 'topology="tracked"' in text


def test_plans_have_herons_shapes(ask: Asking, topology: TopologyHandle) -> None:
    logical = ask("logicalplan")
    assert logical["stages"] == 2
    assert logical["spouts"]["numbers"]["outputs"] == [{"stream_name": "default"}]
    assert logical["bolts"]["sums"]["inputs"] == [
        {"stream_name": "default", "component_name": "numbers", "grouping": "SHUFFLE"}
    ]
    assert logical["bolts"]["sums"]["inputComponents"] == ["numbers"]
    packing = ask("packingplan")
    (container,) = packing["container_plans"]
    assert sorted(i["component_name"] for i in container["instances"]) == ["numbers", "numbers", "sums", "sums"]
    assert container["required_resources"].keys() == {"cpu", "ram", "disk"}
    physical = ask("physicalplan")
    assert physical["spouts"] == {"numbers": list(SPOUTS)}
    assert physical["instance_groups"]["container_1"] == physical["stmgrs"]["stmgr-1"]["instance_ids"]
    assert physical["stmgrs"]["stmgr-1"]["pid"] == topology.processes()["stmgr-1"]
    instance = physical["instances"][SPOUTS[0]]
    assert (instance["id"], instance["name"], instance["stmgr_id"]) == (SPOUTS[0], "numbers", "stmgr-1")
    assert Path(instance["logfile"]).is_file()
    assert ask.http.get(physical["stmgrs"]["stmgr-1"]["logfiles"]).status_code == 200


def test_secrets_of_the_configuration_are_hidden(ask: Asking) -> None:
    config = ask("config")
    assert (config["app.greeting"], config["app.database.password"]) == ("hello", "********")
    assert "swordfish" not in json.dumps(ask("info")) + json.dumps(ask("physicalplan"))


def test_states_and_locations(ask: Asking, topology: TopologyHandle) -> None:
    execution = ask("executionstate")
    assert execution["status"] == "Running"
    assert [execution[f"has_{part}"] for part in ("physical_plan", "packing_plan", "tmanager_location")] == [True] * 3
    assert (execution["jobname"], execution["instances"], execution["extra_links"]) == ("tracked", 4, [])
    assert abs(execution["submission_time"] - time.time()) < 3600
    metadata = ask("metadata")
    assert metadata == {key: execution[key] for key in metadata}
    runtime = ask("runtimestate")
    assert (runtime["stmgrs"], runtime["tmaster"]) == ({"stmgr-1": {"is_registered": True}}, "ok")
    scheduler = ask("schedulerlocation")
    assert scheduler["name"] == "tracked"
    assert scheduler["http_endpoint"]
    info = ask("info")
    assert info["id"] == topology.launch.topology_id
    assert info["tmanager_location"]["server_port"] > 0
    assert info["execution_state"] == execution
    assert info["physical_plan"]["spouts"] == {"numbers": list(SPOUTS)}


def total(ask: Asking, component: str, metric: str, interval: int = -1) -> float:
    found = ask("metrics", component=component, metricname=metric, interval=interval)
    assert found["component"] == component
    assert all(isinstance(value, str) for value in found["metrics"].get(metric, {}).values())
    return sum(float(value) for value in found["metrics"].get(metric, {}).values())


def test_counters_are_exact_over_all_time_and_over_ten_minutes(ask: Asking) -> None:
    def exact() -> None:
        for interval in (-1, 600, 10_801, 1 << 80):
            assert total(ask, "numbers", "__emit-count/default", interval) == TOTAL
            assert total(ask, "sums", "__execute-count/numbers/default", interval) == TOTAL
            assert total(ask, "numbers", "__ack-count/default", interval) == TOTAL - 2
            assert total(ask, "numbers", "__fail-count/default", interval) == 2
            assert total(ask, "sums", "even", interval) == NUMBERS

    eventually_sync(exact)
    assert total(ask, "sums", "__execute-count/default") == TOTAL  # as Apache Heron's clients ask
    assert total(ask, "sums", "__jvm-memory-used-mb") > 20
    one = ask("metrics", component="numbers", metricname=["__emit-count/default"], instance=SPOUTS[0])
    assert one["metrics"] == {"__emit-count/default": {SPOUTS[0]: str(NUMBERS)}}
    assert ask("metrics", component="sums", metricname="__execute-count/*")["metrics"].keys() == {
        "__execute-count/numbers/default"
    }
    assert "__uptime-secs" in ask("metrics", component="sums")["metrics"]
    assert ask("metrics", component="__stmgr__")["metrics"]


def test_the_minutes_of_a_timeline_sum_up(ask: Asking) -> None:
    now = int(time.time())
    window = {"starttime": now - 1200, "endtime": now + 60}

    def exact() -> None:
        found = ask("metrics/timeline", component="numbers", metricname="__emit-count/default", **window)
        assert (found["starttime"], found["endtime"]) == (now - 1200, now + 60)
        lines = found["timeline"].get("__emit-count/default", {})
        assert {instance: sum(line.values()) for instance, line in lines.items()} == dict.fromkeys(SPOUTS, NUMBERS)
        assert found == ask("metricstimeline", component="numbers", metricname="__emit-count/default", **window)

    eventually_sync(exact)


def test_a_query_sums_over_instances(ask: Asking) -> None:
    now = int(time.time())
    window = {"starttime": now - 1200, "endtime": now + 60}

    def exact() -> None:
        found = ask("metrics/query", query="SUM(DEFAULT(0, TS(numbers, *, __emit-count/default)))", **window)
        assert len(found["timeline"]) == 1
        (line,) = found["timeline"]
        assert line.keys() == {"data"}
        assert sum(line["data"].values()) == TOTAL
        assert len(line["data"]) == 22

    eventually_sync(exact)
    by_instance = ask("metricsquery", query="TS(numbers, *, __emit-count/default)", **window)["timeline"]
    assert sorted(line["instance"] for line in by_instance) == list(SPOUTS)
    assert ask("metrics/query", query="RATE(TS(numbers, *, never-heard-of))", **window)["timeline"] == []
    (heron,) = ask("metrics/query", query="SUM(TS(sums, *, __execute-count/default))", **window)["timeline"]
    assert sum(heron["data"].values()) == TOTAL
    nothing = ask("metrics/query", query="DEFAULT(0, TS(numbers, *, never-heard-of))", **window)["timeline"]
    assert [set(line["data"].values()) for line in nothing] == [{0.0}, {0.0}]


def test_exceptions_are_told_with_their_stacks(ask: Asking) -> None:
    def complete() -> None:
        entries = ask("exceptions", component="sums")
        assert sum(entry["count"] for entry in entries) == 2
        for entry in entries:
            assert f"ValueError: {BAD} is a bad number" in entry["stacktrace"]
            assert entry["instance_id"].startswith("container_1_sums_")
            assert entry["hostname"] == "127.0.0.1"
            assert entry["firsttime"] <= entry["lasttime"]
        summed = ask("exceptionsummary", component="all")
        assert [(one["class_name"], one["count"]) for one in summed] == [("ValueError", 2)]

    eventually_sync(complete)
    assert ask("exceptions", component="numbers") == []


def test_the_summary_has_everything_of_a_page(ask: Asking) -> None:
    def complete() -> None:
        found = told(ask.http.get(f"{ask.place}/summary"))
        assert (found["status"], found["ready"], found["tmaster"], found["culprits"]) == ("Running", True, "ok", [])
        by_name = {component["name"]: component for component in found["components"]}
        assert by_name["numbers"]["emitted"] == TOTAL
        assert by_name["sums"]["executed"] == TOTAL
        assert by_name["sums"]["kind"] == "bolt"
        assert (by_name["numbers"]["complete_latency_ms"] or 0) > 0
        assert 0 < (by_name["sums"]["capacity"] or 0) < 1
        assert by_name["sums"]["memory_bytes"] > 2e7
        assert sum(i["executed"] for i in by_name["sums"]["instances"]) == TOTAL
        assert all(i["attached"] for i in by_name["sums"]["instances"])

    eventually_sync(complete)
    recent = eventually_sync(lambda: told(ask.http.get(f"{ask.place}/summary", params={"interval": 600})))
    assert 0 < recent["interval"] <= 600  # no longer than the Topology Master has lived
    assert recent["components"][0]["emit_rate"] == pytest.approx(TOTAL / recent["interval"])


def test_the_history_of_a_component_is_downsampled(ask: Asking) -> None:
    def exact() -> None:
        params = {"component": "numbers", "metricname": "__emit-count/default", "points": 10}
        found = told(ask.http.get(f"{ask.place}/history", params=params))
        assert len(found["lines"]) == 1
        (line,) = found["lines"]
        assert (line["kind"], found["step"]) == ("counter", 1140)
        assert sum(line["data"].values()) == TOTAL

    eventually_sync(exact)


def test_metrics_of_the_topologys_own_are_found_by_words(ask: Asking) -> None:
    place = f"{ask.place}/usermetrics"

    def found() -> None:
        even = {"metric": "even", "kind": "counter", "components": ["sums"]}
        assert ask.http.get(place).json() == {"total": 1, "metrics": [even]}
        assert told(ask.http.get(place, params={"component": "sums", "search": "EV en"}))["metrics"] == [even]

    eventually_sync(found)
    for params in ({"component": "numbers"}, {"search": "odd"}):
        assert ask.http.get(place, params=params).json() == {"total": 0, "metrics": []}
    assert ask.http.get(place, params={"component": "number"}).status_code == 404
    assert ask.http.get(place, params={"limit": 0}).status_code == 400


@pytest.mark.parametrize(
    ("path", "params", "status", "reason"),
    [
        ("logicalplan", {"topology": "tracket"}, 404, "did you mean 'tracked'?"),
        ("logicalplan", {"cluster": "mars"}, 404, "no topology 'tracked' in mars/default; it runs as local/"),
        ("logicalplan", {"role": "nobody"}, 404, "no topology 'tracked' in local/nobody/default"),
        ("metrics", {"component": "number"}, 404, "has no component 'number'; did you mean 'numbers'?"),
        ("metrics", {"component": "__nothing__"}, 404, "has no component '__nothing__'"),
        ("metrics", {"component": "sums", "instance": "container_1_sums_9"}, 404, "no instance 'container_1_sums_9'"),
        ("metrics", {"component": "sums", "metricname": "nonsense"}, 404, "has no metric 'nonsense'"),
        ("metrics", {}, 400, "parameter component: Field required"),
        ("metrics", {"component": "sums", "interval": "soon"}, 400, "parameter interval"),
        ("metrics/timeline", {"component": "sums", "starttime": 9, "endtime": 3}, 400, "in this order"),
        ("metrics/timeline", {"component": "sums", "starttime": 0, "endtime": 1 << 90}, 400, "in this order"),
        ("metrics/timeline", {"component": "sums", "starttime": 0, "endtime": 1 << 30}, 400, "ask for less"),
        ("metrics/query", {"query": "SUM(", "starttime": 0, "endtime": 60}, 400, "at position 5: expected a function"),
        ("metrics/query", {"query": "TS(sum, *, x)", "starttime": 0, "endtime": 60}, 404, "did you mean 'sums'?"),
        ("metrics/query", {"query": "TS(sums, *, x)", "starttime": 0, "endtime": 60}, 404, "has no metric 'x'"),
        ("exceptions", {"component": "x"}, 404, "has no component 'x'"),
        ("pid", {"instance": "container_1_sums_9"}, 404, "has no instance"),
        ("container/filestats", {"container": 7}, 404, "has no container 7: it has 0 to 1"),
        ("container/filedata", {"container": 1, "path": "none.log"}, 404, "no log file 'none.log'"),
        ("nothing", {}, 404, "there is no /topologies/nothing"),
    ],
)
def test_what_there_is_not_is_told_with_a_reason(
    ask: Asking, path: str, params: dict[str, Any], status: int, reason: str
) -> None:
    answer = ask(path, status=status, **params)
    assert answer.startswith("request failed: ")
    assert reason in answer


def test_a_log_file_is_read_in_parts(ask: Asking, topology: TopologyHandle) -> None:
    place = {"container": 1, "path": f"log-files/{SPOUTS[0]}.log"}
    log = topology.launch.log_dir(1) / f"{SPOUTS[0]}.log"

    def logged() -> None:
        assert "it begins" in log.read_text()

    eventually_sync(logged)
    end = ask("container/filedata", offset=-1, length=-1, **place)
    assert end == {"offset": end["offset"], "length": 0, "data": ""}
    content = log.read_bytes()[: end["offset"]]
    whole = ask("container/filedata", offset=0, length=-1, **place)
    assert whole["data"].startswith(html.escape(content.decode()))
    assert "&lt;b&gt;heron &amp; stork&lt;/b&gt; ☂" in whole["data"]
    parts, offset = "", 0
    while offset < end["offset"]:
        part = ask("containerfiledata", offset=offset, length=min(7, end["offset"] - offset), **place)
        assert part["length"] > 0
        parts, offset = parts + part["data"], offset + part["length"]
    assert parts == html.escape(content.decode())
    assert "beyond the end" in ask("container/filedata", status=400, offset=1 << 90, **place)
    assert "numbers of bytes" in ask("container/filedata", status=400, offset=-2, **place)


def test_a_log_file_is_downloaded(ask: Asking, topology: TopologyHandle) -> None:
    name = f"{SPOUTS[0]}.log"
    for path in ("container/filedownload", "containerfiledownload"):
        response = ask.http.get(f"/topologies/{path}", params={**ask.common, "container": 1, "path": name})
        assert response.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert (topology.launch.log_dir(1) / name).read_bytes().startswith(response.content)
        assert b"it begins" in response.content
    listed = ask("container/filestats", container=1, path="log-files")
    assert listed[name]["path"] == f"log-files/{name}"
    assert not listed[name]["is_dir"]
    assert listed[name]["formatted_stat"].startswith("-rw")
    assert ask("containerfilestats", container=0).keys() >= {"tmaster.log"}


def test_nothing_outside_of_log_files_can_be_read(ask: Asking, topology: TopologyHandle, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    logs = topology.launch.log_dir(1)
    (logs / "link").symlink_to(secret)
    (logs / "folder").symlink_to(tmp_path)
    os.mkfifo(logs / "pipe")
    paths = [
        "../../token",
        "log-files/../../../token",
        "./../launch.json",
        "..",
        "../log-files-other",
        "link",
        "folder/secret",
        "folder/../../token",
        "pipe",
        "/etc/passwd",
        str(topology.launch.dir / "token"),
        "//etc/passwd",
        "~/x",
        "a\0b",
        "",
        "x" * 5000,
        "/".join(["a"] * 300),
        "log-files",
        "..\\..\\token",
        "%2e%2e/%2e%2e/token",
        "\udcff",
    ]
    try:
        for path in paths:
            for verb in ("filedata", "filedownload"):
                query = {**ask.common, "container": 1, "path": path.encode(errors="surrogateescape")}
                response = ask.http.get(f"/topologies/container/{verb}", params=httpx.QueryParams(query))
                assert response.status_code in (400, 404), path
                assert "swordfish" not in response.text
                assert topology.launch.token() not in response.text
        for path in ("..", "../..", "folder", "/etc", "/", "../../.."):
            assert ask.http.get(
                "/topologies/container/filestats", params={**ask.common, "container": 1, "path": path}
            ).status_code in (400, 404)
        assert ask("container/filestats", container=1)["link"]["is_dir"] is False
    finally:
        for name in ("link", "folder", "pipe"):
            (logs / name).unlink()


def test_a_live_instance_is_looked_into(ask: Asking, topology: TopologyHandle) -> None:
    process = topology.processes()[SPOUTS[0]]
    assert ask("pid", instance=SPOUTS[0]) == {"command": f"pid {SPOUTS[0]}", "stdout": str(process), "stderr": ""}
    stacks = ask.post("jstack", instance=SPOUTS[0])
    assert "run" in stacks["stdout"]
    memory = ask.post("jmap", instance=SPOUTS[0])
    assert f"kill -USR2 {process}" == memory["command"]
    assert "VmRSS:" in memory["stdout"]
    objects = ask.post("histo", instance=SPOUTS[0])["stdout"].splitlines()
    assert objects[0].split() == ["count", "bytes", "type"]
    assert any(line.endswith(" builtins.dict") for line in objects)
    assert topology.processes()[SPOUTS[0]] == process
    assert "there is no /topologies/jstack" in ask("jstack", status=404, instance=SPOUTS[0])  # a GET costs nothing


@pytest.mark.parametrize("process", [SPOUTS[0], "stmgr-1"])
def test_a_live_process_is_profiled_and_goes_on(
    served: Served, ask: Asking, topology: TopologyHandle, process: str
) -> None:
    pid = topology.processes()[process]

    def profiled() -> Any:
        profile = ask.post("profile", instance=process, seconds=1)
        assert profile["samples"] > 5, "in a second in which it runs"
        return profile

    profile = eventually_sync(profiled)
    assert (profile["instance"], profile["pid"]) == (process, pid)
    assert 0 < profile["cost_cpu_s"] / profile["seconds"] < 0.1
    assert {"MainThread", *(["task"] if process in SPOUTS else [])} <= {stack["thread"] for stack in profile["stacks"]}
    functions = {profile["frames"][n]["function"] for stack in profile["stacks"] for n in stack["frames"]}
    assert "main" in functions
    assert topology.processes()[process] == pid
    assert served.http.get("/topologies/profile", params={**ask.common, "instance": process}).status_code == 404
    assert served.http.post("/topologies/profile", headers={"authorization": ""}).status_code == 401


@pytest.mark.parametrize(
    ("params", "status", "reason"),
    [
        ({"instance": "stmgr-9"}, 404, "has no instance 'stmgr-9'"),
        ({"instance": SPOUTS[0], "seconds": 31}, 400, "parameter seconds"),
        ({"instance": SPOUTS[0], "seconds": 0}, 400, "parameter seconds"),
    ],
)
def test_profiles_that_cannot_be_are_refused(
    served: Served, ask: Asking, params: dict[str, Any], status: int, reason: str
) -> None:
    answer = served.http.post("/topologies/profile", params={**ask.common, **params})
    assert (answer.status_code, reason in answer.text) == (status, True), answer.text


async def test_one_process_is_profiled_once_at_a_time(served: Served, ask: Asking) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=120, headers=served.auth) as client:
        params = {**ask.common, "instance": SPOUTS[0], "seconds": 2}

        async def at_once() -> None:
            answers = await asyncio.gather(*(client.post("/topologies/profile", params=params) for _ in range(3)))
            assert sorted(answer.status_code for answer in answers) == [200, 503, 503], "they came at the same time"
            assert any("is being profiled" in answer.text for answer in answers)

        await eventually(at_once)


async def test_an_instance_tells_its_stacks_itself_where_py_spy_may_not_look(topology: TopologyHandle) -> None:
    launch = topology.launch
    found = Container(launch.topology, launch.topology_id, 1, launch.dir)
    for spy, why in ((None, "py-spy is not installed"), ("/bin/false", "py-spy: no reason given")):
        told = await asyncio.to_thread(parts.jstack, found, SPOUTS[1], spy)
        assert told.command == f"kill -USR1 {topology.processes()[SPOUTS[1]]}"
        assert told.stdout.count("(most recent call first)") >= 2
        assert "heronpy/instance/_" in told.stdout
        assert told.stderr == why


async def test_a_process_that_is_not_the_instance_gets_no_signal(topology: TopologyHandle) -> None:
    launch = topology.launch
    found = Container(launch.topology, launch.topology_id, 1, launch.dir)
    stranger = HostProcess.of(os.getpid())
    assert stranger is not None
    record = launch.container_dir(1) / "pids" / f"{SPOUTS[1]}.pid"
    before = record.read_text()  # a small file
    try:
        write_pid(launch.container_dir(1), SPOUTS[1], stranger)  # user code could do that
        for look in (parts.pid, parts.jmap, parts.histo):
            with pytest.raises(UnavailableError, match="is not container_1_numbers_2"):
                await asyncio.to_thread(look, found, SPOUTS[1])
    finally:
        record.write_text(before)  # a small file


def test_two_trackers_side_by_side_tell_the_same(cluster: LocalCluster, ask: Asking) -> None:
    second = Served(cluster.home)
    try:
        for path in ("info", "physicalplan", "executionstate"):
            params = ask.common
            assert second.http.get(f"/topologies/{path}", params=params).json() == ask(path)
    finally:
        assert second.stop() == 0


def test_own_metrics_count_requests_by_route(served: Served, ask: Asking) -> None:
    ask("logicalplan")
    text = served.http.get("/metrics").text
    assert 'heron_tracker_requests_total{path="/topologies/logicalplan",status="200"}' in text
    assert 'heron_tracker_topologies{name="local"} 1.0' in text
    assert 'heron_tracker_watches{name="local"} 7.0' in text
    assert 'heron_tracker_statemgr_up{name="local"} 1.0' in text
    assert 'heron_tracker_tmaster_calls_total{answered="yes",method="GetMetrics"}' in text


def test_events_tell_of_a_change_when_it_happens(served: Served, topology: TopologyHandle) -> None:
    with served.http.stream("GET", "/events", timeout=120) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: topologies"
        assert json.loads(next(lines).removeprefix("data: "))["local"][topology.launch.role] == {"default": ["tracked"]}
        seen = []
        for line in lines:
            if not line.startswith("data: "):
                continue
            data = json.loads(line.removeprefix("data: "))
            if data.get("name") == "tracked":
                seen.append(data["status"])
                if seen == ["Running"]:
                    topology.deactivate()
                elif seen[-1] == "Paused":
                    topology.activate()
                elif "Paused" in seen and seen[-1] == "Running":
                    break


def test_nothing_that_the_schema_allows_is_a_server_error(served: Served, topology: TopologyHandle) -> None:
    import schemathesis  # here, because every worker imports this file, and one runs the test
    from schemathesis.specs.openapi import checks as conformance

    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    common = {"cluster": "local", "environ": "default", "topology": "tracked"}
    checks = [
        no_defect,
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    ]
    tested = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/events":
            continue  # it has no end

        tested += 1
        _explore(operation, common, checks, served.auth)
    assert tested > 30


def no_defect(context: Any, response: Any, case: Any) -> None:
    """What a Tracker cannot say now, it says with 501 or 503: its own errors are others."""
    from schemathesis.checks import not_a_server_error

    if response.status_code not in (501, 503):
        not_a_server_error(context, response, case)


def _explore(operation: Any, common: dict[str, str], checks: Any, auth: dict[str, str]) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def explore(case: Any) -> None:
        if case.query and "topology" in case.query:
            case.query.update(common)
        case.call_and_validate(checks=checks, headers=auth, timeout=120)

    explore()


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*HERON, "tracker", "--port", str(port)],
            env={**os.environ, "HERON_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert f"cannot listen at 127.0.0.1:{port}" in line
    assert list(tmp_path.iterdir()) == []
