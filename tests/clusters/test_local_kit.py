"""The local scheduler, by the kit of all schedulers, as far as it makes sense on one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scheduler_kit import Cluster, Report, SchedulerKit

from heronpy.host import CONTAINER_ENV, EXECUTOR, PROCESS_ENV, TOPOLOGY_ENV, find_by_environment
from heronpy.plan import PackingPlan
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, open_statemgr


class Local(Cluster):
    name = "local"
    can_lose_hosts = False
    hosts_differ = False
    stand_ins = False

    @property
    def config(self) -> Mapping[str, Any]:
        return {"heron.package.python": "image"}

    @property
    def refused(self) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        return [("a key of another scheduler", {"heron.scheduler.slurm.partition": "p"}, "unknown configuration key")]

    def left(self, launch: Launch) -> list[str]:
        mine = find_by_environment({TOPOLOGY_ENV: launch.topology_id})
        return [str(process) for process, _ in mine] + ([str(launch.dir)] if launch.dir.exists() else [])

    def update(self, launch: Launch, old: PackingPlan, new: PackingPlan) -> None:
        """Its service follows the packing plan."""
        with open_statemgr(launch.statemgr) as state:
            state.set(Kind.PACKINGPLANS, launch.topology, new.to_proto().SerializeToString())

    def said(self, launch: Launch) -> list[Report]:
        """The executors that run; the oldest of each, because a child that has not exec'd yet looks the same."""
        mark = {TOPOLOGY_ENV: launch.topology_id, PROCESS_ENV: EXECUTOR}
        young_first = sorted(find_by_environment(mark), key=lambda one: one[0].start_ticks, reverse=True)
        found = {int(env[CONTAINER_ENV]): process.pid for process, env in young_first}
        return [Report(n, pid, {}, 0, "", "", "", "") for n, pid in found.items()]


@pytest.fixture
def cluster(tmp_path: Path) -> Local:
    return Local(tmp_path)


class TestLocal(SchedulerKit):
    """The kit."""
