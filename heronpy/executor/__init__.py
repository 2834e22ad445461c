"""The executor: starts the processes of one container, restarts the dead, and ends them all when it ends.

Run as `python -m heronpy.executor --dir <topology directory> --container <n>`.
"""

from heronpy.executor._commands import (
    CONTAINER_ENV,
    INSTANCE_ENV,
    OWNER_ENV,
    PROCESS_ENV,
    TOPOLOGY_ENV,
    Command,
    child_environment,
    process_table,
    python_module,
)
from heronpy.executor._executor import PID_FILE, Executor
from heronpy.executor._files import PidFile, open_out, read_pids, tail
from heronpy.executor._host import HostProcess, find_by_environment, sweep
from heronpy.executor._supervision import (
    Effect,
    Event,
    Exited,
    Found,
    Kill,
    Phase,
    RestartAsked,
    Start,
    Started,
    StartFailed,
    StopAsked,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
)

__all__ = [
    "CONTAINER_ENV",
    "INSTANCE_ENV",
    "OWNER_ENV",
    "PID_FILE",
    "PROCESS_ENV",
    "TOPOLOGY_ENV",
    "Command",
    "Effect",
    "Event",
    "Executor",
    "Exited",
    "Found",
    "HostProcess",
    "Kill",
    "Phase",
    "PidFile",
    "RestartAsked",
    "Start",
    "StartFailed",
    "Started",
    "StopAsked",
    "Supervision",
    "Terminate",
    "Ticked",
    "Wanted",
    "child_environment",
    "find_by_environment",
    "open_out",
    "process_table",
    "python_module",
    "read_pids",
    "sweep",
    "tail",
]
