"""What can be asked of a container, wherever it is, and the answers of a container of this host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from heronpy.errors import UsageError, nearest
from heronpy.proto import shell_pb2
from heronpy.shell import _log_files, _processes, _profiles
from heronpy.shell._container import Container
from heronpy.shell._file_threads import FileThreads
from heronpy.shell._search import search

T = TypeVar("T")

LOOKS = ("pid", "jstack", "jmap", "histo", "pmap")
"""The kinds of `look`: process id, stacks, memory and garbage collector, objects by type, mappings."""


class Shell(Protocol):
    """A container's files and processes.

    Every method raises NotFoundError and UsageError for what does not exist, or cannot, and UnavailableError if the one
    who knows does not answer. Paths are relative to the container's log-files; no path leads out of it.
    """

    async def files(self, path: str = ".") -> shell_pb2.FileList:
        """What is in a folder; at most `LISTED_MAX` files."""

    async def read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        """Part of a file, at most `READ_BYTES_MAX`; offset -1: only where it ends. Length -1: up to the end."""

    async def search(self, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
        """Lines of log files that contain a text."""

    async def processes(self) -> shell_pb2.ProcessList:
        """The container's processes, dead ones that wait for their restart too."""

    async def look(self, kind: str, process: str) -> shell_pb2.LookReply:
        """Look into a live process; see LOOKS."""

    async def profile(self, process: str, seconds: float) -> shell_pb2.ProcessProfile:
        """Have a live process sample its stacks."""


class LocalShell:
    """A container of this host, or one whose files this host shares. Raises NotHereError if it is neither."""

    def __init__(
        self, container: Container, *, profiled: set[tuple[str, str]] | None = None, files: FileThreads | None = None
    ) -> None:
        """Read nothing yet.

        Args:
            container: Which one.
            profiled: What is being profiled on this host, if several look into it.
            files: What reads its files, if it is shared.
        """
        self._container = container
        self._profiled = profiled if profiled is not None else set()
        self._files = files or FileThreads()

    async def files(self, path: str = ".") -> shell_pb2.FileList:
        return await self._in_folder(lambda logs: _log_files.listing(logs, path))

    async def read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        return await self._in_folder(lambda logs: _log_files.read(logs, path, offset, length))

    async def search(self, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
        return await self._in_folder(lambda logs: search(logs, self._container.number, request))

    async def processes(self) -> shell_pb2.ProcessList:
        return await asyncio.to_thread(_processes.processes, self._container)

    async def look(self, kind: str, process: str) -> shell_pb2.LookReply:
        match kind:
            case "pid" | "jmap" | "histo" | "pmap":
                return await asyncio.to_thread(getattr(_processes, kind), self._container, process)
            case "jstack":
                return await asyncio.to_thread(_processes.jstack, self._container, process, _processes.find_spy())
        raise UsageError(f"{kind!r} is not a way to look into a process{nearest(kind, LOOKS)}")

    async def profile(self, process: str, seconds: float) -> shell_pb2.ProcessProfile:
        return await _profiles.profile(self._profiled, self._container, process, seconds)

    async def _in_folder(self, work: Callable[[int], T]) -> T:
        def run() -> T:
            with _log_files.folder(self._container) as logs:
                return work(logs)

        return await self._files.run(run)
