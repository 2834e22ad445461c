"""The environment variables that mark a process of a topology, and how such a process is started."""

from __future__ import annotations

import os
import sys

from heronpy.runtime import HEARTBEAT_ENV, INCARNATION_ENV, PARENT_ENV, Launch

TOPOLOGY_ENV = "HERON_TOPOLOGY_ID"
CONTAINER_ENV = "HERON_CONTAINER"
INSTANCE_ENV = "HERON_INSTANCE"
PROCESS_ENV = "HERON_PROCESS"
OWNER_ENV = "HERON_OWNER"
EXECUTOR = "executor"
"""The value of PROCESS_ENV, and the name of the files, of every executor."""
SERVICE = "scheduler"
"""The same of the scheduler service."""
SUPERVISES_SERVICE_ENV = "HERON_SUPERVISES_SERVICE"
"""Set for an executor that is to start the scheduler service again when it is dead or hung."""
DIRECTORY_ENV = "HERON_TOPOLOGY_DIR"
"""The topology's directory, of every process of it."""
_OURS = {TOPOLOGY_ENV, CONTAINER_ENV, INSTANCE_ENV, PROCESS_ENV, OWNER_ENV, PARENT_ENV, HEARTBEAT_ENV}
_OURS |= {SUPERVISES_SERVICE_ENV, DIRECTORY_ENV, INCARNATION_ENV}


def python_module(module: str, *args: str) -> tuple[str, ...]:
    """The command that runs a module with this interpreter."""
    # -P: a file in the working directory or in the user's package must never shadow a module of the engine.
    return (sys.executable, "-P", "-m", module, *args)


def engine_process(module: str, *args: str) -> tuple[str, ...]:
    """The same for a module that calls `heronpy.runtime.main`, which so takes less CPU to start."""
    return python_module("heronpy.start", module, *args)


def child_environment(launch: Launch, process: str, **ours: str) -> dict[str, str]:
    """The caller's environment for a process of the topology: without what only concerned the caller or is secret,
    with `ours`.
    """
    secrets = {reference.removeprefix("env:") for reference in launch.secrets.values() if reference.startswith("env:")}
    inherited = {key: value for key, value in os.environ.items() if key not in _OURS | secrets}
    return inherited | {
        "PYTHONUNBUFFERED": "1",
        TOPOLOGY_ENV: launch.topology_id,
        DIRECTORY_ENV: str(launch.dir),
        PROCESS_ENV: process,
        **ours,
    }
