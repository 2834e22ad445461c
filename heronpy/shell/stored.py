"""Log files that have outlived their container: stored when it ends, in the storage that `heron.logs.upload.uri` names.

    <uri>/<cluster>/<role>/<environ>/<topology>/<topology id>/container_<n>/<incarnation>/<file>

The storage is one of those that checkpoints can be in. An object is there whole or not at all, so what could not be
stored in time is missing, and what is there is right.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import quote, unquote

from heronpy.checkpoints import CheckpointStorage, open_storage, storage_below
from heronpy.config import MIB
from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError
from heronpy.proto import shell_pb2
from heronpy.shell._container import Container
from heronpy.shell._file_threads import FileThreads
from heronpy.shell._log_files import LISTED_MAX, LOG_FOLDER, READ_BYTES_MAX, folder, listing, open_log
from heronpy.shell._search import log_order

T = TypeVar("T")

FILES_MAX = 1000
"""Most files of one container that are listed."""
CALL_S = 15.0
"""How long a storage may take for an answer; the thread that waits for it stays behind."""
_PIECE_BYTES = 1 * MIB
_NAME = re.compile(r"container_([0-9]{1,9})/([0-9]{20})/([^/]+)")


def log_store_of(uri: str, cluster: str, role: str, environ: str) -> str:
    """The part of a log store for one role's topologies: what the launch file of each names."""
    return storage_below(uri, *(_quoted(name) for name in (cluster, role, environ)))


def open_log_store(uri: str, topology: str, topology_id: str) -> CheckpointStorage:
    """The part of a log store that is one topology's. Raises ConfigError: it is none that there is."""
    return open_storage(storage_below(uri, _quoted(topology), _quoted(topology_id)))


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E") if name.startswith(".") else quote(name, safe="")


def stored_containers(uri: str, topology: str, topology_id: str) -> list[int]:
    """The numbers of the containers of which log files are stored.

    Raises:
        ConfigError: there is no such storage.
        UnavailableError: it does not answer.
    """
    with open_log_store(uri, topology, topology_id) as storage:
        return sorted({int(parts[1]) for name in storage.names("container_") if (parts := _NAME.fullmatch(name))})


def stored_topologies(uri: str, topology: str) -> list[str]:
    """The ids of the topologies of this name of which log files are stored; the one that ran last is the last.

    Raises:
        ConfigError: there is no such storage.
        UnavailableError: it does not answer.
    """
    with open_storage(storage_below(uri, _quoted(topology))) as storage:
        found: dict[str, int] = {}
        for name in storage.names():
            id, _, rest = name.partition("/")
            if parts := _NAME.fullmatch(rest):
                found[unquote(id)] = max(found.get(unquote(id), 0), int(parts[2]))
    return sorted(found, key=lambda id: found[id])


def store_logs(container: Container, storage: CheckpointStorage, incarnation: int) -> list[str]:
    """Store the log files of a container, the newest of each process first.

    Returns:
        The names of those that could not be stored, each with the reason.

    Raises:
        NotFoundError, NotHereError: there are none here.
    """
    failed: list[str] = []
    with folder(container) as logs:
        listed = listing(logs)
        if listed.truncated:
            failed.append(f"{container} has more than {LISTED_MAX} log files, and only so many are stored")
        ordered = [(order, entry.name) for entry in listed.files if (order := log_order(entry)) is not None]
        for _, name in sorted(ordered, key=lambda pair: (-pair[0][2], pair[0])):
            try:
                fd = open_log(logs, name)
            except NotFoundError:  # rotated or removed meanwhile
                continue
            except HeronError as e:
                failed.append(f"{name}: {e}")
                continue
            target = f"container_{container.number}/{incarnation:020d}/{_quoted(name)}"
            try:
                storage.put(target, _pieces(fd))
            except (HeronError, OSError, ValueError) as e:
                failed.append(f"{name}: {e}")
            finally:
                os.close(fd)
    return failed


def _pieces(fd: int) -> Iterator[bytes]:
    """A file as long as it is now."""
    offset, size = 0, os.fstat(fd).st_size
    while offset < size and (data := os.pread(fd, min(_PIECE_BYTES, size - offset), offset)):
        offset += len(data)
        yield data


