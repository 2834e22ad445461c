"""Asking the heron-shell of a container."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from heronpy.errors import HeronError, NotFoundError, StateError, UnavailableError, UsageError
from heronpy.proto import shell_pb2, shell_pb2_grpc
from heronpy.rpc import channel
from heronpy.security import Security, container_identity

CALL_TIMEOUT_S = 5.0
LOOK_TIMEOUT_S = 30.0
"""Of calls that wait for another process: stacks, memory."""
_INT64_MAX = (1 << 63) - 1
_REFUSED: dict[grpc.StatusCode, type[HeronError]] = {
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    grpc.StatusCode.FAILED_PRECONDITION: UnavailableError,
    grpc.StatusCode.DATA_LOSS: StateError,
}
"""What a heron-shell answers; every other status says that it did not."""


class ShellUnreachableError(UnavailableError):
    """A heron-shell that does not answer. The message is only why."""


class RemoteShell:
    """The heron-shell of a container. A `Shell`, and raises ShellUnreachableError where that does not answer."""

    def __init__(self, endpoint: str, security: Security, container: int) -> None:
        """Connect to nothing yet. Made within a running event loop; `close` it there.

        Args:
            endpoint: `host:port` of the heron-shell. Nothing is sent to anybody else who answers there.
            security: Who asks: the CLI or the Tracker.
            container: Its number.
        """
        self.endpoint = endpoint
        self._security = security
        self._channel = channel(endpoint, security, container_identity(container))
        self._stub = shell_pb2_grpc.ShellStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    async def close(self) -> None:
        """End the connection; calls under way fail."""
        await self._channel.close()

    async def files(self, path: str = ".") -> shell_pb2.FileList:
        reply: shell_pb2.FileList = await self._call("ListFiles", shell_pb2.FileListRequest, {"path": path})
        return reply

    async def read(self, path: str, offset: int, length: int) -> shell_pb2.FilePart:
        fields = {"path": path, "offset": min(offset, _INT64_MAX), "length": min(length, _INT64_MAX)}
        reply: shell_pb2.FilePart = await self._call("ReadFile", shell_pb2.FileRequest, fields)
        return reply

    async def search(self, request: shell_pb2.SearchRequest) -> shell_pb2.SearchReply:
        reply: shell_pb2.SearchReply = await self._ask("SearchFiles", request, LOOK_TIMEOUT_S)
        return reply

    async def processes(self) -> shell_pb2.ProcessList:
        reply: shell_pb2.ProcessList = await self._ask("ListProcesses", shell_pb2.ProcessListRequest(), CALL_TIMEOUT_S)
        return reply

    async def look(self, kind: str, process: str) -> shell_pb2.LookReply:
        fields = {"kind": kind, "process": process}
        reply: shell_pb2.LookReply = await self._call("Look", shell_pb2.LookRequest, fields, LOOK_TIMEOUT_S)
        return reply

    async def profile(self, process: str, seconds: float) -> shell_pb2.ProcessProfile:
        fields = {"process": process, "seconds": seconds}
        timeout_s = seconds + LOOK_TIMEOUT_S
        reply: shell_pb2.ProcessProfile = await self._call("TakeProfile", shell_pb2.ProfileRequest, fields, timeout_s)
        return reply

    async def _call(self, method: str, request: Any, fields: dict[str, Any], timeout_s: float | None = None) -> Any:
        try:
            message = request(**fields)
        except ValueError as e:  # half a surrogate pair in a path, a number beyond all bounds
            raise UsageError(f"{method}: {e}") from e
        return await self._ask(method, message, CALL_TIMEOUT_S if timeout_s is None else timeout_s)

    async def _ask(self, method: str, request: Any, timeout_s: float) -> Any:
        try:
            return await getattr(self._stub, method)(request, metadata=self._security.metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as e:
            if refused := _REFUSED.get(e.code()):
                raise refused(str(e.details())) from e
            late = e.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            raise ShellUnreachableError(
                f"no answer within {timeout_s:g} s" if late else str(e.details() or e.code().name)
            ) from e
