"""Listening: the one way in which a process of the engine becomes reachable.

A server refuses before it reads: who calls, and with which token, is checked when the headers of a call have come and
its message has not. gRPC's handlers of unary calls are handed a message that was read already, so here every unary
method is served as a stream of one message, which is the same on the wire.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from msgspec import Struct

from heronpy.address import join_address
from heronpy.config import KIB, MIB
from heronpy.errors import UnavailableError
from heronpy.rpc._channel import KEEPALIVE, MESSAGE_BYTES_MAX, OPTIONS
from heronpy.security import ID_KEY, INCARNATION_KEY, TOKEN_KEY, Security, bootstraps, container_of, identity_of, uri_of

CONTROL_BYTES_MAX = 16 * MIB
"""Largest message to a server of the control plane."""
CONNECTIONS_MAX = 1024
STREAMS_PER_CONNECTION_MAX = 128
CALLS_MAX = 2048
"""Most calls at a time, streams included, on one server."""
HANDSHAKE_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_S = 30.0
"""How long the one message of a unary call may take after its headers."""
INCARNATION_DIGITS_MAX = 19

_Context = grpc.aio.ServicerContext[Any, Any]


class Listener(Struct, frozen=True):
    """A server with an address, to be given its services and started."""

    server: grpc.aio.Server
    host: str
    """Where others reach it; empty for a unix socket."""
    port: int

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)


def listen(
    bind: str,
    advertise: str,
    security: Security,
    *,
    callers: Callable[[str], bool] = lambda identity: True,
    newest: Callable[[int], int] = lambda container: 0,
    bootstraps_to: frozenset[str] = frozenset(),
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    connections_max: int = CONNECTIONS_MAX,
) -> Listener:
    """Bind a gRPC server that answers only the topology's own processes. It is not started yet.

    Args:
        bind: `host:port`, port 0 for any, or `unix:/path`.
        advertise: The host that others dial; unused for a unix socket.
        security: Who listens.
        callers: Whether an identity of the topology may call.
        newest: The newest incarnation of a container that is known here; callers in an older one are refused.
        bootstraps_to: The methods (`/heronpy.Service/Method`) that are open to hosts whose container has no certificate
            yet. These can call nothing else, anywhere.
        message_bytes_max: Larger messages end their call unread.
        connections_max: More are closed as they come, those that have not shown a certificate yet included.

    Raises:
        UnavailableError: the address cannot be bound, or the topology has no certificates.
        StateError: they cannot be read, or others can read them too.
    """
    server = grpc.aio.server(
        interceptors=[
            _Admission(security, callers, newest, bootstraps_to, with_certificates=not bind.startswith("unix:"))
        ],
        options=[
            ("grpc.max_receive_message_length", message_bytes_max),
            *((key, value) for key, value in OPTIONS if key != "grpc.max_receive_message_length"),
            *KEEPALIVE,
            ("grpc.max_allowed_incoming_connections", connections_max),
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            # Only "identity": a compressed message would be inflated before anybody could refuse it.
            ("grpc.compression_enabled_algorithms_bitset", 1),
            ("grpc.max_metadata_size", 8 * KIB),
        ],
        maximum_concurrent_rpcs=CALLS_MAX,
    )
    try:
        if security.tls is None or bind.startswith("unix:"):
            port = server.add_insecure_port(bind)
        else:
            port = server.add_secure_port(bind, security.server_credentials())
    except RuntimeError as e:
        raise UnavailableError(f"{bind} cannot be bound: {e}") from e
    return Listener(server, "" if bind.startswith("unix:") else advertise, port)


def caller_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The id of the process that calls; with TLS, its certificate is that of its container."""
    return _metadata_of(context, ID_KEY)


def incarnation_of(context: grpc.aio.ServicerContext[Any, Any]) -> int:
    """The incarnation of the container that the caller is in; 0: it is in none, or does not say."""
    found = _metadata_of(context, INCARNATION_KEY)
    return int(found) if found.isascii() and found.isdecimal() and len(found) <= INCARNATION_DIGITS_MAX else 0


class _Admission(grpc.aio.ServerInterceptor):
    """Refuses, unread, every call of somebody who is not of the topology."""

    def __init__(
        self,
        security: Security,
        callers: Callable[[str], bool],
        newest: Callable[[int], int],
        bootstraps_to: frozenset[str],
        *,
        with_certificates: bool,
    ) -> None:
        self._token = security.token.encode()
        self._topology_id = security.topology_id
        self._callers, self._newest, self._bootstraps_to = callers, newest, bootstraps_to
        self._with_certificates = with_certificates and security.tls is not None

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        admit = functools.partial(self._admit, details.method)
        if handler.request_streaming and handler.response_streaming:
            return _guarded_stream(handler, admit)
        if handler.response_streaming:
            raise NotImplementedError(f"{details.method}: one message in, a stream out")
        if handler.request_streaming:
            return _guarded_upload(handler, admit)
        return _guarded_unary(handler, admit)

    async def _admit(self, method: str, context: _Context) -> None:
        """Abort the call unless the caller may make it."""
        sent = _metadata_of(context, TOKEN_KEY)
        if not hmac.compare_digest(sent.encode(), self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing topology token")
        process = _metadata_of(context, ID_KEY)
        identity = identity_of(process)
        if self._with_certificates and not self._proved(identity, context):
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, f"the certificate is not that of {process or 'an unnamed process'}"
            )
        if not (self._callers(identity) if bootstraps(identity) is None else method in self._bootstraps_to):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"{process or 'an unnamed process'} may not call this"
            )
        container = container_of(identity)
        if container is not None and incarnation_of(context) < self._newest(container):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"{process}: container {container} has a newer incarnation"
            )

    def _proved(self, identity: str, context: _Context) -> bool:
        """Whether the caller's certificate says what the caller says."""
        about = context.auth_context()
        # Python's API has no least version. Peers agree on the highest that both have, and ours have 1.3.
        if b"TLSv1.3" not in about.get("ssl_tls_version", ()):
            return False
        return bool(identity) and uri_of(self._topology_id, identity).encode() in about.get("peer_uri", ())


def _guarded_unary(handler: Any, admit: Callable[[_Context], Awaitable[None]]) -> Any:
    async def serve(_requests: Any, context: _Context) -> Any:
        await admit(context)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "a call without a message")
        if request is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
        return await handler.unary_unary(request, context)

    return grpc.stream_unary_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


def _guarded_upload(handler: Any, admit: Callable[[_Context], Awaitable[None]]) -> Any:
    async def serve(requests: Any, context: _Context) -> Any:
        await admit(context)
        return await handler.stream_unary(requests, context)

    return grpc.stream_unary_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


def _guarded_stream(handler: Any, admit: Callable[[_Context], Awaitable[None]]) -> Any:
    async def serve(requests: Any, context: _Context) -> None:
        await admit(context)
        # A handler would send it with its first message: where that is cancelled, gRPC forgets it, sends it again with
        # the status, which is refused, and the stream never ends.
        await context.send_initial_metadata(())
        await handler.stream_stream(requests, context)

    return grpc.stream_stream_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


def _metadata_of(context: _Context, key: str) -> str:
    return next((str(v) for k, v in context.invocation_metadata() or () if k == key), "")
