"""YARN: the scheduler's kit, and what is YARN's own, on a real ResourceManager with two NodeManagers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import heron_scheduler
import psutil
import pytest
from heron_scheduler import ContainerPhase
from scheduler_kit import REFUSED_S, RESTART_S, Cluster, SchedulerKit, differ

from heronpy.errors import HeronError
from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.servers import free_port
from heronpy.testing.yarn import YarnCluster, yarn_missing

KEY = "heron.scheduler.yarn."
WITHIN_S = 240.0
OVER = ("FINISHED", "FAILED", "KILLED")


class Yarn(Cluster):
    name = "yarn"
    asked = ("kill",)

    def __init__(self, root: Path, yarn: YarnCluster) -> None:
        super().__init__(root)
        self.yarn = yarn

    @property
    def config(self) -> Mapping[str, Any]:
        return {
            f"{KEY}resourcemanager": self.yarn.url,
            f"{KEY}python": sys.executable,
            f"{KEY}secrets": str(self.root / "secrets"),
        }

    @property
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        nobody = f"http://127.0.0.1:{free_port()}"
        return [
            ("no ResourceManager", {f"{KEY}resourcemanager": nobody}, f"{nobody} does not answer"),
            ("not one", {f"{KEY}resourcemanager": "yarn"}, "URL of a ResourceManager"),
            ("an unknown queue", {f"{KEY}queue": "nowhere"}, f"unknown queue.*; set {KEY}queue"),
            (
                "a queue of others",
                {f"{KEY}queue": "closed", f"{KEY}user": "guest"},
                f"guest .*(cannot submit|does not have permission).*; set {KEY}queue .*{KEY}user",
            ),
            ("a queue that is stopped", {f"{KEY}queue": "stopped"}, f"root.stopped is STOPPED.*; set {KEY}queue"),
            (
                "a queue with all applications that it takes",
                {f"{KEY}queue": "full"},
                f"root.full already has 0 applications.*; kill one of them, or set {KEY}queue",
            ),
            (
                "a node label that there is not",
                {f"{KEY}node.label": "nowhere"},
                rf"label.*; set {KEY}node\.label to one that is there",
            ),
            (
                "more memory than the largest allocation",
                {f"{KEY}driver.memory.mb": 65_536},
                "application master asks for 65536 MiB .* largest container of YARN has 8192 MiB and 16 vcores: "
                f"set {KEY}driver.memory.mb",
            ),
            ("more vcores", {"topology.tmanager.cpu": 64.0}, "asks for .* 64 vcores.*: set topology.tmanager"),
            ("no Python on the hosts", {f"{KEY}python": "/nowhere/bin/python"}, "/nowhere/bin/python: No such file"),
            ("a misspelt key", {f"{KEY}queu": "p"}, "did you mean 'heron.scheduler.yarn.queue'"),
        ]

    @property
    def directory(self) -> Path:
        return self.yarn.directory

    def shown(self) -> str:
        with urllib.request.urlopen(f"{self.yarn.url}/ws/v1/cluster/nodes", timeout=30) as reply:
            nodes = [one for one in json.loads(reply.read())["nodes"]["node"] if one["state"] == "RUNNING"]
        pages = [f"http://{one['nodeHTTPAddress']}/ws/v1/node/containers" for one in nodes]
        pages += [f"{self.yarn.url}/{page}" for page in ("conf", "ws/v1/cluster/apps")]
        pages += [f"{self.yarn.url}/ws/v1/cluster/apps/{one['id']}/appattempts" for one in self.yarn.applications()]
        return "".join(urllib.request.urlopen(page, timeout=30).read().decode() for page in pages)

    def left(self, launch: Launch) -> list[str]:
        ours = [app for app in self.yarn.applications() if launch.topology_id in str(app["name"])]
        files = [path for host in self.yarn.hosts for path in self.host_files(host)]
        files += (self.root / "secrets").glob("*")
        processes = find_by_environment({TOPOLOGY_ENV: launch.topology_id})
        running = [str(app["id"]) for app in ours if app["state"] not in OVER]
        return running + [str(path) for path in files] + [str(process) for process, _ in processes]

    def nothing_left(self, launch: Launch) -> None:
        # A NodeManager removes the files of an application some heartbeats after that has ended.
        eventually_sync(lambda: _none([path for host in self.yarn.hosts for path in self.host_files(host)]))
        super().nothing_left(launch)

    def host_files(self, host: str) -> list[Path]:
        return [*(self.yarn.directory / host / "local").glob("usercache/*/appcache/*")]

    def lose_host(self, host: str) -> None:
        self.yarn.vanish(host)

    def hung(self) -> contextlib.AbstractContextManager[None]:
        return self.yarn.hung("master")

    def heal_host(self, host: str) -> None:
        self.yarn.start_host(host)
        self.yarn.wait_up(host)

    def application(self, launch: Launch) -> dict[str, Any]:
        """The one of the topology that lives."""
        (found,) = [
            app
            for app in self.yarn.applications()
            if launch.topology_id in str(app["name"]) and app["state"] not in OVER
        ]
        return found

    def master(self, launch: Launch) -> psutil.Process:
        """The process of the application master."""
        attempt = str(self.application(launch)["id"]).partition("_")[2]
        (found,) = [
            process
            for process in psutil.process_iter(["cmdline", "environ"])
            if "heron_scheduler.yarn.master" in (process.info["cmdline"] or [])
            and f"_{attempt}_" in (process.info["environ"] or {}).get("CONTAINER_ID", "")
        ]
        return found


@pytest.fixture(scope="module")
def yarn() -> Iterator[YarnCluster]:
    if why := yarn_missing():
        pytest.skip(why)
    with YarnCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(yarn: YarnCluster, tmp_path: Path) -> Yarn:
    return Yarn(tmp_path, yarn)


class TestYarn(SchedulerKit):
    """The kit."""

    def test_a_container_that_fails_on_its_host_says_why(self, cluster: Yarn, launch: Launch) -> None:
        (cluster.reports / "fails-1").write_text("heron: this host has Python 3.2")
        os.kill(cluster.running(launch)[1].pid, signal.SIGKILL)

        def failed() -> None:
            told = {one.container: one for one in heron_scheduler.containers(launch)}
            assert told[1].phase is ContainerPhase.FAILED, told[1]
            assert told[1].reason.endswith("this host has Python 3.2")

        eventually_sync(failed, within_s=2 * WITHIN_S)

    def test_containers_run_on_while_the_application_master_is_started_again(
        self, cluster: Yarn, launch: Launch
    ) -> None:
        before, first = cluster.running(launch), cluster.master(launch).pid
        os.kill(first, signal.SIGKILL)
        began_s = time.monotonic()

        def again() -> None:
            assert cluster.master(launch).pid != first
            told = heron_scheduler.containers(launch)
            assert [(one.container, one.phase) for one in told] == [(n, ContainerPhase.RUNNING) for n in (0, 1, 2)]

        # Between two attempts there is none: that is waited for, too.
        eventually_sync(lambda: _holds(again), within_s=WITHIN_S)
        print(f"yarn: the next application master was there after {time.monotonic() - began_s:.1f} s")
        assert cluster.running(launch) == before
        os.kill(before[1].pid, signal.SIGKILL)  # it looks after those of the attempt before
        eventually_sync(lambda: differ(cluster.running(launch), before, {1}), within_s=RESTART_S)

    def test_containers_run_on_while_the_resource_manager_is_started_again(self, cluster: Yarn, launch: Launch) -> None:
        before = cluster.running(launch)
        cluster.yarn.kill_master()
        cluster.yarn.start_master()
        cluster.yarn.wait_up(*cluster.yarn.hosts)
        assert cluster.running(launch) == before
        os.kill(before[2].pid, signal.SIGKILL)
        eventually_sync(lambda: differ(cluster.running(launch), before, {2}), within_s=RESTART_S)
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_an_application_that_yarn_has_killed_is_submitted_by_the_next_command(
        self, cluster: Yarn, launch: Launch
    ) -> None:
        before = cluster.running(launch)
        application = str(cluster.application(launch)["id"])
        request = urllib.request.Request(
            f"{cluster.yarn.url}/ws/v1/cluster/apps/{application}/state?user.name=root",
            b'{"state": "KILLED"}',
            {"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.urlopen(request, timeout=30).close()

        def failed() -> None:
            assert {one.phase for one in heron_scheduler.containers(launch)} == {ContainerPhase.FAILED}

        eventually_sync(failed, within_s=WITHIN_S)
        eventually_sync(lambda: _none([*cluster.running(launch)]))
        assert heron_scheduler.revive(launch)
        eventually_sync(lambda: differ(cluster.running(launch), before, {0, 1, 2}), within_s=WITHIN_S)

    def test_what_waits_for_room_is_told(self, cluster: Yarn) -> None:
        # All memory of one host, and all vcores of the other.
        launch = cluster.submit("a", **{f"{KEY}driver.memory.mb": 8192, "topology.tmanager.cpu": 16.0})
        try:
            told = [one for one in heron_scheduler.containers(launch) if one.phase is ContainerPhase.PENDING]
            assert told
            assert {one.reason for one in told} == {"waits for resources in queue default"}
        finally:
            heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    def test_nothing_secret_is_shown_or_written_where_others_read(self, cluster: Yarn, launch: Launch) -> None:
        token = launch.token().encode()
        with open_statemgr(launch.statemgr) as state:
            for kind in (Kind.DRIVERORDERS, Kind.DRIVERS):
                assert token not in (state.get(kind, launch.topology) or token)
        for host in cluster.yarn.hosts:
            for pid in cluster.yarn.processes(host):
                for name in ("cmdline", "environ"):
                    assert token not in Path(f"/proc/{pid}/{name}").read_bytes()
        application = cluster.application(launch)["id"]
        for path in (f"/ws/v1/cluster/apps/{application}", f"/ws/v1/cluster/apps/{application}/appattempts"):
            with urllib.request.urlopen(f"{cluster.yarn.url}{path}", timeout=30) as reply:
                shown = reply.read()
            assert token not in shown
            assert b"BEGIN" not in shown
        found = 0
        for path in [path for host in cluster.yarn.hosts for path in (cluster.yarn.directory / host).rglob("*")]:
            if path.is_file() and token in path.read_bytes():
                found += 1
                below = [one for one in (path, *path.parents) if one.is_relative_to(cluster.yarn.directory)][:-1]
                closed = [one for one in below if not stat.S_IMODE(one.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)]
                assert closed, f"{path} can be read by others"
        assert found, "the bootstrap files have been found nowhere"


@pytest.fixture(scope="module")
def labelled() -> Iterator[YarnCluster]:
    """The second host is the only one with the label `fast`; none has the label `idle`."""
    if why := yarn_missing():
        pytest.skip(why)
    with YarnCluster(labels=["fast", "idle"]) as cluster:
        cluster.label(cluster.hosts[1], "fast")
        yield cluster


class TestLabels:
    """Nodes with labels."""

    @pytest.fixture
    def cluster(self, labelled: YarnCluster, tmp_path: Path) -> Yarn:
        return Yarn(tmp_path, labelled)

    @pytest.mark.parametrize(("label", "host"), [("fast", 1), ("", 0)])
    def test_containers_run_on_the_nodes_of_their_label_alone(self, cluster: Yarn, label: str, host: int) -> None:
        launch = cluster.submit("a", **{f"{KEY}node.label": label})
        cluster.wait_for(launch, 0, 1, 2)
        assert {one.host for one in heron_scheduler.containers(launch)} == {cluster.yarn.hosts[host]}
        heron_scheduler.kill(launch)
        cluster.nothing_left(launch)

    @pytest.mark.parametrize("label", ["nowhere", "fast && idle", "fast,idle"])
    def test_a_label_that_there_is_not_is_refused_within_seconds(self, cluster: Yarn, label: str) -> None:
        began_s = time.monotonic()
        with pytest.raises(HeronError, match=rf"label.*; set {KEY}node\.label to one that is there") as refusal:
            cluster.submit("a", **{f"{KEY}node.label": label})
        print(f"yarn: node label {label!r} was refused in {time.monotonic() - began_s:.1f} s: {refusal.value}")
        assert "\n" not in str(refusal.value)
        assert time.monotonic() - began_s < REFUSED_S
        assert [path.name for path in cluster.machine("a").rglob("launch.json")] == []
        assert cluster.state_left(cluster.statemgr) == []

    def test_what_waits_for_nodes_of_a_label_that_none_has_says_so(self, cluster: Yarn) -> None:
        launch = cluster.submit("a", **{f"{KEY}node.label": "idle"})
        try:
            told = heron_scheduler.containers(launch)
            print(told)
            assert {one.phase for one in told} == {ContainerPhase.PENDING}
            assert all("node label idle" in one.reason for one in told)
        finally:
            heron_scheduler.kill(launch)
        cluster.nothing_left(launch)


def _holds(check: Callable[[], None]) -> None:
    """Have `check` fail as an assertion where what it looks for is not there."""
    try:
        check()
    except (ValueError, psutil.NoSuchProcess) as e:
        raise AssertionError(str(e)) from e


def _none(found: Sequence[object]) -> None:
    assert [*found] == []
