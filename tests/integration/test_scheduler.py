"""The local scheduler and its service: real services, real executors."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import heron_scheduler
import pytest
from heron_scheduler import ContainerPhase, ContainerStatus, LocalScheduler, Scheduler
from heron_scheduler.service import SchedulerService
from topology_on_disk import remove

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.errors import NotFoundError, UnavailableError
from heronpy.executor import stop_limit_s
from heronpy.host import (
    CONTAINER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    HostProcess,
    find_by_environment,
    mark_killed,
    service_record,
)
from heronpy.plan import ContainerPacking, PackingPlan, Resources
from heronpy.proto import scheduler_pb2, scheduler_pb2_grpc, state_pb2
from heronpy.rpc import channel
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import SCHEDULER, authority
from heronpy.statemgr import Kind, StateManager, container_node, open_statemgr
from heronpy.testing import eventually, eventually_sync

SUBMIT = """
import sys, heron_scheduler
from heronpy.runtime import Launch
heron_scheduler.launch_service(Launch.load(sys.argv[1]))
"""

KILL = SUBMIT.replace("launch_service", "kill")


def plan(*containers: int) -> PackingPlan:
    return PackingPlan("plan", tuple(ContainerPacking(id, (), Resources(0, 0, 0)) for id in containers))


class Topology:
    """A topology with containers but without instances."""

    def __init__(self, launch: Launch, statemgr: StateManager) -> None:
        self.launch = launch
        self.statemgr = statemgr

    def submitted(self, packing: PackingPlan) -> None:
        state = state_pb2.ExecutionState(topology=self.launch.topology, topology_id=self.launch.topology_id)
        self.statemgr.set(Kind.PACKINGPLANS, self.launch.topology, packing.to_proto().SerializeToString())
        self.statemgr.set(Kind.EXECUTIONSTATE, self.launch.topology, state.SerializeToString())

    def processes(self, kind: str) -> list[tuple[HostProcess, dict[str, str]]]:
        return list(find_by_environment({TOPOLOGY_ENV: self.launch.topology_id, PROCESS_ENV: kind}))

    def executors(self, *containers: int) -> dict[int, HostProcess]:
        """Wait until exactly these containers have an executor."""

        def check() -> dict[int, HostProcess]:
            # The oldest of each: a child of it that has not exec'd yet looks the same.
            running = sorted(self.processes("executor"), key=lambda one: one[0].start_ticks, reverse=True)
            found = {int(env[CONTAINER_ENV]): process for process, env in running}
            assert found.keys() == set(containers)
            return found

        return eventually_sync(check)

    def service(self) -> HostProcess:
        """The scheduler service; where two were started at a time, the one that does not give way."""

        def check() -> HostProcess:
            found = self.processes("scheduler")
            assert len(found) == 1
            return found[0][0]

        return eventually_sync(check)

    def replaced(self, first: HostProcess) -> None:
        """Wait until another service than the first answers."""

        def check() -> None:
            location = self.statemgr.get(Kind.SCHEDULERS, self.launch.topology)
            assert location is not None
            assert state_pb2.SchedulerLocation.FromString(location).pid != first.pid
            try:
                assert heron_scheduler.job_links(self.launch)
            except UnavailableError as e:
                raise AssertionError(str(e)) from None

        eventually_sync(lambda: _equal(first.alive, False))
        eventually_sync(check)

    def left(self) -> list[str]:
        """Everything that a kill must not leave."""
        found = [env[PROCESS_ENV] for _, env in find_by_environment({TOPOLOGY_ENV: self.launch.topology_id})]
        found += [kind.value for kind in Kind if self.statemgr.get(kind, self.launch.topology) is not None]
        found += self.statemgr.list(Kind.CONTAINERS)
        return found + [str(path) for path in (self.launch.dir, self.launch.socket_root()) if path.exists()]


@pytest.fixture
def heartbeat_timeout_ms() -> int:
    """Long, so that nobody is taken for hung who is only slow."""
    return 120_000


HANGS_FOUND_SOON = pytest.mark.parametrize("heartbeat_timeout_ms", [3000])


@pytest.fixture
def topology(tmp_path: Path, heartbeat_timeout_ms: int) -> Iterator[Topology]:
    launch = Launch(
        topology="words",
        topology_id=f"words-{uuid.uuid4().hex}",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path / "state")),
        dir=tmp_path / "words",
        config=EngineConfig(
            executor=ExecutorConfig(
                restart_backoff_ms=50, stop_timeout_ms=1000, heartbeat_timeout_ms=heartbeat_timeout_ms
            )
        ),
    )
    launch.save()
    authority.create(launch.tls_dir, launch.topology_id, range(8), days=1)
    statemgr = open_statemgr(launch.statemgr)
    yield Topology(launch, statemgr)
    for process, _ in find_by_environment({TOPOLOGY_ENV: launch.topology_id}):
        process.send(signal.SIGKILL)
    statemgr.close()


@pytest.fixture
def running(topology: Topology) -> Topology:
    topology.submitted(plan(1, 2))
    heron_scheduler.launch_service(topology.launch)
    topology.executors(0, 1, 2)
    return topology


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
    eventually_sync(lambda: _equal(before[1].alive, False))
    after = running.executors(0, 1, 2)
    assert after[1] != before[1]
    assert (after[0], after[2]) == (before[0], before[2])


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_executors_survive_their_service_and_the_next_one_adopts_them(running: Topology, signum: int) -> None:
    before = running.executors(0, 1, 2)
    service = running.service()
    service.send(signum)
    eventually_sync(lambda: _equal(service.alive, False))
    heron_scheduler.ensure_service(running.launch)  # executor 0 may have been quicker
    assert running.executors(0, 1, 2) == before
    before[2].send(signal.SIGKILL)  # adopted means supervised
    eventually_sync(lambda: _equal(before[2].alive, False))
    assert running.executors(0, 1, 2)[2] != before[2]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_service_comes_back_without_any_command(running: Topology, signum: int) -> None:
    executors, first = running.executors(0, 1, 2), running.service()
    first.send(signum)
    running.replaced(first)
    assert running.executors(0, 1, 2) == executors
    record = service_record(running.launch)
    assert record is not None
    assert record.restarts == 1
    executors[2].send(signal.SIGKILL)  # and supervises again
    eventually_sync(lambda: _equal(executors[2].alive, False))
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
    eventually_sync(lambda: _equal(first.alive, False))
    assert running.executors(0, 1, 2)[1] != first


@pytest.mark.parametrize("dead", [(0,), pytest.param((0, 1), marks=pytest.mark.long)])
def test_a_service_that_dies_with_those_who_watch_it_is_started_by_another_executor(
    running: Topology, dead: tuple[int, ...]
) -> None:
    first, before = running.service(), running.executors(0, 1, 2)
    for process in (first, *(before[container] for container in dead)):
        process.send(signal.SIGKILL)
    running.replaced(first)
    eventually_sync(lambda: _equal([c for c in dead if before[c].alive], []))
    after = running.executors(0, 1, 2)
    assert {container for container in after if after[container] == before[container]} == {0, 1, 2} - {*dead}
    running.service()  # one


def test_when_service_and_executors_die_at_once_the_next_touch_starts_everything_again(running: Topology) -> None:
    before = [running.service(), *running.executors(0, 1, 2).values()]
    assert not heron_scheduler.revive(running.launch)
    for process in before:
        process.send(signal.SIGKILL)
    eventually_sync(lambda: _equal([process for process in before if process.alive], []))
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


def test_a_topology_that_is_being_killed_ends_by_itself_and_is_not_revived(running: Topology) -> None:
    processes = [running.service(), *running.executors(0, 1, 2).values()]
    mark_killed(running.launch.dir)
    eventually_sync(lambda: _equal([p for p in processes if p.alive], []))
    assert not heron_scheduler.revive(running.launch)


def test_everything_ends_when_the_directory_is_removed(running: Topology) -> None:
    mine = {TOPOLOGY_ENV: running.launch.topology_id}
    remove(running.launch.dir)
    eventually_sync(lambda: _equal(list(find_by_environment(mine)), []))
    assert not running.launch.dir.exists()


def test_a_kill_leaves_nothing(running: Topology) -> None:
    heron_scheduler.kill(running.launch)
    assert running.left() == []
    heron_scheduler.kill(running.launch)


def test_a_kill_leaves_nothing_that_its_service_does_not_know_of(
    running: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = heron_scheduler._client._ask

    def ask_earlier_release(launch: Launch, location: Any, method: str, *rest: Any) -> Any:
        reply = ask(launch, location, method, *rest)
        if method == "Kill":
            running.statemgr.set(Kind.CONTAINERS, container_node(launch.topology, 1), b"")
        return reply

    monkeypatch.setattr("heron_scheduler._client._ask", ask_earlier_release)
    heron_scheduler.kill(running.launch)
    assert running.left() == []


def test_commands_wait_for_as_long_as_executors_may_take_to_end(
    running: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, waited_s = heron_scheduler._client._ask, {}

    def ask_and_record(launch: Launch, location: Any, method: str, request: Any, timeout_s: float) -> Any:
        waited_s[method] = timeout_s
        return ask(launch, location, method, request, timeout_s)

    monkeypatch.setattr("heron_scheduler._client._ask", ask_and_record)
    patient = dataclasses.replace(running.launch.config.executor, stop_timeout_ms=100_000)
    launch = dataclasses.replace(running.launch, config=dataclasses.replace(running.launch.config, executor=patient))
    heron_scheduler.restart(launch, 1)
    heron_scheduler.kill(launch)
    assert waited_s["Restart"] > stop_limit_s(launch)
    assert waited_s["Kill"] > 2 * stop_limit_s(launch), "those that it kills are waited for, too"


def test_a_kill_without_a_service_leaves_nothing(running: Topology) -> None:
    running.service().send(signal.SIGKILL)
    heron_scheduler.kill(running.launch)
    assert running.left() == []


def test_a_kill_with_a_stuck_service_leaves_nothing(running: Topology) -> None:
    running.service().send(signal.SIGSTOP)
    heron_scheduler.kill(running.launch)
    assert running.left() == []


def test_a_kill_ends_no_process_that_only_has_the_pid_of_its_service(
    running: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the service runs on another host, or in another container of this one, and answers from there."""
    monkeypatch.setattr("heron_scheduler._client._END_TIMEOUT_S", 0.5)
    value = running.statemgr.get(Kind.SCHEDULERS, "words")
    location = state_pb2.SchedulerLocation.FromString(value or b"")
    other = subprocess.Popen(["sleep", "600"])
    try:
        location.pid = other.pid
        running.statemgr.set(Kind.SCHEDULERS, "words", location.SerializeToString())
        heron_scheduler.kill(running.launch)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_kill_whose_caller_dies_is_brought_to_its_end(running: Topology) -> None:
    executors = running.executors(0, 1, 2)
    caller = subprocess.Popen([sys.executable, "-c", KILL, str(running.launch.dir)])
    eventually_sync(lambda: _equal(executors[2].alive, False))
    caller.kill()
    caller.wait()
    eventually_sync(lambda: _equal(running.left(), []))


