"""Starting a topology's scheduler service, for a caller that finds none."""

from __future__ import annotations

import subprocess
from pathlib import Path

from heronpy.child import Child
from heronpy.host._environment import OWNER_ENV, SERVICE, child_environment, engine_process
from heronpy.host._files import PidFile, open_out, read_pids
from heronpy.host._heartbeats import heartbeat_path, prepare_heartbeat
from heronpy.host._process import HostProcess
from heronpy.runtime import HEARTBEAT_ENV, Launch


def service_log_dir(launch: Launch) -> Path:
    """Where scheduler.log and scheduler.out are."""
    return launch.dir / "log-files"


def service_record(launch: Launch) -> PidFile | None:
    """What is known of the service, dead or alive; None if it never ran. Raises ReadFailedError if unknown."""
    return read_pids(launch.dir).get(SERVICE)


def start_service(launch: Launch, *, owner: HostProcess | None, new_session: bool) -> subprocess.Popen[bytes]:
    """Start the service. It outlives this process; where there is one already, it gives way.

    Args:
        owner: The topology is killed when this process is gone.
        new_session: Not for an executor: a topology has one session.

    Raises:
        OSError: it cannot be started.
    """
    path = heartbeat_path(launch.dir, SERVICE)
    ours = {HEARTBEAT_ENV: str(path)} | ({} if owner is None else {OWNER_ENV: str(owner)})
    if not path.exists():  # one that exists may be that of a service that runs
        prepare_heartbeat(path)
    with open_out(service_log_dir(launch) / "scheduler.out") as out:
        return Child(
            engine_process("heron_scheduler.service", "--dir", str(launch.dir)),
            cwd=launch.dir,
            env=child_environment(launch, SERVICE, **ours),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=new_session,  # Ctrl-C in the terminal of the submitter is not meant for it
            process_group=None if new_session else 0,
        )
