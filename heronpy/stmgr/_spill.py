"""The directory that feedback is spilled to: one file for each segment."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from heronpy.stmgr.events import DeleteSpill, ReadSpill, SpillFailed, SpillRead, SpillWritten, WriteSpill


class SpillDirectory:
    """Writes and reads segments one after the other, in a thread, and reports each."""

    def __init__(self, path: Path, report: Callable[[SpillWritten | SpillRead | SpillFailed], None]) -> None:
        """Begin with an empty directory: what an earlier incarnation left there is removed.

        Args:
            path: of the directory; made with the first segment.
            report: called in the event loop.
        """
        self._path, self._report = path, report
        self._names: dict[str, int] = {}
        # Bounded by the core: senders are held while too much is on its way to the disk.
        self._queue: asyncio.Queue[WriteSpill | ReadSpill | DeleteSpill] = asyncio.Queue()
        self.remove()

    def put(self, effect: WriteSpill | ReadSpill | DeleteSpill) -> None:
        """Do it after everything that was put before it."""
        self._queue.put_nowait(effect)

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            OSError: a segment cannot be read back: its tuples are lost, and time out.
        """
        while True:
            effect = await self._queue.get()
            path = self._path / f"{self._names.setdefault(effect.outbox, len(self._names))}-{effect.segment}"
            match effect:
                case WriteSpill():
                    await self._write(effect, path)
                case ReadSpill():
                    data = await asyncio.to_thread(_read, path)
                    self._report(SpillRead(effect.outbox, effect.segment, data, time.monotonic_ns()))
                case DeleteSpill():
                    await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _write(self, effect: WriteSpill, path: Path) -> None:
        try:
            await asyncio.to_thread(_write, path, effect.data)
        except OSError as error:
            reason = error.strerror or str(error)
            self._report(SpillFailed(effect.outbox, effect.segment, reason, time.monotonic_ns()))
        else:
            self._report(SpillWritten(effect.outbox, effect.segment, time.monotonic_ns()))

    def remove(self) -> None:
        """Remove the directory and what is in it."""
        if self._path.exists():
            import shutil  # here, because few topologies have cycles

            shutil.rmtree(self._path)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    path.unlink()
    return data
