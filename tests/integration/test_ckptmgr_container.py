"""The Checkpoint Manager among the processes of its container: started, started again, seen, and ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting_tasks import Counting
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.ckptmgr.client import CheckpointClient
from heronpy.errors import UnavailableError
from heronpy.host import PidFile, read_pids
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import open_statemgr
from heronpy.submit import metrics, set_log_level
from heronpy.testing import eventually


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    keys = {"heron.metrics.export.interval.ms": 200}
    launch = launch_in(tmp_path, keys, checkpoints=str(tmp_path / "checkpoints"))
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1, mode="EFFECTIVELY_ONCE")
    launch.container_dir(0).mkdir()
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


def running(launch: Launch) -> dict[str, PidFile]:
    return {id: record for id, record in read_pids(launch.container_dir(0)).items() if record.alive}


async def test_it_is_started_again_seen_by_its_metrics_and_ends_with_its_container(launch: Launch) -> None:
    async with CheckpointClient(launch, container=0, process="container_1_count_1") as client:
        with EngineProcess("executor", launch, 0) as executor:
            counting = Counting(client)
            await counting.restore(0)
            counting.count("abcab")
            await counting.checkpoint(1)
            first = running(launch)["ckptmgr-0"]
            os.kill(first.pid, signal.SIGKILL)
            counting.count("ab")
            assert (await counting.checkpoint(2)).added > 0, "small snapshots are sent again"

            async def counted() -> None:
                second = running(launch).get("ckptmgr-0")
                assert second is not None
                assert (second.pid == first.pid, second.restarts) == (False, 1)
                request = tmaster_pb2.MetricsRequest(component="__ckptmgr__", interval_s=-1)
                try:
                    reply = await asyncio.to_thread(metrics, launch, request)
                except UnavailableError as e:
                    raise AssertionError("the Topology Master is not up yet") from e
                assert {one.name: one.value for one in reply.series}.get("__save-count", 0) >= 1

            await eventually(counted)
            for target, level in (("__ckptmgr__", "DEBUG"), ("ckptmgr-0", None)):
                await asyncio.to_thread(set_log_level, launch, target, level)
            assert executor.terminate() == 0
        assert running(launch) == {}
        assert "Traceback" not in (launch.log_dir(0) / "ckptmgr-0.log").read_text()
