"""`heron update --code` where containers share nothing with the submitter, nor with one another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from process_scheduler import Host, hosts, start_on_a_new_host
from versioned_topology import KEYS, counts_in, program, versions_in

from heronpy import environment, loader
from heronpy.errors import HeronError, StateError, UnavailableError
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.submit import end_trial, kill, plan_code_update, plans, status, submit, update_code
from heronpy.testing import eventually_sync
from heronpy.testing.servers import ZookeeperServer, zookeeper_missing

HERE = Path(__file__).parent
WITHIN_S = 240.0
FAST = {"heron.metrics.export.interval.ms": 1000, "heron.executor.stop.timeout.ms": 5000}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    if (missing := zookeeper_missing()) is not None:
        pytest.skip(missing)
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@dataclass
class Farm:
    """A cluster whose hosts are directories, with a topology of version 1."""

    tmp_path: Path
    stateful: bool
    launch: Launch = field(init=False)

    @property
    def root(self) -> Path:
        return self.tmp_path / "hosts"

    @property
    def conf(self) -> Path:
        return self.tmp_path / "conf"

    @property
    def home(self) -> Path:
        return self.tmp_path / "submitter"

    def configure(self, zookeeper: ZookeeperServer) -> None:
        for directory in (self.conf / "farm", self.root):
            directory.mkdir(parents=True)
        values = {
            **FAST,
            "heron.class.scheduler": "processes",
            "heron.scheduler.processes.directory": str(self.root),
            "heron.class.state.manager": "zookeeper",
            "heron.statemgr.connection.string": zookeeper.connection,
            "heron.statemgr.root.path": f"/{self.tmp_path.name}",
            "heron.uploader.url": str(self.tmp_path / "packages"),
            "heron.statefulstorage.url": str(self.tmp_path / "checkpoints"),
        }
        (self.conf / "farm/cluster.yaml").write_text(yaml.safe_dump(values))

    def start(self) -> None:
        definition = loader.define(str(self.program(1)), "-", [])
        self.launch = submit(definition, cluster="farm", role="me", home=self.home, config_path=self.conf)
        self.wait_for([1, 1])

    def program(self, version: int) -> Path:
        return program(self.tmp_path, version, stateful=self.stateful)

    def update(self, path: Path, on_step: Callable[[str], None] = lambda _: None, **properties: Any) -> str:
        definition = loader.define(str(path), "-", [])
        where: dict[str, Any] = {"home": self.home, "config_path": self.conf, "properties": properties}
        return update_code(plan_code_update(self.launch, definition, **where), timeout_s=120.0, on_step=on_step)

    @property
    def packing(self) -> PackingPlan:
        return plans(self.launch)[1]

    def host(self, container: int) -> Host:
        """The newest one of a container."""
        return [host for host in hosts(self.root) if host.container == container][-1]

    def replace(self, container: int) -> Host:
        """Kill a container, and have it started on another host."""
        self.host(container).send(signal.SIGKILL)
        return start_on_a_new_host(self.launch, container, self.root)[0]

    def wait_for(self, versions: list[int]) -> None:
        """Until tasks with these versions count, and everything runs."""
        for path in self.tmp_path.glob("counts-*.json"):
            path.unlink()

        def check() -> None:
            assert versions_in(self.tmp_path) == versions, self.last_words()
            try:
                assert status(self.launch).ready
            except UnavailableError as e:
                raise AssertionError(str(e)) from e

        eventually_sync(check, within_s=WITHIN_S)

    def last_words(self) -> str:
        return "\n".join([str(self.packing), *(host.said() + host.log()[-2000:] for host in hosts(self.root))])

    def stored(self) -> list[str]:
        return sorted(path.name for path in (self.tmp_path / "packages").rglob("*.tar.gz"))

    def code_on(self, container: int) -> list[str]:
        place = self.host(container).topology()
        found = [*(["package"] if (place / "package").exists() else []), *(p.name for p in place.glob("code/*"))]
        return sorted(found)

    def wait_for_code_on_hosts(self, names: list[str]) -> None:
        def check() -> None:
            assert [self.code_on(1), self.code_on(2)] == [names, names]

        eventually_sync(check, within_s=WITHIN_S)

    def check_exact(self) -> dict[int, int]:
        """End the input, and compare what was counted with what was emitted. Returns how much each version counted."""
        (self.tmp_path / "finish").touch()

        def check() -> None:
            assert (self.tmp_path / "emitted").exists()
            numbers = int((self.tmp_path / "emitted").read_text())
            found = {key: sum(counts) for key, counts in counts_in(self.tmp_path).items()}
            assert found == {f"key {key}": numbers // KEYS for key in range(KEYS)}

        eventually_sync(check, within_s=WITHIN_S)
        return {v: sum(counts[v - 1] for counts in counts_in(self.tmp_path).values()) for v in (1, 2, 3)}


@pytest.fixture
def farm(
    tmp_path: Path, zookeeper: ZookeeperServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Farm]:
    info = tmp_path / "installed/processes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: processes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[heron.schedulers]\nprocesses = process_scheduler:ProcessScheduler\n")
    monkeypatch.syspath_prepend(str(info.parent))
    farm = Farm(tmp_path, getattr(request, "param", True))
    farm.configure(zookeeper)
    try:
        farm.start()
        yield farm
    finally:
        with suppress(AttributeError):
            kill(farm.launch)
        for host in hosts(farm.root):
            host.send(signal.SIGKILL)


def test_new_code_comes_to_the_hosts_and_what_fails_is_rolled_back(farm: Farm) -> None:
    (first,) = farm.stored()
    second = farm.update(farm.program(2))
    farm.wait_for([2, 2])
    (stored,) = farm.stored()
    assert stored != first
    farm.wait_for_code_on_hosts([second])
    after = farm.packing
    with pytest.raises(StateError, match="version 3 fails at once"):
        farm.update(farm.program(3))
    assert (farm.packing, farm.stored()) == (after, [stored])
    farm.wait_for_code_on_hosts([second])
    farm.replace(1)
    farm.wait_for([2, 2])
    assert farm.code_on(1) == [second], "a new host fetches the new code alone"
    counted = farm.check_exact()
    assert (counted[1] > 0, counted[2] > 0, counted[3]) == (True, True, 0)
    kill(farm.launch)
    assert farm.stored() == []


@pytest.mark.parametrize("farm", [False], indirect=True)
def test_without_checkpoints_containers_change_their_code_one_after_the_other(farm: Farm) -> None:
    steps: list[str] = []
    version = farm.update(farm.program(2), steps.append)
    assert [step for step in steps if step.startswith("restarting")] == [
        "restarting container 1",
        "restarting container 2",
    ]
    farm.wait_for([2, 2])
    farm.wait_for_code_on_hosts([version])


def test_what_hosts_cannot_install_changes_nothing(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stored = farm.packing, farm.stored()
    second = farm.program(2)

    def collect(_file: Path, package: Path) -> None:
        (package / ".heron-wheels").mkdir()
        (package / ".heron-wheels" / "strange-1.0-cp27-none-any.whl").write_bytes(b"")

    steps: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(environment, "collect_requirements", collect)
        with pytest.raises(StateError, match=r"not on all hosts, and nothing was changed: container .*strange"):
            farm.update(second, steps.append, **{"heron.package.requirements": str(second)})
    assert "taking a checkpoint" not in steps
    assert (farm.packing, farm.stored()) == (before, stored)
    farm.wait_for_code_on_hosts(["package"])
    packages, away = farm.tmp_path / "packages", farm.tmp_path / "away"

    def lose(step: str) -> None:
        if step == "waiting for the hosts to install it":
            packages.rename(away)
            threading.Thread(target=bring_back).start()

    def bring_back() -> None:
        try:
            eventually_sync(lambda: assert_says(farm, 1, "is not there"), within_s=WITHIN_S)
        finally:
            away.rename(packages)

    farm.update(second, lose)
    farm.wait_for([2, 2])
    counted = farm.check_exact()
    assert (counted[1] > 0, counted[2] > 0) == (True, True)


def test_a_store_that_is_away_changes_nothing(farm: Farm) -> None:
    before = farm.packing
    packages, away = farm.tmp_path / "packages", farm.tmp_path / "away"
    packages.rename(away)
    packages.write_text("")
    with pytest.raises(HeronError, match="packages"):
        farm.update(farm.program(2))
    packages.unlink()
    away.rename(packages)
    assert farm.packing == before
    assert farm.check_exact()[1] > 0


def test_a_trial_outlives_the_topology_master_and_ends_with_ctrl_c(farm: Farm) -> None:
    second = farm.program(2)
    environ = {
        **os.environ,
        "HERON_HOME": str(farm.home),
        "PYTHONPATH": os.pathsep.join([str(farm.tmp_path / "installed"), str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    where = ["--config-path", str(farm.conf), "farm/me", "versioned", "--code", str(second)]
    command = [sys.executable, "-m", "heronpy.cli", "update", *where]

    def updating() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def on_trial() -> None:
            assert process.poll() is None, process.communicate()
            try:
                assert farm.packing.trial is not None
            except StateError as e:  # on a busy machine
                raise AssertionError(str(e)) from e

        eventually_sync(on_trial, within_s=WITHIN_S)
        return process

    hold = farm.tmp_path / "hold-2"
    hold.touch()  # else the new code may be accepted before the signal comes
    interrupted = updating()
    with pytest.raises(UnavailableError, match=r"lock .code. .* is held"):
        farm.update(second)
    interrupted.send_signal(signal.SIGINT)
    said = interrupted.communicate(timeout=WITHIN_S)[1]
    hold.unlink()
    assert (interrupted.returncode != 0, "rolling back" in said) == (True, True)
    assert (farm.packing.trial, farm.packing.versions, farm.packing.codes) == (None, {""}, ())
    assert len(farm.stored()) == 1

    going_on = updating()
    farm.replace(0)
    output, said = going_on.communicate(timeout=WITHIN_S)
    assert (going_on.returncode, "versioned runs code" in output) == (0, True), said
    farm.wait_for([2, 2])
    counted = farm.check_exact()
    assert (counted[1] > 0, counted[2] > 0) == (True, True)


def test_a_rollback_reaches_a_container_that_is_being_started(farm: Farm) -> None:
    failed: list[HeronError] = []

    def run() -> None:
        try:
            farm.update(second, stop_at)
        except HeronError as e:
            failed.append(e)

    def stop_at(step: str) -> None:
        if step == "waiting for the new code to be healthy":
            farm.replace(1)
            farm.replace(2)
            end_trial(farm.launch)

    second = farm.program(2)
    run()
    assert "is rolled back" in str(failed[0])
    farm.wait_for([1, 1])
    farm.wait_for_code_on_hosts(["package"])
    assert farm.check_exact()[1] > 0


def assert_says(farm: Farm, container: int, text: str) -> None:
    assert text in farm.host(container).said()