def test_a_kill_before_the_service_was_started_leaves_nothing(topology: Topology) -> None:
    topology.submitted(plan(1))
    heron_scheduler.kill(topology.launch)
    assert topology.left() == []


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_a_kill_at_any_point_of_the_start_up_leaves_nothing(topology: Topology, processes: int) -> None:
    """Killed as soon as so many processes exist, from another process than the one that submits."""
    topology.submitted(plan(1, 2, 3))
    submitter = subprocess.Popen([sys.executable, "-c", SUBMIT, str(topology.launch.dir)], stderr=subprocess.DEVNULL)
    mine = {TOPOLOGY_ENV: topology.launch.topology_id}
    eventually_sync(lambda: _at_least(len(list(find_by_environment(mine))), processes))
    heron_scheduler.kill(topology.launch)
    submitter.wait(300)
    assert topology.left() == []


def test_a_kill_leaves_a_later_topology_of_the_same_name_alone(running: Topology) -> None:
    later = state_pb2.ExecutionState(topology="words", topology_id="another")
    running.statemgr.set(Kind.EXECUTIONSTATE, "words", later.SerializeToString())
    heron_scheduler.kill(running.launch)
    assert running.statemgr.get(Kind.EXECUTIONSTATE, "words") == later.SerializeToString()


