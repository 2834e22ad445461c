"""The user's code on a container's host: what the packing plan needs is fetched, beside the executor, and kept."""

from __future__ import annotations

import logging
import os
import subprocess

from heronpy.environment import is_installed
from heronpy.host import CONTAINER_ENV, child_environment, python_module
from heronpy.plan import PackingPlan
from heronpy.runtime import INCARNATION_ENV, PARENT_ENV, Launch, own_incarnation

log = logging.getLogger(__name__)

RETRY_MS = 5_000.0


class HostedCodes:
    """Has `heronpy.container.codes` fetch what the packing plan needs, and remove what it does not.

    A failure is logged, and in the container's record; it is tried again for as long as the plan needs that code.
    """

    def __init__(self, launch: Launch, container: int) -> None:
        self._launch, self._container = launch, container
        self._needed: frozenset[str] | None = None
        self._settled = False
        self._installed = False
        self._tidy = False
        """Nothing else is there."""
        self._child: subprocess.Popen[bytes] | None = None
        self._trying: tuple[frozenset[str] | None, bool] = None, False
        """What the child fetches, and whether it removes the rest."""
        self._next_ms = 0.0

    def has(self, plan: PackingPlan) -> bool:
        """Whether the code is there that the container is to run."""
        return is_installed(self._launch, plan.code_of(self._container))

    def follow(self, plan: PackingPlan, *, settled: bool) -> None:
        """Fetch what a plan needs, and remove the rest as soon as the processes are those of the plan (`settled`)."""
        self._settled = settled
        if plan.needed_codes != self._needed:
            first, self._needed = self._needed is None, plan.needed_codes
            # `heronpy.container` has fetched what was submitted before there was any other code.
            self._installed = self._tidy = first and not plan.codes and self.has(plan)
            self._next_ms = 0.0

    def tick(self, now_ms: float) -> bool:
        """Look after the child; to be called about once a second. Whether `has` may have changed."""
        ended = False
        if self._child is not None and (code := self._child.poll()) is not None:
            self._child, ended = None, True
            if code:
                log.error("code of the topology is not installed, exit code %d: stderr says why; trying again", code)
                self._next_ms = now_ms + RETRY_MS
            elif self._trying[0] == self._needed:
                self._installed, self._tidy = True, self._trying[1]
        due = not self._installed or (self._settled and not self._tidy)
        if self._child is None and self._needed is not None and due and now_ms >= self._next_ms:
            self._start(now_ms)
        return ended

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _start(self, now_ms: float) -> None:
        ours = {
            CONTAINER_ENV: str(self._container),
            INCARNATION_ENV: str(own_incarnation()),
            PARENT_ENV: str(os.getpid()),
        }
        where = ["--dir", str(self._launch.dir), "--container", str(self._container)]
        command = python_module("heronpy.container.codes", *where, *(["--tidy"] if self._settled else []))
        self._trying = self._needed, self._settled
        try:
            self._child = subprocess.Popen(command, env=child_environment(self._launch, "codes", **ours))
        except OSError as e:
            log.error("code of the topology cannot be fetched: %s", e)
            self._next_ms = now_ms + RETRY_MS
