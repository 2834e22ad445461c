"""Under which address others reach this host."""

from __future__ import annotations

import socket

from heronpy.address import join_address
from heronpy.errors import UnavailableError


def route_to(host: str, port: int) -> str:
    """The address of this host on the way to another. Sends nothing.

    Raises:
        UnavailableError: there is no route.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect(address)
            return str(s.getsockname()[0])
    except OSError as e:
        raise UnavailableError(f"no route to {join_address(host, port)}: {e}") from e
