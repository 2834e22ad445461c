"""A topology with state on a real YARN cluster: exact through lost containers, masters and hosts, from two machines."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import heron_scheduler
import pytest
from test_slurm_running import Running
from test_yarn import Yarn

from heronpy import loader
from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.submit import submit
from heronpy.testing import eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.testing.yarn import YarnCluster, yarn_missing

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from keyed_count_topology import keyed_count_topology


class RealYarn(Yarn):
    """The same cluster, with this Python on its hosts, ZooKeeper, and a directory for packages and checkpoints."""

    def __init__(self, root: Path, yarn: YarnCluster, zookeeper: ZookeeperServer) -> None:
        super().__init__(root, yarn)
        self.zookeeper = zookeeper

    @property
    def config(self) -> dict[str, object]:
        return {
            **super().config,
            "heron.network.bind.address": "0.0.0.0",
            "heron.package.python": f"venv:{sys.prefix}",
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": self.zookeeper.connection,
            "heron.statemgr.root.path": "/heron",
            "heron.uploader.url": str(self.root / "packages"),
            "heron.statefulstorage.url": str(self.root / "checkpoints"),
            "heron.metrics.export.interval.ms": 1000,
            "heron.executor.stop.timeout.ms": 5000,
        }


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    for why in (yarn_missing(), zookeeper_missing()):
        if why:
            pytest.skip(why)
    with YarnCluster(memory_mb=16384) as yarn, ZookeeperServer(tmp_path / "zookeeper") as zookeeper:
        cluster, shared = RealYarn(tmp_path, yarn, zookeeper), tmp_path / "shared"
        shared.mkdir()
        began_s = time.monotonic()
        launch = submit(
            loader.Definition.of(keyed_count_topology(shared, rate=300)),
            cluster="yarn",
            role="me",
            home=cluster.machine("a"),
            config_path=cluster.conf,
        )
        print(f"\nyarn: submitted in {time.monotonic() - began_s:.1f} s")
        made = Running(cluster, launch, shared)
        try:
            made.wait_ready()
            made.wait_for_progress()
            print(f"yarn: counts {time.monotonic() - began_s:.1f} s after the beginning of the submission")
            yield made
        finally:
            heron_scheduler.kill(launch)


def test_a_topology_is_exact_through_faults_and_updates_and_leaves_nothing(running: Running) -> None:
    cluster = running.cluster
    assert isinstance(cluster, Yarn)
    assert "scheduler yarn: 3 of 3 containers run" in running.heron("status")
    assert running.heron("logs", "executor-1").strip()
    for container in (1, 0):
        what = f"executor of container {container} killed"
        running.recovers_from(what, lambda n=container: running.executor(n).send(signal.SIGKILL))
    running.recovers_from("application master killed", lambda: os.kill(cluster.master(running.launch).pid, 9))
    running.recovers_from("a container added", lambda: running.heron("update", "--containers", "3"))
    assert len(heron_scheduler.containers(running.launch)) == 4
    running.recovers_from("a container removed", lambda: running.heron("update", "--containers", "2"))
    assert len(heron_scheduler.containers(running.launch)) == 3
    hosts = {one.container: one.host for one in heron_scheduler.containers(running.launch)}
    running.recovers_from("a host lost", lambda: cluster.lose_host(hosts[1]))
    running.check_exact()
    running.heron("kill")
    eventually_sync(lambda: _none(cluster.left(running.launch)))  # NodeManagers remove files some heartbeats later
    assert [*find_by_environment({TOPOLOGY_ENV: running.launch.topology_id})] == []
    assert [path for path in (cluster.root / "packages").rglob("*") if path.is_file()] == []
    assert [path for path in (cluster.root / "checkpoints").rglob("*") if path.is_file()] == []


def _none(left: list[str]) -> None:
    assert left == []
