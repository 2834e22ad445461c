"""Which credentials belong to a topology that a state manager names.

Who can write to a state manager can name any directory and any address in it. So a topology's credentials are taken
only from a directory of the Tracker's own user (or root's), only if the launch file there is of this very topology, or
from its cluster, if the operator has named that (`_credentials.py`). They are only sent to who proves to be that
topology's master, or, without TLS, to this host itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from heron_tracker._topology import Topology
from heronpy.errors import HeronError, UnavailableError, UntrustedError
from heronpy.runtime import Launch

LaunchOf = Callable[[Topology], Awaitable[Launch]]
"""Finds the launch values of a topology, in a directory with its credentials: see `_credentials.py`."""


def trusted_launch(topology: Topology) -> Launch:
    """The launch file of a topology, from its directory.

    Raises:
        UnavailableError: there is none here, it belongs to another user, or it is of another topology.
    """
    key = topology.key
    try:
        launch = Launch.load(topology.directory, any_release=True)
        if (launch.topology, launch.topology_id) != (key.name, topology.id):
            raise UntrustedError(f"{topology.directory} is the directory of another topology")
    except HeronError as e:
        raise UnavailableError(
            f"topology {key.name} cannot be asked from here: its credentials are in its directory, and {e}"
        ) from e
    return launch


def check_address(topology: Topology, host: str, *, proves_itself: bool, who: str = "the Topology Master") -> None:
    """Refuse to send credentials to an address that only the state manager vouches for.

    Args:
        host: Whom they would be sent to.
        proves_itself: Whether it must show a certificate of the topology before anything is sent.
        who: Which process of the topology that is.

    Raises:
        UnavailableError: it need not, and is not on this host.
    """
    if not proves_itself and not is_this_host(host):
        raise UnavailableError(
            f"{who} of {topology.key.name} is not asked: it is said to be at {host}, and the topology "
            "has no certificates by which it could prove itself"
        )


def is_this_host(host: str) -> bool:
    """Whether an address can only be this host's."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
