"""The processes of containers of other hosts, as their heron-shells see them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heronpy.cli._containers import RemoteContainer, ask_each, remote_containers
from heronpy.runtime import Launch

if TYPE_CHECKING:
    from heronpy.proto import shell_pb2
    from heronpy.shell import Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProcess:
    """One process, as `heron status` shows it."""

    state: str
    """`running`, `dead`, `not started`, or `?`: unknown."""
    pid: int = 0
    uptime_s: float = 0.0
    restarts: int = 0
    restarts_10_min: int = 0
    last_end: str = ""


@dataclass(frozen=True, slots=True)
class SeenElsewhere:
    """What is known of the containers of other hosts."""

    processes: dict[int, dict[str, SeenProcess]] = field(default_factory=dict)
    """By container and process id."""
    unknown: frozenset[int] = frozenset()
    """The containers of which nothing can be known now."""
    silent: list[str] = field(default_factory=list)
    """Why, a line for each."""


def seen_elsewhere(launch: Launch, now_s: float) -> SeenElsewhere:
    """Ask all containers that are on other hosts. Raises StateError if the state manager cannot be read."""
    containers = remote_containers(launch)
    if not containers:
        return SeenElsewhere()

    async def ask(_container: RemoteContainer, shell: Shell) -> shell_pb2.ProcessList:
        return await shell.processes()

    answers, silent = asyncio.run(ask_each(launch, containers, ask))
    found = {
        container.number: {process.id: _seen(process, now_s) for process in answer.processes}
        for container, answer in answers.items()
    }
    return SeenElsewhere(found, frozenset(c.number for c in containers) - found.keys(), sorted(silent.values()))


def _seen(process: shell_pb2.ProcessInfo, now_s: float) -> SeenProcess:
    return SeenProcess(
        state="running" if process.alive else "dead",
        pid=process.pid,
        uptime_s=max(0.0, round(now_s - process.started_ms / 1000, 1)) if process.alive else 0.0,
        restarts=process.restarts,
        restarts_10_min=sum(1 for at_ms in process.recent_ms if now_s - at_ms / 1000 <= 600),
        last_end=process.last_end,
    )
