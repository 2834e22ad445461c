"""The executor as a real process, with small real children."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from topology_on_disk import remove

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.executor import Children, Command
from heronpy.host import (
    CONTAINER_ENV,
    OUT_BYTES_MAX,
    OWNER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    HostProcess,
    child_environment,
    find_by_environment,
    mark_killed,
    open_out,
    read_pids,
)
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, StateManager, container_node, open_statemgr
from heronpy.testing import eventually_sync

STANDIN = Path(__file__).with_name("standin_executor.py")
NOTHING = Resources(0, 0, 0)


def plan(*components: str) -> PackingPlan:
    instances = tuple(InstancePacking(name, task, 0, NOTHING) for task, name in enumerate(components, start=1))
    return PackingPlan("plan", (ContainerPacking(1, instances, NOTHING),))


class Container:
    """Container 1 of a topology, and its executor."""

    def __init__(self, launch: Launch, statemgr: StateManager) -> None:
        self.launch = launch
        self._statemgr = statemgr
        self._executors: list[subprocess.Popen[bytes]] = []

    def pack(self, *components: str) -> None:
        self._statemgr.set(Kind.PACKINGPLANS, self.launch.topology, plan(*components).to_proto().SerializeToString())

    def prepare(self, *components: str) -> None:
        value = plan(*components).to_proto().SerializeToString() if components else b""
        self._statemgr.set(Kind.NEXTPACKINGPLANS, self.launch.topology, value)

    def damage(self, kind: Kind) -> None:
        self._statemgr.set(kind, self.launch.topology, b"\xff\xfe not a record")

    def execute(self, number: int = 1, **env: str) -> subprocess.Popen[bytes]:
        self._executors.append(
            subprocess.Popen(
                [sys.executable, str(STANDIN), "--dir", str(self.launch.dir), "--container", str(number)],
                env=child_environment(self.launch, "executor", **{CONTAINER_ENV: str(number)}, **env),
            )
        )
        return self._executors[-1]

    def up(self, *ids: str, number: int = 1) -> dict[str, int]:
        """Wait until these processes run user code; their pids."""

        def check() -> dict[str, int]:
            pids = {id: record.pid for id, record in read_pids(self.launch.container_dir(number)).items()}
            for id in ids:
                up = self.launch.dir / f"{id}.up"
                assert up.exists(), f"{id} is not up:\n{self.log(number)}"
                assert up.read_text() == str(pids.get(id)), f"{id} is not up again"
            return {id: pids[id] for id in ids}

        return eventually_sync(check)

    def left(self) -> list[str]:
        found = find_by_environment({TOPOLOGY_ENV: self.launch.topology_id})
        return sorted(env[PROCESS_ENV] for _, env in found)

    def log(self, number: int = 1) -> str:
        path = self.launch.log_dir(number) / "executor.log"
        return path.read_text() if path.exists() else ""

    def ended(self) -> list[str]:
        path = self.launch.dir / "ended"
        return path.read_text().split() if path.exists() else []

    def close(self) -> None:
        for executor in self._executors:
            with contextlib.suppress(ProcessLookupError):
                executor.kill()
            executor.wait()
        for process, _ in find_by_environment({TOPOLOGY_ENV: self.launch.topology_id}):
            process.send(signal.SIGKILL)


@pytest.fixture
def stop_timeout_ms() -> int:
    """Long: whoever ends by itself does so, however late it gets to run."""
    return 60_000


def _contains(text: Callable[[], str], part: str, times: int = 1) -> None:
    assert text().count(part) >= times


@pytest.fixture
def container(tmp_path: Path, stop_timeout_ms: int) -> Iterator[Container]:
    launch = Launch(
        topology="words",
        topology_id=f"words-{uuid.uuid4().hex}",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path / "state")),
        dir=tmp_path / "words",
        config=EngineConfig(executor=ExecutorConfig(restart_backoff_ms=50, stop_timeout_ms=stop_timeout_ms)),
    )
    launch.save()
    authority.create(launch.tls_dir, launch.topology_id, range(8), days=1)
    statemgr = open_statemgr(launch.statemgr)
    made = Container(launch, statemgr)
    yield made
    made.close()
    statemgr.close()


def test_every_process_of_the_container_runs_and_has_a_pid_file(container: Container) -> None:
    container.pack("sleeps")
    executor = container.execute()
    container.up("container_1_sleeps_1", "stmgr-1", "metricsmgr-1")
    records = read_pids(container.launch.container_dir(1))
    assert records.keys() == {"container_1_sleeps_1", "stmgr-1", "metricsmgr-1", "executor"}
    assert records["executor"].pid == executor.pid
    for record in records.values():
        assert record.alive
        assert record.restarts == 0
        assert abs(record.started_ms / 1000 - time.time()) < 600


def test_a_killed_process_is_started_again_and_its_restarts_are_counted(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    first = container.up("stmgr-1")["stmgr-1"]
    os.kill(first, signal.SIGKILL)
    eventually_sync(lambda: _differs(container.up("stmgr-1")["stmgr-1"], first))
    assert read_pids(container.launch.container_dir(1))["stmgr-1"].restarts == 1
    assert f"stmgr-1 died: pid {first}, killed by SIGKILL" in container.log()


def test_a_crash_is_logged_with_its_exit_code_and_last_words(container: Container) -> None:
    container.pack("crashes")
    container.execute()

    def check() -> None:
        assert "container_1_crashes_1 died" in container.log()
        assert "exit code 1" in container.log()
        assert "the user's code is wrong" in container.log()

    eventually_sync(check)


def test_sigterm_ends_instances_then_the_stream_manager_then_the_metrics_manager(container: Container) -> None:
    container.pack("sleeps", "sleeps")
    executor = container.execute()
    container.up("container_1_sleeps_1", "container_1_sleeps_2", "stmgr-1", "metricsmgr-1")
    executor.terminate()
    assert executor.wait(300) == 0
    assert sorted(container.ended()[:2]) == ["container_1_sleeps_1", "container_1_sleeps_2"]
    assert container.ended()[2:] == ["stmgr-1", "metricsmgr-1"]
    assert container.left() == []
    assert read_pids(container.launch.container_dir(1)) == {}


@pytest.mark.parametrize("stop_timeout_ms", [5000])
def test_a_process_that_ignores_sigterm_is_killed_after_the_stop_timeout(container: Container) -> None:
    container.pack("ignores")
    executor = container.execute()
    container.up("container_1_ignores_1", "stmgr-1", "metricsmgr-1")
    before = time.monotonic()
    executor.terminate()
    assert executor.wait(300) == 0
    assert time.monotonic() - before >= 5.0
    assert container.ended() == ["stmgr-1", "metricsmgr-1"]
    assert container.left() == []


def test_what_user_code_started_ends_with_the_container_wherever_it_hides(container: Container) -> None:
    container.pack("forks")
    executor = container.execute()
    container.up("container_1_forks_1")
    assert container.left().count("container_1_forks_1") == 3
    executor.terminate()
    assert executor.wait(300) == 0
    assert container.left() == []


def test_the_process_group_of_a_killed_instance_ends_with_it(container: Container) -> None:
    container.pack("forks")
    container.execute()
    first = container.up("container_1_forks_1")["container_1_forks_1"]
    in_group = [p for p, _ in find_by_environment({TOPOLOGY_ENV: container.launch.topology_id}) if _group(p) == first]
    assert len(in_group) == 2
    os.kill(first, signal.SIGKILL)
    eventually_sync(lambda: _differs(container.up("container_1_forks_1")["container_1_forks_1"], first))
    eventually_sync(lambda: _equal([p for p in in_group if p.alive], []))


def test_nothing_is_left_after_kill_9_of_the_executor(container: Container) -> None:
    container.pack("sleeps", "ignores")
    executor = container.execute()
    container.up("container_1_sleeps_1", "container_1_ignores_2", "stmgr-1", "metricsmgr-1")
    executor.kill()
    executor.wait()
    eventually_sync(lambda: _equal(container.left(), []))


def test_the_next_executor_sweeps_what_user_code_left_after_kill_9(container: Container) -> None:
    container.pack("forks")
    first = container.execute()
    pid = container.up("container_1_forks_1")["container_1_forks_1"]
    first.kill()
    first.wait()
    second = container.execute()
    eventually_sync(lambda: _differs(container.up("container_1_forks_1")["container_1_forks_1"], pid))
    assert container.left().count("container_1_forks_1") == 3
    assert read_pids(container.launch.container_dir(1))["executor"].restarts == 1
    second.terminate()
    assert second.wait(300) == 0
    assert container.left() == []


def test_kill_9_during_start_up_leaves_nothing(container: Container) -> None:
    container.pack("sleeps", "sleeps", "sleeps")
    executor = container.execute()
    # As soon as it has started any child, which is then still importing.
    eventually_sync(lambda: _differs(read_pids(container.launch.container_dir(1)).keys() - {"executor"}, set()))
    executor.kill()
    executor.wait()
    eventually_sync(lambda: _equal(container.left(), []))


def test_restarts_are_counted_on_by_the_next_executor_which_is_none(container: Container) -> None:
    container.pack("sleeps")
    executor = container.execute()
    first = container.up("stmgr-1")["stmgr-1"]
    os.kill(first, signal.SIGKILL)
    second = eventually_sync(lambda: _other(container.up("stmgr-1")["stmgr-1"], first))
    executor.terminate()
    assert executor.wait(300) == 0
    container.execute()
    eventually_sync(lambda: _differs(container.up("stmgr-1")["stmgr-1"], second))
    record = read_pids(container.launch.container_dir(1))["stmgr-1"]
    assert (record.restarts, record.restarts_within(600, time.time())) == (1, 1)
    assert record.last_end == "killed by SIGKILL"


def test_a_process_that_keeps_crashing_is_reported_once_to_be_in_a_crash_loop(container: Container) -> None:
    container.pack("crashes")
    container.execute()

    def check() -> None:
        record = read_pids(container.launch.container_dir(1)).get("container_1_crashes_1")
        assert record is not None
        assert record.restarts >= 6
        assert container.log().count("container_1_crashes_1 is in a crash loop: it died 5 times in 600 s") == 1

    eventually_sync(check)


def test_an_executor_ends_in_order_when_its_topology_is_killed_by_somebody_who_cannot_reach_it(
    container: Container,
) -> None:
    container.pack("sleeps")
    executor = container.execute()
    container.up("container_1_sleeps_1", "stmgr-1", "metricsmgr-1")
    mark_killed(container.launch.dir)
    assert executor.wait(300) == 0
    assert container.ended() == ["container_1_sleeps_1", "stmgr-1", "metricsmgr-1"]
    assert container.left() == []


def test_an_executor_ends_when_its_directory_is_gone_and_does_not_make_it_again(container: Container) -> None:
    container.pack("crashes")
    executor = container.execute()
    container.up("stmgr-1")
    remove(container.launch.dir)
    assert executor.wait(300) == 0
    assert container.left() == []
    assert not container.launch.dir.exists()


def test_sigterm_while_there_is_no_plan_yet_ends_the_executor(container: Container) -> None:
    executor = container.execute()
    eventually_sync(lambda: _differs(read_pids(container.launch.container_dir(1)), {}))
    executor.terminate()
    executor.wait(300)
    assert container.left() == []


def test_a_new_packing_plan_starts_and_ends_instances_and_leaves_the_others_alone(container: Container) -> None:
    container.pack("sleeps", "sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1", "container_1_sleeps_2", "stmgr-1")
    container.pack("sleeps", "ignores")
    after = container.up("container_1_sleeps_1", "container_1_ignores_2", "stmgr-1")
    assert after["container_1_sleeps_1"] == before["container_1_sleeps_1"]
    assert after["stmgr-1"] == before["stmgr-1"]
    eventually_sync(lambda: _equal(container.ended(), ["container_1_sleeps_2"]))
    eventually_sync(lambda: _equal("container_1_sleeps_2" in read_pids(container.launch.container_dir(1)), False))


def test_an_executor_goes_on_beside_damaged_plans(container: Container) -> None:
    container.damage(Kind.PACKINGPLANS)
    executor = container.execute()
    eventually_sync(lambda: _contains(container.log, "node packingplans/words of the state manager is damaged"))
    container.pack("sleeps")
    before = container.up("container_1_sleeps_1")
    container.damage(Kind.PACKINGPLANS)
    eventually_sync(lambda: _contains(container.log, "node packingplans/", times=2))
    for kind in (Kind.NEXTPACKINGPLANS, Kind.LOGLEVELS):
        container.damage(kind)
        eventually_sync(partial(_contains, container.log, f"node {kind.value}/"))
    container.pack("sleeps", "sleeps")
    assert (
        container.up("container_1_sleeps_1", "container_1_sleeps_2")["container_1_sleeps_1"]
        == before["container_1_sleeps_1"]
    )
    assert executor.poll() is None
    assert "Traceback" not in container.log()


@pytest.mark.parametrize("lost", [False, True])
def test_the_topology_master_which_has_a_copy_is_started_beside_a_damaged_or_lost_packing_plan(
    container: Container, lost: bool
) -> None:
    if not lost:
        container.damage(Kind.PACKINGPLANS)
    container.execute(0)
    before = container.up("tmaster", number=0)
    container.pack("sleeps")
    container.execute(1)
    container.up("container_1_sleeps_1")
    assert container.up("tmaster", number=0) == before


def test_what_is_being_prepared_is_started_and_ends_if_nothing_comes_of_it(container: Container) -> None:
    container.pack("sleeps", "sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1", "container_1_sleeps_2", "stmgr-1")
    container.prepare("sleeps", "ignores", "sleeps")
    prepared = container.up(*before, "container_1_ignores_2", "container_1_sleeps_3")
    assert {id: prepared[id] for id in before} == before
    container.prepare()
    eventually_sync(lambda: _equal("container_1_sleeps_3" in read_pids(container.launch.container_dir(1)), False))
    container.prepare("sleeps", "sleeps", "sleeps")
    prepared = container.up(*before, "container_1_sleeps_3")
    container.pack("sleeps", "sleeps", "sleeps")
    container.pack("sleeps", "sleeps", "sleeps", "sleeps")
    after = container.up(*before, "container_1_sleeps_3", "container_1_sleeps_4")
    assert {id: after[id] for id in prepared} == prepared


def test_a_second_executor_gives_way_and_harms_nothing(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    before = container.up("container_1_sleeps_1")
    assert container.execute().wait(300) == 1
    assert container.up("container_1_sleeps_1") == before


@pytest.fixture
def elsewhere(container: Container, tmp_path: Path) -> Iterator[Container]:
    """The same container with a directory of its own, as on another host."""
    launch = dataclasses.replace(container.launch, dir=tmp_path / "elsewhere")
    launch.save(token=container.launch.token())
    shutil.copytree(container.launch.tls_dir, launch.tls_dir)
    statemgr = open_statemgr(launch.statemgr)
    made = Container(launch, statemgr)
    yield made
    made.close()
    statemgr.close()


def test_a_container_that_was_stopped_and_replaced_ends_in_order_when_it_goes_on(
    container: Container, elsewhere: Container
) -> None:
    container.pack("sleeps", "forks")
    old = container.execute()
    processes = "container_1_sleeps_1", "container_1_forks_2", "stmgr-1", "metricsmgr-1"
    container.up(*processes)
    os.kill(old.pid, signal.SIGSTOP)
    new = elsewhere.execute()
    pids = elsewhere.up(*processes)
    os.kill(old.pid, signal.SIGCONT)
    assert old.wait(300) == 0, "the cluster is not to start it again"
    assert "replaces this one" in container.log()
    assert len(container.ended()) == 4, "in order"
    assert read_pids(container.launch.container_dir(1)) == {}
    assert elsewhere.up(*processes) == pids, "the other one goes on undisturbed"
    assert elsewhere.left().count("container_1_forks_2") == 3
    new.terminate()
    assert new.wait(300) == 0
    assert elsewhere.left() == []


def test_the_processes_of_a_container_know_its_incarnation(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    pid = container.up("stmgr-1")["stmgr-1"]
    with open_statemgr(container.launch.statemgr) as state:
        value = state.get(Kind.CONTAINERS, container_node(container.launch.topology, 1))
    record = state_pb2.ContainerRecord.FromString(value or b"")
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"HERON_INCARNATION={record.incarnation}".encode() in environment
    assert (record.topology_id, record.container) == (container.launch.topology_id, 1)
    assert record.address == "127.0.0.1"


def test_a_record_that_the_state_manager_has_lost_is_written_again(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    container.up("stmgr-1")
    node = container_node(container.launch.topology, 1)
    with open_statemgr(container.launch.statemgr) as state:
        execution = state_pb2.ExecutionState(topology_id=container.launch.topology_id)
        state.set(Kind.EXECUTIONSTATE, container.launch.topology, execution.SerializeToString())
        before = state.get(Kind.CONTAINERS, node)
        assert before
        state.delete(Kind.CONTAINERS, node)
        eventually_sync(lambda: _equal(state.get(Kind.CONTAINERS, node), before))


def test_an_owned_executor_ends_in_order_when_its_owner_is_gone(container: Container) -> None:
    container.pack("forks")
    owner = subprocess.Popen(["sleep", "600"])
    identity = HostProcess.of(owner.pid)
    executor = container.execute(**{OWNER_ENV: str(identity)})
    container.up("container_1_forks_1", "stmgr-1", "metricsmgr-1")
    owner.kill()
    owner.wait()
    assert executor.wait(300) == 0
    assert container.ended() == ["container_1_forks_1", "stmgr-1", "metricsmgr-1"]
    assert container.left() == []


def test_children_see_their_topology_but_not_the_executors_own_variables(container: Container) -> None:
    container.pack("sleeps")
    executor = container.execute(**{OWNER_ENV: str(HostProcess.of(os.getpid()))})
    container.up("container_1_sleeps_1")
    found = {env[PROCESS_ENV]: env for _, env in find_by_environment({TOPOLOGY_ENV: container.launch.topology_id})}
    child = found["container_1_sleeps_1"]
    assert child[CONTAINER_ENV] == "1"
    assert child["HERON_PARENT_PID"] == str(executor.pid)
    assert child["PYTHONUNBUFFERED"] == "1"
    assert OWNER_ENV not in child
    assert container.launch.token() not in json.dumps(found)


def test_a_process_that_died_just_before_it_was_to_be_ended_is_still_reported_dead(container: Container) -> None:
    container.launch.container_dir(1).mkdir()
    children = Children(container.launch, 1)
    pid = children.start(Command("short", (sys.executable, "-c", "raise SystemExit(3)")))
    assert pid is not None
    eventually_sync(lambda: _equal(HostProcess.of(pid), None))
    children.terminate(pid)
    assert children.dead() == [("short", pid, 3)]
    assert children.dead() == []


def test_a_command_that_does_not_exist_is_no_disaster(container: Container) -> None:
    container.launch.container_dir(1).mkdir()
    assert Children(container.launch, 1).start(Command("missing", ("/no/such/program",))) is None


def test_the_output_of_a_process_is_rotated_before_it_grows_without_bound(tmp_path: Path) -> None:
    out = tmp_path / "stmgr-1.out"
    out.write_bytes(b"x" * (OUT_BYTES_MAX + 1))
    with open_out(out) as f:
        f.write(b"new")
    assert out.read_bytes() == b"new"
    assert out.with_name("stmgr-1.out.1").stat().st_size == OUT_BYTES_MAX + 1


def _group(process: HostProcess) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(process.pid)
    return None


def _other(found: int, before: int) -> int:
    assert found != before
    return found


def _differs(found: object, other: object) -> None:
    assert found != other


def _equal(found: object, expected: object) -> None:
    assert found == expected