class StoredLogs:
    """The stored log files of a container: a `Shell` without processes.

    The files of its last incarnation are listed by their names, those of earlier ones in folders named by their
    numbers. Every call raises NotFoundError if nothing was stored, and UnavailableError if the storage does not answer.
    """

    def __init__(self, uri: str, container: Container, threads: FileThreads | None = None) -> None:
        """Read nothing yet.

        Args:
            uri: Of the log store.
            container: Which one.
            threads: What waits for the storage, if it is shared.

        Raises:
            ConfigError: there is no such storage.
        """
        self._container = container
        self._threads = threads or FileThreads()
        self._storage = open_log_store(uri, container.topology, container.topology_id)

    async def files(self, path: str = ".") -> shell_pb2.FileList:
        return await self._call(lambda: self._files(path))

    async def read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        return await self._call(lambda: self._read(path, offset, length))

    async def search(self, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
        raise UnavailableError(f"{self._container} has ended: download its stored log files to search them")

    async def processes(self) -> shell_pb2.ProcessList:
        raise UnavailableError(f"{self._container} has ended")

    async def look(self, kind: str, process: str) -> shell_pb2.LookReply:
        raise UnavailableError(f"{self._container} has ended: {process} cannot be looked into")

    async def profile(self, process: str, seconds: float) -> shell_pb2.ProcessProfile:
        raise UnavailableError(f"{self._container} has ended: {process} cannot be profiled")

    async def has(self, incarnation: int) -> bool:
        """Whether log files of this incarnation are stored: it has ended."""
        return f"{incarnation:020d}" in await self._call(self._names)

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(CALL_S):
                return await self._threads.run(work)
        except TimeoutError:
            raise UnavailableError(f"the log store of {self._container} does not answer within {CALL_S:g} s") from None

    def _names(self) -> dict[str, dict[str, str]]:
        """The stored objects by incarnation and file name; the last incarnation is the last."""
        found: dict[str, dict[str, str]] = {}
        for name in self._storage.names(f"container_{self._container.number}/"):
            if parts := _NAME.fullmatch(name):
                found.setdefault(parts[2], {})[unquote(parts[3])] = name
        if not found:
            raise NotFoundError(f"no log files of {self._container} are stored")
        return {incarnation: found[incarnation] for incarnation in sorted(found)}

    def _files(self, path: str) -> shell_pb2.FileList:
        names = self._names()
        wanted = path.strip("./").removeprefix(LOG_FOLDER).strip("/")
        last = [*names][-1]
        if wanted and wanted.zfill(20) not in names:
            raise NotFoundError(f"no folder {path!r} below log-files")
        incarnation = wanted.zfill(20) if wanted else last
        prefix = f"{LOG_FOLDER}/{wanted}/" if wanted else f"{LOG_FOLDER}/"
        files = [
            self._entry(name, prefix + name, stored, int(incarnation))
            for name, stored in sorted(names[incarnation].items())[:FILES_MAX]
        ]
        folders = [
            shell_pb2.FileEntry(
                name=str(int(n)), path=prefix + str(int(n)), mode=stat.S_IFDIR | 0o700, modified_s=int(n)
            )
            for n in names
            if not wanted and n != last
        ]
        return shell_pb2.FileList(files=[*files, *folders], truncated=len(names[incarnation]) > FILES_MAX)

    def _entry(self, name: str, path: str, stored: str, incarnation: int) -> shell_pb2.FileEntry:
        return shell_pb2.FileEntry(
            name=name,
            path=path,
            mode=stat.S_IFREG | 0o600,
            links=1,
            size=self._storage.size(stored),
            modified_s=incarnation,
            inode=_inode(stored),
        )

    def _read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        if offset < -1 or length < -1:
            raise UsageError("offset and length are numbers of bytes, or -1 for the end of the file")
        names = self._names()
        parts = [part for part in path.split("/") if part not in ("", ".")]
        parts = parts[1:] if parts[:1] == [LOG_FOLDER] else parts
        incarnation = parts[0].zfill(20) if len(parts) == 2 else [*names][-1]
        stored = names.get(incarnation, {}).get(parts[-1]) if len(parts) in (1, 2) else None
        if stored is None:
            raise NotFoundError(f"no log file {path!r} is stored")
        size = self._storage.size(stored)
        if offset == -1:
            return shell_pb2.FilePart(offset=size, size=size, inode=_inode(stored))
        if offset > size:
            raise UsageError(f"offset {offset} is beyond the end of {path!r}, which has {size} bytes")
        wanted = min(size - offset if length == -1 else length, READ_BYTES_MAX)
        data = self._storage.read(stored, offset, wanted) if wanted else b""
        return shell_pb2.FilePart(offset=offset, data=data, size=size, inode=_inode(stored))


def _inode(stored: str) -> int:
    """Stays the same for the same object."""
    return zlib.crc32(stored.encode()) + 1
