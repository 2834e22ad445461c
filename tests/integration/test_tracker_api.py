"""The Tracker as a process beside a topology: every answer, by Heron's paths and shapes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import served_tracker
from hypothesis import HealthCheck, given, settings
from served_tracker import HERON, SPOUTS, TOTAL, Asking, Served
from test_tracker_state_managers import told
from tracker_topology import BAD, NUMBERS

import heronpy
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync, scrape

ask, cluster = served_tracker.ask, served_tracker.cluster
served, topology = served_tracker.served, served_tracker.topology


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