def test_a_kill_sweeps_what_hides_from_its_executor(running: Topology) -> None:
    env = {**os.environ, TOPOLOGY_ENV: running.launch.topology_id}
    stray = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
    heron_scheduler.kill(running.launch)
    assert stray.wait(300) == -signal.SIGKILL


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


def test_a_restart_of_an_unknown_container_is_refused(running: Topology) -> None:
    with pytest.raises(NotFoundError, match="no container 7"):
        heron_scheduler.restart(running.launch, 7)


def test_a_service_that_cannot_start_is_reported_with_the_end_of_its_log(topology: Topology) -> None:
    with pytest.raises(UnavailableError, match="has no packing plan"):
        heron_scheduler.launch_service(topology.launch)
    assert topology.processes("scheduler") == []


def test_a_second_service_gives_way(running: Topology) -> None:
    first = running.service()
    with pytest.raises(UnavailableError, match="has a scheduler service already"):
        heron_scheduler.launch_service(running.launch)
    assert running.service() == first


def test_an_update_starts_added_containers_and_ends_removed_ones(topology: Topology) -> None:
    topology.submitted(plan(1, 2))
    scheduler = LocalScheduler(topology.launch)
    scheduler.on_schedule(plan(1, 2))
    before = topology.executors(0, 1, 2)
    topology.submitted(plan(1, 3))
    scheduler.on_update(plan(1, 2), plan(1, 3))
    after = topology.executors(0, 1, 3)
    assert (after[0], after[1]) == (before[0], before[1])
    scheduler.on_kill()
    assert topology.launch.dir.exists()
    assert topology.statemgr.get(Kind.PACKINGPLANS, topology.launch.topology) is not None
    heron_scheduler.remove_engine_state(topology.launch)
    assert topology.left() == []


