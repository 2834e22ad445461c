"""The logs of containers of other hosts, through their heron-shells."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.cli._containers import RemoteContainer, ask_each, remote_containers
from heronpy.cli._log_filter import LineFilter
from heronpy.cli._stored_logs import ended_containers
from heronpy.errors import HeronError
from heronpy.runtime import Launch

if TYPE_CHECKING:
    from heronpy.cli._shell_follow import ShellFollower
    from heronpy.proto import shell_pb2
    from heronpy.shell import Shell

SUFFIXES = (".log", ".out")
"""What a process logs, and what it prints."""
LINES_MAX = 10_000_000
"""All lines, as far as a follower reads back."""
POLL_S = 1.0
LIST_S = 10.0
"""How often new containers and new files are searched for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines of which files."""

    process: str | None
    container: int | None
    text: str
    since_s: float
    lines: int

    def line_filter(self, name: str, modified_s: float) -> LineFilter:
        """For the lines of one file. What is printed has no time: it is of the time at which the file was changed."""
        recent = name.endswith(SUFFIXES[1]) and modified_s >= self.since_s
        return LineFilter(self.text.encode(), self.since_s, recent)


class Remote:
    """The log files of other hosts that are asked for."""

    def __init__(self, launch: Launch, wanted: Wanted, write: Callable[[Path, bytes], None]) -> None:
        """Make no call yet.

        Args:
            launch: The topology.
            wanted: What is to be shown.
            write: Shows lines of a file, whose path is as on a host: `container_<n>/log-files/<name>`.
        """
        self.processes: set[str] = set()
        """The ids of all that have log files there."""
        self.silent = 0
        """How many containers gave no answer; why is on stderr."""
        self._launch, self._wanted, self._write = launch, wanted, write
        self._containers: dict[int, RemoteContainer] = {}
        self._followers: dict[tuple[int, str], tuple[ShellFollower, LineFilter]] = {}
        self._reported: set[str] = set()

    def last(self, *, rest: bool) -> int:
        """Show the last lines of each file; with what there is of a line without an end, unless `follow` shows it.

        Returns:
            How many files there are.

        Raises:
            StateError: the state manager cannot be read.
        """
        self._locate()
        if not self._containers and not self._launch.config.logging.upload_uri:
            return 0
        return asyncio.run(self._show(rest=rest))

    async def _show(self, *, rest: bool) -> int:
        async def show(container: RemoteContainer, shell: Shell) -> int:
            return await self._last(container, shell, rest=rest)

        found, silent = await ask_each(self._launch, self._containers.values(), show)
        if self._launch.config.logging.upload_uri:
            try:
                ended = await ended_containers(self._launch, self._containers)
            except HeronError as e:
                self._report(f"the stored logs cannot be read: {e}")
                ended = {}
            for container, logs in ended.items():
                if container not in found and self._wanted.container in (None, container.number):
                    found[container] = await self._last(container, logs, rest=True, searches=False)
                    silent.pop(container, None)
        self.silent = len(silent)
        for line in sorted(silent.values()):
            self._report(line)
        return sum(found.values())

    async def follow(self) -> None:
        """Show what is added since `last`, until cancelled. One that is silent is waited for, and said so once."""
        async with asyncio.TaskGroup() as tasks:
            followed: set[int] = set()
            while True:
                for number in self._containers.keys() - followed:
                    followed.add(number)
                    tasks.create_task(self._follow(number), name=f"logs/container-{number}")
                await asyncio.sleep(LIST_S)
                with contextlib.suppress(HeronError):  # it is asked again
                    await asyncio.to_thread(self._locate)

    def _locate(self) -> None:
        found = (one for one in remote_containers(self._launch) if self._wanted.container in (None, one.number))
        self._containers |= {container.number: container for container in found}

    async def _last(self, container: RemoteContainer, shell: Shell, *, rest: bool, searches: bool = True) -> int:
        files = await self._files(container, shell)
        for entry in files:
            follower, shown = self._followed(container, shell, entry)
            path = _path(container, entry.name)
            if self._wanted.text and rest and searches:
                async for data in self._matching(shell, container, entry):
                    self._write(path, shown(data))
            else:
                data = await follower.last(self._wanted.lines) + (follower.rest() if rest else b"")
                self._write(path, shown(data))
        return len(files)

    async def _matching(
        self, shell: Shell, container: RemoteContainer, entry: shell_pb2.FileEntry
    ) -> AsyncIterator[bytes]:
        """The lines with the text, of the file and those that it was rotated to: searched where they are.

        All of them come as they are found; so many of the last are kept until the end is reached.
        """
        from heronpy.proto import shell_pb2
        from heronpy.shell import process_of

        process = process_of(entry.name, container.number)
        request = shell_pb2.SearchRequest(text=self._wanted.text, process=process, since_s=self._wanted.since_s)
        last: deque[bytes] = deque(maxlen=self._wanted.lines)
        while True:
            reply = await shell.search(request)
            last.extend(match.line + b"\n" for match in reply.matches if _is_of(match.path, entry.path))
            if reply.complete or self._wanted.lines >= LINES_MAX:
                yield b"".join(last)
                last.clear()
            if reply.complete:
                return
            request.after_path, request.after_offset = reply.next_path, reply.next_offset
            request.after_inode = reply.next_inode

    async def _files(self, container: RemoteContainer, shell: Shell) -> list[shell_pb2.FileEntry]:
        """The newest log file of each process that is asked for."""
        from heronpy.shell import log_order, process_of

        listed = (await shell.files()).files
        newest = [entry for entry in listed if (order := log_order(entry)) is not None and order[2] == 0]
        self.processes |= {process_of(entry.name, container.number) for entry in newest}
        wanted = self._wanted.process
        return [entry for entry in newest if wanted in (None, process_of(entry.name, container.number))]

    def _followed(
        self, container: RemoteContainer, shell: Shell, entry: shell_pb2.FileEntry
    ) -> tuple[ShellFollower, LineFilter]:
        from heronpy.cli._shell_follow import ShellFollower

        key = (container.number, entry.name)
        if key not in self._followers:
            shown = self._wanted.line_filter(entry.name, entry.modified_s)
            self._followers[key] = ShellFollower(shell, entry.name), shown
        follower, shown = self._followers[key]
        follower.shell = shell  # another connection, perhaps to another host
        return follower, shown

    async def _follow(self, number: int) -> None:
        while True:
            _, silent = await ask_each(self._launch, [self._containers[number]], self._follow_files)
            for line in silent.values():
                self._report(line)
            await asyncio.sleep(POLL_S)

    async def _follow_files(self, container: RemoteContainer, shell: Shell) -> None:
        """Until it does not answer, or has moved."""
        while container == self._containers[container.number]:
            files = [(e.name, *self._followed(container, shell, e)) for e in await self._files(container, shell)]
            for _ in range(int(LIST_S / POLL_S)):
                for name, follower, shown in files:
                    self._write(_path(container, name), shown(await follower.read()))
                await asyncio.sleep(POLL_S)

    def _report(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            print(f"heron: {line}", file=sys.stderr, flush=True)


def _path(container: RemoteContainer, name: str) -> Path:
    return Path(f"container_{container.number}/log-files/{name}")


def _is_of(path: str, newest: str) -> bool:
    """Whether a file is the newest one, or was rotated from it."""
    return path == newest or path.startswith(f"{newest}.")
