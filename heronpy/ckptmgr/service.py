"""The Checkpoint Manager as a service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from heronpy.checkpoints import CheckpointStorage, find_intact, open_storage
from heronpy.ckptmgr._calls import StorageCalls
from heronpy.ckptmgr._catalog import Catalog, Merge, Wanted
from heronpy.ckptmgr._merge_hold import MergeHold
from heronpy.ckptmgr._pieces import Pieces
from heronpy.ckptmgr.client import SOCKET_NAME
from heronpy.config import MIB
from heronpy.errors import CheckpointError, HeronError, NotFoundError, ReadFailedError, StateError, UnavailableError
from heronpy.metricsmgr import Reporter
from heronpy.plan import StateOwner
from heronpy.proto import checkpoint_pb2, checkpoint_pb2_grpc, metrics_pb2
from heronpy.rpc import UnixServer, listen
from heronpy.runtime import Launch, essential

log = logging.getLogger(__name__)

T = TypeVar("T")
_Context = grpc.aio.ServicerContext[Any, Any]

CALLS_MAX: Final = 64
"""Most calls of the storage at a time, each with a thread; more wait."""
MESSAGE_BYTES_MAX: Final = 16 * MIB
READ_BYTES_MAX: Final = 8 * MIB
STORAGE_TIMEOUT_S: Final = 30.0
"""How long the storage may take for a read, or to take a piece of what is saved."""
FINISH_TIMEOUT_S: Final = 60.0
"""How long it may take to make durable what it has."""
SAVE_TIMEOUT_S: Final = 3600.0
CATALOG_TIMEOUT_S: Final = 300.0
MERGE_TIMEOUT_S: Final = 3600.0
_STATUS: Final = (  # the first that fits
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (CheckpointError, grpc.StatusCode.DATA_LOSS),
    (ReadFailedError, grpc.StatusCode.ABORTED),
    (StateError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (ValueError, grpc.StatusCode.FAILED_PRECONDITION),  # a name that cannot be one
)


class CheckpointManager(checkpoint_pb2_grpc.CkptmgrServicer):
    """Stores and reads for the processes of one container; that of container 0 also for the Topology Master.

    A storage that fails, or hangs, is an error of the call that it happened to. Nothing of it ends the process.
    """

    def __init__(
        self, launch: Launch, container: int, *, connect: Callable[[], CheckpointStorage] | None = None
    ) -> None:
        """Connect to nothing yet.

        Args:
            launch: The topology.
            container: The number of the container.
            connect: Opens the storage; by default that of the launch file.
        """
        self.started = asyncio.Event()
        self._launch, self._container = launch, container
        self._id = f"ckptmgr-{container}"
        self._security = launch.security(self._id)
        self._calls = StorageCalls(connect or (lambda: open_storage(launch.checkpoints)), calls_max=CALLS_MAX)
        self._start_calls = StorageCalls(lambda: open_storage(launch.start_from), calls_max=CALLS_MAX)
        """Of what the topology was submitted from."""
        self._catalog = Catalog(launch.topology_id)
        self._writing = asyncio.Lock()
        self._discarding = asyncio.Lock()
        self._merge_hold = MergeHold()
        self._merges: asyncio.Queue[list[Merge]] = asyncio.Queue(1)
        self._counts = dict.fromkeys(("__save-count", "__save-bytes", "__read-bytes", "__merge-count"), 0)
        self._counts |= dict.fromkeys(("__discard-count", "__storage-failure-count"), 0)
        self._reporter = Reporter(
            launch, container=container, source=self._id, component="__ckptmgr__", collect=self._collect
        )

    async def run(self) -> None:
        """Serve until cancelled. What is being saved then is not stored."""
        server = UnixServer(lambda: self._launch.socket_dir(self._container) / SOCKET_NAME, self._server)
        await server.start()
        log.info("%s serves at %s", self._id, SOCKET_NAME)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(essential(server.run()), name=f"{self._id}/socket")
                tasks.create_task(essential(self._merge()), name=f"{self._id}/merge")
                tasks.create_task(essential(self._reporter.run()), name=f"{self._id}/metrics")
                self.started.set()
        finally:
            self._merge_hold.hold(0)
            await server.stop(grace=0.5)
            self._calls.close()
            self._start_calls.close()

    def _server(self, bind: str) -> grpc.aio.Server:
        made = listen(bind, "", self._security, message_bytes_max=MESSAGE_BYTES_MAX).server
        checkpoint_pb2_grpc.add_CkptmgrServicer_to_server(self, made)  # type: ignore[no-untyped-call]  # generated
        return made

    def _collect(self) -> list[metrics_pb2.Metric]:
        found = [metrics_pb2.Metric(name=name, value=value) for name, value in self._counts.items() if value]
        self._counts = dict.fromkeys(self._counts, 0)
        return found

    # --- Calls

    async def Save(self, requests: Any, context: _Context) -> checkpoint_pb2.SaveReply:
        """Store an object whose pieces come in a stream. A stream that ends early stores nothing."""
        # Another status than that of a lost connection, after which clients repeat what they have sent.
        async with _answering(context, self._failed, unavailable=grpc.StatusCode.DEADLINE_EXCEEDED):
            async with asyncio.timeout(SAVE_TIMEOUT_S):
                name, size = await self._save(context)
            self._counts["__save-count"] += 1
            self._counts["__save-bytes"] += size
            log.debug("%s is stored: %d bytes", name, size)
        return checkpoint_pb2.SaveReply()

    async def _save(self, context: _Context) -> tuple[str, int]:
        name = str((await _next(context)).name)
        pieces = Pieces(name, stall_s=STORAGE_TIMEOUT_S)
        storing = asyncio.create_task(
            self._calls.run(lambda storage: storage.put(name, pieces), timeout_s=SAVE_TIMEOUT_S, what=name)
        )
        receiving = asyncio.create_task(_received(context, pieces))
        storing.add_done_callback(lambda _: pieces.abandon("the storage has returned"))
        try:
            size = await receiving
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                await storing
        except TimeoutError:
            raise UnavailableError(f"{name}: the storage did not finish within {FINISH_TIMEOUT_S:g} s") from None
        finally:
            pieces.abandon("the stream has ended before its last piece")
            receiving.cancel()
            storing.cancel()
            await asyncio.gather(storing, receiving, return_exceptions=True)
        return name, size

    async def Size(self, request: checkpoint_pb2.SizeRequest, context: _Context) -> checkpoint_pb2.SizeReply:
        """How many bytes an object has."""
        async with _answering(context, self._failed):
            size, directory = await self._stored(
                lambda storage: (storage.size(request.name), storage.local_directory()), request
            )
        return checkpoint_pb2.SizeReply(size=size, directory=str(directory or ""))

    async def Read(self, request: checkpoint_pb2.ReadRequest, context: _Context) -> checkpoint_pb2.ReadReply:
        """A part of an object."""
        async with _answering(context, self._failed):
            if request.length > READ_BYTES_MAX:
                raise ValueError(f"{request.length} bytes are asked for at once, and {READ_BYTES_MAX} are allowed")
            data = await self._stored(
                lambda storage: storage.read(request.name, request.offset, request.length), request
            )
            self._counts["__read-bytes"] += len(data)
        return checkpoint_pb2.ReadReply(data=data)

    async def _stored(
        self, work: Callable[[CheckpointStorage], T], request: checkpoint_pb2.SizeRequest | checkpoint_pb2.ReadRequest
    ) -> T:
        calls = self._start_calls if request.start else self._calls
        return await calls.run(work, timeout_s=STORAGE_TIMEOUT_S, what=request.name)

    async def WriteManifest(
        self, request: checkpoint_pb2.ManifestRequest, context: _Context
    ) -> checkpoint_pb2.ManifestReply:
        """Make a checkpoint of what the tasks have stored."""
        wanted = Wanted(
            checkpoint=request.checkpoint,
            epoch=request.epoch,
            previous=request.previous,
            objects=tuple(request.objects),
            tasks=dict(request.tasks),
            duration_ms=request.duration_ms,
            owners=[StateOwner(each.component, each.name, each.kind, each.place) for each in request.owners],
        )
        async with _answering(context, self._failed), self._writing:
            manifest, due = await self._calls.run(
                lambda storage: self._catalog.write(storage, wanted),
                timeout_s=CATALOG_TIMEOUT_S,
                what=f"the manifest of checkpoint {wanted.checkpoint}",
            )
        if due and self._merges.empty():
            self._merges.put_nowait(due)
        return checkpoint_pb2.ManifestReply(size=manifest.size, added=manifest.added, logged=manifest.logged)

    async def Discard(self, request: checkpoint_pb2.DiscardRequest, context: _Context) -> checkpoint_pb2.DiscardReply:
        """Delete what no checkpoint needs that is to be kept."""
        async with _answering(context, self._failed), self._discarding:
            deleted, lost = await self._calls.run(
                lambda storage: self._catalog.discard(storage, request.keep, request.before),
                timeout_s=CATALOG_TIMEOUT_S,
                what=f"checkpoints before {request.before}",
            )
        self._counts["__discard-count"] += len(deleted)
        return checkpoint_pb2.DiscardReply(deleted=len(deleted), lost=lost)

    async def FindIntact(self, request: checkpoint_pb2.IntactRequest, context: _Context) -> checkpoint_pb2.IntactReply:
        """The newest of some checkpoints that can be restored, all of it read."""
        committed, tasks = frozenset(request.committed), dict(request.tasks)
        topology_id = self._launch.topology_id
        async with _answering(context, self._failed):
            found, refused = await self._calls.run(
                lambda storage: find_intact(storage, topology_id=topology_id, committed=committed, tasks=tasks),
                timeout_s=CATALOG_TIMEOUT_S,
                what="a look at all checkpoints",
            )
        return checkpoint_pb2.IntactReply(
            checkpoint=found.checkpoint_id if found is not None else 0,
            refused=map(str, refused),
            logged_tasks=next((each.logged_tasks for each in refused if each.logged_tasks), {}),
        )

    async def HoldMerges(self, request: checkpoint_pb2.HoldRequest, context: _Context) -> checkpoint_pb2.HoldReply:
        """Have merges wait, because tasks restore."""
        self._merge_hold.hold(request.for_ms / 1000)
        return checkpoint_pb2.HoldReply()

    # --- In the background

    async def _merge(self) -> None:
        """Merge what is due, one task's objects at a time. What fails is tried again with the next manifest."""
        while True:
            for due in await self._merges.get():
                what = f"the merge of {due.component!r}, task {due.index}"
                try:
                    self._merge_hold.begin()
                    merge = partial(self._catalog.merge, wanted=due, wait=self._merge_hold.wait)
                    ref = await self._calls.run(merge, timeout_s=MERGE_TIMEOUT_S, what=what)
                except HeronError as e:
                    self._failed(e)
                    log.warning("%s has failed: %s", what, e)
                    continue
                if ref is not None:
                    self._counts["__merge-count"] += 1
                    log.info("%s is merged: %d bytes", ref.name, ref.size)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, NotFoundError):
            self._counts["__storage-failure-count"] += 1
            log.warning("%s", error)


