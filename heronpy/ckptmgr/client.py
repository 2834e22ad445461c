"""The client side: how the processes of a container store and read checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

import grpc
import grpc.aio

from heronpy.checkpoints import (
    NOTHING_SAVED,
    DirectoryStorage,
    LoggedBatch,
    LogRef,
    Manifest,
    ObjectReader,
    ObjectRef,
    ReadAhead,
    Saved,
    SpooledSource,
    manifest_name,
    read_log,
    read_saved,
    reads_on,
)
from heronpy.ckptmgr._upload import Upload
from heronpy.config import MIB
from heronpy.errors import CheckpointError, HeronError, NotFoundError, ReadFailedError, StateError, UnavailableError
from heronpy.proto import checkpoint_pb2, checkpoint_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch, StreamLost

if TYPE_CHECKING:
    from heronpy.plan import StateOwner

T = TypeVar("T")

SOCKET_NAME: Final = "ckptmgr.sock"
READ_BYTES: Final = 4 * MIB
"""How much is asked for at once."""
READ_TIMEOUT_S: Final = 60.0
SAVE_TIMEOUT_S: Final = 600.0
MANIFEST_TIMEOUT_S: Final = 60.0
DISCARD_TIMEOUT_S: Final = 300.0
INTACT_TIMEOUT_S: Final = 300.0
HOLD_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.2
REPEAT_S: Final = 20.0
"""For how long calls are repeated. After that the checkpoint fails, and the next one has the changes."""

_ERRORS: Final[Mapping[grpc.StatusCode, type[HeronError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.DATA_LOSS: CheckpointError,
    grpc.StatusCode.FAILED_PRECONDITION: CheckpointError,
    grpc.StatusCode.ABORTED: ReadFailedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: StateError,
}


@dataclass(frozen=True, slots=True)
class ManifestSize:
    """Of a checkpoint whose manifest was written, in bytes."""

    total: int
    added: int
    """What it has more than the one before."""
    logged: int = 0
    """What tasks had yet to execute."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint has of one task."""

    saved: Saved
    """For `heronpy.state.TaskStates`."""
    log: tuple[LoggedBatch, ...]
    """To be executed before everything else, for `Alignment.restored`."""
    read_bytes: int = 0
    """How much of the checkpoint was read for it."""


@dataclass(frozen=True, slots=True)
class Intact:
    """What a look at some checkpoints has found."""

    checkpoint: int
    """The newest that can be restored; 0: none can."""
    refused: tuple[str, ...]
    """Why each newer one cannot."""
    logged_tasks: Mapping[str, int]
    """How many tasks some components must have for the newest that is refused for nothing but batches in flight."""


