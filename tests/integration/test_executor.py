"""The executor as a real process, with small real children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import executor_process
import pytest
from executor_process import Container, differs, equal
from small_disk import fill, small_disk
from topology_on_disk import remove

from heronpy.executor import Children, Command
from heronpy.host import (
    CONTAINER_ENV,
    OUT_BYTES_MAX,
    OWNER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    HostProcess,
    find_by_environment,
    mark_killed,
    open_out,
    read_pids,
)
from heronpy.testing import eventually_sync

container, stop_timeout_ms = executor_process.container, executor_process.stop_timeout_ms


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
    eventually_sync(lambda: differs(container.up("stmgr-1")["stmgr-1"], first))
    assert read_pids(container.launch.container_dir(1))["stmgr-1"].restarts == 1
    assert f"stmgr-1 died: pid {first}, killed by SIGKILL" in container.log()


def test_a_process_started_while_the_disk_was_full_is_on_record_when_there_is_room(
    container: Container,
) -> None:
    container.pack("sleeps")
    with small_disk(container.launch.container_dir(1)) as disk:
        executor = container.execute()
        first = container.up("stmgr-1")["stmgr-1"]
        fill(disk / "filling")
        os.kill(first, signal.SIGKILL)
        eventually_sync(lambda: equal("stmgr-1" in read_pids(disk), False))
        (disk / "filling").unlink()
        second = eventually_sync(lambda: _other(container.up("stmgr-1")["stmgr-1"], first))
        record = read_pids(disk)["stmgr-1"]
        assert (record.pid, record.restarts, record.last_end) == (second, 1, "killed by SIGKILL")
        executor.terminate()
        assert executor.wait(300) == 0


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
    eventually_sync(lambda: differs(container.up("container_1_forks_1")["container_1_forks_1"], first))
    eventually_sync(lambda: equal([p for p in in_group if p.alive], []))


def test_nothing_is_left_after_kill_9_of_the_executor(container: Container) -> None:
    container.pack("sleeps", "ignores")
    executor = container.execute()
    container.up("container_1_sleeps_1", "container_1_ignores_2", "stmgr-1", "metricsmgr-1")
    executor.kill()
    executor.wait()
    eventually_sync(lambda: equal(container.left(), []))


def test_the_next_executor_sweeps_what_user_code_left_after_kill_9(container: Container) -> None:
    container.pack("forks")
    first = container.execute()
    pid = container.up("container_1_forks_1")["container_1_forks_1"]
    first.kill()
    first.wait()
    second = container.execute()
    eventually_sync(lambda: differs(container.up("container_1_forks_1")["container_1_forks_1"], pid))
    assert container.left().count("container_1_forks_1") == 3
    assert read_pids(container.launch.container_dir(1))["executor"].restarts == 1
    second.terminate()
    assert second.wait(300) == 0
    assert container.left() == []


def test_kill_9_during_start_up_leaves_nothing(container: Container) -> None:
    container.pack("sleeps", "sleeps", "sleeps")
    executor = container.execute()
    # As soon as it has started any child, which is then still importing.
    eventually_sync(lambda: differs(read_pids(container.launch.container_dir(1)).keys() - {"executor"}, set()))
    executor.kill()
    executor.wait()
    eventually_sync(lambda: equal(container.left(), []))


def test_a_start_with_other_code_is_no_restart(container: Container) -> None:
    container.pack("sleeps")
    container.execute()
    (first,) = container.up("container_1_sleeps_1").values()
    container.pack("sleeps", code="0123456789ab")
    second = eventually_sync(lambda: _other(container.up("container_1_sleeps_1")["container_1_sleeps_1"], first))
    record = read_pids(container.launch.container_dir(1))["container_1_sleeps_1"]
    assert (record.pid, record.restarts, record.restarts_within(600, time.time())) == (second, 0, 0)


def test_restarts_are_counted_on_by_the_next_executor_which_is_none(container: Container) -> None:
    container.pack("sleeps")
    executor = container.execute()
    first = container.up("stmgr-1")["stmgr-1"]
    os.kill(first, signal.SIGKILL)
    second = eventually_sync(lambda: _other(container.up("stmgr-1")["stmgr-1"], first))
    executor.terminate()
    assert executor.wait(300) == 0
    container.execute()
    eventually_sync(lambda: differs(container.up("stmgr-1")["stmgr-1"], second))
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
    eventually_sync(lambda: differs(read_pids(container.launch.container_dir(1)), {}))
    executor.terminate()
    executor.wait(300)
    assert container.left() == []


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
    eventually_sync(lambda: equal(HostProcess.of(pid), None))
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
