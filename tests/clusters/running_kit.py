"""What every cluster must do with real containers, as tests: commands come from two machines, and counts are exact.

class TestMine(RunningKit):
    @pytest.fixture(scope="class")
    def servers(self) -> Iterator[MyCluster]: ...

    @pytest.fixture
    def cluster(self, servers, zookeeper, tmp_path) -> Cluster:
        return with_real_containers(Mine(tmp_path, servers), zookeeper)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import heron_scheduler
import psutil
import pytest
from heron_tracker import StateManagerConfig
from scheduler_kit import Cluster
from versioned_topology import KEYS as VERSIONED_KEYS
from versioned_topology import counts_in as counted_by_version
from versioned_topology import program, versions_in

from heronpy import loader
from heronpy.errors import UnavailableError
from heronpy.host import CONTAINER_ENV, EXECUTOR, PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import find, submit
from heronpy.testing import TopologyHandle, eventually, eventually_sync
from heronpy.testing.servers import ZookeeperServer

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from keyed_count_topology import KEYS, counts_in, keyed_count_topology
from test_tracker_state_managers import told, tracking

WITHIN_S = 600.0
"""Long, because only a failure takes it: each container of a busy machine may need minutes to start."""
SECRET = "Swordfish-1234"


def with_real_containers(cluster: Cluster, zookeeper: ZookeeperServer) -> Cluster:
    """The same cluster, with this Python on its hosts, ZooKeeper, and a directory for packages and checkpoints."""
    cluster.more = {
        "heron.network.bind.address": "0.0.0.0",
        "heron.package.python": f"venv:{sys.prefix}",
        "heron.class.state.manager": "zookeeper",
        "heron.statemgr.connection.string": zookeeper.connection,
        "heron.statemgr.root.path": f"/{cluster.root.name}",
        **stores(cluster),
    }
    return cluster


def stores(cluster: Cluster) -> dict[str, object]:
    """Where packages and checkpoints are, and times that are short."""
    return {
        "heron.uploader.url": str(cluster.root / "packages"),
        "heron.statefulstorage.url": str(cluster.root / "checkpoints"),
        "heron.metrics.export.interval.ms": 1000,
        "heron.executor.stop.timeout.ms": 5000,
        "heron.submit.wait.secs": 20,
    }


@dataclass
class Running:
    """A topology, and where it writes what it counts."""

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
        done = self.cluster.heron("b", words[0], f"{self.cluster.name}/me/default", self.launch.topology, *words[1:])
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

    def nothing_left(self) -> None:
        eventually_sync(lambda: equal(self.cluster.left(self.launch), []), within_s=WITHIN_S)
        mark = {TOPOLOGY_ENV: self.launch.topology_id}
        eventually_sync(lambda: equal([*find_by_environment(mark)], []), within_s=WITHIN_S)
        for name in ("packages", "checkpoints"):
            assert [path for path in (self.cluster.root / name).rglob("*") if path.is_file()] == []


class RunningKit:
    """The tests."""

    pytestmark = pytest.mark.timeout(3600)
    """Each is a long story; what hangs in it is found after `WITHIN_S`."""

    def more_faults(self, running: Running) -> None:
        """Faults that only this cluster knows."""

    def test_new_code_is_healthy_or_rolled_back_and_a_secret_is_shown_nowhere(self, cluster: Cluster) -> None:
        shared, file = cluster.root / "shared", cluster.root / "elsewhere"
        shared.mkdir()
        file.touch(mode=0o600)
        file.write_text(SECRET)
        secrets = cluster.secrets(file)
        paths = [str(program(shared, version, stateful=True, secrets=[*secrets])) for version in (1, 2, 3)]
        where = (f"{cluster.name}/me/default", "versioned")
        given = [word for name, reference in secrets.items() for word in ("--secret", f"{name}={reference}")]
        began_s = time.monotonic()
        done = cluster.heron("a", "submit", where[0], *given, paths[0], "-")
        assert done.returncode == 0, done.stderr
        launch = find(cluster.machine("a"), cluster.name, "me", "default", "versioned", config_path=cluster.conf)
        running = Running(cluster, launch, shared)
        try:
            runs_version(running, 1, secrets)
            print(f"\n{cluster.name}: counts {time.monotonic() - began_s:.1f} s after the beginning of the submission")
            for machine, version in (("a", 2), ("b", 3)):
                began_s = time.monotonic()
                options = ("--code", paths[version - 1], "--timeout", f"{WITHIN_S:g}")
                done = cluster.heron(machine, "update", *where, *options)
                took_s = time.monotonic() - began_s
                print(f"{cluster.name}: heron update --code {version} from machine {machine} took {took_s:.1f} s")
                assert (done.returncode == 0) == (version == 2), done.stderr + done.stdout
                runs_version(running, 2, secrets)
            assert re.search("is rolled back: .*version 3 fails at once", done.stderr), done.stderr
            assert_hidden(running, cluster.heron("b", "status", *where, "--config").stdout)
            (shared / "finish").touch()
            eventually_sync(lambda: all_counted(shared), within_s=WITHIN_S)
            running.heron("kill")
            running.nothing_left()
        finally:
            heron_scheduler.kill(launch)

    def test_a_topology_is_exact_through_faults_and_updates_and_leaves_nothing(self, cluster: Cluster) -> None:
        shared = cluster.root / "shared"
        shared.mkdir()
        began_s = time.monotonic()
        definition = loader.Definition.of(keyed_count_topology(shared, rate=300))
        home = cluster.machine("a")
        launch = submit(definition, cluster=cluster.name, role="me", home=home, config_path=cluster.conf)
        print(f"\n{cluster.name}: submitted in {time.monotonic() - began_s:.1f} s")
        running = Running(cluster, launch, shared)
        try:
            running.wait_ready()
            running.wait_for_progress()
            print(f"{cluster.name}: counts {time.monotonic() - began_s:.1f} s after the beginning of the submission")
            eventually_sync(lambda: contains(running.heron("status"), "3 of 3 containers run"), within_s=WITHIN_S)
            for container in (0, 1, 2):
                contains(running.heron("logs", f"executor-{container}"), "INFO")
            for container in (1, 0):
                what = f"executor of container {container} killed"
                running.recovers_from(what, lambda n=container: running.executor(n).send(signal.SIGKILL))
            self.more_faults(running)
            running.recovers_from("a container added", lambda: running.heron("update", "--containers", "3"))
            assert len(heron_scheduler.containers(launch)) == 4
            running.recovers_from("a container removed", lambda: running.heron("update", "--containers", "2"))
            assert len(heron_scheduler.containers(launch)) == 3
            (host,) = [one.host for one in heron_scheduler.containers(launch) if one.container == 1]
            try:
                running.recovers_from("a host lost", lambda: cluster.lose_host(host))
                running.check_exact()
                running.heron("kill")
                running.nothing_left()
            finally:
                cluster.heal_host(host)
        finally:
            heron_scheduler.kill(launch)


def runs_version(running: Running, version: int, secrets: dict[str, str]) -> None:
    """Wait until tasks of this version count, and until it has read the secrets."""
    for path in running.shared.glob("counts-*.json"):
        path.unlink()

    def check() -> None:
        assert versions_in(running.shared) == [version, version], running.cluster.told(running.launch)
        for name in secrets:
            digest = running.shared / f"digest-{name}-{version}"
            assert digest.exists()
            assert digest.read_text() == hashlib.sha256(SECRET.encode()).hexdigest()

    eventually_sync(check, within_s=WITHIN_S)
    running.wait_ready()


def all_counted(shared: Path) -> None:
    assert (shared / "emitted").exists()
    numbers = int((shared / "emitted").read_text())
    found = {key: sum(counts) for key, counts in counted_by_version(shared).items()}
    assert found == {f"key {key}": numbers // VERSIONED_KEYS for key in range(VERSIONED_KEYS)}
    by_version = [sum(counts[n] for counts in counted_by_version(shared).values()) for n in range(3)]
    assert (by_version[0] > 0, by_version[1] > 0, by_version[2]) == (True, True, 0)


def assert_hidden(running: Running, status: str) -> None:
    """Fail if the secret is where it is not meant to be: it may be in private files, but logs."""
    cluster, launch, secret = running.cluster, running.launch, SECRET.encode()
    shown = status + cluster.shown() + asyncio.run(tracker_shows(launch))
    assert SECRET not in shown
    with open_statemgr(launch.statemgr) as state:
        for kind in Kind:
            for node in state.list(kind):
                assert secret not in (state.get(kind, node) or b""), f"{kind.value}/{node}"
    for process in psutil.process_iter():
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                assert secret not in Path(f"/proc/{process.pid}/{name}").read_bytes(), process
    logged = found = 0
    for root in (cluster.root, cluster.directory):
        for path in root.rglob("*"):
            with contextlib.suppress(OSError):  # it is gone
                if not path.is_file():
                    continue
                content = path.read_bytes()
                logged += path.suffix == ".log" and b"the password is ********" in content
                if secret not in content:
                    continue
                found += 1
                below = path.relative_to(root)
                assert path.suffix not in (".log", ".out"), path
                assert path.name not in ("stdout", "stderr"), path
                assert below.parts[0] not in ("packages", "checkpoints", "shared"), path
                places = [root / one for one in (below, *below.parents) if one.parts]
                assert any(not stat.S_IMODE(place.stat().st_mode) & cluster.others for place in places), path
    assert logged, "no log has what user code has logged"
    assert found, "the secret is nowhere: this looks in the wrong places"


async def tracker_shows(launch: Launch) -> str:
    """What a Tracker, and so its UI, answers about a topology."""
    query = {"cluster": launch.cluster, "role": "me", "environ": "default", "topology": launch.topology}
    pages = ("info", "config", "logicalplan", "physicalplan", "packingplan", "executionstate", "metadata")
    path = f"/topologies/{launch.cluster}/me/default/{launch.topology}"
    shown = []
    async with tracking(StateManagerConfig(launch.cluster, launch.statemgr)) as tracker:

        async def page_text(page: str, query: dict[str, str]) -> str:
            answer = await tracker.get(page, params=query)
            told(answer)
            return answer.text

        for page in pages:
            shown.append(await eventually(partial(page_text, f"/topologies/{page}", query), within_s=WITHIN_S))
        for page in ("effectiveconfig", "summary"):
            shown.append(await eventually(partial(page_text, f"{path}/{page}", {}), within_s=WITHIN_S))
        for container in ("0", "1"):
            place = {**query, "container": container}
            listed = await eventually(partial(page_text, "/topologies/container/filestats", place), within_s=WITHIN_S)
            logs = [name for name in json.loads(listed) if name.endswith((".log", ".out"))]
            assert any("executor" in name for name in logs), listed
            for name in logs:
                file = {**place, "path": name, "length": str(1 << 20)}
                shown.append(await page_text("/topologies/container/filedata", file))
    return "".join(shown)


def equal(one: object, other: object) -> None:
    assert one == other


def contains(text: str, part: str) -> None:
    assert part in text, text
