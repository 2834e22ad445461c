"""`heron tls` and the certificates of a running topology."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from heron_command import heron_command
from numbers_topology import Apart

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster({"heron.metrics.export.interval.ms": 500}) as made:
        yield made


@pytest.fixture(scope="module")
def numbers(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Apart).wait_running()


def heron(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*words, home=cluster.home, COLUMNS="200")


def certificates(cluster: LocalCluster, name: str, *options: str) -> dict[str, dict[str, object]]:
    done = heron(cluster, "tls", name, "--json", *options)
    assert done.returncode == 0, done.stderr
    return {one["identity"]: one for one in json.loads(done.stdout)}


def test_every_identity_of_a_topology_is_shown_with_its_expiry(cluster: LocalCluster, numbers: TopologyHandle) -> None:
    found = certificates(cluster, numbers.name)
    containers = [f"container-{n}" for n in range(3)]
    assert list(found) == ["ca", *containers, "cli", "tracker", "scheduler"]
    assert found["container-1"]["uri"] == f"heron://{numbers.launch.topology_id}/container/1"
    shown = heron(cluster, "tls", numbers.name)
    assert shown.returncode == 0
    for name in found:
        [line] = [line for line in shown.stdout.splitlines() if line.split()[:1] == [name]]
        assert str(found[name]["not_after"])[:10] in line


def test_a_topology_goes_on_with_renewed_certificates(cluster: LocalCluster, numbers: TopologyHandle) -> None:
    before = certificates(cluster, numbers.name)
    processes = numbers.processes()
    after = certificates(cluster, numbers.name, "--renew")
    assert [n for n in before if before[n]["sha256"] == after[n]["sha256"]] == ["ca"]
    assert numbers.status().state == "RUNNING", "a new connection to a process that has run all the time"
    numbers.restart(1)  # a new process and one that has run all the time
    numbers.wait_running()
    kept = {id: pid for id, pid in processes.items() if id.endswith("-2") or id == "tmaster"}
    assert kept.items() <= numbers.processes().items()


def test_a_topology_without_certificates_is_refused_in_one_line_and_can_be_killed(
    cluster: LocalCluster, numbers: TopologyHandle
) -> None:
    """As one that was submitted by a version that had none."""
    shutil.rmtree(numbers.launch.tls_dir)
    for words in (["status", numbers.name, "--json"], ["activate", numbers.name], ["tls", numbers.name]):
        done = heron(cluster, *words)
        if words[0] == "status":
            assert "kill it and submit it again" in done.stdout + done.stderr
        else:
            assert done.returncode != 0
            assert done.stderr.count("\n") == 1, done.stderr
    done = heron(cluster, "kill", numbers.name)
    assert done.returncode == 0, done.stderr
    eventually_sync(lambda: _equal(numbers.processes(), {}))
    assert not numbers.launch.dir.exists()


def _equal(found: object, expected: object) -> None:
    assert found == expected
