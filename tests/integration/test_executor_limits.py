"""Limits of instances by a real executor, with small real children: cgroups of version 1, and looking at the RAM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reaper
from topology_on_disk import kill_all

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.host import CONTAINER_ENV, HostProcess, child_environment, read_pids
from heronpy.limits import hierarchies, remove_cgroups
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync

MIB = 1024**2
STANDIN = Path(__file__).with_name("standin_executor.py")
RUN = os.environ[reaper.RUN_ENV]
PARENT = reaper.cgroup_parent(RUN)
TREES = hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text(), PARENT)


def cgroups_missing() -> str:
    """Why no limits by cgroup can be tried here; empty: they can."""
    for controller in ("memory", "cpu"):
        tree = next((tree for tree in TREES if controller in tree.controllers), None)
        if tree is None:
            return f"no cgroup hierarchy has the {controller} controller"
        if not os.access(tree.mount, os.W_OK):
            return f"{tree.mount} cannot be written"
    return ""


needs_cgroups = pytest.mark.skipif(bool(cgroups_missing()), reason=cgroups_missing() or "none")


def instance(behaviour: str, task: int, ram_mib: int = 0, cpu: float = 0.0) -> InstancePacking:
    return InstancePacking(behaviour, task, 0, Resources(cpu, ram_mib * MIB, 0), bool(ram_mib), bool(cpu))


class Container:
    """Container 1 of a topology, and its executor."""

    def __init__(
        self, directory: Path, limits: str, restart_backoff_ms: int = 60_000, cgroup_parent: str = PARENT
    ) -> None:
        executor = ExecutorConfig(
            limits=limits,
            cgroup_parent=cgroup_parent,
            restart_backoff_ms=restart_backoff_ms,
            restart_backoff_max_ms=restart_backoff_ms,
        )
        self.launch = Launch(
            topology="words",
            topology_id=f"words-{uuid.uuid4().hex}",
            cluster="local",
            role="me",
            environ="default",
            statemgr=StatemgrSpec(root=str(directory / "state")),
            dir=directory / "words",
            config=EngineConfig(executor=executor),
        )
        self.launch.save()
        authority.create(self.launch.tls_dir, self.launch.topology_id, range(2), days=1)
        self.dir = self.launch.container_dir(1)
        self._executors: list[subprocess.Popen[bytes]] = []

    def pack(self, *instances: InstancePacking) -> None:
        plan = PackingPlan("plan", (ContainerPacking(1, instances, Resources(0, 0, 0)),))
        with open_statemgr(self.launch.statemgr) as statemgr:
            statemgr.set(Kind.PACKINGPLANS, self.launch.topology, plan.to_proto().SerializeToString())

    def execute(self, *instances: InstancePacking) -> subprocess.Popen[bytes]:
        self.pack(*instances)
        self._executors.append(
            subprocess.Popen(
                [sys.executable, str(STANDIN), "--dir", str(self.launch.dir), "--container", "1"],
                env=child_environment(self.launch, "executor", **{CONTAINER_ENV: "1"}),
            )
        )
        return self._executors[-1]

    def up(self, id: str) -> int:
        """Wait until a process runs user code; its pid."""

        def check() -> int:
            up = self.launch.dir / f"{id}.up"
            assert up.exists(), f"{id} is not up:\n{self.log()}"
            text = up.read_text()
            assert text, f"{id} is about to say its pid"
            return int(text)

        return eventually_sync(check)

    def logged(self, text: str) -> None:
        def check() -> None:
            assert text in self.log()

        eventually_sync(check)

    def log(self) -> str:
        path = self.launch.log_dir(1) / "executor.log"
        return path.read_text() if path.exists() else ""

    def groups(self) -> list[Path]:
        """The groups of instances that there are."""
        return [path for tree in TREES for path in tree.root.glob("heron-*/*/")]

    def close(self) -> None:
        for executor in self._executors:
            with contextlib.suppress(ProcessLookupError):
                executor.kill()
            executor.wait()
        kill_all(self.launch.topology_id)
        remove_cgroups(self.dir)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Container]]:
    containers: list[Container] = []

    def make(limits: str, **more: Any) -> Container:
        containers.append(Container(tmp_path, limits, **more))
        return containers[-1]

    yield make
    for container in containers:
        container.close()
    reaper.remove_cgroups(RUN)


def end(executor: subprocess.Popen[bytes]) -> None:
    executor.send_signal(signal.SIGTERM)
    assert executor.wait(300) is not None


@needs_cgroups
def test_an_instance_over_its_ram_is_killed_and_named_and_its_neighbour_goes_on(
    made: Callable[..., Container],
) -> None:
    container = made("auto")
    executor = container.execute(instance("eats", 1, 64), instance("sleeps", 2))
    neighbour = container.up("container_1_sleeps_2")
    container.logged("container_1_eats_1 died: ")
    assert "killed by SIGKILL (killed: used 64 MB of its 64 MB)" in container.log()
    alive = HostProcess.of(neighbour)
    assert alive is not None
    assert read_pids(container.dir)["container_1_sleeps_2"].restarts == 0
    end(executor)
    assert container.groups() == []


@needs_cgroups
def test_the_record_of_the_next_start_says_how_much_ram_it_was(made: Callable[..., Container]) -> None:
    container = made("auto", restart_backoff_ms=50)
    executor = container.execute(instance("eats", 1, 64))
    id = "container_1_eats_1"

    def check() -> None:
        record = read_pids(container.dir).get(id)
        assert record is not None
        assert record.restarts > 0
        assert (record.last_end, record.over_ram_bytes) == ("killed: used 64 MB of its 64 MB", 64 * MIB)

    eventually_sync(check)
    end(executor)


@needs_cgroups
def test_an_instance_gets_no_more_cpu_than_it_has(made: Callable[..., Container]) -> None:
    container = made("auto")
    executor = container.execute(instance("burns", 1, 128, 0.2), instance("sleeps", 2))
    pid = container.up("container_1_burns_1")
    container.up("container_1_sleeps_2")
    (group,) = (path for path in container.groups() if (path / "cpu.stat").exists() and path.name.endswith("burns_1"))
    assert str(pid) in (group / "cgroup.procs").read_text().split()
    began_s = time.monotonic()  # taken first, so that a pause in here makes the share smaller
    before_s = cpu_s(pid)

    def check() -> None:
        assert cpu_s(pid) >= before_s + 0.3

    eventually_sync(check, within_s=300.0)  # a busy machine gives it less than its limit, and never throttles it
    share = (cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    assert share < 0.35, "a fifth of a core, and what was left of the period before"
    end(executor)
    assert container.groups() == []


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@needs_cgroups
def test_groups_of_a_killed_executor_are_removed_by_the_next_one_and_by_hand(
    made: Callable[..., Container],
) -> None:
    container = made("auto")
    for executor in (container.execute(instance("sleeps", 1, 64)) for _ in range(2)):
        container.up("container_1_sleeps_1")
        assert len(container.groups()) == len(TREES)
        executor.kill()
        executor.wait()
        (container.launch.dir / "container_1_sleeps_1.up").unlink()
        assert len(container.groups()) == len(TREES), "nobody has removed them yet"
    remove_cgroups(container.dir)
    assert container.groups() == []
    assert not (container.dir / "cgroups").exists()


@needs_cgroups
def test_an_instance_that_an_update_removes_leaves_no_group(made: Callable[..., Container]) -> None:
    container = made("auto")
    executor = container.execute(instance("sleeps", 1, 64), instance("sleeps", 2, 64))
    container.up("container_1_sleeps_1")
    container.up("container_1_sleeps_2")
    container.pack(instance("sleeps", 1, 64))

    def check() -> None:
        assert {group.name for group in container.groups()} == {"container_1_sleeps_1"}

    eventually_sync(check)
    end(executor)


def test_without_cgroups_the_ram_is_looked_at(made: Callable[..., Container]) -> None:
    container = made("rlimit")
    executor = container.execute(instance("eats", 1, 64), instance("sleeps", 2))
    neighbour = container.up("container_1_sleeps_2")
    container.logged("container_1_eats_1 died: ")
    assert " MB of its 64 MB)" in container.log()
    assert HostProcess.of(neighbour) is not None
    assert container.groups() == []
    end(executor)


def test_cgroups_are_made_while_the_executor_is_alone_in_its_own(made: Callable[..., Container]) -> None:
    """Version 2 allows no group that has both processes and children with controllers."""
    container = made("auto", cgroup_parent="x" * 5000)  # which cannot be made, so it says when it has tried
    executor = container.execute(instance("sleeps", 1, 64), instance("sleeps", 2))
    container.up("container_1_sleeps_1")
    before, tried, _ = container.log().partition("the RAM of instances is checked once a second instead")
    assert tried, container.log()
    assert "started: pid" not in before
    end(executor)


def test_what_has_no_limits_is_left_alone(made: Callable[..., Container]) -> None:
    container = made("auto")
    executor = container.execute(instance("sleeps", 1))
    container.up("container_1_sleeps_1")
    assert not (container.dir / "cgroups").exists()
    end(executor)