class CheckpointClient:
    """One process's connection to the Checkpoint Manager of a container, as a context manager. Used in one event loop.

    While the Checkpoint Manager is restarted, all calls wait for it, and are repeated if it ended in the middle of one,
    until their deadline; `save` only if little was sent, since its pieces are not kept.

    Raises, from all methods:
        UnavailableError: the Checkpoint Manager or its storage did not answer in time. Nothing is known: what was to be
            written may be there.
        StateError: it cannot be written (a full disk), or, as ReadFailedError, not be read now.
    """

    def __init__(self, launch: Launch, *, container: int, process: str) -> None:
        """Connect to nothing yet.

        Args:
            launch: The topology.
            container: Whose Checkpoint Manager; the Topology Master takes that of container 0.
            process: Id of the process that calls.
        """
        self._security = launch.security(process)
        self._start = launch.start_checkpoint
        self._socket = launch.socket_dir(container) / SOCKET_NAME
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._channel = await self._open.enter_async_context(channel(f"unix:{self._socket}", self._security))
        self._stub = checkpoint_pb2_grpc.CkptmgrStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    # --- Instances: snapshots

    async def save(self, name: str, pieces: AsyncIterable[bytes], *, timeout_s: float = SAVE_TIMEOUT_S) -> None:
        """Store an object or a log, piece by piece; on return it is durable.

        If this fails or is cancelled, or if `pieces` raises (its error passes), nothing is stored. It is repeated by
        itself while no more than 4 MiB were sent.

        Args:
            name: `ObjectRef.name` or `LogRef.name`: unique by task, checkpoint and epoch.
            pieces: In order, of any size. Awaited only when the Checkpoint Manager takes them.
            timeout_s: For all of it.

        Raises:
            CheckpointError: the name cannot be one.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + timeout_s
        repeat_s = min(due_s, loop.time() + REPEAT_S)
        upload = Upload(pieces)
        while True:
            call = self._stub.Save(metadata=self._security.metadata, timeout=due_s - loop.time(), wait_for_ready=True)
            lost = {grpc.StatusCode.UNAVAILABLE}
            try:
                try:
                    await upload.send(name, call)
                except StreamLost:  # the call says why, unless it was ended under a write: an internal error, too
                    lost.add(grpc.StatusCode.INTERNAL)
                await call
                return
            except grpc.aio.AioRpcError as e:
                again = e.code() in lost and upload.kept is not None
                if not again or loop.time() + RETRY_S >= repeat_s:
                    _raise(e, f"checkpoint object {name} is not stored")
            except asyncio.CancelledError as e:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                raise UnavailableError(f"checkpoint object {name} is not stored: the connection was closed") from e
            finally:
                call.cancel()
            await asyncio.sleep(RETRY_S)

    # --- Instances: restore

    async def restore(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        spool: Path | None = None,
        ahead: ReadAhead | None = None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Restored:
        """What a checkpoint has of task `index` of `tasks`, read and checked in a thread.

        Objects that are files of this host are read from there: to have them sent takes twice the CPU of the rest.

        Args:
            checkpoint: Its id; 0 is the beginning: without state, or with what the topology was submitted from.
            component: The task's.
            index: Of the task in its component.
            tasks: How many the component has now.
            spool: A directory, if state by key is not to be in memory: it is read from a file there when it is needed.
            ahead: What was read before: if the checkpoint follows it, only what is newer is read.
            timeout_s: For each single read.

        Raises:
            CheckpointError: the checkpoint is missing, damaged or another topology's, or does not fit.
        """
        start = checkpoint == 0
        if start and not self._start:
            return Restored(NOTHING_SAVED, ())
        stored = await self._stored(checkpoint, start, timeout_s)
        manifest = stored.manifest

        def opened(ref: ObjectRef) -> ObjectReader:
            source = _RemoteSource(ref.name, ref.size, stored.read)
            return ObjectReader(source if spool is None else SpooledSource(source, spool))

        def log(ref: LogRef) -> bytes:
            return stored.read(ref.name, 0, ref.size)

        def all_of_it() -> Restored:
            saved = read_saved(manifest, component, index, tasks, opened, kept=spool is None, ahead=ahead)
            if start:
                return Restored(saved.elsewhere(), (), stored.read_bytes)
            logs = read_log(manifest.logs, component, index, tasks, manifest.topology_id, log)
            return Restored(saved, logs, stored.read_bytes)

        return await stored.in_thread(all_of_it)

    async def read_ahead(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        *,
        pause: Callable[[], None],
        ahead: ReadAhead | None = None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Saved:
        """What a checkpoint has of task `index` of `tasks`, without logs. Nothing is restored.

        Args:
            checkpoint: Its id.
            component: The task's.
            index: Of the task in its component.
            tasks: How many the component may have soon.
            pause: Called in a thread before each read; what it raises passes.
            ahead: What was read before: if the checkpoint follows it, only what is newer is read.
            timeout_s: For each single read.

        Raises:
            CheckpointError: as `restore`.
        """
        stored = await self._stored(checkpoint, False, timeout_s)

        def read(name: str, offset: int, length: int) -> bytes:
            pause()
            return stored.read(name, offset, length)

        def opened(ref: ObjectRef) -> ObjectReader:
            return ObjectReader(_RemoteSource(ref.name, ref.size, read))

        return await stored.in_thread(lambda: read_saved(stored.manifest, component, index, tasks, opened, ahead=ahead))

    async def reads_on(
        self,
        checkpoint: int,
        component: str,
        index: int,
        tasks: int,
        ahead: ReadAhead,
        *,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> bool:
        """Whether `read_ahead` with what was read before reads only what is newer. Takes and raises what that does."""
        stored = await self._stored(checkpoint, False, timeout_s)
        return reads_on(stored.manifest, component, index, tasks, ahead)

    async def _stored(self, checkpoint: int, start: bool, timeout_s: float) -> _Stored:
        """A checkpoint to be read by a thread.

        Raises:
            CheckpointError: its manifest is missing or damaged.
        """
        try:
            name = manifest_name(checkpoint or self._start)
            manifest, directory = await self._manifest(name, start=start, timeout_s=timeout_s)
        except NotFoundError as e:
            raise CheckpointError(f"checkpoint {checkpoint} is missing: {e}") from e
        local = DirectoryStorage(Path(directory)) if directory else None
        return _Stored(self, checkpoint, manifest, local, asyncio.get_running_loop(), start, timeout_s)

    async def manifest(self, checkpoint: int, *, start: bool = False, timeout_s: float = READ_TIMEOUT_S) -> Manifest:
        """The manifest of a checkpoint; with `start`, where the topology was submitted from.

        Raises:
            NotFoundError: there is none.
            CheckpointError: it is damaged.
        """
        return (await self._manifest(manifest_name(checkpoint), start=start, timeout_s=timeout_s))[0]

    async def _manifest(self, name: str, *, start: bool, timeout_s: float) -> tuple[Manifest, str]:
        """The manifest, and the directory of its objects if they are files of this host."""
        reply = await self._sized(name, start=start, timeout_s=timeout_s)
        data = await self.read(name, 0, reply.size, start=start, timeout_s=timeout_s)
        return Manifest.decode(data, name), reply.directory

    async def size(self, name: str, *, start: bool = False, timeout_s: float = READ_TIMEOUT_S) -> int:
        """How many bytes an object has.

        Raises:
            NotFoundError: there is none of this name.
        """
        return (await self._sized(name, start=start, timeout_s=timeout_s)).size

    async def _sized(self, name: str, *, start: bool, timeout_s: float) -> checkpoint_pb2.SizeReply:
        request = checkpoint_pb2.SizeRequest(name=name, start=start)
        reply = await self._repeated(self._stub.Size, request, timeout_s, f"checkpoint object {name}")
        assert isinstance(reply, checkpoint_pb2.SizeReply)
        return reply

    async def read(
        self, name: str, offset: int, length: int, *, start: bool = False, timeout_s: float = READ_TIMEOUT_S
    ) -> bytes:
        """A part of an object; less, if it ends before. `timeout_s` is for every 4 MiB.

        Raises:
            NotFoundError: there is none of this name.
        """
        pieces: list[bytes] = []
        while length > 0:
            request = checkpoint_pb2.ReadRequest(name=name, offset=offset, length=min(length, READ_BYTES), start=start)
            reply = await self._repeated(self._stub.Read, request, timeout_s, f"checkpoint object {name}")
            pieces.append(reply.data)
            if len(reply.data) < request.length:
                break
            offset, length = offset + len(reply.data), length - len(reply.data)
        return b"".join(pieces)

    # --- Topology Master

    async def write_manifest(
        self,
        *,
        checkpoint: int,
        epoch: int,
        previous: int,
        objects: Sequence[bytes],
        tasks: Mapping[str, int],
        duration_s: float = 0.0,
        owners: Iterable[StateOwner] = (),
        timeout_s: float = MANIFEST_TIMEOUT_S,
    ) -> ManifestSize:
        """Make the manifest of a checkpoint: on return it is durable, and the checkpoint can be committed.

        A repeated call succeeds.

        Args:
            checkpoint: Its id.
            epoch: Restore epoch in which it was taken.
            previous: The last committed checkpoint; 0: none.
            objects: Of all tasks, as in `SnapshotStored.objects` (`heronpy.checkpoints.encode_ref`).
            tasks: Of each component of the plan, how many tasks it has. Those without objects are passed over.
            duration_s: Since the checkpoint began; 0: not known. For people.
            owners: The operators of all components that have state.
            timeout_s: For all of it.

        Raises:
            CheckpointError: it would not be one that can be restored: an object is missing or another one, the manifest
                before is missing or damaged, or a manifest with other objects is there. The checkpoint has failed.
        """
        request = checkpoint_pb2.ManifestRequest(
            checkpoint=checkpoint,
            epoch=epoch,
            previous=previous,
            objects=objects,
            tasks=tasks,
            duration_ms=int(duration_s * 1000),
            owners=[checkpoint_pb2.StateOwner(**asdict(owner)) for owner in owners],
        )
        what = f"the manifest of checkpoint {checkpoint}"
        reply = await self._repeated(self._stub.WriteManifest, request, timeout_s, what)
        return ManifestSize(reply.size, reply.added, reply.logged)

    async def discard(
        self, *, keep: Sequence[int], before: int, timeout_s: float = DISCARD_TIMEOUT_S
    ) -> tuple[int, str]:
        """Delete checkpoints older than `before`, except for those that are kept, and objects that none needs.

        Returns:
            How many names were deleted, and what the newest that is kept needs and is not there; empty: nothing.
        """
        request = checkpoint_pb2.DiscardRequest(keep=keep, before=before)
        reply = await self._repeated(self._stub.Discard, request, timeout_s, f"checkpoints before {before}")
        return int(reply.deleted), str(reply.lost)

    async def find_intact(
        self, committed: Sequence[int], tasks: Mapping[str, int], *, timeout_s: float = INTACT_TIMEOUT_S
    ) -> Intact:
        """The newest of some checkpoints that can be restored.

        Args:
            committed: Their ids.
            tasks: How many each component will have: one with batches in flight for another number cannot be restored.
            timeout_s: How long it may take.
        """
        request = checkpoint_pb2.IntactRequest(committed=committed, tasks=tasks)
        reply = await self._repeated(self._stub.FindIntact, request, timeout_s, "the checkpoints are not looked at")
        return Intact(int(reply.checkpoint), tuple(reply.refused), dict(reply.logged_tasks))

    async def hold_merges(self, for_s: float, *, timeout_s: float = HOLD_TIMEOUT_S) -> None:
        """Have no merge compete with what tasks do, for so long from now on; 0: it is done."""
        request = checkpoint_pb2.HoldRequest(for_ms=int(for_s * 1000))
        await self._repeated(self._stub.HoldMerges, request, timeout_s, "merges are not held")

    async def _repeated(self, method: Callable[..., Awaitable[Any]], request: Any, timeout_s: float, what: str) -> Any:
        """Call until it is answered, or time is up."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + timeout_s
        while True:
            try:
                return await method(
                    request, metadata=self._security.metadata, timeout=due_s - loop.time(), wait_for_ready=True
                )
            except grpc.aio.AioRpcError as e:
                if e.code() is not grpc.StatusCode.UNAVAILABLE or loop.time() + RETRY_S >= due_s:
                    _raise(e, what)
            await asyncio.sleep(RETRY_S)


