"""Which processes a container has, and with which command and environment each is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from heronpy.plan import PackingPlan
from heronpy.runtime import PARENT_ENV, Launch

TOPOLOGY_ENV = "HERON_TOPOLOGY_ID"
CONTAINER_ENV = "HERON_CONTAINER"
INSTANCE_ENV = "HERON_INSTANCE"
PROCESS_ENV = "HERON_PROCESS"
OWNER_ENV = "HERON_OWNER"
_OURS = {TOPOLOGY_ENV, CONTAINER_ENV, INSTANCE_ENV, PROCESS_ENV, OWNER_ENV, PARENT_ENV}

INSTANCE_STAGE = 0
MASTER_STAGE = 1
METRICS_STAGE = 2


@dataclass(frozen=True, slots=True)
class Command:
    """One process of a container."""

    id: str
    """`tmaster`, `stmgr-<n>`, `metricsmgr-<n>` or the instance id; names its log files."""
    argv: tuple[str, ...]
    stage: int = INSTANCE_STAGE
    """When it ends: lower ones first."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What is added to the executor's own environment."""


def python_module(module: str, *args: str) -> tuple[str, ...]:
    """The command that runs a module with this interpreter."""
    # -P: a file in the working directory or in the user's package must never shadow a module of the engine.
    return (sys.executable, "-P", "-m", module, *args)


def process_table(launch: Launch, container: int, plan: PackingPlan) -> tuple[Command, ...]:
    """The processes of a container under a packing plan; none if the plan has no such container."""
    where = ("--dir", str(launch.dir), "--container", str(container))
    packed = plan.container(container)
    if container != 0 and packed is None:
        return ()
    # The engine's own processes compute nothing: a thread pool per core would only cost start-up time.
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    metricsmgr = Command(
        f"metricsmgr-{container}", python_module("heronpy.metricsmgr", *where), METRICS_STAGE, one_thread
    )
    if packed is None:
        return Command("tmaster", python_module("heronpy.tmaster", *where), MASTER_STAGE, one_thread), metricsmgr
    stmgr = Command(packed.stmgr_id, python_module("heronpy.stmgr", *where), MASTER_STAGE, one_thread)
    instances = (
        Command(id, python_module("heronpy.instance", *where, "--instance", id), env={INSTANCE_ENV: id})
        for id in (instance.instance_id(container) for instance in packed.instances)
    )
    return stmgr, metricsmgr, *instances


def child_environment(launch: Launch, process: str, **ours: str) -> dict[str, str]:
    """The caller's environment for a process of the topology: without what only concerned the caller, with `ours`."""
    inherited = {key: value for key, value in os.environ.items() if key not in _OURS}
    return inherited | {
        "PYTHONUNBUFFERED": "1",
        TOPOLOGY_ENV: launch.topology_id,
        PROCESS_ENV: process,
        **ours,
    }
