"""Health beside running topologies: one verdict, the same wherever somebody looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from health_topology import CrashLoop, Idle, Sound, Waiting
from heron_command import heron_command

from heronpy.api import Grouping, TopologyBuilder
from heronpy.connectors import JsonLines, SourceSpout
from heronpy.errors import UnavailableError
from heronpy.health import CRASH_LOOP_RESTARTS, HealthState
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync, scrape

HERON = [sys.executable, "-m", "heronpy.cli"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # The Topology Master that a test stops is not to be taken for hung meanwhile.
    keys = {"heron.metrics.export.interval.ms": 500, "heron.executor.heartbeat.timeout.ms": 600_000}
    with LocalCluster(keys) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sound(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Sound, name="sound").wait_running()


@pytest.fixture(scope="module")
def tracker(cluster: LocalCluster) -> Iterator[httpx.Client]:
    process = subprocess.Popen(
        [*HERON, "tracker", "--port", "0", "--json", "--no-token"],
        env=environment(cluster),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with httpx.Client(base_url=json.loads(process.stdout.readline())["url"], timeout=120) as client:
        yield client
    process.terminate()
    process.stdout.close()
    process.wait(300)


def answered(tracker: httpx.Client, path: str, **params: str) -> Any:
    answer = tracker.get(path, params=params)
    assert answer.is_success, answer.text
    return answer.json()


def environment(cluster: LocalCluster) -> dict[str, str]:
    return {**os.environ, "HERON_HOME": str(cluster.home)}


def heron(cluster: LocalCluster, *args: str) -> str:
    done = heron_command(*args, home=cluster.home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_windows_that_wait_for_what_a_spouts_limit_keeps_back_are_a_reason(cluster: LocalCluster) -> None:
    handle = cluster.submit(Waiting, name="waiting").wait_running()

    def told() -> None:
        reasons = {reason.kind: reason.text for reason in handle.status().health.reasons}
        assert reasons.get("pending", "").startswith("hour holds tuples and waited for more for "), reasons
        assert "while numbers could emit none: topology.max.spout.pending" in reasons["pending"]

    eventually_sync(told)
    handle.kill()


def test_rows_that_cannot_be_read_are_a_reason_and_counted(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("1\n{\n2\n}\n")
    builder = TopologyBuilder("malformed")
    rows = builder.add_spout("rows", SourceSpout(JsonLines(tmp_path / "rows.jsonl")), 1)
    builder.add_bolt("out", Idle, 1, {rows: Grouping.SHUFFLE})
    handle = cluster.submit(builder.build())

    def told() -> None:
        shown = heron(cluster, "status", "malformed")
        assert "degraded: rows has set aside 2 dead letters in the last 5 min" in shown
        assert "rows has set aside 2 dead letters\n" in shown
        assert json.loads(heron(cluster, "status", "malformed", "--json"))["dead_letters"] == {"rows": 2}

    eventually_sync(told)
    handle.kill()


@pytest.fixture(scope="class")
def looping(cluster: LocalCluster) -> Iterator[TopologyHandle]:
    """A topology whose bolt has been restarted until that is called a crash loop."""
    handle = cluster.submit(CrashLoop, name="looping")

    def loops() -> None:
        try:
            recent = handle.status().recent_restarts
        except UnavailableError as e:
            raise AssertionError(str(e)) from e
        assert max(recent.values(), default=0) >= CRASH_LOOP_RESTARTS, recent

    eventually_sync(loops)
    yield handle
    handle.kill()  # while it runs it starts processes again and again


class TestCrashLoop:
    def test_a_crash_loop_is_unhealthy_in_every_view_and_a_sound_topology_in_none(
        self, cluster: LocalCluster, sound: TopologyHandle, looping: TopologyHandle, tracker: httpx.Client
    ) -> None:
        def reported() -> None:
            shown = heron(cluster, "status", "looping")
            assert "unhealthy: crash loop in the last 10 min: container_1_broken_" in shown

        eventually_sync(reported)  # the Topology Master is notified of restarts with the metrics
        assert "healthy" in heron(cluster, "status", "sound").splitlines()[0]
        views: dict[str, Any] = {
            "status": json.loads(heron(cluster, "status", "looping", "--json"))["health"],
            "top": json.loads(heron(cluster, "top", "looping", "--json"))["health"],
        }

        def told() -> None:
            listed = {one["name"]: one for one in answered(tracker, "/topologies/health")}
            assert list(listed) == ["looping", "sound"], "the worst first"
            assert listed["sound"]["state"] == "healthy"
            assert listed["sound"]["reasons"] == []
            views["list"] = listed["looping"]
            launch = looping.launch
            place = f"/topologies/{launch.cluster}/{launch.role}/{launch.environ}/looping/summary"
            views["page"] = answered(tracker, place)["health"]

        eventually_sync(told)
        for where, health in views.items():
            assert health["state"] == "unhealthy", where
            # On a slow machine there may be others, of processes that are not ready again yet.
            assert {reason["kind"] for reason in health["reasons"]} & {"restarts", "failures"}, where
            assert any(reason["text"].startswith("crash loop in the last 10 min") for reason in health["reasons"]), (
                where
            )
            assert health["restarts"] >= CRASH_LOOP_RESTARTS, where

    def test_prometheus_has_the_verdict_and_the_restarts_of_each_process(self, looping: TopologyHandle) -> None:
        def scraped(container: int) -> str:
            path = looping.launch.container_dir(container) / "prometheus.address"
            assert path.exists()
            return scrape(looping.launch, path.read_text())

        def exported() -> None:
            lines = scraped(0).splitlines()
            states = [line for line in lines if line.startswith("heron_health{")]
            assert [float(state.split()[-1]) for state in states] == [HealthState.UNHEALTHY]
            reasons = [line for line in lines if line.startswith("heron_health_reason{") and 'key="restarts"' in line]
            assert [float(reason.split()[-1]) for reason in reasons] == [HealthState.UNHEALTHY]
            restarts = {
                line.split('key="')[1].split('"')[0]: float(line.split()[-1])
                for line in scraped(1).splitlines()
                if line.startswith("heron_restarts{")
            }
            assert restarts.get("stmgr-1") == 0
            assert max((n for id, n in restarts.items() if "_broken_" in id), default=0) >= CRASH_LOOP_RESTARTS

        eventually_sync(exported)


def test_a_topology_whose_tmaster_is_stopped_is_unhealthy_and_says_so(
    cluster: LocalCluster, sound: TopologyHandle, tracker: httpx.Client
) -> None:
    pid = sound.processes()["tmaster"]
    os.kill(pid, signal.SIGSTOP)
    try:

        def silent() -> None:
            found = answered(tracker, "/topologies/health", topology="sound")
            assert [health["state"] for health in found] == ["unhealthy"]
            assert found[0]["reasons"][0]["kind"] == "tmaster"
            assert "does not answer" in found[0]["reasons"][0]["text"]

        eventually_sync(silent)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_new_tmaster_knows_the_restarts_before_its_start(sound: TopologyHandle) -> None:
    killed = next(id for id in sound.processes() if "_numbers_" in id)
    os.kill(sound.processes()[killed], signal.SIGKILL)

    def counted() -> int:
        status = sound.status()
        assert status.recent_restarts.get(killed) == 1, status.recent_restarts
        return status.tmaster_started_ms

    before = eventually_sync(counted)
    os.kill(sound.processes()["tmaster"], signal.SIGKILL)

    def counted_anew() -> None:
        try:
            assert counted() > before
        except UnavailableError as e:
            raise AssertionError(str(e)) from e
        restarted = [r.text for r in sound.status().health.reasons if r.kind == "restarts"]
        assert any(text.startswith("restarted in the last 10 min: ") and killed in text for text in restarted)

    eventually_sync(counted_anew)
