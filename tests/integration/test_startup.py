"""What a topology costs to start, and that nothing of it is left, whenever it is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest
from numbers_topology import Many, Small

from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster


def assert_nothing_is_left(launch: Launch) -> None:
    """No process, socket, directory or node of a topology."""
    assert [p.pid for p, _ in find_by_environment({TOPOLOGY_ENV: launch.topology_id})] == []
    assert not launch.socket_root().exists()
    assert not launch.dir.exists()
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        assert [kind.name for kind in Kind if launch.topology in state.list(kind)] == []


def test_ten_instances_in_three_containers_run_soon_cost_little_and_end_at_once() -> None:
    """What they cost: in CPU, against what a process costs here and now that only imports what all of them need."""
    spare = [sys.executable, "-c", "import resource, grpc.aio, numpy; print(resource.getrusage(0).ru_utime)"]
    alone_s = min(float(subprocess.run(spare, check=True, capture_output=True, text=True).stdout) for _ in range(3))
    with LocalCluster() as cluster:
        began_s = time.monotonic()
        many = cluster.submit(Many).wait_running()
        running_s = time.monotonic() - began_s
        processes = many.processes()
        cpu_s = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in processes.values())
        assert len(many.status().instances) == 10
        assert cpu_s < 5 * alone_s * len(processes), f"{alone_s:.2f} s each for the imports alone"
        assert {name for name in processes if name.startswith("stmgr")} == {"stmgr-1", "stmgr-2", "stmgr-3"}
        began_s = time.monotonic()
        many.kill()
        killed_s = time.monotonic() - began_s
        assert_nothing_is_left(many.launch)
    load = os.getloadavg()[0]
    print(
        f"\n10 instances ran after {running_s:.1f} s ({cpu_s:.1f} s of CPU, load {load:.0f}); killed in {killed_s:.1f}"
    )


@pytest.mark.parametrize(
    "after_s",
    [pytest.param(s, marks=pytest.mark.long) for s in (0.0, 0.3, 1.0)],  # test_scheduler_kills.py kills earlier
)
def test_a_topology_that_is_killed_while_it_starts_leaves_nothing(after_s: float) -> None:
    with LocalCluster() as cluster:
        small = cluster.submit(Small)
        time.sleep(after_s)  # not for a result: whatever it has come to by then must be gone
        small.kill()
        assert_nothing_is_left(small.launch)
        again = cluster.submit(Small).wait_running()
        assert again.launch.topology_id != small.launch.topology_id
        home = cluster.home
    assert not home.exists()