async def _next(context: _Context) -> checkpoint_pb2.SavePiece:
    message = await context.read()
    if message is grpc.aio.EOF:
        raise ValueError("a stream has ended before its last piece")
    assert isinstance(message, checkpoint_pb2.SavePiece)
    return message


async def _received(context: _Context, pieces: Pieces) -> int:
    """Hand all pieces on. How many bytes they had.

    All are received, also when the storage refused some: grpc.aio informs a client whose call ends while it writes of
    an internal error, and not of the status.

    Raises:
        UnavailableError: the storage did not take one in time.
    """
    size = 0
    late: UnavailableError | None = None
    while True:
        message = await _next(context)
        size += len(message.data)
        try:
            if message.data and late is None:
                await pieces.put(message.data)
        except UnavailableError as e:
            late = e
        if message.last:
            break
    if late is not None:
        raise late
    await pieces.put(None)
    return size


@contextlib.asynccontextmanager
async def _answering(
    context: _Context, failed: Callable[[Exception], None], *, unavailable: Any = grpc.StatusCode.UNAVAILABLE
) -> AsyncIterator[None]:
    """Answer with the status that an error of the block means."""
    try:
        yield
    except (HeronError, ValueError, TimeoutError) as e:
        failed(e)
        status = next((status for kind, status in _STATUS if isinstance(e, kind)), unavailable)
        await context.abort(status, str(e) or type(e).__name__)
