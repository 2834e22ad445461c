"""Topologies with state on a real YARN: exact through lost containers, masters and hosts, from two machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_kit import Running, RunningKit, with_real_containers
from scheduler_kit import Cluster
from test_yarn import Yarn

from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.yarn import YarnCluster, yarn_missing


@pytest.fixture(scope="module")
def servers() -> Iterator[YarnCluster]:
    if why := yarn_missing():
        pytest.skip(why)
    with YarnCluster(memory_mb=16384) as servers:
        yield servers


class TestYarnRunning(RunningKit):
    """The kit."""

    @pytest.fixture
    def cluster(self, servers: YarnCluster, zookeeper: ZookeeperServer, tmp_path: Path) -> Cluster:
        return with_real_containers(Yarn(tmp_path, servers), zookeeper)

    def more_faults(self, running: Running) -> None:
        cluster = running.cluster
        assert isinstance(cluster, Yarn)
        running.recovers_from("application master killed", lambda: os.kill(cluster.master(running.launch).pid, 9))
