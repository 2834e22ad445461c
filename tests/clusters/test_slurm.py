"""Slurm: the scheduler's kit, and what is Slurm's own, on a real slurmctld with two nodes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import heron_scheduler
import psutil
import pytest
from heron_scheduler import ContainerPhase
from scheduler_kit import RESTART_S, Cluster, SchedulerKit, differ

from heronpy.runtime import Launch
from heronpy.testing import eventually_sync
from heronpy.testing.slurm import SlurmCluster, slurm_missing

WATCH_S = 5
"""How often jobs look after one another."""


class Slurm(Cluster):
    name = "slurm"

    def __init__(self, root: Path, slurm: SlurmCluster) -> None:
        super().__init__(root)
        self.slurm = slurm

    @property
    def config(self) -> Mapping[str, Any]:
        return {
            "heron.scheduler.slurm.directory": f"{self.slurm.directory}/$SLURMD_NODENAME/tmp",
        }

    @property
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        key = "heron.scheduler.slurm."
        return [
            ("an unknown partition", {f"{key}partition": "nowhere"}, rf"nowhere.*; set {key}partition"),
            ("a partition of others", {f"{key}partition": "closed"}, rf"closed.*; set {key}account"),
            (
                "too long for the partition",
                {f"{key}partition": "short", f"{key}time": "10:00"},
                rf"Partition(TimeLimit|Config).*; set .*{key}time",
            ),
            (
                "more memory than a node has",
                {f"{key}sbatch": ["--mem=900G"]},
                r"[Mm]emory.*; see topology\.container\.ram",
            ),
            ("an unknown constraint", {f"{key}sbatch": ["--constraint=marble"]}, rf"feature.*; see .*{key}sbatch"),
            ("an option that is none", {f"{key}sbatch": ["--bogus"]}, rf"bogus.*; see {key}sbatch"),
            ("a misspelt key", {f"{key}partitoin": "p"}, "did you mean 'heron.scheduler.slurm.partition'"),
        ]

    @property
    def directory(self) -> Path:
        return self.slurm.directory

    def shown(self) -> str:
        return self.slurm.run("scontrol", "show", "job") + self.slurm.run("squeue", "--format=%all")

    def left(self, launch: Launch) -> list[str]:
        names = self.slurm.run("squeue", "--noheader", "--format=%j").split()
        files = [str(path) for node in self.slurm.hosts for path in self.slurm.host_dir(node).glob("*")]
        return [name for name in names if launch.topology_id in name] + files

    def lose_host(self, host: str) -> None:
        self.slurm.vanish(host)

    def hung(self) -> contextlib.AbstractContextManager[None]:
        return self.slurm.hung("slurmctld")

    def heal_host(self, host: str) -> None:
        self.slurm.start_host(host)
        self.slurm.wait_up(host)

    def environment(self) -> dict[str, str]:
        return self.slurm.env


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if why := slurm_missing():
        pytest.skip(why)
    with SlurmCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    return Slurm(tmp_path, slurm)


class TestSlurm(SchedulerKit):
    """The kit."""

    def test_jobs_are_sized_by_the_packing_plan(self, cluster: Slurm, launch: Launch) -> None:
        sizes = dict(line.split() for line in cluster.slurm.run("squeue", "-h", "--format=%j %C|%m").splitlines())
        name = f"heron.{launch.topology_id}."
        assert sizes == {f"{name}0": "1|200M", f"{name}1": "1|600M", f"{name}2": "1|600M"}

    def test_containers_run_on_the_nodes_of_their_constraint_alone(self, cluster: Slurm) -> None:
        launch = cluster.submit("a", **{"heron.scheduler.slurm.sbatch": ["--constraint=on-n2"]})
        cluster.wait_for(launch, 0, 1, 2)
        assert {one.host for one in heron_scheduler.containers(launch)} == {"n2"}
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_a_job_script_is_shown_to_its_owner_alone_and_the_bootstrap_file_is_only_there(
        self, cluster: Slurm, launch: Launch
    ) -> None:
        token = launch.token().encode()
        readable = [
            path
            for path in cluster.slurm.directory.rglob("*")
            if path.is_file() and path.stat().st_mode & 0o077 and token in path.read_bytes()
        ]
        assert readable == []

    @pytest.mark.parametrize("container", [0, 2])
    def test_a_job_that_was_killed_as_a_whole_is_submitted_again(self, cluster: Slurm, container: int) -> None:
        launch = cluster.submit("a", **{"heron.scheduler.slurm.sbatch": ["--nodelist=n1"]})
        before = cluster.wait_for(launch, 0, 1, 2)
        script = psutil.Process(before[container].pid).parent()
        assert script is not None
        began_s = time.monotonic()
        for process in (script, *script.children(recursive=True)):
            process.kill()
        eventually_sync(lambda: differ(cluster.running(launch), before, {container}), within_s=RESTART_S)
        print(f"slurm: a killed job was back after {time.monotonic() - began_s:.1f} s")
        after = cluster.running(launch)
        time.sleep(2 * WATCH_S)  # nobody submits it once more
        assert cluster.running(launch) == after
        assert len([*cluster.slurm.host_dir("n1").iterdir()]) == 3, "what it left on its node is removed"
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_a_container_that_fails_on_its_host_says_why(self, cluster: Slurm, launch: Launch) -> None:
        (cluster.reports / "fails-1").write_text("heron: this host has Python 3.2")
        os.kill(cluster.running(launch)[1].pid, 9)

        def failed() -> None:
            told = {one.container: one for one in heron_scheduler.containers(launch)}
            assert told[1].phase is ContainerPhase.FAILED
            assert told[1].reason.endswith("heron: this host has Python 3.2")

        eventually_sync(failed, within_s=90)

    def test_the_end_of_a_jobs_time_is_an_end_in_order_and_a_new_run(self, cluster: Slurm) -> None:
        properties = {"heron.scheduler.slurm.time": "1", "heron.scheduler.slurm.walltime.grace.secs": 40}
        launch = cluster.submit("a", **properties)
        before = cluster.wait_for(launch, 0, 1, 2)
        eventually_sync(lambda: differ(cluster.running(launch), before, {0, 1, 2}), within_s=120)
        ended = [report.ended for report in cluster.said(launch) if not report.alive]
        assert ended == ["in order"] * 3
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)
