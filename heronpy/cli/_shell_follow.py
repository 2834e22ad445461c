"""The end of a log file of another host, and what is added to it, also across rotations.

A heron-shell keeps no file open for anybody. The file that was being read is recognized by its inode: what is left in
it is read first, by whatever name it has now, then every file that is newer.
"""

from __future__ import annotations

from heronpy.cli._follow import READ_BYTES_MAX
from heronpy.config import KIB
from heronpy.errors import NotFoundError, UsageError
from heronpy.proto import shell_pb2
from heronpy.shell import Shell, log_order

_CHUNK_BYTES = 64 * KIB


class ShellFollower:
    """As `Follower`, of a file that a heron-shell reads: whole lines only, in order and without a gap.

    All methods raise UnavailableError while it does not answer, and go on where they were when it does.
    """

    def __init__(self, shell: Shell, name: str) -> None:
        """Read nothing yet.

        Args:
            shell: Of the container.
            name: Of the newest file, below log-files.
        """
        self.shell = shell
        self._name = name
        self._inode = 0
        self._offset = 0
        self._rest = b""

    async def last(self, count: int) -> bytes:
        """The last `count` whole lines of what is there now; `read` goes on behind them."""
        end = await self._end()
        if end is None:
            return b""
        self._inode, self._offset = end.inode, end.size
        data = b""
        for name, inode, size in [(self._name, end.inode, end.size), *await self._older(count)]:
            data = await self._tail(name, inode, size, count - data.count(b"\n"), READ_BYTES_MAX - len(data)) + data
            if data.count(b"\n") >= count or len(data) >= READ_BYTES_MAX:
                break
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        return b"".join(data[:whole].splitlines(keepends=True)[-count:]) if count else b""

    def rest(self) -> bytes:
        """What there is of a line that has no end yet."""
        return self._rest

    async def read(self) -> bytes:
        """The lines that were added since the last call; of a great many, the first."""
        data = self._rest
        for name, inode in await self._unread():
            if inode != self._inode:
                self._inode, self._offset = inode, 0
            while len(data) < READ_BYTES_MAX:
                part = await self._part(name, inode, self._offset, -1)
                if part is None:  # rotated in this moment: the next call finds it
                    break
                data += part.data
                self._offset += len(part.data)
                if not part.data:
                    break
            if part is None or len(data) >= READ_BYTES_MAX:
                break
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end]

    async def _unread(self) -> list[tuple[str, int]]:
        """Which files may have something that was not read, oldest first: name and inode."""
        end = await self._end()
        if end is not None and end.inode == self._inode:
            if end.size < self._offset:
                self._offset = 0  # truncated in place
            return [(self._name, end.inode)] if end.size > self._offset else []
        found = [(entry.name, entry.inode) for entry in await self._family()]
        inodes = [inode for _, inode in found]
        return found[inodes.index(self._inode) :] if self._inode in inodes else found

    async def _older(self, count: int) -> list[tuple[str, int, int]]:
        """The rotated files before the one that is read, newest first: name, inode, size."""
        if not count:
            return []
        found = [(entry.name, entry.inode, entry.size) for entry in await self._family()]
        inodes = [inode for _, inode, _ in found]
        return found[: inodes.index(self._inode)][::-1] if self._inode in inodes else []

    async def _family(self) -> list[shell_pb2.FileEntry]:
        """The file and those that it was rotated to, oldest first."""
        ordered = [(order, entry) for entry in (await self.shell.files()).files if (order := log_order(entry))]
        own = next((order for order, entry in ordered if entry.name == self._name), None)
        if own is None:  # between two steps of a rotation, or removed
            return []
        return [entry for order, entry in sorted(ordered, key=lambda pair: pair[0]) if order[:2] == own[:2]]

    async def _tail(self, name: str, inode: int, size: int, count: int, bytes_max: int) -> bytes:
        """The end of a file with at least its last `count` lines, if `bytes_max` is enough."""
        data, position = b"", size
        while position > 0 and data.count(b"\n") <= count and len(data) < bytes_max:
            step = min(_CHUNK_BYTES, position)
            part = await self._part(name, inode, position - step, step)
            if part is None or len(part.data) != step:  # rotated or truncated in this moment
                return data
            data, position = part.data + data, position - step
        return data

    async def _end(self) -> shell_pb2.FilePart | None:
        try:
            return await self.shell.read(self._name, -1, 0)
        except NotFoundError:
            return None

    async def _part(self, name: str, inode: int, offset: int, length: int) -> shell_pb2.FilePart | None:
        """A part of a file; None if the name is another one's now."""
        try:
            part = await self.shell.read(name, offset, length)
        except (NotFoundError, UsageError):
            return None
        return part if part.inode == inode else None
