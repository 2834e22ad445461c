"""Topologies with state on a real Slurm: exact through lost containers, a lost node and updates, from two machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_kit import Running, RunningKit, with_real_containers
from scheduler_kit import Cluster
from test_slurm import Slurm

from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.slurm import SlurmCluster, slurm_missing


@pytest.fixture(scope="module")
def servers() -> Iterator[SlurmCluster]:
    if why := slurm_missing():
        pytest.skip(why)
    with SlurmCluster() as servers:
        yield servers


class TestSlurmRunning(RunningKit):
    """The kit."""

    @pytest.fixture
    def cluster(
        self, servers: SlurmCluster, zookeeper: ZookeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Cluster:
        for name, value in servers.env.items():
            monkeypatch.setenv(name, value)
        return with_real_containers(Slurm(tmp_path, servers), zookeeper)

    def more_faults(self, running: Running) -> None:
        running.recovers_from("container 2 restarted", lambda: running.heron("restart", "2"))
