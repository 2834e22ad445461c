"""Topologies with cycles and fan-out, in queues that are much too small for what goes round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cycle_topology import crawl

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

KIB = 1024
SMALL = {
    "heron.metrics.export.interval.ms": 500,
    "heron.executor.stop.timeout.ms": 2000,
    "heron.streammgr.network.backpressure.highwatermark.mb": 0.5,
    "heron.streammgr.network.backpressure.lowwatermark.mb": 0.25,
    "heron.streammgr.connection.write.batch.size.mb": 1 / 16,
    "heron.instance.internal.read.queue.bytes": 128 * KIB,
    "heron.instance.tuning.expected.read.queue.bytes": 64 * KIB,
    "heron.instance.internal.write.queue.bytes": 128 * KIB,
    "heron.instance.set.data.tuple.size.bytes": 64 * KIB,
}
SEEDS, LINKS, DEPTH = 5, 25, 2
PAGES = SEEDS * (1 + LINKS + LINKS**2)
CRAWL = {"test.seeds": SEEDS, "test.links": LINKS, "test.depth": DEPTH, "test.payload.bytes": 7 * KIB}


def total(topology: TopologyHandle, component: str, counter: str) -> float:
    return sum(
        value
        for instance in topology.status().instances
        if instance.component == component
        for name, value in instance.totals.items()
        if name.startswith(counter)
    )


@pytest.mark.parametrize("mode", [pytest.param("ATMOST_ONCE", marks=pytest.mark.long), "ATLEAST_ONCE"])
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({}, id="a bolt that feeds itself", marks=pytest.mark.long),  # as below, where the disk is limited
        pytest.param({"parallelism": 2, "containers": 2}, id="in two containers", marks=pytest.mark.long),
        pytest.param({"parallelism": 2, "containers": 2, "through": True}, id="two bolts that feed each other"),
    ],
)
def test_a_cycle_with_fan_out_never_deadlocks(shape: dict[str, Any], mode: str) -> None:
    with LocalCluster(SMALL) as cluster:
        topology = cluster.submit(crawl(**shape, **CRAWL, **{"topology.reliability.mode": mode})).wait_running()

        def all_pages_visited() -> None:
            assert total(topology, "crawler", "visited") == PAGES

        eventually_sync(all_pages_visited)
        assert total(topology, "crawler", "overtaken") == 0


def test_feedback_beyond_the_limit_of_the_disk_stops_the_topology_and_the_status_says_why() -> None:
    limited = {**SMALL, "heron.streammgr.feedback.spill.limit.mb": 4}
    with LocalCluster(limited) as cluster:
        # Every page has links: there is no end to it.
        topology = cluster.submit(crawl(**{**CRAWL, "test.depth": 1_000_000})).wait_running()

        def stopped() -> None:
            status = topology.status()
            assert status.state == "PAUSED"
            assert "heron.streammgr.feedback.spill.limit.mb" in status.stop_reason

        eventually_sync(stopped)

        def spilled() -> None:
            name = "__feedback_spilled_by_instanceid/container_1_crawler_2/bytes"
            assert 3 << 20 < topology.status().stmgrs[0].latest[name] < 6 << 20

        eventually_sync(spilled)
        home = next(parent for parent in topology.launch.dir.parents if parent.name == "topologies").parent
        shown = subprocess.run(
            [Path(sys.executable).with_name("heron"), "status", "crawl"],
            env={**os.environ, "HERON_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        assert "PAUSED" in shown
        assert "paused by the engine: tuples that go round a cycle" in shown
