"""A topology with state on a real Slurm: exact through lost containers, a lost node and updates, from two machines."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import heron_scheduler
import pytest
from scheduler_kit import Cluster
from test_slurm import Slurm

from heronpy import loader
from heronpy.errors import UnavailableError
from heronpy.host import CONTAINER_ENV, EXECUTOR, PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.runtime import Launch
from heronpy.submit import submit
from heronpy.testing import TopologyHandle, eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing
from heronpy.testing.slurm import SlurmCluster, slurm_missing

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from keyed_count_topology import KEYS, counts_in, keyed_count_topology

WITHIN_S = 120.0
NAME = "keyed-count"


class RealSlurm(Slurm):
    """The same cluster, with this Python on its nodes, ZooKeeper, and a directory for packages and checkpoints."""

    def __init__(self, root: Path, slurm: SlurmCluster, zookeeper: ZookeeperServer) -> None:
        super().__init__(root, slurm)
        self.zookeeper = zookeeper

    @property
    def config(self) -> dict[str, object]:
        return {
            **super().config,
            "heron.package.python": f"venv:{sys.prefix}",
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": self.zookeeper.connection,
            "heron.statemgr.root.path": "/heron",
            "heron.uploader.url": str(self.root / "packages"),
            "heron.statefulstorage.url": str(self.root / "checkpoints"),
            "heron.metrics.export.interval.ms": 1000,
            "heron.executor.stop.timeout.ms": 5000,
        }


@dataclass
class Running:
    """The topology, and what it writes."""

    cluster: Cluster
    launch: Launch
    shared: Path

    def wait_ready(self) -> None:
        def check() -> None:
            try:
                status = TopologyHandle(self.launch).status()
            except UnavailableError as e:
                raise AssertionError(f"{e}; {self.cluster.told(self.launch)}") from e
            assert status.ready, [i.id for i in status.instances if not i.attached]

        eventually_sync(check, within_s=WITHIN_S)

    def wait_for_progress(self) -> None:
        before = sum(counts_in(self.shared).values())

        def check() -> None:
            assert sum(counts_in(self.shared).values()) > before

        eventually_sync(check, within_s=WITHIN_S)

    def recovers_from(self, what: str, fault: Callable[[], object]) -> None:
        """Wait until it counts again after a fault, and print how long that took."""
        self.wait_for_progress()
        began_s = time.monotonic()
        fault()
        time.sleep(1.0)  # what was counted just before is no progress
        self.wait_for_progress()
        self.wait_ready()
        print(f"{self.cluster.name}: {what}: counts again after {time.monotonic() - began_s:.1f} s")

    def executor(self, container: int) -> HostProcess:
        mark = {TOPOLOGY_ENV: self.launch.topology_id, PROCESS_ENV: EXECUTOR, CONTAINER_ENV: str(container)}
        return min((process for process, _ in find_by_environment(mark)), key=lambda one: one.start_ticks)

    def heron(self, *words: str) -> str:
        """A command on a machine that has nothing of the topology."""
        began_s = time.monotonic()
        done = self.cluster.heron("b", words[0], f"{self.cluster.name}/me/default", NAME, *words[1:])
        assert done.returncode == 0, done.stderr
        print(
            f"{self.cluster.name}: heron {' '.join(words)} from another machine took {time.monotonic() - began_s:.1f} s"
        )
        return done.stdout

    def check_exact(self) -> None:
        """End the input, and compare what was counted with what was emitted."""
        (self.shared / "finish").touch()

        def check() -> None:
            numbers = int((self.shared / "emitted").read_text()) if (self.shared / "emitted").exists() else 0
            counts = counts_in(self.shared)
            assert numbers
            assert sum(counts.values()) == numbers
            assert set(counts.values()) == {numbers // KEYS}

        eventually_sync(check, within_s=WITHIN_S)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    for why in (slurm_missing(), zookeeper_missing()):
        if why:
            pytest.skip(why)
    with SlurmCluster() as slurm, ZookeeperServer(tmp_path / "zookeeper") as zookeeper:
        for name, value in slurm.env.items():
            monkeypatch.setenv(name, value)
        cluster, shared = RealSlurm(tmp_path, slurm, zookeeper), tmp_path / "shared"
        shared.mkdir()
        began_s = time.monotonic()
        launch = submit(
            loader.Definition.of(keyed_count_topology(shared, rate=300)),
            cluster="slurm",
            role="me",
            home=cluster.machine("a"),
            config_path=cluster.conf,
        )
        print(f"\nslurm: submitted in {time.monotonic() - began_s:.1f} s")
        made = Running(cluster, launch, shared)
        try:
            made.wait_ready()
            made.wait_for_progress()
            print(f"slurm: counts {time.monotonic() - began_s:.1f} s after the beginning of the submission")
            yield made
        finally:
            heron_scheduler.kill(launch)


def test_a_topology_is_exact_through_faults_and_updates_and_leaves_nothing(running: Running) -> None:
    assert "scheduler slurm: 3 of 3 containers run" in running.heron("status")
    for container in (1, 0):
        what = f"executor of container {container} killed"
        running.recovers_from(what, lambda n=container: running.executor(n).send(signal.SIGKILL))
    running.recovers_from("container 2 restarted", lambda: running.heron("restart", "2"))
    running.recovers_from("a container added", lambda: running.heron("update", "--containers", "3"))
    assert len(heron_scheduler.containers(running.launch)) == 4
    running.recovers_from("a container removed", lambda: running.heron("update", "--containers", "2"))
    assert len(heron_scheduler.containers(running.launch)) == 3
    hosts = {one.container: one.host for one in heron_scheduler.containers(running.launch)}
    running.recovers_from("a node lost", lambda: running.cluster.lose_host(hosts[1]))
    running.check_exact()
    running.heron("kill")
    assert running.cluster.left(running.launch) == []
    assert [*find_by_environment({TOPOLOGY_ENV: running.launch.topology_id})] == []
    assert [path for path in (running.cluster.root / "packages").rglob("*") if path.is_file()] == []
    assert [path for path in (running.cluster.root / "checkpoints").rglob("*") if path.is_file()] == []
