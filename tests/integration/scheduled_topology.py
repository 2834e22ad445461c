"""A topology of stand-ins whose local scheduler is a real process: what its tests share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import heron_scheduler
import pytest
from topology_on_disk import kill_all

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.errors import UnavailableError
from heronpy.host import (
    CONTAINER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    HostProcess,
    find_by_environment,
)
from heronpy.plan import ContainerPacking, PackingPlan, Resources
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.security import authority
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually_sync

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

        eventually_sync(lambda: equal(first.alive, False))
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
    kill_all(launch.topology_id)
    statemgr.close()


@pytest.fixture
def running(topology: Topology) -> Topology:
    topology.submitted(plan(1, 2))
    heron_scheduler.launch_service(topology.launch)
    topology.executors(0, 1, 2)
    return topology


def equal(found: object, expected: object) -> None:
    assert found == expected


def at_least(found: int, expected: int) -> None:
    assert found >= expected
