"""Containers that an update adds, removes and prepares, by the service of a real scheduler."""

from __future__ import annotations

import asyncio

import heron_scheduler
import pytest
import scheduled_topology
from heron_scheduler import ContainerStatus, LocalScheduler, Scheduler
from heron_scheduler.service import SchedulerService
from scheduled_topology import Topology, equal, plan

from heronpy.errors import UnavailableError
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.statemgr import Kind
from heronpy.testing import eventually

heartbeat_timeout_ms, topology = scheduled_topology.heartbeat_timeout_ms, scheduled_topology.topology


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


class Full(Busy):
    """A cluster that has no room for more containers, maybe after it has started some."""

    def on_update(self, old: PackingPlan, new: PackingPlan) -> None:
        self.updates.append((old, new))
        if len(new.containers) > len(old.containers):
            raise UnavailableError("the cluster is full")


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
            await eventually(lambda: equal(scheduler.updates[-1], (plan(1), plan(1, 2))))
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, b"")
            await eventually(lambda: equal(scheduler.updates[-1], (plan(1, 2), plan(1))))
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())


def test_what_was_started_in_a_failed_update_ends_if_nothing_comes_of_it(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heron_scheduler._service.RETRY_S", 600)
    topology.submitted(plan(1))
    scheduler = Full(topology.launch)
    name, prepared = topology.launch.topology, plan(1, 2)

    def serves() -> None:
        assert topology.statemgr.get(Kind.SCHEDULERS, name) is not None

    async def serve() -> None:
        service = asyncio.create_task(SchedulerService(topology.launch, scheduler).run())
        try:
            await eventually(serves)
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, prepared.to_proto().SerializeToString())
            # Whatever the service learns of the plans meanwhile has it try once more at once, and fail once more.
            await eventually(lambda: equal(set(scheduler.updates), {(plan(1), prepared)}))
            topology.statemgr.set(Kind.NEXTPACKINGPLANS, name, b"")
            await eventually(lambda: equal(scheduler.updates[-1], (prepared, plan(1))))
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
            await eventually(lambda: equal(scheduler.scheduled, [plan(1, 2)]))
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    asyncio.run(serve())
