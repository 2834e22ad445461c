"""Windows by the watermarks of a source, at least once with checkpoints, in real processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from source_windows_topology import NUMBERS, WINDOW, source_windows

from heronpy.testing import LocalCluster, eventually_sync

WITHIN_S = 120.0


@pytest.mark.long
def test_every_number_is_in_its_window_though_its_process_is_killed(tmp_path: Path) -> None:
    def collected() -> dict[int, set[int]]:
        file = tmp_path / "collected"
        found = json.loads(file.read_text()) if file.exists() else {}
        return {int(start): set(numbers) for start, numbers in found.items()}

    def some() -> None:
        assert len(collected()) > 3, "a checkpoint is committed while windows are open"

    def whole() -> None:
        found = collected()
        assert all(found.get(start) == set(range(start, start + WINDOW)) for start in complete), found.keys()

    complete = range(0, NUMBERS - WINDOW, WINDOW)
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(source_windows(tmp_path)).wait_running()
        eventually_sync(some, within_s=WITHIN_S)
        running = topology.processes()
        os.kill(next(pid for id, pid in running.items() if "_windows_" in id), signal.SIGKILL)
        eventually_sync(whole, within_s=WITHIN_S)
