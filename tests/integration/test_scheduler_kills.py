"""A kill of a topology, at any time and whatever else has died: nothing is left."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from typing import Any

import heron_scheduler
import pytest
import scheduled_topology
from msgspec import structs
from scheduled_topology import KILL, SUBMIT, Topology, at_least, equal, plan
from topology_on_disk import remove

from heronpy.executor import stop_limit_s
from heronpy.host import (
    TOPOLOGY_ENV,
    find_by_environment,
    mark_killed,
)
from heronpy.proto import state_pb2
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, container_node
from heronpy.testing import eventually_sync

heartbeat_timeout_ms, running = scheduled_topology.heartbeat_timeout_ms, scheduled_topology.running
topology = scheduled_topology.topology


def test_a_topology_that_is_being_killed_ends_by_itself_and_is_not_revived(running: Topology) -> None:
    processes = [running.service(), *running.executors(0, 1, 2).values()]
    mark_killed(running.launch.dir)
    eventually_sync(lambda: equal([p for p in processes if p.alive], []))
    assert not heron_scheduler.revive(running.launch)


def test_everything_ends_when_the_directory_is_removed(running: Topology) -> None:
    mine = {TOPOLOGY_ENV: running.launch.topology_id}
    remove(running.launch.dir)
    eventually_sync(lambda: equal(list(find_by_environment(mine)), []))
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
    patient = structs.replace(running.launch.config.executor, stop_timeout_ms=100_000)
    launch = dataclasses.replace(running.launch, config=structs.replace(running.launch.config, executor=patient))
    heron_scheduler.restart(launch, 1)
    heron_scheduler.kill(launch)
    assert waited_s["Restart"] > stop_limit_s(launch)
    assert waited_s["Kill"] > 2 * stop_limit_s(launch), "those that it kills are waited for, too"


def test_a_kill_without_a_service_leaves_nothing(running: Topology) -> None:
    running.service().send(signal.SIGKILL)
    heron_scheduler.kill(running.launch)
    assert running.left() == []


def test_a_kill_with_a_stuck_service_leaves_nothing(running: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_scheduler._client._ASK_TIMEOUT_S", 2.0)
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
    eventually_sync(lambda: equal(executors[2].alive, False))
    caller.kill()
    caller.wait()
    eventually_sync(lambda: equal(running.left(), []))


def test_a_kill_before_the_service_was_started_leaves_nothing(topology: Topology) -> None:
    topology.submitted(plan(1))
    heron_scheduler.kill(topology.launch)
    assert topology.left() == []


@pytest.mark.parametrize("processes", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3)), 5])
def test_a_kill_at_any_point_of_the_start_up_leaves_nothing(topology: Topology, processes: int) -> None:
    """Killed as soon as so many processes exist, from another process than the one that submits."""
    topology.submitted(plan(1, 2, 3))
    submitter = subprocess.Popen([sys.executable, "-c", SUBMIT, str(topology.launch.dir)], stderr=subprocess.DEVNULL)
    mine = {TOPOLOGY_ENV: topology.launch.topology_id}
    eventually_sync(lambda: at_least(len(list(find_by_environment(mine))), processes))
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
