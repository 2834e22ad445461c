"""A checkpoint that cannot be read any more, with real processes: an older one is restored, and counts are exact."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from keyed_count_topology import KEYS, counts_in, keyed_count_topology

from heronpy import submit
from heronpy.checkpoints import manifest_name
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


def record_of(launch: Launch) -> state_pb2.Checkpoints:
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        return state_pb2.Checkpoints.FromString(state.get(Kind.STATEFULCHECKPOINTS, launch.topology) or b"")


@pytest.mark.long
def test_a_damaged_checkpoint_is_passed_over_and_every_view_says_so(tmp_path: Path) -> None:
    numbers = 8000
    keys = {"topology.stmgrs": 1, "topology.stateful.checkpoint.interval.seconds": 2}
    program = keyed_count_topology(tmp_path, numbers=numbers, rate=1000, **keys)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(program).wait_running()
        tmaster = topology.processes()["tmaster"]
        damaged = 0

        def damage() -> None:
            """Truncate the newest manifest while no other one is under way."""
            nonlocal damaged
            os.kill(tmaster, signal.SIGSTOP)
            try:
                record = record_of(topology.launch)
                assert len(record.committed) >= 2, "there are two checkpoints"
                assert not record.in_progress, "none is under way"
                damaged = record.committed[-1]
                path = Path(topology.launch.checkpoints, manifest_name(damaged))
                path.write_bytes(path.read_bytes()[:-1])
                os.kill(next(pid for id, pid in topology.processes().items() if "_count_" in id), signal.SIGKILL)
            finally:
                os.kill(tmaster, signal.SIGCONT)

        eventually_sync(damage)

        def exact() -> None:
            counts = counts_in(tmp_path)
            assert set(counts.values()) == {numbers // KEYS}
            assert len(counts) == KEYS

        eventually_sync(exact)
        status, _ = submit.status_and_metrics(topology.launch)
        assert f"instead of {damaged}: " in status.checkpoints.fallback
        assert f"instead of {damaged}: " in "".join(reason.text for reason in status.health.reasons)
        assert f"restored instead of {damaged}" in topology.logs("tmaster")
