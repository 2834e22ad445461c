"""Certificates for containers whose hosts share nothing with the submitter: the Topology Master's container signs them.

A host shows the bootstrap's certificate of its container, or the container's present one, and says which incarnation it
has taken. Only the newest in the state manager is given a certificate: what a bootstrap opens is at most the container
that it was made for, and that only until its topology is killed.
"""

from __future__ import annotations

import asyncio
import logging
import time

from heronpy.errors import FencedError, UntrustedError, UsageError
from heronpy.proto import tmaster_pb2
from heronpy.runtime import Launch
from heronpy.security import bootstraps, container_identity, container_of, identity_of
from heronpy.statemgr import Kind, StateManager, container_node, container_record

log = logging.getLogger(__name__)

SKEW_S = 600.0
"""A clock that differs by more is refused. Certificates are valid from an hour before they are made."""


class SkewError(UsageError):
    """The clock of a host differs too much from that of container 0."""


class Enrollment:
    """Signs for the newest incarnations of containers."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._newest: dict[int, int] = {}

    def newest(self, container: int) -> int:
        """The newest incarnation of a container that has got a certificate here; 0: none has."""
        return self._newest.get(container, 0)

    async def certificate(self, state: StateManager, caller: str, request: tmaster_pb2.EnrollRequest) -> bytes:
        """The certificate of a container, PEM.

        Raises:
            UntrustedError: the caller may not ask for that container's.
            FencedError: the state manager has another incarnation of it.
            SkewError: the host's clock is wrong, or that of container 0.
            UsageError: it is not a certificate request.
            HeronError: the state manager or the authority's key cannot be read.
        """
        container, identity = request.container, identity_of(caller)
        if container not in (bootstraps(identity), container_of(identity)):
            raise UntrustedError(f"{caller} may not ask for the certificate of container {container}")
        skew_s = request.now_s - time.time()
        if abs(skew_s) > SKEW_S:
            side = "ahead of" if skew_s > 0 else "behind"
            raise SkewError(f"the host's clock is {abs(skew_s):.0f} s {side} that of container 0: set it, by NTP say")
        await asyncio.to_thread(self._check_newest, state, request)
        # Here: what signs is imported where somebody asks for a certificate, and nowhere else.
        from heronpy.security import authority

        launch = self._launch
        days = launch.config.security.certificate_days
        certificate = await asyncio.to_thread(
            authority.sign,
            launch.tls_dir,
            launch.topology_id,
            container_identity(container),
            request.request,
            days=days,
        )
        self._newest[container] = max(self.newest(container), request.incarnation)
        log.info("issued a certificate for container %d, incarnation %d", container, request.incarnation)
        return certificate

    def _check_newest(self, state: StateManager, request: tmaster_pb2.EnrollRequest) -> None:
        value = state.get(Kind.CONTAINERS, container_node(self._launch.topology, request.container))
        found = container_record(value)
        if (found.topology_id, found.incarnation) != (self._launch.topology_id, request.incarnation):
            raise FencedError(
                f"the state manager has incarnation {found.incarnation} of container {request.container}, "
                f"not {request.incarnation}"
            )
