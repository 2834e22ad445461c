"""State that is larger than its memory, with real processes: what dies is restored, by any number of tasks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from counted import Counted
from spilled_topology import counting_in_large_values

from heronpy.testing import LocalCluster

pytestmark = pytest.mark.long  # tests/unit/test_state_spilled.py and the model show it without processes


def test_numbers_are_counted_once_in_state_that_is_in_files(tmp_path: Path) -> None:
    pytest.importorskip("lmdb", reason="lmdb is not installed")
    counted = Counted(tmp_path)
    with LocalCluster({"heron.metrics.export.interval.ms": 1000}) as cluster:
        topology = cluster.submit(counting_in_large_values("spilled", tmp_path, par=2)).wait_running()
        counted.raise_goal(1000)
        counted.wait_midway()
        running = topology.processes()
        name = next(id for id in sorted(running) if "_count_" in id)
        os.kill(running[name], signal.SIGKILL)
        counted.wait_exact()
        topology.update(count=3)
        counted.raise_goal(1000)
        counted.wait_exact()