def _read_directly(storage: DirectoryStorage, name: str, offset: int, length: int) -> bytes | None:
    """A part of an object that is a file of this host; None: the Checkpoint Manager is to read it, or say why not."""
    try:
        return storage.read(name, offset, length)
    except HeronError:
        return None


@dataclass(frozen=True, slots=True)
class _RemoteSource:
    """An object behind the Checkpoint Manager, for a thread beside the event loop."""

    name: str
    size: int
    reader: Callable[[str, int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        return self.reader(self.name, offset, length)


@dataclass(slots=True)
class _Stored:
    """A checkpoint, for a thread beside the event loop."""

    client: CheckpointClient
    checkpoint: int
    manifest: Manifest
    local: DirectoryStorage | None
    """Where its objects are, if they are files of this host."""
    loop: asyncio.AbstractEventLoop
    start: bool
    timeout_s: float
    read_bytes: int = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        data = None if self.local is None else _read_directly(self.local, name, offset, length)
        if data is None:
            reading = self.client.read(name, offset, length, start=self.start, timeout_s=self.timeout_s)
            data = asyncio.run_coroutine_threadsafe(reading, self.loop).result()
        self.read_bytes += len(data)
        return data

    async def in_thread(self, reading: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(reading)
        except NotFoundError as e:
            raise CheckpointError(f"checkpoint {self.checkpoint} is incomplete: {e}") from e


def _raise(error: grpc.aio.AioRpcError, what: str) -> NoReturn:
    kind = _ERRORS.get(error.code(), UnavailableError)
    raise kind(f"{what}: {error.details() or error.code().name}") from error
