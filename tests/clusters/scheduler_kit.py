"""What every scheduler must do, as tests, each against its real cluster.

    class TestMine(SchedulerKit):
        @pytest.fixture
        def cluster(self, tmp_path) -> Iterator[Cluster]: ...

Containers are stand-ins (`standin_container.py`), which the cluster starts as it would start the real ones: so these
tests are of the scheduler alone; the local scheduler has real ones. That real topologies run on a cluster is tested
beside each kit.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import heron_scheduler
import pytest
import yaml
from heron_scheduler import ContainerPhase
from kit_topology import KitTopology

from heronpy import loader
from heronpy.errors import HeronError, NotFoundError
from heronpy.packing import RoundRobinPacking
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import find, kill, listed, plans, restart, submit
from heronpy.testing import eventually_sync
from heronpy.testing.servers import free_port

WITHIN_S = 240.0
"""How long something may take that has no bound of its own."""
RESTART_S = 300.0
"""In which a container is back, once the cluster's API has reported the loss. On a quiet machine less than 15 s: it is
printed, and on the page of each cluster."""
REFUSED_S = 120.0
"""In which a submission is refused and undone. On a quiet machine it takes seconds: it is printed."""
NAME = KitTopology.__name__


@dataclass(frozen=True, slots=True)
class Report:
    """What a stand-in has said of itself."""

    container: int
    pid: int
    bootstrap: dict[str, Any] = field(repr=False)
    mode: int
    workdir: str
    address: str
    node: str
    ended: str

    @property
    def alive(self) -> bool:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes()
            return b"standin_container" in command or b"heronpy.executor" in command
        return False


class Cluster(ABC):
    """A cluster under test, and machines from which it is commanded: HERON_HOMEs below `root`."""

    name: str
    """Of the cluster in the configuration, and of its scheduler."""
    can_lose_hosts = True
    hosts_differ = True
    """Whether commands need nothing of the machine that submitted."""
    stand_ins = True
    """Whether containers are stand-ins; else they are real ones, of which less is known."""

    asked: Sequence[str] = ("update", "restart", "status", "kill")
    """The commands that ask the cluster itself, and so cannot do without it."""

    more: Mapping[str, Any] = MappingProxyType({})
    """Keys that a test adds to the cluster's configuration."""
    others = stat.S_IRWXG | stat.S_IRWXO
    """The permissions that a private file, or a directory above it, must not give."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reports = root / "reports"
        self.reports.mkdir()
        here = Path(__file__).parent / "standin_container.py"
        python = root / "standin/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {here} {self.reports} "$@"\n')
        python.chmod(0o755)

    @property
    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """The keys of the cluster's configuration that differ from those of any other."""

    @property
    @abstractmethod
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        """What it refuses: a name for the case, properties of the submission, and what the error must say."""

    @property
    def directory(self) -> Path:
        """Where the cluster and its hosts have their files."""
        raise NotImplementedError

    def shown(self) -> str:
        """What its own commands and pages show of what runs."""
        raise NotImplementedError

    def secrets(self, file: Path) -> dict[str, str]:
        """Secrets of user code with the value that is in the file, in all ways that the cluster has."""
        return {"db": f"file:{file}"}

    @abstractmethod
    def left(self, launch: Launch) -> list[str]:
        """What the cluster has of a topology: jobs, secrets, files on its hosts."""

    def lose_host(self, host: str) -> None:
        """End all processes of a host at once, and those of the cluster there."""
        raise NotImplementedError

    def heal_host(self, host: str) -> None:
        """Have the host take containers again."""
        raise NotImplementedError

    def hung(self) -> contextlib.AbstractContextManager[None]:
        """Have the cluster take connections and answer nothing, for the duration of a block."""
        pytest.skip(f"{self.name}: it has no master that could hang")

    def update(self, launch: Launch, old: PackingPlan, new: PackingPlan) -> None:
        """What of an update is the scheduler's."""
        heron_scheduler.update(launch, old, new)

    def environment(self) -> dict[str, str]:
        """What commands need in their environment to reach the cluster."""
        return {}

    @property
    def conf(self) -> Path:
        """The directory of the clusters' configuration."""
        path = self.root / "conf" / self.name
        if not path.exists():
            path.mkdir(parents=True)
            values = {
                "heron.class.scheduler": self.name,
                "heron.package.python": f"venv:{self.root}/standin",
                "heron.statemgr.root.path": str(self.root / "state"),
                "heron.executor.stop.timeout.ms": 2000,
                "heron.submit.wait.secs": 0 if self.stand_ins else 20,
                "topology.stmgrs": 2,
                **self.config,
                **self.more,
            }
            (path / "cluster.yaml").write_text(yaml.safe_dump(values))
        return path.parent

    @property
    def statemgr(self) -> StatemgrSpec:
        """The state manager of its topologies."""
        return StatemgrSpec(root=str(self.root / "state"))

    def machine(self, name: str) -> Path:
        return self.root / f"machine-{name}"

    def submit(self, machine: str = "a", **properties: Any) -> Launch:
        return submit(
            loader.Definition.of(KitTopology),
            cluster=self.name,
            role="me",
            home=self.machine(machine),
            config_path=self.conf,
            properties=properties,
        )

    def heron(self, machine: str, *words: str, python: str | Path = sys.executable) -> subprocess.CompletedProcess[str]:
        """A command on a machine, in a working directory of its own."""
        cwd = self.root / f"cwd-{machine}"
        cwd.mkdir(exist_ok=True)
        return subprocess.run(
            [python, "-m", "heronpy.cli", words[0], "--config-path", str(self.conf), *words[1:]],
            cwd=cwd,
            env={**os.environ, **self.environment(), "HERON_HOME": str(self.machine(machine))},
            capture_output=True,
            text=True,
            timeout=1200,
        )

    def said(self, launch: Launch) -> list[Report]:
        """All reports of a topology's containers, those of the dead included."""
        paths = (self.reports / launch.topology_id).glob("*.json")
        return [Report(**json.loads(path.read_text())) for path in paths]

    def running_of_any(self) -> list[int]:
        """The pids of all containers that run."""
        found = [Report(**json.loads(path.read_text())) for path in self.reports.glob("*/*.json")]
        return [report.pid for report in found if report.alive]

    def running(self, launch: Launch) -> dict[int, Report]:
        """The containers that run, by number; none of them twice."""
        alive = [report for report in self.said(launch) if report.alive]
        found = {report.container: report for report in alive}
        assert len(found) == len(alive), f"a container runs twice: {alive}"
        return found

    def wait_for(self, launch: Launch, *containers: int, within_s: float = WITHIN_S) -> dict[int, Report]:
        """Return when exactly these containers run."""

        def check() -> dict[int, Report]:
            found = self.running(launch)
            assert sorted(found) == sorted(containers), self.told(launch)
            return found

        return eventually_sync(check, within_s=within_s)

    def told(self, launch: Launch) -> list[str]:
        """What the cluster says, in words."""
        return [
            f"{one.container} {one.phase.value} {one.host} {one.reason}" for one in heron_scheduler.containers(launch)
        ]

    def nothing_left(self, launch: Launch) -> None:
        """Fail unless the topology left no trace."""
        assert self.running(launch) == {}
        assert self.left(launch) == []
        assert heron_scheduler.containers(launch) == []
        assert self.state_left(launch.statemgr) == []

    def state_left(self, spec: StatemgrSpec) -> list[str]:
        """What the state manager has of any topology, but for locks, which are their holders', and tombstones."""
        stay = (Kind.LOCKS, Kind.TOMBSTONES)
        with open_statemgr(spec) as state:
            return [f"{kind.value}/{name}" for kind in Kind if kind not in stay for name in state.list(kind)]


