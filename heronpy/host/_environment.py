"""The environment variables that mark a process of a topology, and how such a process is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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
PASSED_ENV = "HERON_PASSED_ENVIRONMENT"
"""Set by a process whose environment is not for topologies: names of the variables that are, separated by spaces."""
_OURS = {TOPOLOGY_ENV, CONTAINER_ENV, INSTANCE_ENV, PROCESS_ENV, OWNER_ENV, PARENT_ENV, HEARTBEAT_ENV}
_OURS |= {SUPERVISES_SERVICE_ENV, DIRECTORY_ENV, INCARNATION_ENV}


def python_module(module: str, *args: str) -> tuple[str, ...]:
    """The command that runs a module with this interpreter."""
    # -P: a file in the working directory or in the user's package must never shadow a module of the engine.
    return (sys.executable, "-P", "-m", module, *args)


def engine_process(module: str, *args: str) -> tuple[str, ...]:
    """The same for a module that calls `heronpy.runtime.main`, which so takes less CPU to start."""
    return python_module("heronpy.start", module, *args)


def engine_program(argv: Sequence[str]) -> tuple[str, ...]:
    """The module and the arguments with which `engine_process` has made a command; empty if it has not."""
    start = engine_process("")[:-1]
    return tuple(argv[len(start) :]) if tuple(argv[: len(start)]) == start else ()


def child_environment(launch: Launch, process: str, **ours: str) -> dict[str, str]:
    """The caller's environment for a process of the topology: without what only concerned the caller or is secret,
    with `ours`. What says which topology a process is of comes first, and at the same place in all of a container.

    A scheduler service, whose containers inherit from it, gets only what PASSED_ENV names, if that is set.
    """
    secrets = {reference.removeprefix("env:") for reference in launch.secrets.values() if reference.startswith("env:")}
    passed = os.environ.get(PASSED_ENV) if process == SERVICE else None
    names = os.environ.keys() if passed is None else os.environ.keys() & set(passed.split())
    inherited = {key: os.environ[key] for key in names if key not in _OURS | secrets}
    named = {TOPOLOGY_ENV: launch.topology_id, DIRECTORY_ENV: str(launch.dir), **ours}
    named |= {PROCESS_ENV: process, "PYTHONUNBUFFERED": "1"}
    return named | {key: value for key, value in inherited.items() if key not in named}
