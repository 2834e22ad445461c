"""The heartbeat files of a directory's processes: made ready by their supervisor, and looked at by it."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from heronpy.host._process import HostProcess
from heronpy.runtime import Heartbeat, read_beat
from heronpy.supervision import Look

log = logging.getLogger(__name__)


def heartbeat_path(directory: Path, process: str) -> Path:
    return directory / "heartbeats" / process


def prepare_heartbeat(path: Path) -> None:
    """Make the heartbeat file of a process that is about to start, if that is possible; else the process makes it."""
    try:
        with contextlib.closing(Heartbeat(path)) as heartbeat:
            heartbeat.prepare()
    except OSError as e:
        log.warning("the heartbeat file %s cannot be made, a hang while it starts goes unnoticed: %s", path, e.strerror)


def look_at(directory: Path, process: str, host: HostProcess) -> Look | None:
    """What the heartbeats of a process say; None if it writes none, or if that is unknown: then it is not hung."""
    try:
        beat = read_beat(heartbeat_path(directory, process))
        if beat is None or beat.pid not in (0, host.pid):
            return None
        return Look(host.pid, beat.loop, beat.task, beat.task_limit_ms, host.stopped, host.starved_ms)
    except OSError as e:
        log.warning("the heartbeats of %s cannot be read, a hang will not be noticed until they can: %s", process, e)
        return None
