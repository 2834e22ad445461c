"""Addresses of servers as text: `host:port`, with IPv6 literals in brackets (`[::1]:2181`).

The one place where they are parsed and printed.
"""

from __future__ import annotations

import ipaddress
import socket

from heronpy.errors import UsageError

WILDCARDS = frozenset({"0.0.0.0", "::"})
"""What a server binds to be reached under all addresses of its host; clients cannot dial them."""


def join_address(host: str, port: int | str) -> str:
    """`host:port`, the host in brackets if it is an IPv6 literal."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str, default_port: int | None = None) -> tuple[str, int]:
    """Host, without brackets, and port.

    Args:
        address: `host:port`, `[IPv6]:port`, or without the port if there is a default.
        default_port: The port of an address that names none.

    Raises:
        UsageError: it is not such an address, or has no port and there is no default.
    """
    text = address.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        valid = bool(bracket) and _is_ipv6(host) and colon in ("", ":")
    elif _is_ipv6(text):
        host, colon, port, valid = text, "", "", True  # bare, so it has no port
    else:
        host, colon, port = text.partition(":")
        valid = not set(host) & set("[]/ ")
    if not colon and default_port is not None:
        port = str(default_port)
    if not (valid and host and port.isascii() and port.isdecimal() and 0 <= int(port) < 65536):
        raise UsageError(f"{address!r} is not an address: use host:port, or [IPv6 address]:port")
    return host, int(port)


def bare_host(host: str) -> str:
    """A host without the brackets that an IPv6 literal has in URLs."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is by itself known to be reached from this host alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(bare_host(host)).is_loopback
    except ValueError:
        return False


def listening_socket(host: str, port: int, *, backlog: int | None = None) -> socket.socket:
    """A TCP socket that listens; port 0: a free one. `::` takes connections over IPv4, too, as gRPC's servers do.

    Raises:
        OSError: the port is taken, or the address is not of this host.
        OverflowError: there is no such port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dualstack = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=dualstack)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
