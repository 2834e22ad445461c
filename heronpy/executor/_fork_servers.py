"""The fork servers of a container: what is forked instead of executed, and what is done where that is not possible."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Final, NamedTuple

from heronpy.errors import UnavailableError
from heronpy.executor._commands import INSTANCE_STAGE, Command
from heronpy.forkserver import ForkServer, reap_adopted
from heronpy.host import CONTAINER_ENV, INSTANCE_ENV, child_environment, engine_program, open_out
from heronpy.runtime import PARENT_ENV, Launch

log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0
"""How long processes are executed after a fork server has failed, before another is started."""
_AT_EXEC: Final = "GLIBC_TUNABLES"
"""Is read when a program is executed, so a fork server has it for all whom it forks."""


class _Imports(NamedTuple):
    """What a fork server imports, and how."""

    modules: frozenset[str]
    environment: dict[str, str]
    """What libraries read when they are loaded (OPENBLAS_THREAD_TIMEOUT) is not read again in a fork."""


class ForkServers:
    """One for the commands of each setting of `_AT_EXEC`, if these are at least two."""

    def __init__(self, launch: Launch, container: int) -> None:
        self._launch = launch
        self._container = container
        self._imports: dict[str, _Imports] = {}
        self._servers: dict[str, ForkServer] = {}
        self._again_s: dict[str, float] = {}

    def follow(self, commands: Iterable[Command]) -> None:
        """Start what is needed for these commands, and end what is not; it is not waited for."""
        groups = defaultdict[str, list[Command]](list)
        for command in commands if self._launch.config.executor.fork_server else ():
            if engine_program(command.argv):
                groups[_setting(command)].append(command)
        self._imports = {setting: _imports(group) for setting, group in groups.items() if len(group) > 1}
        for setting in self._servers.keys() - self._imports.keys():
            self._servers.pop(setting).close()
        for setting in self._imports:
            self._server(setting)

    @property
    def importing(self) -> bool:
        """Whether it is worth it to wait a moment: processes that were started now would be executed."""
        return any(self._ready(setting) is False for setting in list(self._servers))

    def fork(
        self, command: Command, environment: Mapping[str, str], out: IO[bytes], started: Callable[[int], None]
    ) -> int | None:
        """The pid of a process that is forked for a command, which went on after `started`; None: execute it."""
        setting = _setting(command)
        if setting not in self._imports or not (self._server(setting) and self._ready(setting)):
            return None
        directory = self._launch.container_dir(self._container)
        try:
            return self._servers[setting].fork(
                command.argv, directory=directory, environment=environment, out=out, started=started
            )
        except ValueError as e:
            log.info("%s is executed, not forked: %s", command.id, e)
        except UnavailableError as e:
            self._failed(setting, e)
        return None

    def reap(self) -> None:
        """Reap those that are dead, and what was adopted."""
        for setting in list(self._servers):
            self._ready(setting)
        reap_adopted()

    def close(self) -> None:
        """End all."""
        while self._servers:
            self._servers.popitem()[1].close()

    def _ready(self, setting: str) -> bool | None:
        """None: it has failed."""
        try:
            return self._servers[setting].ready
        except UnavailableError as e:
            self._failed(setting, e)
            return None

    def _failed(self, setting: str, error: UnavailableError) -> None:
        log.warning("processes are executed for %g s, not forked, which takes longer: %s", AGAIN_S, error)
        self._servers.pop(setting).close()
        self._again_s[setting] = time.monotonic() + AGAIN_S

    def _server(self, setting: str) -> ForkServer | None:
        if setting in self._servers or time.monotonic() < self._again_s.get(setting, 0.0):
            return self._servers.get(setting)
        name = f"fork-server-{self._container}"
        modules, ours = self._imports[setting]
        ours = {PARENT_ENV: str(os.getpid()), CONTAINER_ENV: str(self._container), **ours}
        bounds = self._launch.config.logging
        try:
            out = self._launch.log_dir(self._container) / f"{name}.out"
            with open_out(out, file_bytes=bounds.file_bytes, files=bounds.files) as errors:
                environment = child_environment(self._launch, name, **ours)
                self._servers[setting] = ForkServer(modules, environment=environment, errors=errors)
                log.info("fork server started: pid %d", self._servers[setting].pid)
        except OSError as e:
            log.warning("no fork server can be started, so processes are executed, which takes longer: %s", e)
            self._again_s[setting] = time.monotonic() + AGAIN_S
        return self._servers.get(setting)


def _setting(command: Command) -> str:
    return command.env.get(_AT_EXEC, "")


def _imports(group: Iterable[Command]) -> _Imports:
    """For instances if there are any: their user code may bring another version of what only other processes need."""
    group = [command for command in group if command.stage == INSTANCE_STAGE] or list(group)
    environment = {key: value for key, value in group[0].env.items() if key != INSTANCE_ENV}
    return _Imports(frozenset(engine_program(command.argv)[0] for command in group), environment)
