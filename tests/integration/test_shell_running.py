"""A heron-shell in a running topology: started by the executor, entered in its container's record, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from numbers_topology import Numbers

from heronpy.errors import UnavailableError
from heronpy.proto import shell_pb2, state_pb2
from heronpy.runtime import Launch
from heronpy.shell import Container
from heronpy.shell.client import RemoteShell
from heronpy.shell.stored import StoredLogs, stored_containers, stored_topologies
from heronpy.statemgr import Kind, container_node, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopologyHandle]:
    keys = {
        "heron.shell.enabled": True,
        "heron.metrics.export.interval.ms": 500,
        "heron.logs.upload.uri": str(tmp_path_factory.mktemp("store")),
    }
    with LocalCluster(keys) as cluster:
        yield cluster.submit(Numbers, name="words").wait_running()


def endpoint(launch: Launch, container: int) -> str:
    with open_statemgr(launch.statemgr) as state:
        raw = state.get(Kind.CONTAINERS, container_node(launch.topology, container))
    record = state_pb2.ContainerRecord.FromString(raw or b"")
    assert record.shell_endpoint
    return record.shell_endpoint


async def processes(launch: Launch, container: int) -> shell_pb2.ProcessList:
    shell = RemoteShell(endpoint(launch, container), launch.security("heron"), container)
    try:
        return await shell.processes()
    except UnavailableError as e:
        raise AssertionError(str(e)) from e
    finally:
        await shell.close()


@pytest.mark.parametrize("container", [0, 1])
def test_every_container_has_one_that_answers(handle: TopologyHandle, container: int) -> None:
    def answered() -> None:
        found = asyncio.run(processes(handle.launch, container)).processes
        ids = {process.id for process in found if process.alive}
        expected = {f"heron-shell-{container}", f"metricsmgr-{container}", "tmaster" if container == 0 else "stmgr-1"}
        assert ids >= expected

    eventually_sync(answered)


def test_one_that_is_killed_is_found_again(handle: TopologyHandle) -> None:
    eventually_sync(lambda: endpoint(handle.launch, 1))
    before = handle.processes()["heron-shell-1"]
    os.kill(before, signal.SIGKILL)

    def back() -> None:
        assert handle.processes().get("heron-shell-1", before) != before
        found = asyncio.run(processes(handle.launch, 1)).processes
        assert [p.restarts for p in found if p.id == "heron-shell-1"] == [1]

    eventually_sync(back)


def test_logs_outlive_their_topology(handle: TopologyHandle) -> None:
    """The last test of this file: it kills the topology."""
    launch = handle.launch
    uri = launch.config.logging.upload_uri
    handle.kill()
    assert not launch.dir.exists()
    assert stored_containers(uri, launch.topology, launch.topology_id)[:2] == [0, 1]
    assert stored_topologies(uri, launch.topology) == [launch.topology_id]
    place = Container(launch.topology, launch.topology_id, 1, launch.dir)

    async def read() -> tuple[set[str], bytes]:
        logs = StoredLogs(uri, place)
        names = {entry.name for entry in (await logs.files()).files}
        return names, (await logs.read("heron-shell-1.log", 0, -1)).data

    names, text = asyncio.run(read())
    assert names >= {"stmgr-1.log", "heron-shell-1.log", "executor.log", "metricsmgr-1.log"}
    assert b"serves at" in text
    words = [f"{launch.cluster}/{launch.role}/{launch.environ}", launch.topology]
    heron = [sys.executable, "-m", "heronpy.cli", "logs", *words, "heron-shell-1"]
    store = uri.removesuffix(f"/{launch.cluster}/{launch.role}/{launch.environ}")
    heron += ["--config-property", f"heron.logs.upload.uri={store}", "--grep", "serves at"]
    env = {**os.environ, "HERON_HOME": str(launch.dir.parents[4])}
    shown = subprocess.run(heron, env=env, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "heron-shell-1 serves at" in shown.stdout
    lost = subprocess.run([*heron[:-4], *heron[-2:]], env=env, capture_output=True, text=True, check=False)
    assert (lost.returncode, lost.stderr.count("\n")) == (3, 1), lost.stderr
