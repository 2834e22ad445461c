"""A Tracker with a HERON_HOME of its own adopts topologies from clusters that its operator has named, and only so."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heron_scheduler
import httpx
import pytest
import yaml
from depot_scheduler import DEPOT
from heron_tracker import StateManagerConfig, adopted_clusters
from heron_tracker.parts import THREADS_PER_CLUSTER_MAX
from remote_container import enter, on_another_host
from test_tracker_state_managers import tracking
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.config import EngineConfig
from heronpy.container import bootstrap_document
from heronpy.errors import ConfigError, StateError, UntrustedError
from heronpy.proto import metrics_pb2, state_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import container_identity, private_directory, write_secret
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually, eventually_sync

HERE = Path(__file__).parent
ASKED = "unreachable since"
"""What is said of a Topology Master that was asked, and does not answer."""
PLACE = {"cluster": "farm", "environ": "default", "topology": "words"}
TRACKER = [sys.executable, "-m", "heronpy.cli", "tracker", "--port", "0", "--json", "--no-token"]


@dataclass
class Farm:
    """A cluster `farm`, a topology that was submitted to it on some machine, and a machine for the Tracker."""

    root: Path
    launch: Launch
    state: StateManager

    @property
    def depot(self) -> Path:
        return self.root / "depot"

    @property
    def home(self) -> Path:
        """Of the Tracker."""
        return self.root / "tracker-home"

    @property
    def credentials(self) -> Path:
        return self.home / "tracker-credentials"

    def configure(self, cluster: str = "farm", **more: object) -> None:
        (self.root / "conf" / cluster).mkdir(parents=True, exist_ok=True)
        values = {
            "heron.class.scheduler": "depot",
            DEPOT: str(self.depot),
            "heron.statemgr.root.path": self.launch.statemgr.root,
            **more,
        }
        (self.root / "conf" / cluster / "cluster.yaml").write_text(yaml.safe_dump(values))

    def record(self, launch: Launch | None = None, **said: str) -> None:
        """Write what a submission on a machine that the Tracker does not have writes, or what somebody else says.

        It has a Topology Master that does not answer: whether it is asked shows whether there are credentials.
        """
        launch = launch or self.launch
        said = {"cluster": launch.cluster, "role": launch.role, "topology_id": launch.topology_id, **said}
        submit(self.state, 1)
        execution = state_pb2.ExecutionState(
            topology="words",
            environ="default",
            submission_time_s=int(time.time()),
            topology_dir="/nonexistent/topologies/farm/me/default/words",
            **said,
        )
        location = state_pb2.TmasterLocation(
            topology="words", topology_id=said["topology_id"], host="127.0.0.1", port=9
        )
        self.state.set(Kind.TMASTERS, "words", location.SerializeToString())
        self.state.set(Kind.LAUNCHES, "words", launch.encode())
        self.state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())

    def hand_over(self, document: bytes | None = None, *, id: str = "") -> None:
        """Have the cluster hand over a bootstrap file; without one, the topology's."""
        name = f"{id or self.launch.topology_id}.json"
        write_secret(self.depot / name, document or bootstrap_document(self.launch, 0))

    def kept(self) -> list[str]:
        """The files that the Tracker keeps."""
        try:
            found = [path for path in self.credentials.rglob("*") if path.is_file() and path.name != ".lock"]
            modes = {path: (path.stat().st_mode, path.parent.stat().st_mode) for path in found}
        except FileNotFoundError as e:
            raise AssertionError("it removes some just now") from e
        for path, (own, folders) in modes.items():
            assert stat.S_IMODE(own) == 0o600, path
            assert stat.S_IMODE(folders) == 0o700, path
        return sorted(str(path.relative_to(self.credentials)).split("/", 2)[2] for path in found)

    def asked(self) -> int:
        path = self.depot / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    info = tmp_path / "installed/depot-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: depot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[heron.schedulers]\ndepot = depot_scheduler:DepotScheduler\n")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{HERE}")
    (tmp_path / "submitter").mkdir()
    launch = dataclasses.replace(
        launch_in(tmp_path / "submitter", {"heron.metrics.export.interval.ms": 500}), cluster="farm", role="me"
    )
    launch.save()
    private_directory(tmp_path / "depot")
    with open_statemgr(launch.statemgr) as state:
        farm = Farm(tmp_path, launch, state)
        farm.configure()
        farm.record()
        yield farm


