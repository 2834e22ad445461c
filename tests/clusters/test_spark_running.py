"""Topologies with state on a real Spark: exact through lost containers, a lost host and updates, from two machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_kit import RunningKit, with_real_containers
from scheduler_kit import Cluster
from test_spark import Spark

from heronpy.testing.servers import ZookeeperServer
from heronpy.testing.spark import SparkCluster, spark_missing


@pytest.fixture(scope="module")
def servers() -> Iterator[SparkCluster]:
    if why := spark_missing():
        pytest.skip(why)
    with SparkCluster(cores=16) as servers:
        yield servers


class TestSparkRunning(RunningKit):
    """The kit."""

    @pytest.fixture
    def cluster(self, servers: SparkCluster, zookeeper: ZookeeperServer, tmp_path: Path) -> Cluster:
        return with_real_containers(Spark(tmp_path, servers), zookeeper)
