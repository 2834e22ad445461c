"""The scheduler service, supervised by the executors.

The service supervises the executors, and they the service, so that each is started again by the other: by the executor
of container 0 at once, by that of container n when the service has been dead for n times `TURN_S`. Only when all of
them die at once none is left; then the next command that names the topology starts the service.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from typing import assert_never

from heronpy.errors import ReadFailedError
from heronpy.host import SERVICE, HostProcess, look_at, service_record, start_service
from heronpy.runtime import Launch
from heronpy.supervision import (
    DumpStacks,
    Effect,
    Event,
    Exited,
    Found,
    HangDetector,
    Hung,
    Kill,
    Start,
    Started,
    StartFailed,
    Supervision,
    Terminate,
    Ticked,
    Wanted,
)

log = logging.getLogger(__name__)

TURN_S = 5.0
"""How long an executor leaves the start of the service to the one before it."""


class ServiceSupervisor:
    """Starts the scheduler service again when it is dead or hung. It is never ended here for another reason.

    Two executors may start one in the same moment; the second service gives way.
    """

    def __init__(self, launch: Launch, container: int, *, owner: HostProcess | None, interval_ms: float) -> None:
        self._launch = launch
        self._owner = owner
        self._patience_ms = container * TURN_S * 1000
        self._missed_ms: float | None = None
        """Since when there is no service."""
        self._supervision = Supervision(launch.config.executor)
        self._hangs = HangDetector(launch.config.executor.heartbeat_timeout_ms, interval_ms)
        self._service: HostProcess | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    def tick(self, now_ms: float) -> None:
        """Look after the service; to be called every `interval_ms`."""
        self._children = [child for child in self._children if child.poll() is None]
        self._adopt(now_ms)
        if self._service is not None and not self._service.alive:
            log.warning("the scheduler service, pid %d, is dead", self._service.pid)
            gone, self._service = self._service, None
            self._apply(Exited(SERVICE, gone.pid, now_ms), now_ms)
        self._find_hung(now_ms)
        if self._service is not None:
            self._missed_ms = None
        elif self._missed_ms is None:
            self._missed_ms = now_ms
        if self._missed_ms is not None and now_ms - self._missed_ms < self._patience_ms:
            return
        self._apply(Wanted({SERVICE: 0}, now_ms), now_ms)
        self._apply(Ticked(now_ms), now_ms)

    def _adopt(self, now_ms: float) -> None:
        if self._service is not None:
            return
        try:
            record = service_record(self._launch)
        except ReadFailedError as e:
            log.warning("cannot determine whether the scheduler service runs: %s", e)  # a second one would give way
            return
        if record is not None and record.alive:
            self._service = HostProcess(record.pid, record.start_ticks)
            self._apply(Found(SERVICE, 0, record.pid, now_ms), now_ms)

    def _find_hung(self, now_ms: float) -> None:
        look = look_at(self._launch.dir, SERVICE, self._service) if self._service is not None else None
        hang = self._hangs.looked({SERVICE: look} if look is not None else {}, now_ms)
        if hang is not None:
            log.error("the scheduler service is hung: pid %d, %s; it will be killed", hang.pid, hang.why)
            self._apply(Hung(SERVICE, hang.pid, hang.stopped, now_ms), now_ms)

    def _apply(self, event: Event, now_ms: float) -> None:
        effects: list[Effect] = self._supervision.on(event)
        while effects:
            effect = effects.pop(0)
            match effect:
                case Start():
                    effects += self._supervision.on(self._start(now_ms))
                case DumpStacks():
                    self._send(signal.SIGUSR1)  # to scheduler.stack, beside its log
                case Kill() | Terminate():
                    self._send(signal.SIGKILL)
                case _:
                    assert_never(effect)

    def _start(self, now_ms: float) -> Started | StartFailed:
        try:
            child = start_service(self._launch, owner=self._owner, new_session=False)
        except OSError as e:
            log.error("the scheduler service cannot be started: %s", e)
            return StartFailed(SERVICE, now_ms)
        self._children.append(child)
        try:
            self._service = HostProcess.of(child.pid)
        except OSError as e:
            log.error("the scheduler service was started and cannot be looked at, so it is ended: %s", e)
            child.kill()
            return StartFailed(SERVICE, now_ms)
        if self._service is None:
            log.error("the scheduler service ended as soon as it was started: pid %d", child.pid)
            return StartFailed(SERVICE, now_ms)
        log.info("the scheduler service is started again: pid %d", child.pid)
        return Started(SERVICE, child.pid, now_ms)

    def _send(self, signum: int) -> None:
        if self._service is not None:
            self._service.send(signum)
