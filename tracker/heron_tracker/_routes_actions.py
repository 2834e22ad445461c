"""Routes that change something, or cost an instance time: POST, and only on purpose (see `_guards.DeliberateChanges`).

    POST /topologies/{cluster}/{role}/{environ}/{name}/activate      have its spouts emit
    POST /topologies/{cluster}/{role}/{environ}/{name}/deactivate    have them stop
    POST /topologies/{cluster}/{role}/{environ}/{name}/restart       ?container=N: one container; without it: all
    POST /topologies/{cluster}/{role}/{environ}/{name}/kill          end it; one with state after a last checkpoint,
                                                                     ?force=true: without

Each answers `{"topology", "action", "status"}` when it is done. They are 403 unless `tracker.actions` is true (or
`heron tracker --actions`), which `GET /version` shows as `actions`. A caller sends the token as `Authorization: Bearer
<token>`, as with every other request; without a token (`--no-token`), the header `x-heron-request: 1`. A Tracker acts
only on topologies whose directory belongs to its own user: for others it has no credentials. Those that it has adopted
from a cluster it activates and deactivates.

    POST /topologies/jstack, /jmap, /histo, /pmap                    look into an instance, as Heron's GET
    POST /topologies/profile                                         ?seconds=N: sample its stacks for so long

All of them take Stream Managers, too. Heron's GET is there only with `tracker.profiling.get: true`, because a link on
any page can make a browser send one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from heron_tracker import _models as m
from heron_tracker._topology import Topology
from heron_tracker._tracker import Instance, TheTopology, TheTracker, TopologyAt, Tracker
from heronpy import submit
from heronpy.errors import ForbiddenError, UnavailableError, UsageError
from heronpy.shell import PROFILE_SECONDS_MAX, PROFILE_SECONDS_MIN

router = APIRouter()
profiling_by_get = APIRouter()
"""The same as Heron's GET paths."""

ACTION_WITHIN_S = 60.0
"""A caller waits no longer for an action; it goes on."""
LAST_CHECKPOINT_WITHIN_S = 45.0
"""So that the caller of a kill learns why there is no last checkpoint."""


class Action(StrEnum):
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    RESTART = "restart"
    KILL = "kill"


_STATUS = {Action.ACTIVATE: "Running", Action.DEACTIVATE: "Paused", Action.KILL: "Killed"}
"""After it."""


@router.post("/topologies/{cluster}/{role}/{environ}/{name}/{action}")
async def act(
    tracker: TheTracker,
    topology: TopologyAt,
    action: Action,
    container: Annotated[int | None, Query(ge=0, description="Of `restart`: only this container.")] = None,
    force: Annotated[bool, Query(description="Of `kill`: without a last checkpoint.")] = False,
) -> m.ActionDone:
    """Activate, deactivate, restart or kill the topology. 403 unless the Tracker is configured to. Not of Heron."""
    if not tracker.config.actions:
        raise ForbiddenError("this Tracker only looks: start it with --actions, or set tracker.actions to true")
    if container is not None and action is not Action.RESTART:
        raise UsageError("container belongs to restart")
    if force and action is not Action.KILL:
        raise UsageError("force belongs to kill")

    launch = await tracker.credentials.launch(topology)
    if tracker.credentials.is_adopted(launch):
        _check_adopted(topology, action)

    def run() -> None:
        match action:
            case Action.ACTIVATE:
                submit.activate(launch)
            case Action.DEACTIVATE:
                submit.deactivate(launch)
            case Action.RESTART:
                submit.restart(launch, container)
            case Action.KILL:
                submit.kill(launch, final_s=None if force else LAST_CHECKPOINT_WITHIN_S)

    task = asyncio.create_task(_run(tracker.acting, run), name=f"tracker/{action}")
    tracker.keep_running(task)
    done, _ = await asyncio.wait({task}, timeout=ACTION_WITHIN_S)
    if not done:
        raise UnavailableError(f"{action} of {topology.key.name} is not done after {ACTION_WITHIN_S:g} s: it goes on")
    task.result()
    return m.ActionDone(topology=topology.key.name, action=action, status=_STATUS.get(action, topology.status))


def _check_adopted(topology: Topology, action: Action) -> None:
    """Allow what goes through the Topology Master, which proves itself: the cluster is asked for nothing but secrets.

    Whatever else is done to a topology goes by what the state manager says, with this Tracker's rights on the cluster,
    and removes what launch values name.
    """
    name = topology.key.name
    if action not in (Action.ACTIVATE, Action.DEACTIVATE):
        raise ForbiddenError(
            f"{name} was submitted elsewhere: this Tracker activates and deactivates it, and `heron {action}` does the "
            "rest"
        )


async def _run(limit: asyncio.Semaphore, function: Callable[[], None]) -> None:
    async with limit:
        await asyncio.to_thread(function)


async def _look(tracker: Tracker, topology: Topology, instance: str, kind: str) -> m.ProcessOutput:
    async with tracker.looks:
        return m.ProcessOutput.of(await tracker.shells.of_process(topology, instance).look(kind, instance))


@profiling_by_get.get("/topologies/jstack")
@router.post("/topologies/jstack")
async def jstack(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The stacks of a live instance: by py-spy, else by the instance itself; `stderr` says why."""
    return await _look(tracker, topology, instance, "jstack")


@router.post("/topologies/profile")
async def profile(
    tracker: TheTracker,
    topology: TheTopology,
    instance: Instance,
    seconds: Annotated[float, Query(ge=PROFILE_SECONDS_MIN, le=PROFILE_SECONDS_MAX, description="For how long.")] = 5.0,
) -> m.Profile:
    """Where the threads of a live instance or Stream Manager spend their time. It samples itself. Not of Heron."""
    found = await tracker.shells.of_process(topology, instance).profile(instance, seconds)
    return m.Profile.of(instance, found)


@profiling_by_get.get("/topologies/jmap")
@router.post("/topologies/jmap")
async def jmap(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The memory of a live instance, and its garbage collector's state."""
    return await _look(tracker, topology, instance, "jmap")


@profiling_by_get.get("/topologies/histo")
@router.post("/topologies/histo")
async def histo(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The objects of a live instance by type. The instance counts them itself, for at most a second."""
    return await _look(tracker, topology, instance, "histo")


@profiling_by_get.get("/topologies/pmap")
@router.post("/topologies/pmap")
async def pmap(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The memory of a live instance by mapping, as the kernel counts it."""
    return await _look(tracker, topology, instance, "pmap")
