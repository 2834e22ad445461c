"""A topology whose state is in ZooKeeper is seen, and its log levels changed, as one whose state is in files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from heron_command import heron_command

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=zookeeper_missing() or "")

SPOUT = "container_1_ticking_1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        properties = {
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": zookeeper.connection,
            "heron.statemgr.root.path": "/heron",
            "heron.metrics.export.interval.ms": 500,
        }
        with LocalCluster(properties) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def levels(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Path(__file__).parent / "logging_topology.py", "Levels").wait_running()


def heron(cluster: LocalCluster, *args: str) -> str:
    done = heron_command(*args, home=cluster.home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_log_level_reaches_a_process_outlives_it_and_is_taken_back(
    cluster: LocalCluster, levels: TopologyHandle
) -> None:
    def logged(count: int, text: str) -> None:
        assert levels.logs(SPOUT).count(text) == count

    heron(cluster, "log-level", "Levels", "ticking", "DEBUG", "--for", "1h")
    eventually_sync(lambda: logged(1, "log level INFO -> DEBUG"))
    for process in ("tmaster", SPOUT):
        os.kill(levels.processes()[process], signal.SIGKILL)
    eventually_sync(lambda: logged(2, "log level INFO -> DEBUG"))
    levels.wait_running()
    (level,) = json.loads(heron(cluster, "log-level", "Levels", "--json"))["levels"]
    assert (level["target"], level["level"]) == ("ticking", "DEBUG")
    heron(cluster, "log-level", "Levels", "ticking", "configured")
    eventually_sync(lambda: logged(1, "log level DEBUG -> INFO"))


def test_the_views_work(cluster: LocalCluster, levels: TopologyHandle) -> None:
    levels.wait_running()
    assert "Levels" in heron(cluster, "topologies")
    for verb in ("status", "metrics", "viz"):
        assert "ticking" in heron(cluster, verb, "Levels"), verb
