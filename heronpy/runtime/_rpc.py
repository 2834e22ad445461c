"""gRPC as every process uses it: the topology's token on every call, bounded messages, quick reconnects.

A server checks the token before it reads a message, so nothing of a stranger is ever unpickled.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from heronpy.config import MIB

# gRPC's handlers of fork() make a child that runs only until its exec() crash now and then (one in seven beside a busy
# event loop). User code forks: subprocess with a preexec_fn, multiprocessing, Spark's launcher. Read by gRPC with the
# first channel or server; who wants to use gRPC on both sides of a fork sets it to 1.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

TOKEN_KEY = "heron-token"
ID_KEY = "heron-id"
MESSAGE_BYTES_MAX = 64 * MIB
"""Largest message any process accepts; senders stay well below (see InstanceConfig.tuple_bytes_max)."""

OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Two servers must never share a port by accident: that would split one topology's traffic.
    ("grpc.so_reuseport", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Not the pause between attempts, in spite of its name: how long one attempt may take. A busy host needs more than
    # the 100 ms of the first pause to complete a handshake.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Same process, other target: never share a connection (a restarted server must be noticed at once).
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.http2.max_pings_without_data", 0),
)
KEEPALIVE: Sequence[tuple[str, Any]] = (
    # A peer that vanished without a FIN (machine lost, link cut) is noticed after 5 + 20 s. Not sooner: a process that
    # gets no CPU for some seconds is alive, and this is also the kernel's limit for unacknowledged data.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2500),
)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Refuses every call without the topology's token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

        async def refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing topology token")

        self._refuse: dict[tuple[bool, bool], Any] = {
            (False, False): grpc.unary_unary_rpc_method_handler(refuse),
            (True, True): grpc.stream_stream_rpc_method_handler(refuse),
            (True, False): grpc.stream_unary_rpc_method_handler(refuse),
            (False, True): grpc.unary_stream_rpc_method_handler(refuse),
        }

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        sent = next((v for k, v in details.invocation_metadata if k == TOKEN_KEY), "")
        handler = await continuation(details)
        if hmac.compare_digest(str(sent).encode(), self._token) or handler is None:
            return handler
        return self._refuse[handler.request_streaming, handler.response_streaming]


def server(token: str) -> grpc.aio.Server:
    """A gRPC server that answers only callers with `token`."""
    return grpc.aio.server(interceptors=[TokenInterceptor(token)], options=[*OPTIONS, *KEEPALIVE])


def channel(target: str) -> grpc.aio.Channel:
    """A channel to `host:port` or `unix:/path`. The token goes with each call: see `metadata`."""
    return grpc.aio.insecure_channel(target, options=[*OPTIONS, *KEEPALIVE])


def metadata(token: str, caller: str = "") -> tuple[tuple[str, str], ...]:
    """The metadata of every call."""
    return ((TOKEN_KEY, token), (ID_KEY, caller))
