"""What a container does first when its cluster ends it: by SIGTERM, before a node is drained or a job's time is over.

Its tasks go on meanwhile. What they do from the checkpoint to their end is done again elsewhere; without it, that
would be all since the last periodic one.
"""

from __future__ import annotations

import logging
import os
import subprocess

from heronpy.executor import LAST_CHECKPOINT_S
from heronpy.host import CONTAINER_ENV, child_environment, python_module
from heronpy.runtime import INCARNATION_ENV, PARENT_ENV, Launch, own_incarnation

log = logging.getLogger(__name__)

_WAIT_SHARE = 0.6
"""So much of the time it may wait for the checkpoint; the rest is for a busy host to start Python."""


class LastCheckpoint:
    """Runs `heronpy.container.checkpoint`, once. Whatever comes of it, the container ends then."""

    def __init__(self, launch: Launch, container: int) -> None:
        self._launch, self._container = launch, container
        self._until_ms = 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def begin(self, now_ms: float) -> None:
        """Start it."""
        self._until_ms = now_ms + LAST_CHECKPOINT_S * 1000
        ours = {
            CONTAINER_ENV: str(self._container),
            INCARNATION_ENV: str(own_incarnation()),
            PARENT_ENV: str(os.getpid()),
        }
        wait = f"{_WAIT_SHARE * LAST_CHECKPOINT_S:g}"
        where = ("--dir", str(self._launch.dir), "--container", str(self._container), "--wait", wait)
        command = python_module("heronpy.container.checkpoint", *where)
        try:
            self._child = subprocess.Popen(command, env=child_environment(self._launch, "checkpoint", **ours))
        except OSError as e:
            log.error("the container ends without a checkpoint: %s", e)

    def over(self, now_ms: float) -> bool:
        """Whether the container may end."""
        if self._child is None:
            return True
        if self._child.poll() is None and now_ms < self._until_ms:
            return False
        self.close()
        return True

    def close(self) -> None:
        """End what was started."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            log.warning("there was no checkpoint within %g s: the container ends without it", LAST_CHECKPOINT_S)
            child.kill()
        child.wait()
