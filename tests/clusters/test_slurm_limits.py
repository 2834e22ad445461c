"""Slurm: limits of accounts, users and QOS, which a real slurmdbd keeps and a real slurmctld enforces."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heron_scheduler
import pytest
from test_slurm import Slurm

from heronpy.errors import HeronError
from heronpy.packing import RoundRobinPacking
from heronpy.submit import plans
from heronpy.testing import eventually_sync
from heronpy.testing.slurm import SlurmCluster, slurm_missing

KEY = "heron.scheduler.slurm."
REFUSED_S = 30.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := slurm_missing(accounting=True):
        pytest.skip(why)
    with SlurmCluster(accounting=True) as cluster:
        admin(cluster, "add", "account", "team")
        admin(cluster, "add", "user", "root", "account=team")
        admin(cluster, "add", "qos", "others")
        admin(cluster, "add", "qos", "narrow", "GrpJobs=2")
        admin(cluster, "add", "qos", "small", "Flags=DenyOnLimit", "MaxTRESPerJob=mem=300M")
        admin(cluster, "add", "qos", "poor", "GrpTRES=mem=900M")
        admin(cluster, "modify", "user", "root", "set", "qos+=narrow,small,poor")
        yield cluster


def admin(cluster: SlurmCluster, *words: str) -> None:
    try:
        cluster.run("sacctmgr", "--immediate", *words)
    except subprocess.CalledProcessError as e:
        pytest.fail(f"sacctmgr {' '.join(words)}: {e.stdout}{e.stderr}")


@pytest.fixture
def cluster(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    return Slurm(tmp_path, slurm)


def nothing_left(cluster: Slurm) -> None:
    eventually_sync(lambda: equal(cluster.slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING"), ""))
    assert [*cluster.machine("a").rglob("launch.json")] == []
    assert cluster.state_left(cluster.statemgr) == []


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({f"{KEY}account": "nowhere"}, rf"[Ii]nvalid account.*; set {KEY}account"),
        ({f"{KEY}qos": "nowhere"}, rf"[Ii]nvalid qos.*; set {KEY}qos"),
        ({f"{KEY}qos": "others"}, rf"[Ii]nvalid qos.*; set {KEY}qos"),
        ({f"{KEY}qos": "small"}, r"QOSMaxMemoryPerJob.*; see .*topology\.container\.ram.*`sacctmgr show qos`"),
        ({f"{KEY}qos": "narrow"}, r"QOSGrpJobsLimit.*; see .*topology\.stmgrs.*`sacctmgr show qos`"),
        ({f"{KEY}qos": "poor"}, r"QOSGrpMemLimit.*; see .*topology\.container\.ram.*`sacctmgr show qos`"),
    ],
    ids=["no account", "no qos", "not its qos", "job too large", "too many jobs", "too much memory together"],
)
def test_a_limit_of_a_qos_or_account_is_named_in_seconds_and_nothing_is_left(
    cluster: Slurm, properties: dict[str, Any], why: str
) -> None:
    refuse(cluster, properties, why)


def test_a_limit_of_a_user_is_named(cluster: Slurm) -> None:
    admin(cluster.slurm, "modify", "user", "root", "set", "MaxSubmitJobs=2")
    try:
        refuse(cluster, {}, r"AssocMaxSubmitJobLimit.*; see .*topology\.stmgrs.*`sacctmgr show assoc`")
    finally:
        admin(cluster.slurm, "modify", "user", "root", "set", "MaxSubmitJobs=-1")


def refuse(cluster: Slurm, properties: dict[str, Any], why: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(HeronError, match=why) as refusal:
        cluster.submit("a", **properties)
    took_s = time.monotonic() - began_s
    print(f"\nslurm: refused in {took_s:.1f} s: {refusal.value}")
    assert "\n" not in str(refusal.value)
    assert took_s < REFUSED_S
    nothing_left(cluster)


def test_a_container_too_many_is_refused_and_the_topology_goes_on(cluster: Slurm) -> None:
    launch = cluster.submit("a", **{f"{KEY}qos": "narrow", "topology.stmgrs": 1})
    try:
        before = cluster.wait_for(launch, 0, 1)
        logical, one = plans(launch)
        two = RoundRobinPacking(logical).repack(one, {}, containers=2)
        with pytest.raises(HeronError, match="QOSGrpJobsLimit"):
            cluster.update(launch, one, two)
        cluster.update(launch, two, one)
        assert {n: report.pid for n, report in cluster.wait_for(launch, 0, 1).items()} == {
            n: report.pid for n, report in before.items()
        }
    finally:
        heron_scheduler.kill(launch)
    nothing_left(cluster)


def equal(one: object, other: object) -> None:
    assert one == other