class Process:
    """`heron tracker` as a process with a HERON_HOME of its own."""

    def __init__(self, farm: Farm, *args: str) -> None:
        self.said = farm.root / "tracker.log"
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [*TRACKER, *args],
                env={**os.environ, "HERON_HOME": str(farm.home)},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready, self.said.read_text()
        self.http = httpx.Client(base_url=json.loads(ready)["url"], timeout=120)

    def get(self, path: str, /, **params: Any) -> httpx.Response:
        return self.http.get(f"/topologies/{path}", params={**PLACE, **params})

    def stop(self, signum: int = signal.SIGINT) -> int:
        self.http.close()
        self.process.send_signal(signum)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(300)


@contextlib.contextmanager
def served(farm: Farm, *args: str) -> Iterator[Process]:
    process = Process(farm, *args)
    try:
        yield process
    finally:
        assert process.stop() == 0


def adopting(farm: Farm) -> tuple[str, ...]:
    return ("--adopt", "farm", "--config-path", str(farm.root / "conf"))


@contextlib.asynccontextmanager
async def tracker_of(farm: Farm, *clusters: str, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A Tracker in this process."""
    names = clusters or ("farm",)
    adopt = adopted_clusters(names, home=farm.home, config_path=farm.root / "conf")
    statemgr = StateManagerConfig("farm", farm.launch.statemgr)
    async with tracking(statemgr, adopt=adopt, adopt_directory=farm.credentials, **more) as tracker:
        yield tracker


async def publish(launch: Launch, target: str, source: str, emitted: int) -> None:
    """Report a metric of an instance to the Topology Master."""
    now_ms = int(time.time() * 1000)
    metric = metrics_pb2.Metric(name="__emit-count/default", value=emitted)
    report = metrics_pb2.MetricsReport(source=source, component="word", container=1, time_ms=now_ms, metrics=[metric])
    report.pid, report.started_ms, report.sequence = 1, now_ms, 1
    security = launch.security("heron")
    async with channel(target, security, container_identity(0)) as link:
        stub = tmaster_pb2_grpc.TmasterStub(link)  # type: ignore[no-untyped-call]  # generated
        await stub.PublishMetrics(metrics_pb2.MetricsReports(reports=[report]), metadata=security.metadata, timeout=60)


async def reasons(tracker: httpx.AsyncClient) -> str:
    """What is said of why a topology is not healthy."""
    (health,) = (await tracker.get("/topologies/health")).json()
    assert health["state"] == "unhealthy"
    return " ".join(reason["text"] for reason in health["reasons"])


async def said(tracker: httpx.AsyncClient, *parts: str, cluster: str = "farm") -> None:
    async def check() -> None:
        answer = await tracker.get("/topologies/runtimestate", params={**PLACE, "cluster": cluster})
        assert answer.status_code == 200, answer.text
        text = answer.json()["tmaster"]
        for part in parts:
            assert part in text

    await eventually(check)


def test_health_metrics_and_logs_of_a_topology_that_was_submitted_elsewhere(farm: Farm) -> None:
    farm.hand_over()
    remote = on_another_host(farm.launch, farm.root / "elsewhere")
    (remote.log_dir(1) / "stmgr-1.log").write_text("far away\n")
    farm.state.delete(Kind.TMASTERS, "words")
    with EngineProcess("tmaster", farm.launch, 0), EngineProcess("shell", remote, 1):
        log = remote.log_dir(1) / "heron-shell-1.log"

        def address() -> str:
            assert log.exists()
            assert "serves at" in log.read_text()
            return log.read_text().rpartition("serves at ")[2].split()[0]

        enter(farm.state, remote, endpoint=eventually_sync(address))

        def located() -> state_pb2.TmasterLocation:
            value = farm.state.get(Kind.TMASTERS, "words")
            assert value is not None
            return state_pb2.TmasterLocation.FromString(value)

        location = eventually_sync(located)
        asyncio.run(publish(farm.launch, f"{location.host}:{location.port}", "container_1_word_1", 7))
        with served(farm, *adopting(farm)) as tracker:

            def answered() -> None:
                assert tracker.get("runtimestate").json()["tmaster"] == "ok"
                (health,) = tracker.get("health").json()
                assert "credentials" not in str(health["reasons"])
                metrics = tracker.get("metrics", component="word", metricname="__emit-count/default")
                assert metrics.json()["metrics"] == {"__emit-count/default": {"container_1_word_1": "7"}}
                listed = tracker.get("container/filestats", container=1)
                assert listed.status_code == 200, listed.text
                part = tracker.get("container/filedata", container=1, path="stmgr-1.log")
                assert part.json()["data"] == "far away\n"

            eventually_sync(answered)
            assert farm.asked() == 1
            assert farm.kept() == ["tls/ca.pem", "tls/tracker.pem", "token"], (
                "no key of the authority, none for commands"
            )
        assert farm.kept() == []


def test_without_the_switch_no_cluster_is_asked_and_the_reason_is_said_once(farm: Farm) -> None:
    farm.hand_over()
    with served(farm, "--type", "file", "--rootpath", farm.launch.statemgr.root) as tracker:
        for _ in range(3):
            (health,) = tracker.get("health").json()
            (reason,) = health["reasons"]
            assert "this Tracker adopts no topologies of cluster 'farm'" in reason["text"]
            assert "tracker.adopt.clusters" in reason["text"]
    assert farm.asked() == 0
    assert not farm.credentials.exists()
    lines = [line for line in (farm.root / "tracker.log").read_text().splitlines() if "tracker.adopt" in line]
    assert len(lines) == 1
    assert "no health, metrics and logs of farm/me/default words: topology words cannot be asked from here" in lines[0]


async def test_what_was_adopted_goes_with_the_topology_and_comes_anew_with_the_next_one(farm: Farm) -> None:
    farm.hand_over()
    async with tracker_of(farm) as tracker:
        await said(tracker, ASKED)
        before = farm.kept()
        (own,) = (path for path in farm.credentials.iterdir() if path.is_dir())
        (first,) = (path for path in own.iterdir() if path.is_dir())

        (farm.root / "again").mkdir()
        again = dataclasses.replace(
            launch_in(farm.root / "again", topology_id="words-2"),
            cluster="farm",
            role="me",
            statemgr=farm.launch.statemgr,
        )
        again.save()
        farm.hand_over(bootstrap_document(again, 0), id="words-2")
        farm.record(again)

        async def renewed() -> None:
            await tracker.get("/topologies/runtimestate", params=PLACE)
            found = [path for path in own.iterdir() if path.is_dir()]
            assert len(found) == 1, "the first goes before the second comes"
            second = found[0]
            assert second != first
            assert (second / "token").read_text() == again.token()

        await eventually(renewed)
        assert farm.kept() == before
        farm.state.remove_topology("words")
        await eventually(lambda: nothing(farm))


async def nothing(farm: Farm) -> None:
    assert farm.kept() == []


async def test_a_refusal_is_shown_and_logged_once_and_ends_with_it(
    farm: Farm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_tracker._adoption.PAUSE_S", 0.2)
    farm.hand_over()
    (farm.depot / "refuses").write_text("user tracker cannot get secrets in namespace farm")
    caplog.set_level(logging.WARNING, "heron_tracker")
    async with tracker_of(farm) as tracker:
        for _ in range(30):
            text = await reasons(tracker)
            assert "cluster farm does not hand over its credentials: user tracker cannot get secrets" in text
        assert farm.asked() < 8, "it is not asked each time"
        assert len([r for r in caplog.records if "is not adopted" in r.message]) == 1
        (farm.depot / "refuses").unlink()
        await said(tracker, ASKED)


async def test_a_cluster_is_asked_again_after_there_were_no_threads_for_it(
    farm: Farm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_tracker._adoption.PAUSE_S", 0.05)
    monkeypatch.setattr("heron_tracker._adoption.PAUSE_MAX_S", 0.1)
    farm.hand_over()
    start, refused = threading.Thread.start, itertools.count(1)

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("tracker-adopt-") and next(refused) <= 2 * THREADS_PER_CLUSTER_MAX:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    async with tracker_of(farm) as tracker:
        await said(tracker, ASKED)
    assert "words is not adopted: cluster farm does not hand over its credentials: can't start new" in caplog.text


async def test_nothing_stays_of_a_topology_that_goes_while_its_credentials_are_written(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, gone, ended = threading.Event(), threading.Event(), threading.Event()

    def half(directory: Path, files: Mapping[str, bytes]) -> None:
        goes.set()
        assert gone.wait(60)
        (directory / next(iter(files))).parent.mkdir(parents=True, exist_ok=True)
        (directory / next(iter(files))).write_bytes(b"")
        ended.set()
        raise StateError("the disk is full")

    monkeypatch.setattr("heron_tracker._credentials._write", half)
    farm.hand_over()
    async with tracker_of(farm) as tracker:
        asked = asyncio.create_task(tracker.get("/topologies/runtimestate", params=PLACE))
        assert await asyncio.to_thread(goes.wait, 60)
        farm.state.remove_topology("words")

        async def unknown() -> None:
            assert (await tracker.get("/topologies/runtimestate", params=PLACE)).status_code != 200

        await eventually(unknown)
        gone.set()
        await asked
        assert await asyncio.to_thread(ended.wait, 60)
        await eventually(lambda: nothing(farm))


async def test_a_cluster_that_hangs_holds_up_nobody(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the event loop, nor topologies of other clusters, nor its own for long."""
    monkeypatch.setattr("heron_tracker._credentials.WAIT_S", 0.5)
    monkeypatch.setattr("heron_tracker._credentials.ATTEMPT_S", 2.0)
    monkeypatch.setattr("heron_tracker._adoption.PAUSE_S", 0.2)
    farm.hand_over()
    (farm.depot / "hangs").touch()
    other = private_directory(farm.root / "other-depot")
    farm.configure("other", **{DEPOT: str(other)})
    async with tracker_of(farm, "farm", "other") as tracker:
        asked = asyncio.create_task(reasons(tracker))
        began_s = time.monotonic()
        slowest_s = 0.0
        while not asked.done():
            at_s = time.monotonic()
            assert (await tracker.get("/topologies")).status_code == 200
            slowest_s = max(slowest_s, time.monotonic() - at_s)
            await asyncio.sleep(0.01)
        assert "has not handed over its credentials yet" in await asked
        print(f"answered after {time.monotonic() - began_s:.1f} s, the slowest other after {slowest_s:.2f} s")
        await said(tracker, "has not answered for 2 s")
        farm.record(cluster="other")
        theirs = dataclasses.replace(farm.launch, cluster="other", dir=farm.root / "theirs")
        theirs.save(farm.launch.token())
        private_directory(theirs.tls_dir)
        private_directory(theirs.tls_dir / "authority")
        for name in ("ca.pem", "authority/ca-key.pem"):
            write_secret(theirs.tls_dir / name, (farm.launch.tls_dir / name).read_bytes())
        write_secret(other / "words-1.json", bootstrap_document(theirs, 0))

        await said(tracker, ASKED, cluster="other")
        threads = farm.asked()
        assert threads <= 4, "each attempt that hangs takes a thread"
        (farm.depot / "hangs").unlink()
        farm.record()
        await said(tracker, ASKED)


def with_launch(farm: Farm, **changes: Any) -> bytes:
    document = json.loads(bootstrap_document(farm.launch, 0))
    document["launch"] |= changes
    return json.dumps(document).encode()


def with_files(farm: Farm, **changes: str | None) -> bytes:
    document = json.loads(bootstrap_document(farm.launch, 0))
    files = {**document["files"], **changes}
    return json.dumps({**document, "files": {k: v for k, v in files.items() if v is not None}}).encode()


DAMAGED: dict[str, tuple[Callable[[Farm], bytes], str]] = {
    "another topology's": (
        lambda f: with_launch(f, topology="other"),
        "belongs to container 0 of farm/me/default other",
    ),
    "another submission's": (lambda f: with_launch(f, topology_id="words-9"), "belongs to container 0"),
    "another role's": (lambda f: with_launch(f, role="you"), "belongs to container 0 of farm/you/default words"),
    "another cluster's": (lambda f: with_launch(f, cluster="mill"), "belongs to container 0 of mill/"),
    "another container's": (lambda f: bootstrap_document(f.launch, 1), "belongs to container 1"),
    "without certificates": (
        lambda f: with_launch(f, config={"heron.security.tls": False}),
        "no certificates by which its processes could prove themselves",
    ),
    "without an authority": (lambda f: with_files(f, **{"tls/authority/ca-key.pem": None}), "no certificates in it"),
    "a damaged authority": (lambda f: with_files(f, **{"tls/authority/ca-key.pem": "x"}), "is damaged"),
    "an authority that is not text": (
        lambda f: with_files(f, **{"tls/authority/ca-key.pem": "\ud800"}),
        "no certificates in it",
    ),
    "names with line breaks": (lambda f: with_launch(f, role="you\nWARNING"), "of farm/you?WARNING/default words"),
    "a damaged token": (lambda f: with_files(f, token="a b\nc"), "its token is damaged"),
    "a file elsewhere": (lambda f: with_files(f, **{"tls/../../../../planted": "x"}), "damaged bootstrap file"),
    "another version": (
        lambda f: bootstrap_document(f.launch, 0).replace(b'"heronpy": "', b'"heronpy": "9'),
        "submitted",
    ),
    "no bootstrap file": (lambda f: b"[" * 100_000, "not a bootstrap file"),
    "too much": (lambda f: with_files(f, token="x" * ((1 << 20) - 9_000)), "its token is damaged"),
}


@pytest.mark.parametrize("case", DAMAGED)
async def test_nothing_is_kept_of_what_is_damaged_or_of_another_topology(farm: Farm, case: str) -> None:
    make, why = DAMAGED[case]
    farm.hand_over(make(farm))
    async with tracker_of(farm) as tracker:
        await said(tracker, "cluster farm does not hand over its credentials: ", why)
        assert farm.kept() == []
    assert not [*farm.root.rglob("planted")]


async def test_what_the_state_manager_says_of_the_scheduler_is_not_taken(farm: Farm) -> None:
    """Its writer names another scheduler, another place to read secrets from, and storages to open."""
    trap = private_directory(farm.root / "trap")
    hostile = dataclasses.replace(
        farm.launch,
        scheduler="kubernetes",
        scheduler_config={"heron.kubernetes.scheduler.context": "mine", DEPOT: str(trap)},
        checkpoints=str(trap / "checkpoints"),
        config=EngineConfig.from_keys({"heron.security.tls": False, "heron.logs.upload.uri": str(trap / "logs")}),
    )
    farm.record(hostile)
    farm.hand_over(with_launch(farm, config={"heron.logs.upload.uri": str(trap / "logs")}, checkpoints=str(trap / "c")))
    async with tracker_of(farm) as tracker:
        await said(tracker, ASKED)
        assert farm.asked() == 1
        answer = await tracker.get("/topologies/container/filestats", params={**PLACE, "container": "1"})
        assert answer.status_code == 501, answer.text
        checkpoints = await tracker.get("/topologies/checkpoints", params=PLACE)
        assert str(trap) not in checkpoints.text
    assert [*trap.iterdir()] == []


@pytest.mark.parametrize("id", ["words-1/../../x", "../../words-1", "other-1", "words-" + "1" * 220, "words-"])
async def test_names_that_no_topology_has_are_asked_for_nowhere(farm: Farm, id: str) -> None:
    farm.hand_over()
    farm.record(topology_id=id)
    async with tracker_of(farm) as tracker:
        await said(tracker, "not adopted: the state manager gives it names that no topology has")
    assert farm.asked() == 0


async def test_the_topology_of_another_state_manager_is_not_taken_for_the_clusters(farm: Farm) -> None:
    """It says that it is `words-1` of `farm`, too: shown and commanded under its name would be the other one."""
    farm.hand_over()
    farm.configure(**{"heron.statemgr.root.path": str(farm.root / "elsewhere")})
    async with tracker_of(farm) as tracker:
        await said(tracker, "it is not adopted from cluster farm, whose state manager is", "this topology was found in")
    assert farm.asked() == 0


async def test_credentials_are_renewed_while_the_topology_runs(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._adoption.REFRESH_S", 0.2)
    farm.hand_over()
    async with tracker_of(farm) as tracker:
        await said(tracker, ASKED)
        (path,) = farm.credentials.rglob("tracker.pem")
        before = path.read_bytes()

        async def renewed() -> None:
            assert path.read_bytes() != before

        await eventually(renewed)


async def test_credentials_that_are_not_renewed_are_removed(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._adoption.REFRESH_S", 0.2)
    monkeypatch.setattr("heron_tracker._adoption.VALID_S", 3.0)
    farm.hand_over()
    async with tracker_of(farm) as tracker:
        await said(tracker, ASKED)
        (farm.depot / "refuses").write_text("not any more")
        await said(tracker, "cluster farm does not hand over its credentials: not any more")
        await eventually(lambda: nothing(farm))


def test_what_a_killed_tracker_has_left_is_removed_by_the_next_and_nothing_of_one_that_lives(farm: Farm) -> None:
    farm.hand_over()
    killed = Process(farm, *adopting(farm))
    eventually_sync(lambda: adopted_by(killed))
    left = farm.kept()
    assert left
    assert killed.stop(signal.SIGKILL) == -signal.SIGKILL
    unknown = farm.credentials / "unknown"
    unknown.mkdir()
    (unknown / ".lock").symlink_to("elsewhere")  # whether somebody holds it cannot be found out
    with served(farm, *adopting(farm)) as tracker:
        assert unknown.exists()
        assert farm.kept() == []
        eventually_sync(lambda: adopted_by(tracker))
        with served(farm, *adopting(farm)):
            assert farm.kept() == left


def adopted_by(tracker: Process) -> None:
    assert ASKED in tracker.get("runtimestate").json()["tmaster"]


def test_a_directory_that_others_planted_is_not_used(farm: Farm) -> None:
    farm.home.mkdir()
    (farm.root / "planted").mkdir()
    farm.credentials.symlink_to(farm.root / "planted")
    done = subprocess.run(
        [*TRACKER, *adopting(farm)], env={**os.environ, "HERON_HOME": str(farm.home)}, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "cannot keep credentials" in done.stderr
    assert [*(farm.root / "planted").iterdir()] == []


async def test_an_adopted_topology_is_deactivated_and_neither_restarted_nor_killed(farm: Farm) -> None:
    farm.hand_over()
    place = "/topologies/farm/me/default/words"
    headers = {"x-heron-request": "1"}
    farm.state.delete(Kind.TMASTERS, "words")
    with EngineProcess("tmaster", farm.launch, 0):
        async with tracker_of(farm, actions=True) as tracker:

            async def deactivated() -> None:
                answer = await tracker.post(f"{place}/deactivate", headers=headers)
                assert answer.status_code == 200, answer.text

            await eventually(deactivated)
            assert farm.kept() == ["tls/ca.pem", "tls/cli.pem", "tls/tracker.pem", "token"]
            for action in ("restart", "kill"):
                answer = await tracker.post(f"{place}/{action}", headers=headers)
                assert answer.status_code == 403, answer.text
                assert f"`heron {action}`" in answer.json()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("nowhere",), "unknown cluster 'nowhere'"),
        (("alone",), "scheduler local of cluster alone hands over no credentials"),
        (("typo",), "unknown configuration key"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_refused_at_the_start(farm: Farm, names: tuple[str, ...], why: str) -> None:
    farm.configure("alone", **{"heron.class.scheduler": "local"})
    farm.configure("typo", **{"heron.scheduler.depot.directry": "x"})
    with pytest.raises(ConfigError, match=why):
        adopted_clusters(names, home=farm.home, config_path=farm.root / "conf")


def test_a_command_sends_no_token_in_clear_because_the_state_manager_says_so(farm: Farm) -> None:
    """The cluster knows that the topology has certificates, whoever else says that it has none."""
    farm.hand_over()
    copy = dataclasses.replace(
        farm.launch,
        scheduler="depot",
        scheduler_config={DEPOT: str(farm.depot)},
        dir=farm.root / "copy",
        config=EngineConfig.from_keys({"heron.security.tls": False}),
    )
    with pytest.raises(UntrustedError, match="says that words has no certificates, and it was submitted with them"):
        heron_scheduler.adopt(copy)
    assert not copy.dir.exists()
    with pytest.raises(UntrustedError, match="belongs to container 0"):
        heron_scheduler.adopt(dataclasses.replace(copy, role="you", config=EngineConfig()))
    heron_scheduler.adopt(dataclasses.replace(copy, config=EngineConfig()))
    assert Launch.load(copy.dir).token() == farm.launch.token()
