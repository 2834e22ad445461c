"""The containers of a topology whose files are not on this host: what their heron-shells say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from heronpy.errors import HeronError, UnavailableError
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, container_node, container_record, is_container_node, open_statemgr

if TYPE_CHECKING:
    from heronpy.shell import Shell

T = TypeVar("T")

CALLS_MAX = 32
"""Most containers that are asked at a time."""


@dataclass(frozen=True, slots=True)
class RemoteContainer:
    """A container of another host."""

    number: int
    host: str
    endpoint: str
    """Of its heron-shell; empty: it has none."""
    incarnation: int = 0

    def __str__(self) -> str:
        return f"container {self.number}{f' on {self.host}' if self.host else ''}"


def remote_containers(launch: Launch) -> list[RemoteContainer]:
    """Those that have started somewhere, and whose directories are not here.

    Raises:
        StateError: the state manager cannot be read.
    """
    if not launch.config.shell.enabled:
        return []  # they share this host's files
    with contextlib.closing(open_statemgr(launch.statemgr)) as state:
        nodes = [node for node in state.list(Kind.CONTAINERS) if is_container_node(node, launch.topology)]
        numbers = sorted(int(node.rpartition("__")[2]) for node in nodes)
        values = {n: state.get(Kind.CONTAINERS, container_node(launch.topology, n)) for n in numbers}
    records = {n: container_record(value) for n, value in values.items()}
    return [
        RemoteContainer(n, record.host, record.shell_endpoint, record.incarnation)
        for n, record in records.items()
        if record.topology_id == launch.topology_id and not launch.container_dir(n).is_dir()
    ]


async def ask_each(
    launch: Launch, containers: Iterable[RemoteContainer], call: Callable[[RemoteContainer, Shell], Awaitable[T]]
) -> tuple[dict[RemoteContainer, T], dict[RemoteContainer, str]]:
    """Make a call of the heron-shell of each container, several at a time.

    Returns:
        The answers, and of each container that gave none a line that says which and why.
    """
    # Here, because commands without a call would wait for gRPC.
    from heronpy.shell.client import RemoteShell

    containers = list(containers)
    if not containers:
        return {}, {}
    security = launch.security("heron")
    turns = asyncio.Semaphore(CALLS_MAX)
    answers: dict[RemoteContainer, T] = {}
    silent: dict[RemoteContainer, str] = {}

    async def ask(container: RemoteContainer) -> None:
        async with turns:
            shell = RemoteShell(container.endpoint, security, container.number)
            try:
                answers[container] = await call(container, shell)
            except UnavailableError as e:
                silent[container] = f"{container}: its heron-shell at {container.endpoint} does not answer: {e}"
            except HeronError as e:
                silent[container] = f"{container}: {e}"
            finally:
                await shell.close()

    asked = []
    for container in containers:
        if container.endpoint:
            asked.append(container)
        else:
            silent[container] = f"{container} has no heron-shell (heron.shell.enabled), or it is not up yet"
    await asyncio.gather(*(ask(container) for container in asked))
    return answers, silent
