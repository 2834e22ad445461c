"""Another number of tasks or containers for a topology that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heronpy.config import takes_checkpoints
from heronpy.config.cluster import load_cluster
from heronpy.errors import UnavailableError
from heronpy.plan import LogicalPlan, PackingPlan
from heronpy.runtime import Launch
from heronpy.submit._code import refuse_on_trial
from heronpy.submit._control import change_plan, newest_exception, plans, status
from heronpy.submit._plan import check_divisible, packing_of
from heronpy.submit._submit import check_ports
from heronpy.submit._update_containers import updated_containers

TIMEOUT_S = 120.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Update:
    """Another packing plan for a topology, which is not announced yet."""

    launch: Launch
    logical: LogicalPlan
    """With the new numbers of tasks."""
    before: PackingPlan
    after: PackingPlan

    @property
    def changes(self) -> list[str]:
        """What changes, in words."""
        old, new = self.before.parallelism, self.after.parallelism
        said = [
            f"{name}: {old[name]} → {new[name]} tasks" for name in self.logical.components if old[name] != new[name]
        ]
        if (was := len(self.before.containers)) != (now := len(self.after.containers)):
            said.append(f"containers: {was} → {now}")
        return said


def plan_update(
    launch: Launch,
    tasks: Mapping[str, int],
    containers: int | None = None,
    *,
    home: Path,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
) -> Update:
    """Plan other numbers of tasks. Touches nothing.

    Args:
        launch: The topology.
        tasks: By component; the others keep theirs.
        containers: How many; None: as many as the packing algorithm needs beside those that there are.
        home: HERON_HOME.
        properties: Configuration keys that override the cluster's files.
        config_path: The directory of the clusters' directories, instead of the installed one.

    Raises:
        ConfigError: it was submitted with another release of heronpy.
        NotFoundError: the state manager does not know the topology.
        StateError: its code is just being changed.
        TopologyError: unknown component; a number that it cannot have; or it does not fit into containers.
    """
    launch.check_release()
    logical, before = plans(launch)
    refuse_on_trial(before)
    wanted = logical.with_parallelism(tasks)
    if takes_checkpoints(wanted.config):
        check_divisible(wanted)
    now = before.parallelism
    changes = {name: count - now[name] for name, count in tasks.items() if count != now[name]}
    cluster = load_cluster(
        launch.cluster,
        home=home,
        role=launch.role,
        environ=launch.environ,
        topology=launch.topology,
        properties=properties,
        config_path=config_path,
    )
    if not changes and containers in (None, len(before.containers)):
        return Update(launch, wanted, before, before)
    algorithm = packing_of(wanted, cluster.repacking or cluster.packing)
    after = algorithm.repack(before, changes, **({} if containers is None else {"containers": containers}))
    after = after.with_code_of(before)
    return Update(launch, wanted, before, after)


def update(planned: Update, *, timeout_s: float = TIMEOUT_S, on_step: Callable[[str], None] = lambda step: None) -> int:
    """Have a topology run by another packing plan. Returns the version of the plan in force, with all tasks running.

    With checkpoints everything goes on from one that is taken now, exactly. At least once, what is lost with tasks that
    end is replayed; at most once it is lost.

    Args:
        planned: What `plan_update` has returned.
        timeout_s: How long it may take.
        on_step: Called with a few words before each step.

    Raises:
        StateError: nothing was changed; says why, for example that somebody else has changed it meanwhile.
        UnavailableError: the Topology Master does not answer; or it was changed, and not all tasks run in time.
    """
    launch, deadline_s = planned.launch, time.monotonic() + timeout_s
    old = {container.id for container in planned.before.containers}
    check_ports(launch, [container.id for container in planned.after.containers if container.id not in old])
    with updated_containers(launch, planned.before, planned.after, deadline_s=deadline_s, on_step=on_step):
        return _carry_out(planned, timeout_s, deadline_s, on_step)


def _carry_out(planned: Update, timeout_s: float, deadline_s: float, on_step: Callable[[str], None]) -> int:
    launch, began_ms = planned.launch, int(time.time() * 1000)
    on_step("taking a checkpoint" if launch.checkpoints else "writing the plan")
    try:
        change_plan(launch, planned.before, planned.after, timeout_s=timeout_s)
    except UnavailableError as e:
        raise UnavailableError(
            f"{e}; the packing plan is unchanged so far: look with `heron physical-plan {launch.topology}`"
        ) from e
    on_step("waiting for the tasks")
    while True:
        waits_for = "the Topology Master"
        try:
            now = status(launch)
            if now.ready and now.checkpoints.phase in ("", "running"):
                return now.plan_version
            missing = [i.id for i in now.instances if not i.attached]
            waits_for = ", ".join(missing[:5]) or now.checkpoints.phase or "Stream Managers"
            if why := newest_exception(now, began_ms):
                waits_for += f" ({why})"
        except UnavailableError:
            pass  # it is being started again
        if time.monotonic() > deadline_s:
            raise UnavailableError(
                f"{launch.topology} has the new packing plan, and does not run by it after {timeout_s:g} s: it waits "
                f"for {waits_for}; see `heron status {launch.topology}`"
            )
        time.sleep(_POLL_S)
