"""When a container's certificate is asked for again."""

from __future__ import annotations

import logging
import os
import subprocess
import time

from heronpy.host import CONTAINER_ENV, child_environment, python_module
from heronpy.runtime import INCARNATION_ENV, PARENT_ENV, Launch, own_incarnation

log = logging.getLogger(__name__)

CHECK_MS = 60_000.0
RENEWAL_SHARE = 2 / 3
"""So much of its time a certificate has had when it is renewed: as `heron` does."""
RETRY_MS = 600_000.0
_DAY_S = 86_400.0
_WAIT_S = 120.0


class CertificateRenewal:
    """Starts `heronpy.container.enroll` when the certificate is due. It is as old as its file: nothing is parsed here.

    A failure is logged and tried again: there are months to mend it.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self._launch, self._container = launch, container
        self._file = launch.tls_dir / f"container-{container}.pem"
        self._lifetime_s = launch.config.security.certificate_days * _DAY_S
        self._next_ms = 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def tick(self, now_ms: float) -> None:
        """Check whether it is due, or done; to be called about once a second."""
        if self._child is not None and (code := self._child.poll()) is not None:
            self._child = None
            if code:
                log.error("the certificate is not renewed, exit code %d: stderr says why; trying again", code)
                self._next_ms = now_ms + RETRY_MS
            else:
                log.info("the certificate of container %d is renewed", self._container)
        if self._child is None and now_ms >= self._next_ms:
            self._next_ms = now_ms + CHECK_MS
            if self._due():
                self._start(now_ms)

    def _due(self) -> bool:
        try:
            return time.time() - self._file.stat().st_mtime > self._lifetime_s * RENEWAL_SHARE
        except OSError:
            return True

    def _start(self, now_ms: float) -> None:
        ours = {
            CONTAINER_ENV: str(self._container),
            INCARNATION_ENV: str(own_incarnation()),
            PARENT_ENV: str(os.getpid()),
        }
        where = ("--dir", str(self._launch.dir), "--container", str(self._container), "--wait", f"{_WAIT_S:g}")
        command = python_module("heronpy.container.enroll", *where)
        try:
            self._child = subprocess.Popen(command, env=child_environment(self._launch, "enroll", **ours))
        except OSError as e:
            log.error("the certificate cannot be renewed: %s", e)
            self._next_ms = now_ms + RETRY_MS
