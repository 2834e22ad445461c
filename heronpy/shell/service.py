"""heron-shell as a service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from heronpy.config import KIB
from heronpy.errors import HeronError, NotFoundError, UnavailableError, UsageError
from heronpy.proto import shell_pb2, shell_pb2_grpc
from heronpy.rpc import Listener, listen
from heronpy.runtime import Launch
from heronpy.security import CLI, TRACKER
from heronpy.shell._announcing import announce
from heronpy.shell._container import Container
from heronpy.shell._profiles import SECONDS_MAX, SECONDS_MIN
from heronpy.shell._shell import LocalShell

log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]

LOOKS_MAX = 4
"""Most looks into processes at a time; and most searches."""
WAIT_S = 4.0
"""A call that waits longer for its turn is refused."""
REQUEST_BYTES_MAX = 64 * KIB
CONNECTIONS_MAX = 64
_DETAILS_MAX = 1000


def may_call(identity: str) -> bool:
    """Whether this identity may ask. Containers may not: they run user code."""
    return identity in (CLI, TRACKER)


class HeronShell(shell_pb2_grpc.ShellServicer):
    """Answers what can be asked of the container that it runs in, to the CLI and the Tracker."""

    def __init__(self, launch: Launch, container: int) -> None:
        self.started = asyncio.Event()
        self.address = ""
        """Where it can be reached; empty before it is started."""
        self._launch, self._number = launch, container
        self._id = f"heron-shell-{container}"
        self._security = launch.security(self._id)
        self._shell = LocalShell(Container(launch.topology, launch.topology_id, container, launch.dir))
        self._searches = asyncio.Semaphore(LOOKS_MAX)
        self._looks = asyncio.Semaphore(LOOKS_MAX)

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = self._listen()
        await listener.server.start()
        self.address = listener.address
        log.info("%s serves at %s", self._id, self.address)
        self.started.set()
        try:
            await announce(self._launch, self._number, self._security.incarnation, self.address)
        finally:
            await listener.server.stop(grace=0.5)

    def _listen(self) -> Listener:
        listener = listen(
            self._launch.bind_address,
            self._launch.advertised_host(),
            self._security,
            callers=may_call,
            message_bytes_max=REQUEST_BYTES_MAX,
            connections_max=CONNECTIONS_MAX,
        )
        shell_pb2_grpc.add_ShellServicer_to_server(self, listener.server)  # type: ignore[no-untyped-call]  # generated
        return listener

    # --- Calls

    async def ListFiles(self, request: shell_pb2.FileListRequest, context: _Context) -> shell_pb2.FileList:
        """What is in a folder below log-files."""
        async with _answering(context, None):  # files have turns of their own
            return await self._shell.files(request.path or ".")

    async def ReadFile(self, request: shell_pb2.FileRequest, context: _Context) -> shell_pb2.FilePart:
        """Part of a file below log-files."""
        async with _answering(context, None):
            return await self._shell.read(request.path, request.offset, request.length)

    async def SearchFiles(self, request: shell_pb2.SearchRequest, context: _Context) -> shell_pb2.SearchReply:
        """Lines of log files that contain a text."""
        async with _answering(context, self._searches):
            return await self._shell.search(request)

    async def ListProcesses(self, request: shell_pb2.ProcessListRequest, context: _Context) -> shell_pb2.ProcessList:
        """The container's processes."""
        async with _answering(context, self._looks):
            return await self._shell.processes()

    async def Look(self, request: shell_pb2.LookRequest, context: _Context) -> shell_pb2.LookReply:
        """Stacks, memory or objects of a live process."""
        async with _answering(context, self._looks):
            return await self._shell.look(request.kind, request.process)

    async def TakeProfile(self, request: shell_pb2.ProfileRequest, context: _Context) -> shell_pb2.ProcessProfile:
        """Sampled stacks of a live process."""
        async with _answering(context, None):  # their number has a bound of its own
            if not SECONDS_MIN <= request.seconds <= SECONDS_MAX:
                raise UsageError(f"a profile takes {SECONDS_MIN:g} to {SECONDS_MAX:g} seconds")
            return await self._shell.profile(request.process, request.seconds)


@contextlib.asynccontextmanager
async def _answering(context: _Context, turns: asyncio.Semaphore | None) -> AsyncIterator[None]:
    """Make the call wait for its turn, and every error of ours the status that `client` makes that error of again."""
    try:
        if turns is None:
            yield
            return
        try:
            async with asyncio.timeout(WAIT_S):
                await turns.acquire()
        except TimeoutError:
            raise UnavailableError("the heron-shell is busy: try again later") from None
        try:
            yield
        finally:
            turns.release()
    except HeronError as e:
        await context.abort(_status(e), str(e)[:_DETAILS_MAX])


def _status(error: HeronError) -> grpc.StatusCode:
    match error:
        case NotFoundError():
            return grpc.StatusCode.NOT_FOUND
        case UsageError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case UnavailableError():
            return grpc.StatusCode.FAILED_PRECONDITION  # not UNAVAILABLE, which says that there was no answer
    return grpc.StatusCode.DATA_LOSS
