"""LocalCluster: real topologies for tests."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numbers_topology import Apart, Broken, Numbers, Small

from heronpy.errors import NotFoundError, UnavailableError, UsageError
from heronpy.host import TOPOLOGY_ENV, HostProcess, find_by_environment
from heronpy.testing import LocalCluster, TopologyHandle, eventually, eventually_sync, scrape

KERNEL = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


def test_a_topology_runs_over_ipv6_alone() -> None:
    with LocalCluster({**FAST, "heron.network.bind.address": "::1"}) as cluster:
        numbers = cluster.submit(Apart).wait_running()
        assert {stmgr.location.host for stmgr in numbers.status().stmgrs} == {"::1"}
        eventually_sync(lambda: _positive(executed(numbers)))  # tuples pass between two Stream Managers
        for container in range(3):
            file = numbers.launch.container_dir(container) / "prometheus.address"
            eventually_sync(lambda file=file: _positive(file.exists()))  # a topology runs without its metrics
            assert file.read_text().startswith("[::1]:")
            assert "heron_uptime_seconds" in scrape(numbers.launch, file.read_text())
        numbers.restart(0)  # the scheduler service answers at an IPv6 address
        numbers.wait_running()


def test_nothing_is_left_after_the_block(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(Small)
        home = cluster.home
    assert not home.exists()
    assert not topology.launch.socket_root().exists()
    assert left(topology.launch.topology_id) == []
    with pytest.raises(UsageError):
        _ = cluster.home


def test_everything_ends_when_the_test_process_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from numbers_topology import Small\n"
        "from heronpy.testing import LocalCluster\n"
        "with LocalCluster() as cluster:\n"
        "    topology = cluster.submit(Small).wait_running()\n"
        "    print(topology.launch.topology_id, cluster.home, flush=True)\n"
        "    time.sleep(600)\n"
    )
    test_run = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert test_run.stdout is not None
    topology_id, home = test_run.stdout.readline().split()
    assert left(topology_id)
    test_run.kill()
    test_run.wait()
    test_run.stdout.close()
    eventually_sync(lambda: _empty(left(topology_id)))
    assert not list(Path(home).glob("topologies/*/*/*/*"))
    shutil.rmtree(home)  # the empty home directory is all that a killed process leaves


def test_a_topology_that_cannot_run_says_why() -> None:
    with LocalCluster(FAST) as cluster:
        broken = cluster.submit(Broken)

        def check() -> None:
            said = ""  # for a moment it seems to run, until its user code has failed
            try:
                broken.wait_running(within_s=2)
            except UnavailableError as e:
                said = str(e)
            assert "the database is not there" in said

        eventually_sync(check)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(FAST) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def numbers(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Numbers).wait_running()


def executed(topology: TopologyHandle) -> float:
    return sum(
        value
        for instance in topology.status().instances
        for name, value in instance.totals.items()
        if name.startswith("__execute-count")
    )


def test_a_topology_class_is_submitted_and_runs(numbers: TopologyHandle) -> None:
    assert numbers.status().state == "RUNNING"
    assert {instance.component for instance in numbers.status().instances} == {"numbers", "sums"}
    eventually_sync(lambda: _positive(executed(numbers)))


def test_processes_names_every_process_and_its_pid(numbers: TopologyHandle) -> None:
    instances = {i.id for i in numbers.status().instances}
    expected = {
        "tmaster",
        "stmgr-1",
        "stmgr-2",
        *(f"{kind}-{n}" for kind in ("metricsmgr", "executor") for n in range(3)),
    }
    assert numbers.processes().keys() == expected | instances
    assert all(HostProcess.of(pid) for pid in numbers.processes().values())


def slice_ns(schedule: Path) -> int:
    found = re.search(r"^se\.slice\s*:\s*(\d+)$", schedule.read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_instances_leave_the_cpu_to_the_engine_and_do_not_interrupt_each_other(numbers: TopologyHandle) -> None:
    for id, pid in numbers.processes().items():
        is_instance = id.startswith("container_")
        assert os.sched_getscheduler(pid) == (os.SCHED_BATCH if is_instance else os.SCHED_OTHER), id
        nice = os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, 0)
        assert nice == (5 if is_instance else 0), id
        schedule = Path(f"/proc/{pid}/sched")  # not every kernel has it
        if KERNEL >= (6, 12) and schedule.exists():
            assert (slice_ns(schedule) == 10_000_000) == is_instance, id


def test_logs_are_found_by_process_id(numbers: TopologyHandle) -> None:
    assert "heronpy" in numbers.logs("stmgr-1")
    assert "started" in numbers.logs("executor-1")
    with pytest.raises(NotFoundError, match="did you mean 'stmgr-1'"):
        numbers.logs("stmgr1")


def test_deactivate_and_activate(numbers: TopologyHandle) -> None:
    numbers.deactivate()
    assert numbers.status().state == "PAUSED"
    numbers.activate()
    assert numbers.status().state == "RUNNING"


def test_a_killed_instance_comes_back(numbers: TopologyHandle) -> None:
    numbers.wait_running()
    id = next(i.id for i in numbers.status().instances if i.component == "sums")
    pid = numbers.processes()[id]
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: _is_new(numbers.processes().get(id), pid))
    numbers.wait_running()


def test_a_restarted_container_has_new_processes_and_the_others_keep_theirs(numbers: TopologyHandle) -> None:
    before = numbers.wait_running().processes()
    numbers.restart(1)
    eventually_sync(lambda: _is_new(numbers.processes().get("stmgr-1"), before["stmgr-1"]))
    numbers.wait_running()
    assert numbers.processes()["stmgr-2"] == before["stmgr-2"]
    assert numbers.processes()["tmaster"] == before["tmaster"]


async def test_a_handle_works_inside_an_event_loop_too(numbers: TopologyHandle) -> None:
    await eventually(lambda: _positive(executed(numbers)))


@pytest.mark.long
def test_two_topologies_of_one_cluster_have_different_names(
    cluster: LocalCluster, numbers: TopologyHandle, tmp_path: Path
) -> None:
    extra = tmp_path / "model.txt"
    extra.write_text("weights")
    other = cluster.submit(Small, name="others", files=[extra]).wait_running()
    assert sorted(t.name for t in cluster.topologies()) == [numbers.name, "others"]
    assert list(other.launch.dir.rglob("model.txt"))
    other.kill()
    assert [t.name for t in cluster.topologies()] == [numbers.name]
    assert not other.launch.dir.exists()


def left(topology_id: str) -> list[int]:
    return [process.pid for process, _ in find_by_environment({TOPOLOGY_ENV: topology_id})]


def _positive(found: float) -> None:
    assert found > 0


def _empty(found: object) -> None:
    assert not found


def _is_new(found: int | None, before: int) -> None:
    assert found not in (None, before)