class Busy(Scheduler):
    """A cluster that takes no update at first."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        self.scheduled: list[PackingPlan] = []
        self.updates: list[tuple[PackingPlan, PackingPlan]] = []

    def on_schedule(self, plan: PackingPlan) -> None:
        self.scheduled.append(plan)

    def on_kill(self) -> None:
        pass

    def on_restart(self, container: int | None) -> None:
        pass

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        self.updates.append((old, new))
        if len(self.updates) == 1:
            raise UnavailableError("the cluster is busy")

    def job_links(self) -> list[str]:
        return []

    def containers(self) -> list[ContainerStatus]:
        return []


def test_an_update_that_fails_is_tried_again(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_scheduler._service.RETRY_S", 0.01, raising=False)
    topology.submitted(plan(1))
    scheduler = Busy(topology.launch)

    async def serve() -> None:
        service = asyncio.create_task(SchedulerService(topology.launch, scheduler).run())
        try:
            async with asyncio.timeout(120):
                while len(scheduler.updates) < 2:
                    if topology.statemgr.get(Kind.SCHEDULERS, topology.launch.topology) is not None:
                        topology.submitted(plan(1, 2))
                    await asyncio.sleep(0.02)
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())
    assert scheduler.updates == [(plan(1), plan(1, 2))] * 2


def test_containers_are_started_for_what_is_being_prepared(topology: Topology) -> None:
    topology.submitted(plan(1))
    scheduler = Busy(topology.launch)
    scheduler.updates.append((plan(1), plan(1)))  # it is not busy any more
    name, prepared = topology.launch.topology, plan(1, 2).to_proto().SerializeToString()

    def serves() -> None:
        assert topology.statemgr.get(Kind.SCHEDULERS, name) is not None

    async def serve() -> None:
        service = asyncio.create_task(SchedulerService(topology.launch, scheduler).run())
        try:
            await eventually(serves)
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, prepared)
            await eventually(lambda: _equal(scheduler.updates[-1], (plan(1), plan(1, 2))))
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, b"")
            await eventually(lambda: _equal(scheduler.updates[-1], (plan(1, 2), plan(1))))
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())


def test_what_was_started_in_a_failed_update_ends_if_nothing_comes_of_it(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_scheduler._service.RETRY_S", 600)
    topology.submitted(plan(1))
    scheduler = Busy(topology.launch)  # fails at the first update, maybe after it has started some containers
    name = topology.launch.topology

    def serves() -> None:
        assert topology.statemgr.get(Kind.SCHEDULERS, name) is not None

    async def serve() -> None:
        service = asyncio.create_task(SchedulerService(topology.launch, scheduler).run())
        try:
            await eventually(serves)
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, plan(1, 2).to_proto().SerializeToString())
            await eventually(lambda: _equal(scheduler.updates, [(plan(1), plan(1, 2))]))
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, b"")
            await eventually(lambda: _equal(scheduler.updates[1:], [(plan(1, 2), plan(1))]))
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())


def test_a_service_that_is_started_again_leaves_what_is_being_prepared_alone(topology: Topology) -> None:
    topology.submitted(plan(1))
    prepared = plan(1, 2).to_proto().SerializeToString()
    topology.statemgr.set(Kind.NEXTPACKINGPLANS, topology.launch.topology, prepared)
    scheduler = Busy(topology.launch)

    async def serve() -> None:
        service = asyncio.create_task(SchedulerService(topology.launch, scheduler).run())
        try:
            await eventually(lambda: _equal(scheduler.scheduled, [plan(1, 2)]))
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())


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
    eventually_sync(lambda: _equal(topology.left(), []))


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


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _at_least(found: int, expected: int) -> None:
    assert found >= expected