class SchedulerKit:
    """The tests."""

    @pytest.fixture
    def launch(self, cluster: Cluster) -> Iterator[Launch]:
        """A topology that runs in containers 0 to 2."""
        launch = cluster.submit()
        try:
            cluster.wait_for(launch, 0, 1, 2)
            yield launch
        finally:  # else it has the cluster's cores, which the other tests need
            heron_scheduler.kill(launch)

    def test_each_container_is_given_its_own_bootstrap_file_privately(self, cluster: Cluster, launch: Launch) -> None:
        needs_stand_ins(cluster)
        token = launch.token()
        for n, report in cluster.running(launch).items():
            assert report.bootstrap["container"] == n
            assert report.bootstrap["launch"]["topology_id"] == launch.topology_id
            assert report.bootstrap["files"]["token"].strip() == token
            assert ("tls/authority/ca-key.pem" in report.bootstrap["files"]) == (n == 0)
            assert report.mode & (stat.S_IRWXG | stat.S_IRWXO) == 0
            assert report.address
            for name in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{report.pid}/{name}").read_bytes()

    def test_the_cluster_tells_where_each_container_runs(self, cluster: Cluster, launch: Launch) -> None:
        told = heron_scheduler.containers(launch)
        assert [(one.container, one.phase) for one in told] == [(n, ContainerPhase.RUNNING) for n in (0, 1, 2)]
        assert all(one.host and one.job for one in told)

    def test_a_killed_container_is_started_again_and_no_other(self, cluster: Cluster, launch: Launch) -> None:
        before = cluster.running(launch)
        os.kill(before[1].pid, signal.SIGKILL)

        def back() -> dict[int, Report]:
            found = cluster.running(launch)
            assert found.keys() == {0, 1, 2}
            assert found[1].pid != before[1].pid
            return found

        began_s = time.monotonic()
        after = eventually_sync(back, within_s=RESTART_S)
        print(f"{cluster.name}: a killed container was back after {time.monotonic() - began_s:.1f} s")
        assert (after[0].pid, after[2].pid) == (before[0].pid, before[2].pid)

    def test_a_container_that_asks_for_it_is_started_again(self, cluster: Cluster, launch: Launch) -> None:
        needs_stand_ins(cluster)
        before = cluster.running(launch)
        (cluster.reports / "exit-2").write_text("75")
        eventually_sync(lambda: differ(cluster.running(launch), before, {2}), within_s=RESTART_S)

    def test_an_update_starts_and_ends_containers_and_leaves_others_alone(
        self, cluster: Cluster, launch: Launch
    ) -> None:
        before = cluster.running(launch)
        logical, two = plans(launch)
        three = RoundRobinPacking(logical).repack(two, {}, containers=3)
        one = RoundRobinPacking(logical).repack(two, {}, containers=1)
        (kept,) = (container.id for container in one.containers)
        cluster.update(launch, two, three)
        more = cluster.wait_for(launch, 0, 1, 2, 3)
        assert all(more[n].pid == before[n].pid for n in (0, 1, 2))
        cluster.update(launch, three, three)  # a repetition changes nothing
        assert {n: report.pid for n, report in cluster.running(launch).items()} == {n: r.pid for n, r in more.items()}
        cluster.update(launch, three, one)
        less = cluster.wait_for(launch, 0, kept)
        assert all(less[n].pid == before[n].pid for n in less)
        ended = {report.container: report.ended for report in cluster.said(launch) if not report.alive}
        assert not cluster.stand_ins or set(ended.values()) == {"in order"}, ended

    def test_one_container_is_restarted_and_no_other(self, cluster: Cluster, launch: Launch) -> None:
        before = cluster.running(launch)
        restart(launch, 1)
        eventually_sync(lambda: differ(cluster.running(launch), before, {1}), within_s=WITHIN_S)
        ended = [report.ended for report in cluster.said(launch) if report.pid == before[1].pid]
        assert ended == (["in order"] if cluster.stand_ins else [])
        with pytest.raises(NotFoundError):
            restart(launch, 7)

    def test_a_kill_ends_containers_in_order_and_leaves_nothing(self, cluster: Cluster, launch: Launch) -> None:
        began_s = time.monotonic()
        kill(launch)
        print(f"{cluster.name}: killed in {time.monotonic() - began_s:.1f} s")
        assert {report.ended for report in cluster.said(launch)} == ({"in order"} if cluster.stand_ins else set())
        cluster.nothing_left(launch)
        assert not launch.dir.exists()
        kill(launch)  # safe to repeat

    def test_a_topology_is_commanded_from_another_machine(self, cluster: Cluster, launch: Launch) -> None:
        if not cluster.hosts_differ:
            pytest.skip(f"{cluster.name}: it has one machine")
        where = f"{cluster.name}/me/default"
        shown = cluster.heron("b", "topologies", cluster.name)
        assert shown.stdout.split() == [NAME, where], shown.stderr
        before = cluster.running(launch)
        done = cluster.heron("b", "restart", where, NAME, "2")
        assert done.returncode == 0, done.stderr
        eventually_sync(lambda: differ(cluster.running(launch), before, {2}), within_s=WITHIN_S)
        copy = find(cluster.machine("b"), cluster.name, "me", "default", NAME, config_path=cluster.conf)
        assert copy.token() == launch.token()
        began_s = time.monotonic()
        done = cluster.heron("b", "kill", where, NAME)
        assert (done.returncode, done.stdout) == (0, f"killed {NAME}\n"), done.stderr
        print(f"{cluster.name}: killed from another machine in {time.monotonic() - began_s:.1f} s")
        cluster.nothing_left(launch)
        assert listed(cluster.machine("a"), cluster.name, config_path=cluster.conf) == []
        again = cluster.submit("a")
        cluster.wait_for(again, 0, 1, 2)
        heron_scheduler.kill(again)
        cluster.nothing_left(again)

    def test_containers_of_a_lost_host_come_back_elsewhere(self, cluster: Cluster, launch: Launch) -> None:
        if not cluster.can_lose_hosts:
            pytest.skip(f"{cluster.name}: it has one machine")
        before = cluster.running(launch)
        hosts = {one.container: one.host for one in heron_scheduler.containers(launch)}
        lost = {n for n, host in hosts.items() if host == hosts[1]}
        began_s = time.monotonic()
        cluster.lose_host(hosts[1])

        def reported() -> None:
            now = {one.container: one for one in heron_scheduler.containers(launch)}
            for n in lost:
                assert n not in now or now[n].phase is not ContainerPhase.RUNNING or now[n].host != hosts[1]

        try:
            eventually_sync(reported, within_s=120)
            reported_s = time.monotonic()
            eventually_sync(lambda: differ(cluster.running(launch), before, lost), within_s=RESTART_S)
            print(
                f"{cluster.name}: loss of a host reported after {reported_s - began_s:.1f} s, its containers "
                f"{sorted(lost)} back {time.monotonic() - reported_s:.1f} s later"
            )
        finally:
            cluster.heal_host(hosts[1])

    def test_what_the_cluster_refuses_leaves_nothing(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        nowhere = f"127.0.0.1:{free_port()}"
        store = {"heron.uploader.url": f"s3://packages/heron?endpoint=http://{nowhere}&region=us-east-1"}
        for case, properties, why in (*cluster.refused, ("a store of packages that is away", store, nowhere)):
            began_s = time.monotonic()
            with pytest.raises(HeronError, match=why) as refusal:
                cluster.submit("a", **properties)
            assert "\n" not in str(refusal.value), case
            # What to do about it: the key that says otherwise, or whom to ask.
            assert re.search(r"\b(heron|topology)\.[a-z]+\.[a-z.]+|rbac\.yaml", str(refusal.value)), refusal.value
            assert time.monotonic() - began_s < REFUSED_S, case
            print(f"{cluster.name}: {case} was refused in {time.monotonic() - began_s:.1f} s: {refusal.value}")
            assert [path.name for path in cluster.machine("a").rglob("launch.json")] == [], case
            assert cluster.state_left(cluster.statemgr) == [], case

    def test_a_host_that_cannot_run_its_container_ends_the_submission(self, cluster: Cluster) -> None:
        needs_stand_ins(cluster)
        words = "heron: container 1: this host has heronpy 9.1 and Python 3.2: install these here"
        (cluster.reports / "unusable-1").write_text(words)
        nowhere = {"heron.package.python": "venv:/nowhere"}
        for case, properties, why in (("another version", {}, "Python 3.2"), ("no Python", nowhere, "/nowhere")):
            began_s = time.monotonic()
            with pytest.raises(HeronError, match=rf"container \d cannot run: .*{why}") as refusal:
                cluster.submit("a", **{"heron.submit.wait.secs": REFUSED_S}, **properties)
            print(f"{cluster.name}: {case} was refused in {time.monotonic() - began_s:.1f} s: {refusal.value}")
            assert "\n" not in str(refusal.value)
            assert [path.name for path in cluster.machine("a").rglob("launch.json")] == []
            assert cluster.state_left(cluster.statemgr) == []
            eventually_sync(lambda: equal(sorted(cluster.running_of_any()), []), within_s=WITHIN_S)

    def test_a_container_that_asks_to_be_started_again_says_why_and_comes_up(self, cluster: Cluster) -> None:
        needs_stand_ins(cluster)
        words = cluster.reports / "retries-1"
        words.write_text("heron: container 1: no store of packages answers")
        began_s = time.monotonic()
        launch = cluster.submit("a")
        try:

            def told() -> None:
                found = {one.container: one for one in heron_scheduler.containers(launch)}
                assert "no store of packages answers" in found[1].reason
                assert found[1].phase in (ContainerPhase.PENDING, ContainerPhase.RUNNING)

            eventually_sync(told, within_s=WITHIN_S)
            print(f"{cluster.name}: why a container is retried was known after {time.monotonic() - began_s:.1f} s")
            words.unlink()
            cluster.wait_for(launch, 0, 1, 2, within_s=RESTART_S)
        finally:
            heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_a_cluster_that_hangs_is_named_by_what_is_submitted_which_leaves_nothing(self, cluster: Cluster) -> None:
        with cluster.hung():
            began_s = time.monotonic()
            with pytest.raises(HeronError) as refusal:
                cluster.submit("a")
            print(f"{cluster.name}: hangs: submit took {time.monotonic() - began_s:.1f} s: {refusal.value}")
            assert time.monotonic() - began_s < REFUSED_S
        assert "\n" not in str(refusal.value)
        assert "does not answer" in str(refusal.value)
        assert [path.name for path in cluster.machine("a").rglob("launch.json")] == []
        eventually_sync(lambda: equal(cluster.state_left(cluster.statemgr), []), within_s=WITHIN_S)
        launch = cluster.submit("a")  # nothing of the other one is in its way
        cluster.wait_for(launch, 0, 1, 2)
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_a_cluster_that_hangs_is_named_by_commands_and_what_runs_goes_on(
        self, cluster: Cluster, launch: Launch
    ) -> None:
        before = cluster.running(launch)
        with cluster.hung():
            for verb, more in (("update", ("--containers", "3")), ("restart", ("1",)), ("status", ())):
                if verb in cluster.asked:
                    refused(cluster, verb, *more)
            differ(cluster.running(launch), before, set())
            if "kill" in cluster.asked:
                refused(cluster, "kill")
            else:
                kill(launch)
        kill(launch)
        cluster.nothing_left(launch)

    def test_a_lost_container_is_started_by_the_next_command(self, cluster: Cluster, launch: Launch) -> None:
        needs_stand_ins(cluster)
        before = cluster.running(launch)
        (cluster.reports / "exit-1").write_text("0")  # on purpose, as one that was fenced off
        eventually_sync(lambda: equal(before[1].alive, False), within_s=WITHIN_S)
        with contextlib.suppress(AssertionError):
            eventually_sync(lambda: equal(len(heron_scheduler.containers(launch)), 2), within_s=5)
        heron_scheduler.revive(launch)  # where the cluster has done so by itself there is nothing to do
        eventually_sync(lambda: differ(cluster.running(launch), before, {1}), within_s=WITHIN_S)


def needs_stand_ins(cluster: Cluster) -> None:
    """Skip a test that is of what containers are given, or of how they end."""
    if not cluster.stand_ins:
        pytest.skip(f"{cluster.name}: its containers are real ones")


def refused(cluster: Cluster, verb: str, *more: str) -> None:
    """Fail unless a command says in one line, soon, that the cluster does not answer."""
    began_s = time.monotonic()
    done = cluster.heron("a", verb, f"{cluster.name}/me/default", NAME, *more)
    took_s = time.monotonic() - began_s
    print(f"{cluster.name}: hangs: {verb} took {took_s:.1f} s: {done.stderr.strip()}")
    assert done.returncode != 0, done.stdout
    assert done.stderr.count("heron: ") == 1, done.stderr
    assert "does not answer" in done.stdout + done.stderr
    assert took_s < REFUSED_S


def differ(now: Mapping[int, Report], before: Mapping[int, Report], changed: set[int]) -> None:
    """Fail unless just these containers run as other processes than before."""
    assert now.keys() == before.keys()
    assert {n for n in now if now[n].pid != before[n].pid} == changed


def equal(one: object, other: object) -> None:
    assert one == other
