"""The Spark scheduler without Spark: its keys, what its driver decides, what it looks at before a submission."""

from __future__ import annotations

import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from heron_scheduler import ContainerPhase, ContainerStatus
from heron_scheduler.driven import Action, DriverReport, Order, Orders, Run, decide, next_run
from heron_scheduler.spark import (
    SparkConfig,
    SparkScheduler,
    check_cores,
    check_driver_host,
    container_task,
)

from heronpy.errors import ConfigError, StateError, UnavailableError

KEY = "heron.scheduler.spark."
MASTER = {f"{KEY}master": "spark://m:7077"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "master is not set"),
        ({f"{KEY}master": "yarn"}, "URL of a standalone master"),
        ({**MASTER, f"{KEY}webui": "m:8080"}, "must be a URL"),
        ({**MASTER, f"{KEY}conf": {"cores.max": 1}}, "begin with 'spark.'"),
        ({**MASTER, f"{KEY}conf": {"spark.speculation": True}}, "what the scheduler decides"),
        ({**MASTER, f"{KEY}conf": {"spark.ssl.keyPassword": "x"}}, "secret"),
        ({**MASTER, f"{KEY}conf": ["x"]}, "must be a map"),
        ({**MASTER, f"{KEY}driver.autostart": "perhaps"}, "true or false"),
        ({**MASTER, f"{KEY}pyhton": "x"}, "did you mean 'heron.scheduler.spark.python'"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SparkScheduler.check_config(values)


def test_sparks_own_keys_reach_it_as_text() -> None:
    config = SparkConfig.of({**MASTER, f"{KEY}conf": {"spark.cores.max": 8, "spark.eventLog.enabled": True}})
    assert config.conf == {"spark.cores.max": "8", "spark.eventLog.enabled": "true"}
    assert config.webui_url == "http://m:8080"


def test_orders_and_reports_are_read_back_and_damage_is_named() -> None:
    orders = Orders(topology_id="words-7", serial=3, containers={0: Order(1, 1), 12: Order(4, 2)})
    assert Orders.decode(orders.encode()) == orders
    told = ContainerStatus(container=1, phase=ContainerPhase.RUNNING, host="h", job="j", reason="")
    report = DriverReport(topology_id="words-7", host="h", pid=1, serial=3, application="app-1", containers=(told,))
    assert DriverReport.decode(report.encode()) == report
    for damaged in (b"", b"[]", b"{}", b'{"containers": [1]}'):
        with pytest.raises(StateError, match="damaged"):
            Orders.decode(damaged)
        with pytest.raises(StateError, match="damaged"):
            DriverReport.decode(damaged)


def test_what_is_ordered_is_started_and_what_is_not_is_ended_and_forgotten() -> None:
    orders = Orders(topology_id="t", containers={0: Order(1, 1), 1: Order(1, 1)})
    running = Run("a", 1, ContainerPhase.RUNNING)
    assert decide(orders, {}, 0.0) == [(Action.START, 0), (Action.START, 1)]
    assert decide(orders, {0: running, 1: running}, 0.0) == []
    assert decide(orders, {0: running, 1: running, 2: Run("b", 1)}, 0.0) == [(Action.END, 2)]
    assert decide(orders.changed(stop=True), {0: running}, 0.0) == [(Action.END, 0)]
    assert decide(orders.changed(stop=True), {0: Run("a", 1, over=True)}, 0.0) == [(Action.FORGET, 0)]


def test_a_new_generation_waits_for_the_end_of_the_one_before() -> None:
    orders = Orders(topology_id="t", containers={0: Order(2, 1)})
    run = Run("a", 1, ContainerPhase.RUNNING)
    assert decide(orders, {0: run}, 0.0) == [(Action.END, 0)]
    run.end_by_s = 10.0
    assert decide(orders, {0: run}, 9.0) == []
    assert decide(orders, {0: run}, 10.0) == [(Action.CANCEL, 0)]
    run.over = True
    assert decide(orders, {0: run}, 11.0) == [(Action.START, 0)]


def test_what_spark_has_lost_is_run_again_and_what_has_ended_by_itself_is_not() -> None:
    orders = Orders(topology_id="t", containers={0: Order(1, 1)})
    assert decide(orders, {0: Run("a", 1, over=True)}, 100.0) == []
    lost = Run("a", 1, over=True, retry_s=15.0)
    assert decide(orders, {0: lost}, 14.0) == []
    assert decide(orders, {0: lost}, 15.0) == [(Action.START, 0)]


def test_how_a_run_has_failed_is_known_until_the_next_one_ends() -> None:
    lost = Run("a", 1, ContainerPhase.PENDING, over=True, reason="n1: no clock", retry_s=15.0)
    assert next_run(lost, "b", 1) == Run("b", 1, reason="n1: no clock")
    asked = Run("a", 1, ContainerPhase.ENDING, over=True, reason="n1: no clock")
    assert next_run(asked, "b", 2) == next_run(None, "b", 2) == Run("b", 2)


def test_the_task_needs_nothing_but_the_standard_library_on_a_host() -> None:
    program = "import json\ndef main(order):\n    print(json.dumps({'ended': order['container']}))\n"
    task = cloudpickle.dumps(container_task({"program": program, "container": 7}, "heron-words-7"))
    # -S: no site-packages; cloudpickle itself is Spark's there, and needed by name alone.
    found = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import pickle, sys; sys.path.append({cloudpickle.__path__[0].rpartition('/')[0]!r}); "
            "import cloudpickle; sys.path.pop(); task = pickle.load(sys.stdin.buffer); print([*task(iter(()))])",
        ],
        input=task,
        capture_output=True,
    )
    assert found.stdout.decode().strip() == "[{'ended': 7}]", found.stderr.decode()


@pytest.fixture
def master() -> Iterator[Any]:
    """A web UI that tells of workers with these cores, of which so many are free."""
    workers: list[tuple[int, int]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = [{"state": "ALIVE", "cores": cores, "coresfree": free} for cores, free in workers]
            body = json.dumps({"workers": [*told, {"state": "DEAD", "cores": 99, "coresfree": 99}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = SparkConfig.of({**MASTER, f"{KEY}webui": f"http://127.0.0.1:{server.server_address[1]}"})
        yield config, workers
        server.shutdown()


def test_containers_without_cores_are_refused_before_anything_is_started(master: Any) -> None:
    config, workers = master
    with pytest.raises(UnavailableError, match="has no workers"):
        check_cores(config, [1])
    workers[:] = [(4, 2), (4, 1)]
    with pytest.raises(ConfigError, match="asks for 5 cores, and the largest worker of Spark has 4"):
        check_cores(config, [1, 5])
    with pytest.raises(UnavailableError, match="ask for 4 cores, and the workers of Spark have 3 free"):
        check_cores(config, [1, 1, 1, 1])
    with pytest.raises(UnavailableError, match="ask for 3 cores"):
        check_cores(config, [3])
    check_cores(config, [1, 2])


def test_a_machine_without_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pyspark is not installed in"):
        check_driver_host()
