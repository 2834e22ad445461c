"""Storing a container's log files at its end, where `heron.logs.upload.uri` says."""

from __future__ import annotations

import logging
import subprocess

from heronpy.host import CONTAINER_ENV, child_environment, python_module
from heronpy.runtime import INCARNATION_ENV, Launch

log = logging.getLogger(__name__)

STORE_S = 25.0
"""How long it may take. The process gives up before that by itself."""
_REASON_MAX = 500


def store_logs(launch: Launch, container: int, incarnation: int) -> None:
    """Store the log files if they are to be. What fails is logged; blocks for at most STORE_S."""
    if not launch.config.logging.upload_uri or not launch.dir.exists():
        return
    command = python_module("heronpy.shell.store_logs", "--dir", str(launch.dir), "--container", str(container))
    ours = {CONTAINER_ENV: str(container), INCARNATION_ENV: str(incarnation)}
    try:
        done = subprocess.run(
            command,
            env=child_environment(launch, f"store-logs-{container}", **ours),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=STORE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        log.warning("the log files are not all stored: %s", e)
        return
    if done.returncode < 0:
        # Not its URI, which may have a password in it.
        log.warning("the log files are not all stored: the log store did not take them in time")
    elif done.returncode:
        log.warning("the log files are not all stored: %s", done.stderr.strip()[-_REASON_MAX:])
    else:
        log.info("the log files are stored")
