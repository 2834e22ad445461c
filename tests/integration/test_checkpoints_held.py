"""A bolt that goes on holding tuples effectively once: no checkpoint is taken, and the commands say why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from holding_topology import holding

from heronpy.testing import LocalCluster, eventually_sync


@pytest.mark.long
def test_the_commands_say_which_task_holds_how_many_tuples_and_what_to_do() -> None:
    with LocalCluster() as cluster:
        topology = cluster.submit(holding()).wait_running()
        place = (f"{topology.launch.cluster}/{topology.launch.role}", topology.launch.topology)

        def said() -> None:
            for command in ("checkpoints", "status"):
                done = subprocess.run(
                    [sys.executable, "-m", "heronpy.cli", command, *place],
                    env={**os.environ, "HERON_HOME": str(Path(cluster.home)), "COLUMNS": "400"},
                    text=True,
                    capture_output=True,
                    timeout=300,
                    check=True,
                )
                assert "component 'holding' holds 5 tuples that it has neither acked nor failed" in done.stdout
                assert "it is to ack each" in done.stdout

        eventually_sync(said, within_s=120)
