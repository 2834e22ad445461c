"""`heron update --code` on topologies that run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from versioned_topology import KEYS, counts_in, program, seen_in, versions_in

from heronpy import loader
from heronpy.errors import StateError
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.submit import plan_code_update, plans, update_code
from heronpy.submit.parts import change_plan
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

_CHANGE_PLAN = "heronpy.submit._update_code.change_plan"


def command(program: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "heronpy.cli", "update", "versioned", "--code", str(program), *options]


def updated(cluster: LocalCluster, program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HERON_HOME": str(cluster.home)}
    return subprocess.run(
        command(program, *options), env=environ, text=True, capture_output=True, timeout=300, check=False
    )


def counted_by(directory: Path, version: int) -> int:
    return sum(counts[version - 1] for counts in counts_in(directory).values())


def code_directories(topology: TopologyHandle) -> list[str]:
    return sorted(path.name for path in topology.launch.code_dir("").glob("*"))


def test_new_code_counts_from_the_switch_on_and_code_that_fails_is_rolled_back(tmp_path: Path) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(program(tmp_path, 1, stateful=True)).wait_running()

        def counted_by_version(version: int) -> None:
            assert counted_by(tmp_path, version) > 100

        eventually_sync(lambda: counted_by_version(1))
        other = updated(cluster, program(tmp_path, 2, stateful=True, tasks=3))
        assert (other.returncode != 0, "change that by --component-parallelism count:3" in other.stderr) == (True, True)
        second = program(tmp_path, 2, stateful=True)
        dry = updated(cluster, second, "--dry-run")
        assert (dry.returncode, versions_in(tmp_path)) == (0, [1, 1]), dry.stderr
        before = topology.launch.code
        assert dry.stdout.startswith(f"code: {before} → ")
        id = topology.launch.topology_id

        done = updated(cluster, second)
        assert done.returncode == 0, done.stderr
        after = plans(topology.launch)[1]
        assert (after.trial, plans(topology.launch)[0].id) == (None, id)
        (version,) = after.versions
        assert f"versioned runs code {version}" in done.stdout
        assert (code_directories(topology), (topology.launch.dir / "package").exists()) == ([version], False)
        eventually_sync(lambda: counted_by_version(2))
        switch = counted_by(tmp_path, 1)
        first = {f"key {key}": switch // KEYS + (key < switch % KEYS) for key in range(KEYS)}
        assert {key: counts[0] for key, counts in counts_in(tmp_path).items()} == first, "all before the switch, once"

        failed = updated(cluster, program(tmp_path, 3, stateful=True))
        assert failed.returncode != 0
        assert "is rolled back: " in failed.stderr
        assert "version 3 fails at once" in failed.stderr
        assert (plans(topology.launch)[1], code_directories(topology)) == (after, [version])
        (tmp_path / "finish").touch()

        def all_once() -> None:
            assert (tmp_path / "emitted").exists()
            numbers = int((tmp_path / "emitted").read_text())
            assert {key: sum(counts) for key, counts in counts_in(tmp_path).items()} == {
                f"key {key}": numbers // KEYS for key in range(KEYS)
            }
            assert counted_by(tmp_path, 1) == switch

        eventually_sync(all_once)
        assert not topology.status().checkpoints.failed or topology.status().checkpoints.committed


def test_an_update_goes_on_after_the_death_of_the_one_before(tmp_path: Path) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(program(tmp_path, 1, stateful=True)).wait_running()
        second = program(tmp_path, 2, stateful=True)
        environ = {**os.environ, "HERON_HOME": str(cluster.home)}
        with subprocess.Popen(command(second), env=environ, stderr=subprocess.DEVNULL) as dying:

            def on_trial() -> None:
                assert plans(topology.launch)[1].trial is not None

            try:
                eventually_sync(on_trial)
            finally:
                dying.kill()
        assert plans(topology.launch)[1].trial is not None
        done = updated(cluster, second)
        assert done.returncode == 0, done.stderr
        assert "rolling back what an interrupted update has left" in done.stderr

        def all_new() -> None:
            assert versions_in(tmp_path) == [2, 2]

        eventually_sync(all_new)
        (tmp_path / "finish").touch()

        def all_once() -> None:
            assert (tmp_path / "emitted").exists()
            numbers = int((tmp_path / "emitted").read_text())
            found = {key: sum(counts) for key, counts in counts_in(tmp_path).items()}
            assert found == {f"key {key}": numbers // KEYS for key in range(KEYS)}

        eventually_sync(all_once)


def test_without_checkpoints_containers_change_their_code_one_after_the_other(tmp_path: Path) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(program(tmp_path, 1, stateful=False)).wait_running()

        def runs(version: int) -> None:
            assert versions_in(tmp_path) == [version, version]

        eventually_sync(lambda: runs(1))
        done = updated(cluster, program(tmp_path, 2, stateful=False))
        assert done.returncode == 0, done.stderr
        steps = [line for line in done.stderr.splitlines() if line.startswith("restarting")]
        assert steps == ["restarting container 1 …", "restarting container 2 …"]
        eventually_sync(lambda: runs(2))
        after = plans(topology.launch)[1]
        failed = updated(cluster, program(tmp_path, 3, stateful=False))
        assert failed.returncode != 0
        assert "version 3 fails at once" in failed.stderr
        assert "restarting container 2" not in failed.stderr
        assert plans(topology.launch)[1] == after
        for path in tmp_path.glob("counts-*.json"):
            path.unlink()
        eventually_sync(lambda: runs(2))


def test_containers_that_come_while_new_code_is_staged_do_not_keep_the_old_code(tmp_path: Path) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(program(tmp_path, 1, stateful=False)).wait_running()
        second = loader.define(str(program(tmp_path, 2, stateful=False)), "-", [])

        def more(step: str) -> None:
            if step == "staging the package":
                topology.update(containers=3, count=3)

        with pytest.raises(StateError, match="was changed by somebody else: ask again"):
            update_code(plan_code_update(topology.launch, second, home=cluster.home), on_step=more)
        assert (len(plans(topology.launch)[1].containers), plans(topology.launch)[1].versions) == (3, {""})
        version = update_code(plan_code_update(topology.launch, second, home=cluster.home))
        after = plans(topology.launch)[1]
        assert ([container.code for container in after.containers], after.trial) == ([version] * 3, None)


def test_an_update_of_a_topology_that_is_killed_meanwhile_says_so_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        topology = cluster.submit(program(tmp_path, 1, stateful=False)).wait_running()
        second = loader.define(str(program(tmp_path, 2, stateful=False)), "-", [])
        planned = plan_code_update(topology.launch, second, home=cluster.home)
        with pytest.raises(StateError, match="cannot be written"):
            update_code(planned, on_step=lambda step: topology.kill() if step == "staging the package" else None)
        assert "does not know topology versioned" in caplog.text
        assert not topology.launch.dir.exists()


def test_what_goes_wrong_after_code_is_accepted_leaves_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        first, second = (program(tmp_path, version, stateful=True) for version in (1, 2))
        topology = cluster.submit(first).wait_running()

        def update(path: Path, accepted: Callable[[], None]) -> str:
            def change(launch: Launch, base: PackingPlan, packing: PackingPlan, **how: float) -> None:
                change_plan(launch, base, packing, **how)
                if base.trial is not None:
                    accepted()

            monkeypatch.setattr(_CHANGE_PLAN, change)
            definition = loader.define(str(path), "-", [])
            return update_code(plan_code_update(topology.launch, definition, home=cluster.home))

        def interrupt() -> None:
            raise KeyboardInterrupt

        def lose_lock() -> None:
            next(cluster.home.glob("state/*/locks/versioned__code")).unlink()

        version = update(second, lose_lock)
        assert (plans(topology.launch)[1].versions, code_directories(topology)) == ({version}, [version])
        assert "was lost while it was held" in caplog.text
        with pytest.raises(KeyboardInterrupt):
            update(first, interrupt)
        (newest,) = plans(topology.launch)[1].versions
        assert (newest != version, code_directories(topology)) == (True, [newest])
        assert f"code {newest} of versioned was accepted already, and stays" in caplog.text


def test_at_least_once_with_checkpoints_nothing_is_lost(tmp_path: Path) -> None:
    with LocalCluster({"heron.executor.stop.timeout.ms": 2000}) as cluster:
        cluster.submit(program(tmp_path, 1, stateful=True, mode="ATLEAST_ONCE")).wait_running()
        done = updated(cluster, program(tmp_path, 2, stateful=True, mode="ATLEAST_ONCE"))
        assert done.returncode == 0, done.stderr
        failed = updated(cluster, program(tmp_path, 3, stateful=True, mode="ATLEAST_ONCE"))
        assert "version 3 fails at once" in failed.stderr

        def counts_again() -> None:
            assert counted_by(tmp_path, 2) > 100

        eventually_sync(counts_again)
        (tmp_path / "finish").touch()

        def all_seen() -> None:
            assert (tmp_path / "emitted").exists()
            numbers = int((tmp_path / "emitted").read_text())
            assert seen_in(tmp_path) == {f"key {key}": numbers // KEYS for key in range(KEYS)}

        eventually_sync(all_seen, within_s=120)
        assert counted_by(tmp_path, 3) == 0
