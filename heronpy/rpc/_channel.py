"""gRPC as every process uses it: bounded messages, quick reconnects, and channels to those who prove who they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from heronpy.config import MIB
from heronpy.security import Security, dns_name_of

# gRPC's handlers of fork() make a child that runs only until its exec() crash now and then (one in seven beside a busy
# event loop). User code forks: subprocess with a preexec_fn, multiprocessing, Spark's launcher. Read by gRPC with the
# first channel or server; who wants to use gRPC on both sides of a fork sets it to 1.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

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


def channel(target: str, security: Security, peer: str = "", *, read_ahead_bytes: int = 0) -> grpc.aio.Channel:
    """A channel to one process of the topology. The token goes with each call: see `Security.metadata`.

    Args:
        target: `host:port`, or `unix:/path`.
        security: Who calls.
        peer: The identity that must answer at `host:port`; nothing is sent to anybody else.
        read_ahead_bytes: How much is received before somebody reads it; 0: as gRPC likes, up to megabytes.

    Raises:
        UnavailableError: the topology has no certificates.
        StateError: they cannot be read, or others can read them too.
    """
    options = [*OPTIONS, *KEEPALIVE]
    if read_ahead_bytes:
        options += [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", read_ahead_bytes)]
    if security.tls is None or target.startswith("unix:"):
        return grpc.aio.insecure_channel(target, options=options)
    # gRPC compares this with the server's certificate before it sends a header.
    options.append(("grpc.ssl_target_name_override", dns_name_of(security.topology_id, peer)))
    return grpc.aio.secure_channel(target, security.channel_credentials(), options=options)
