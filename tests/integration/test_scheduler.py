"""The local scheduler and its service: real services, real executors."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc.aio
import heron_scheduler
import pytest
import scheduled_topology
from heron_scheduler import ContainerPhase
from scheduled_topology import HANGS_FOUND_SOON, Topology, equal, plan

from heronpy.errors import NotFoundError, UnavailableError
from heronpy.host import (
    HostProcess,
    service_record,
)
from heronpy.proto import scheduler_pb2, scheduler_pb2_grpc, state_pb2
from heronpy.rpc import channel
from heronpy.security import SCHEDULER
from heronpy.statemgr import Kind
from heronpy.testing import eventually_sync

heartbeat_timeout_ms, running = scheduled_topology.heartbeat_timeout_ms, scheduled_topology.running
topology = scheduled_topology.topology


def test_the_service_answers_and_every_container_has_an_executor(running: Topology) -> None:
    assert heron_scheduler.job_links(running.launch) == [running.launch.dir.as_uri()]
    value = running.statemgr.get(Kind.SCHEDULERS, running.launch.topology)
    assert value is not None
    assert state_pb2.SchedulerLocation.FromString(value).pid == running.service().pid
    executors = running.executors(0, 1, 2)
    told = heron_scheduler.containers(running.launch)
    assert [(one.container, one.phase, one.job) for one in told] == [
        (n, ContainerPhase.RUNNING, f"pid {executors[n].pid}") for n in (0, 1, 2)
    ]


def test_a_topology_has_one_session_of_its_own_and_each_executor_a_process_group(running: Topology) -> None:
    service = running.service()
    assert os.getsid(service.pid) == service.pid
    for executor in running.executors(0, 1, 2).values():
        assert (os.getsid(executor.pid), os.getpgid(executor.pid)) == (service.pid, executor.pid)


def test_a_dead_executor_is_started_again(running: Topology) -> None:
    before = running.executors(0, 1, 2)
    before[1].send(signal.SIGKILL)
    eventually_sync(lambda: equal(before[1].alive, False))
    after = running.executors(0, 1, 2)
    assert after[1] != before[1]
    assert (after[0], after[2]) == (before[0], before[2])


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_executors_survive_their_service_and_the_next_one_adopts_them(running: Topology, signum: int) -> None:
    before = running.executors(0, 1, 2)
    service = running.service()
    service.send(signum)
    eventually_sync(lambda: equal(service.alive, False))
    heron_scheduler.ensure_service(running.launch)  # executor 0 may have been quicker
    assert running.executors(0, 1, 2) == before
    before[2].send(signal.SIGKILL)  # adopted means supervised
    eventually_sync(lambda: equal(before[2].alive, False))
    assert running.executors(0, 1, 2)[2] != before[2]


@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_dead_service_comes_back_without_any_command(running: Topology, signum: int) -> None:
    executors, first = running.executors(0, 1, 2), running.service()
    first.send(signum)
    running.replaced(first)
    assert running.executors(0, 1, 2) == executors
    record = service_record(running.launch)
    assert record is not None
    assert record.restarts == 1
    executors[2].send(signal.SIGKILL)  # and supervises again
    eventually_sync(lambda: equal(executors[2].alive, False))
    assert running.executors(0, 1, 2)[2] != executors[2]


@HANGS_FOUND_SOON
def test_a_stopped_service_is_replaced(running: Topology) -> None:
    first = running.service()
    first.send(signal.SIGSTOP)
    running.replaced(first)


@HANGS_FOUND_SOON
def test_a_stopped_executor_is_replaced(running: Topology) -> None:
    first = running.executors(0, 1, 2)[1]
    first.send(signal.SIGSTOP)
    eventually_sync(lambda: equal(first.alive, False))
    assert running.executors(0, 1, 2)[1] != first


@pytest.mark.parametrize("dead", [(0,), pytest.param((0, 1), marks=pytest.mark.long)])
def test_a_service_that_dies_with_those_who_watch_it_is_started_by_another_executor(
    running: Topology, dead: tuple[int, ...]
) -> None:
    first, before = running.service(), running.executors(0, 1, 2)
    for process in (first, *(before[container] for container in dead)):
        process.send(signal.SIGKILL)
    running.replaced(first)
    eventually_sync(lambda: equal([c for c in dead if before[c].alive], []))
    after = running.executors(0, 1, 2)
    assert {container for container in after if after[container] == before[container]} == {0, 1, 2} - {*dead}
    running.service()  # one


def test_when_service_and_executors_die_at_once_the_next_touch_starts_everything_again(running: Topology) -> None:
    before = [running.service(), *running.executors(0, 1, 2).values()]
    assert not heron_scheduler.revive(running.launch)
    for process in before:
        process.send(signal.SIGKILL)
    eventually_sync(lambda: equal([process for process in before if process.alive], []))
    assert heron_scheduler.revive(running.launch)
    assert not set(running.executors(0, 1, 2).values()) & set(before)
    assert not heron_scheduler.revive(running.launch)


def test_a_service_is_asked_also_where_its_pid_is_not_to_be_seen(running: Topology) -> None:
    service = running.service()
    value = running.statemgr.get(Kind.SCHEDULERS, running.launch.topology)
    assert value is not None
    location = state_pb2.SchedulerLocation.FromString(value)
    location.pid = 1 << 22  # as of a service on another host: larger than any pid here
    running.statemgr.set(Kind.SCHEDULERS, running.launch.topology, location.SerializeToString())
    heron_scheduler.restart(running.launch, 1)
    assert running.service() == service


def test_a_restart_replaces_one_container_and_leaves_the_others_alone(running: Topology) -> None:
    before = running.executors(0, 1, 2)
    heron_scheduler.restart(running.launch, 1)
    after = running.executors(0, 1, 2)
    assert after[1] != before[1]
    assert (after[0], after[2]) == (before[0], before[2])


def test_a_restart_of_all_replaces_every_container_and_revives_a_dead_service(running: Topology) -> None:
    before = running.executors(0, 1, 2)
    running.service().send(signal.SIGKILL)
    heron_scheduler.restart(running.launch)
    after = running.executors(0, 1, 2)
    assert not set(before.values()) & set(after.values())
    assert running.service().alive


def test_a_service_waits_for_another_that_has_not_said_whether_it_begins_or_ends(running: Topology) -> None:
    running.executors(0, 1, 2)[0].send(signal.SIGSTOP)  # it would start the service again
    service = running.service()
    service.send(signal.SIGKILL)
    eventually_sync(lambda: equal(service.alive, False))
    with (running.launch.dir / "scheduler.lock").open("w") as lock, ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensured = threads.submit(heron_scheduler.ensure_service, running.launch)
        following = running.service()
        eventually_sync(lambda: is_open(Path(lock.name), following))
        fcntl.flock(lock, fcntl.LOCK_UN)
        ensured.result()
    assert running.service() == following


def is_open(path: Path, process: HostProcess) -> None:
    assert any(link.resolve() == path.resolve() for link in Path(f"/proc/{process.pid}/fd").iterdir())


def test_a_restart_of_an_unknown_container_is_refused(running: Topology) -> None:
    with pytest.raises(NotFoundError, match="no container 7"):
        heron_scheduler.restart(running.launch, 7)


def test_a_service_that_cannot_start_is_reported_with_the_end_of_its_log(topology: Topology) -> None:
    with pytest.raises(UnavailableError, match="has no packing plan"):
        heron_scheduler.launch_service(topology.launch)
    assert topology.processes("scheduler") == []


def test_a_service_leaves_a_later_topology_of_the_same_name_alone(topology: Topology) -> None:
    topology.submitted(plan(1, 2))
    later = state_pb2.ExecutionState(topology="words", topology_id="another")
    topology.statemgr.set(Kind.EXECUTIONSTATE, "words", later.SerializeToString())
    with pytest.raises(UnavailableError, match="the state manager has another submission of words"):
        heron_scheduler.launch_service(topology.launch)
    assert topology.statemgr.get(Kind.SCHEDULERS, "words") is None
    assert topology.processes("scheduler") == topology.processes("executor") == []


def test_how_an_executor_died_is_known_while_it_is_started_again_and_again(topology: Topology) -> None:
    topology.submitted(plan(1))
    (topology.launch.container_dir(0) / "executor.lock").mkdir(parents=True)  # so it cannot even record that it runs
    heron_scheduler.launch_service(topology.launch)

    def reasons() -> dict[int, str]:
        return {one.container: one.reason for one in heron_scheduler.containers(topology.launch)}

    def first_died() -> None:
        found = reasons()
        assert found.keys() == {0, 1}
        assert found[0].startswith("exit code 1: IsADirectoryError: ")
        assert found[1] == ""

    eventually_sync(first_died)
    (topology.launch.container_dir(0) / "executor.lock").rmdir()
    topology.executors(0, 1)
    killed = topology.executors(0, 1)[1]
    killed.send(signal.SIGKILL)
    eventually_sync(lambda: equal(reasons().get(1), "killed by SIGKILL"))


def test_a_second_service_gives_way(running: Topology) -> None:
    first = running.service()
    with pytest.raises(UnavailableError, match="has a scheduler service already"):
        heron_scheduler.launch_service(running.launch)
    assert running.service() == first


def test_everything_owned_ends_with_its_owner(topology: Topology) -> None:
    topology.submitted(plan(1))
    owner = subprocess.Popen(["sleep", "600"])
    identity = HostProcess.of(owner.pid)
    assert identity is not None
    with heron_scheduler.owned_by(identity):
        heron_scheduler.launch_service(topology.launch)
    topology.executors(0, 1)
    owner.kill()
    owner.wait()
    eventually_sync(lambda: equal(topology.left(), []))


def test_owned_executors_end_with_their_owner_also_when_their_service_is_dead(topology: Topology) -> None:
    topology.submitted(plan(1))
    owner = subprocess.Popen(["sleep", "600"])
    identity = HostProcess.of(owner.pid)
    assert identity is not None
    with heron_scheduler.owned_by(identity):
        heron_scheduler.launch_service(topology.launch)
    topology.executors(0, 1)
    topology.service().send(signal.SIGSTOP)  # it cannot do it
    owner.kill()
    owner.wait()
    topology.executors()


def test_a_call_without_the_token_is_refused(running: Topology) -> None:
    value = running.statemgr.get(Kind.SCHEDULERS, running.launch.topology)
    assert value is not None
    endpoint = state_pb2.SchedulerLocation.FromString(value).endpoint

    async def call() -> None:
        stranger = dataclasses.replace(running.launch.security("heron"), token="guessed")
        async with channel(endpoint, stranger, SCHEDULER) as link:
            stub = scheduler_pb2_grpc.SchedulerStub(link)
            await stub.Kill(scheduler_pb2.SchedulerRequest(), metadata=stranger.metadata, timeout=300)

    with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
        asyncio.run(call())
    assert running.service().alive
