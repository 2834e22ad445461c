"""Snapshots on their way to the Checkpoint Manager: what the task writes, then the log of the alignment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from heronpy.checkpoints import LogHeader, ObjectRef, encode_log, encode_ref
from heronpy.errors import HeronError, is_lasting
from heronpy.instance._alignment import CompleteSnapshot
from heronpy.instance._logged import logged
from heronpy.proto import checkpoint_pb2

log = logging.getLogger(__name__)


class SnapshotStore(Protocol):
    """What this uses of `heronpy.ckptmgr.client.CheckpointClient`; see there."""

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Store an object, or nothing of it."""


@dataclass(slots=True)
class _Saving:
    """One snapshot. The parts come in any order."""

    name: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    complete: asyncio.Future[tuple[CompleteSnapshot, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    pieces: asyncio.Queue[tuple[list[bytes], ObjectRef | None]] = field(default_factory=asyncio.Queue)
    ref: ObjectRef | None = None
    undivided: str = ""
    whole: bool = False
    task: asyncio.Task[None] | None = None


class Saver:
    """Stores the snapshots of one task, in its gateway."""

    def __init__(
        self,
        store: SnapshotStore,
        *,
        serializer: str,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        header: Callable[[int, int], LogHeader],
        stored: Callable[[int, checkpoint_pb2.SnapshotStored], None],
        failed: Callable[[int, int, str, bool], None],
    ) -> None:
        """Nothing is under way.

        Args:
            store: Where to.
            serializer: What reads batches, as logs name it.
            spawn: Runs a coroutine as a task of its own.
            header: Of a log, given epoch and checkpoint.
            stored: Called with the epoch when all of a snapshot is stored.
            failed: Called with epoch, checkpoint, reason, and whether the next is bound to fail, if it cannot be.
        """
        self._store, self._spawn, self._header = store, spawn, header
        self._serializer = serializer
        self._stored, self._failed = stored, failed
        self._savings: dict[int, _Saving] = {}
        self._epoch = 0
        self._done = 0
        """The newest checkpoint that is stored or given up; what comes of it is not wanted any more."""
        self.saved_bytes = 0
        """Of pieces that were taken, or are not wanted any more, since the start."""

    def enter(self, epoch: int) -> None:
        """Forget everything; what comes is of an epoch."""
        for checkpoint in [*self._savings]:
            self.drop(checkpoint)
        self._epoch = epoch

    def taken(self, epoch: int, checkpoint: int, name: str, undivided: str, whole: bool) -> None:
        """A snapshot was taken; its object has this name, or there is none. The rest is as in `SnapshotReports`."""
        if (saving := self._of(epoch, checkpoint)) is not None and not saving.name.done():
            saving.undivided, saving.whole = undivided, whole
            saving.name.set_result(name)

    def written(self, epoch: int, checkpoint: int, pieces: list[bytes], ref: ObjectRef | None) -> None:
        """There is more of the object, or all of it."""
        if (saving := self._of(epoch, checkpoint)) is not None:
            saving.pieces.put_nowait((pieces, ref))
        else:
            self.saved_bytes += sum(map(len, pieces))

    def complete(self, complete: CompleteSnapshot, aligned_us: int) -> None:
        """No more comes to the log."""
        if (saving := self._of(self._epoch, complete.checkpoint)) is not None and not saving.complete.done():
            saving.complete.set_result((complete, aligned_us))

    def drop(self, checkpoint: int) -> None:
        """Store nothing more of a snapshot."""
        self._done = max(self._done, checkpoint)
        saving = self._savings.pop(checkpoint, None)
        if saving is not None:
            assert saving.task is not None
            saving.task.cancel()
            self._forget(saving)

    def _forget(self, saving: _Saving) -> None:
        while not saving.pieces.empty():
            self.saved_bytes += sum(map(len, saving.pieces.get_nowait()[0]))

    def _of(self, epoch: int, checkpoint: int) -> _Saving | None:
        """A snapshot that is under way, or begins; None: it is done with."""
        if epoch != self._epoch or checkpoint <= self._done:
            return None
        saving = self._savings.get(checkpoint)
        if saving is None:
            for older in [other for other in self._savings if other < checkpoint]:
                self.drop(older)
            saving = self._savings[checkpoint] = _Saving()
            saving.task = self._spawn(self._save(epoch, checkpoint, saving))
        return saving

    async def _save(self, epoch: int, checkpoint: int, saving: _Saving) -> None:
        try:
            stored = await self._all_of(epoch, checkpoint, saving)
        except HeronError as error:
            log.warning("the snapshot of checkpoint %d is not stored: %s", checkpoint, error)
            self._failed(epoch, checkpoint, str(error), is_lasting(error))
        else:
            self._stored(epoch, stored)
        self._done = max(self._done, checkpoint)
        self._savings.pop(checkpoint, None)
        self._forget(saving)

    async def _all_of(self, epoch: int, checkpoint: int, saving: _Saving) -> checkpoint_pb2.SnapshotStored:
        refs: list[bytes] = []
        state_bytes = 0
        if name := await saving.name:
            await self._store.save(name, self._pieces(saving))
            assert saving.ref is not None
            refs.append(encode_ref(saving.ref))
            state_bytes += saving.ref.size
        complete, aligned_us = await saving.complete
        if complete.log:
            batches = (logged(batch, self._serializer) for batch in complete.log)
            pieces, ref = encode_log(self._header(epoch, checkpoint), batches)
            await self._store.save(ref.name, _each(pieces))
            refs.append(encode_ref(ref))
            state_bytes += ref.size
        return checkpoint_pb2.SnapshotStored(
            checkpoint=checkpoint,
            unaligned=complete.unaligned,
            objects=refs,
            state_bytes=state_bytes,
            aligned_us=aligned_us,
            undivided=saving.undivided,
            whole=saving.whole,
        )

    async def _pieces(self, saving: _Saving) -> AsyncIterator[bytes]:
        while saving.ref is None:
            pieces, saving.ref = await saving.pieces.get()
            self.saved_bytes += sum(map(len, pieces))
            for piece in pieces:
                yield piece


async def _each(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
