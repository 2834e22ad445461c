"""Processes of this host: how they are identified, marked by their environment, found, and recorded in files.

Linux only, like the rest of the engine. What only the executor needs to start one is in `heronpy.executor`.
"""

from heronpy.host._directory import (
    GONE_S,
    DirectoryWatch,
    begin_submission,
    end_submission,
    in_submission,
    is_killed,
    mark_killed,
    submitter_lives,
)
from heronpy.host._environment import (
    CONTAINER_ENV,
    DIRECTORY_ENV,
    EXECUTOR,
    INSTANCE_ENV,
    OWNER_ENV,
    PROCESS_ENV,
    SERVICE,
    SUPERVISES_SERVICE_ENV,
    TOPOLOGY_ENV,
    child_environment,
    engine_process,
    python_module,
)
from heronpy.host._files import (
    OUT_BYTES_MAX,
    PidFile,
    forget_pid,
    open_out,
    pid_path,
    pid_space,
    read_pids,
    retire_pid,
    tail,
    write_pid,
)
from heronpy.host._heartbeats import heartbeat_path, look_at, prepare_heartbeat
from heronpy.host._process import HostProcess, find_by_environment, reap_orphans, sweep, sweep_below
from heronpy.host._service import service_log_dir, service_record, start_service

__all__ = [
    "CONTAINER_ENV",
    "DIRECTORY_ENV",
    "EXECUTOR",
    "GONE_S",
    "INSTANCE_ENV",
    "OUT_BYTES_MAX",
    "OWNER_ENV",
    "PROCESS_ENV",
    "SERVICE",
    "SUPERVISES_SERVICE_ENV",
    "TOPOLOGY_ENV",
    "DirectoryWatch",
    "HostProcess",
    "PidFile",
    "begin_submission",
    "child_environment",
    "end_submission",
    "engine_process",
    "find_by_environment",
    "forget_pid",
    "heartbeat_path",
    "in_submission",
    "is_killed",
    "look_at",
    "mark_killed",
    "open_out",
    "pid_path",
    "pid_space",
    "prepare_heartbeat",
    "python_module",
    "read_pids",
    "reap_orphans",
    "retire_pid",
    "service_log_dir",
    "service_record",
    "start_service",
    "submitter_lives",
    "sweep",
    "sweep_below",
    "tail",
    "write_pid",
]
