"""Spark: the scheduler's kit, and what is Spark's own, on a real standalone master with two workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import heron_scheduler
import psutil
import pytest
from heron_scheduler import ContainerPhase
from scheduler_kit import RESTART_S, Cluster, Report, SchedulerKit, differ

from heronpy.host import PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import find
from heronpy.testing import eventually_sync
from heronpy.testing.servers import free_port
from heronpy.testing.spark import HOST_ENV, SparkCluster, spark_missing

KEY = "heron.scheduler.spark."
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""By which a JVM takes less CPU to start."""
WITHIN_S = 240.0
"""In which Spark has started three JVMs for a topology, on a machine that is busy."""


class Spark(Cluster):
    name = "spark"
    asked = ()

    def __init__(self, root: Path, spark: SparkCluster) -> None:
        super().__init__(root)
        self.spark = spark

    @property
    def config(self) -> Mapping[str, Any]:
        return {
            f"{KEY}master": self.spark.master,
            f"{KEY}webui": self.spark.webui,
            f"{KEY}python": sys.executable,
            f"{KEY}directory": f"${HOST_ENV}/tmp",
            f"{KEY}secrets": str(self.root / "secrets"),
            f"{KEY}conf": {
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": JAVA_OPTIONS,
                "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            },
        }

    @property
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        nobody = f"spark://127.0.0.1:{free_port()}"
        return [
            ("no master", {f"{KEY}master": nobody}, f"no Spark master answers at {nobody}"),
            ("a master that is none", {f"{KEY}master": "local[2]"}, "URL of a standalone master"),
            (
                "more cores than a worker has",
                {"topology.tmanager.cpu": 64.0},
                "asks for 64 cores.* largest .* has 3: set",
            ),
            ("more cores than are free", {"topology.tmanager.cpu": 3.0, "topology.stmgrs": 4}, "for 7 .* have 6 free"),
            ("a secret", {f"{KEY}conf": {"spark.authenticate.secret": "x"}}, "spark-defaults.conf"),
            ("a misspelt key", {f"{KEY}mastr": "p"}, "did you mean 'heron.scheduler.spark.master'"),
        ]

    @property
    def directory(self) -> Path:
        return self.spark.directory

    def shown(self) -> str:
        pages = ["/", "/json/", *(f"/app/?appId={one['id']}" for one in self.spark.state()["activeapps"])]
        pages = [f"{self.spark.webui}{page}" for page in pages]
        pages += [f"{worker['webuiaddress']}/" for worker in self.spark.state()["workers"]]
        return "".join(urllib.request.urlopen(page, timeout=30).read().decode() for page in pages)

    def left(self, launch: Launch) -> list[str]:
        applications = [one["name"] for one in self.spark.state()["activeapps"]]
        files = [path for host in self.spark.hosts for path in self.spark.host_dir(host).glob("*")]
        files += (self.root / "secrets").glob("*")
        processes = find_by_environment({TOPOLOGY_ENV: launch.topology_id})
        named = [name for name in applications if launch.topology_id in name]
        return named + [str(path) for path in files] + [str(process) for process, _ in processes]

    def wait_for(self, launch: Launch, *containers: int, within_s: float = WITHIN_S) -> dict[int, Report]:
        return super().wait_for(launch, *containers, within_s=within_s)

    def lose_host(self, host: str) -> None:
        self.spark.vanish(host)

    def hung(self) -> contextlib.AbstractContextManager[None]:
        return self.spark.hung("master")

    def heal_host(self, host: str) -> None:
        self.spark.start_host(host)
        self.spark.wait_up(host)

    def driver(self, launch: Launch) -> HostProcess:
        mark = {TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: "spark-driver"}
        found = [process for process, _ in find_by_environment(mark)]
        (driver,) = [one for one in found if "heron_scheduler.spark.driver" in psutil.Process(one.pid).cmdline()]
        return driver


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkCluster]:
    if why := spark_missing():
        pytest.skip(why)
    with SparkCluster(cores=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(spark: SparkCluster, tmp_path: Path) -> Spark:
    return Spark(tmp_path, spark)


class TestSpark(SchedulerKit):
    """The kit."""

    def test_a_container_that_fails_on_its_host_says_why(self, cluster: Spark, launch: Launch) -> None:
        (cluster.reports / "fails-1").write_text("heron: this host has Python 3.2")
        os.kill(cluster.running(launch)[1].pid, signal.SIGKILL)

        def failed() -> None:
            told = {one.container: one for one in heron_scheduler.containers(launch)}
            assert told[1].phase is ContainerPhase.FAILED
            assert told[1].reason.endswith("heron: this host has Python 3.2")

        eventually_sync(failed, within_s=90)

    def test_the_death_of_the_driver_ends_all_in_order_and_the_next_command_starts_them_again(
        self, cluster: Spark, launch: Launch
    ) -> None:
        before = cluster.running(launch)
        cluster.driver(launch).send(signal.SIGKILL)
        eventually_sync(lambda: _none_alive(cluster, launch), within_s=30)
        assert {report.ended for report in cluster.said(launch)} == {"in order"}
        told = heron_scheduler.containers(launch)
        assert {(one.phase, one.reason) for one in told} == {
            (ContainerPhase.FAILED, "the Spark driver of the topology does not run")
        }
        began_s = time.monotonic()
        copy = find(cluster.machine("b"), cluster.name, "me", "default", launch.topology, config_path=cluster.conf)
        assert heron_scheduler.revive(copy)  # on a machine that did not submit it
        eventually_sync(lambda: differ(cluster.running(launch), before, {0, 1, 2}), within_s=WITHIN_S)
        print(f"spark: all containers were back {time.monotonic() - began_s:.1f} s after the next command")

    def test_a_driver_that_stands_by_takes_over(self, cluster: Spark, launch: Launch) -> None:
        before, first = cluster.running(launch), cluster.driver(launch)
        command = [sys.executable, "-P", "-m", "heron_scheduler.spark.driver", "--dir", str(launch.dir)]
        with (cluster.root / "standby.out").open("w") as out:
            standby = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # as the unit does
        try:
            time.sleep(3.0)
            assert cluster.running(launch) == before
            began_s = time.monotonic()
            first.send(signal.SIGKILL)
            eventually_sync(lambda: differ(cluster.running(launch), before, {0, 1, 2}), within_s=WITHIN_S)
            print(f"spark: a driver that stood by had all containers back after {time.monotonic() - began_s:.1f} s")
            heron_scheduler.kill(launch)
            assert standby.wait(60) == 0, (cluster.root / "standby.out").read_text()
            cluster.nothing_left(launch)
        finally:
            standby.kill()
            standby.wait()

    def test_a_killed_executor_of_spark_loses_its_containers_alone(self, cluster: Spark, launch: Launch) -> None:
        before = cluster.running(launch)
        hosts = {one.container: one.host for one in heron_scheduler.containers(launch)}
        lost = {n for n, host in hosts.items() if host == hosts[1]}
        jvms = [psutil.Process(pid) for pid in cluster.spark.processes(hosts[1])]
        (executor,) = [one for one in jvms if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]
        began_s = time.monotonic()
        executor.kill()
        eventually_sync(lambda: differ(cluster.running(launch), before, lost), within_s=RESTART_S)
        print(f"spark: containers {lost} of a killed executor were back after {time.monotonic() - began_s:.1f} s")

    def test_nothing_secret_is_in_the_state_manager_or_on_a_command_line(self, cluster: Spark, launch: Launch) -> None:
        token = launch.token().encode()
        with open_statemgr(launch.statemgr) as state:
            for kind in (Kind.DRIVERORDERS, Kind.DRIVERS):
                value = state.get(kind, launch.topology)
                assert value is not None
                assert token not in value
                assert json.loads(value)["topology_id"] == launch.topology_id
        for process in psutil.process_iter():
            if process.pid in {pid for host in cluster.spark.hosts for pid in cluster.spark.processes(host)}:
                for name in ("cmdline", "environ"):
                    assert token not in Path(f"/proc/{process.pid}/{name}").read_bytes()


def _none_alive(cluster: Spark, launch: Launch) -> None:
    assert cluster.running(launch) == {}
