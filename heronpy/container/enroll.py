"""A container's certificate, by a process of its own: `python -m heronpy.container.enroll --dir DIR --container N`.

The executor has no gRPC, so that it stays small. It runs this once at the start, and again when the certificate is due.
The key is made here and does not leave the host. Which incarnation asks is in the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heronpy.address import join_address
from heronpy.container._ending import ending
from heronpy.errors import ConfigError, HeronError, StateError, UnavailableError
from heronpy.executor import ReplacedError
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel
from heronpy.runtime import Launch, die_with_parent, own_incarnation
from heronpy.security import Security, authority, bootstrap_identity, container_identity, write_secret
from heronpy.statemgr import Kind, StateManager, container_node, container_record, open_statemgr, records

WAIT_S = 300.0
"""How long a Topology Master is waited for: container 0 may wait for a host, and for its image."""
CALL_TIMEOUT_S = 15.0
RETRY_S = 1.0
SAY_S = 30.0
"""How often is said what is waited for."""
UNVERIFIED_MAX = 3
"""How often in a row the Topology Master's certificate may be of no use. More than once: its address may be that of one
that has ended, and whose port another process has. More often, a wrong clock would be known after minutes only."""
_UNVERIFIED = "CERTIFICATE_VERIFY_FAILED"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m heronpy.container.enroll")
    parser.add_argument("--dir", type=Path, required=True, help="the topology's directory")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--wait", type=float, default=WAIT_S, help="seconds to wait for the Topology Master")
    args = parser.parse_args()
    die_with_parent()
    launch = Launch.load(args.dir)
    with ending(f"container {args.container} of {launch.topology}") as say:
        if args.container == 0:
            identity = container_identity(0)
            days = launch.config.security.certificate_days
            authority.issue(launch.tls_dir, launch.topology_id, identity, days=days)
        else:
            Enrolling(launch, args.container, say=say, wait_s=args.wait).run()


class Enrolling:
    """Asks for the certificate of one container until there is an answer."""

    def __init__(self, launch: Launch, container: int, *, say: Any, wait_s: float) -> None:
        self._launch, self._container = launch, container
        self._say, self._said_s = say, float("-inf")
        self._wait_s = wait_s
        self._deadline_s = time.monotonic() + wait_s
        self._tls = launch.tls_dir
        self._own = self._tls / f"{container_identity(container)}.pem"

    def run(self) -> None:
        """Replace the container's key and certificate.

        Raises:
            ReplacedError: there is a newer incarnation of the container.
            ConfigError: this host's clock, or its bootstrap file, is of no use.
            UnavailableError: there was no answer in time.
            StateError: the Topology Master refuses.
        """
        security = self._security()
        key, request = authority.request(container_identity(self._container))
        certificate = asyncio.run(self._certificate(security, request))
        write_secret(self._own, key + certificate)
        self._check(self._own, "the certificate that the Topology Master has made")

    def _security(self) -> Security:
        """What this host shows: the container's present certificate, if it can, else the bootstrap's."""
        if self._own.exists() and not authority.described(self._own).trouble(_now()):
            return self._launch.security(f"executor-{self._container}")
        identity = bootstrap_identity(self._container)
        self._check(self._tls / f"{identity}.pem", "the bootstrap certificate")
        return self._launch.security(identity)

    def _check(self, path: Path, what: str) -> None:
        certificate = authority.described(path)
        if not (trouble := certificate.trouble(_now())):
            return
        if _now() < certificate.not_before:  # a smaller difference is what the Topology Master refuses
            raise ConfigError(f"{what} {trouble}: set the clock of this host, by NTP say")
        raise ConfigError(f"{what} {trouble}: kill the topology and submit it again")

    async def _certificate(self, security: Security, request: bytes) -> bytes:
        unverified = 0
        while True:
            try:
                with contextlib.closing(open_statemgr(self._launch.statemgr, parents=False)) as state:
                    if (master := self._master(state)) is None:
                        why = "the topology has no Topology Master yet"
                    else:
                        return await self._ask(state, master, security, request)
            except (StateError, UnavailableError) as e:
                why = str(e)
            self._waiting(why)
            unverified = unverified + 1 if _UNVERIFIED in why else 0
            if unverified >= UNVERIFIED_MAX:
                raise UnavailableError(why)
            if time.monotonic() >= self._deadline_s:  # after an attempt: a busy host may need all the time to begin
                raise UnavailableError(f"no certificate after {self._wait_s:g} s: {why}")
            await asyncio.sleep(RETRY_S)

    def _waiting(self, why: str) -> None:
        if time.monotonic() - self._said_s >= SAY_S:
            self._said_s = time.monotonic()
            self._say(f"waiting for a certificate: {why}")

    def _master(self, state: StateManager) -> state_pb2.TmasterLocation | None:
        value = state.get(Kind.TMASTERS, self._launch.topology)
        return records.tmaster_location(self._launch.topology, value)

    async def _ask(
        self, state: StateManager, master: state_pb2.TmasterLocation, security: Security, request: bytes
    ) -> bytes:
        address = join_address(master.host, master.port)
        message = tmaster_pb2.EnrollRequest(
            container=self._container, incarnation=own_incarnation(), request=request, now_s=int(time.time())
        )
        async with channel(address, security, container_identity(0)) as link:
            stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated without types
            try:
                reply = await stub.Enroll(message, metadata=security.metadata, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as e:
                raise await asyncio.to_thread(self._refused, state, address, e) from e
        certificate: bytes = reply.certificate
        return certificate

    def _refused(self, state: StateManager, address: str, error: grpc.aio.AioRpcError) -> HeronError:
        why = error.details() or error.code().name
        match error.code():
            case grpc.StatusCode.FAILED_PRECONDITION:
                return self._replaced(state) or UnavailableError(why)
            case grpc.StatusCode.OUT_OF_RANGE:
                return ConfigError(why)
            case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.INVALID_ARGUMENT:
                return ConfigError(f"the Topology Master at {address} refuses: {why}")
            case _:
                clock = "; is the clock of this host right?" if _UNVERIFIED in why else ""
                return UnavailableError(f"the Topology Master at {address} does not answer: {why}{clock}")

    def _replaced(self, state: StateManager) -> ReplacedError | None:
        value = state.get(Kind.CONTAINERS, container_node(self._launch.topology, self._container))
        newest = container_record(value)
        if newest.topology_id != self._launch.topology_id or newest.incarnation <= own_incarnation():
            return None  # a record of another submission says nothing of this one
        return ReplacedError(f"incarnation {newest.incarnation} on {newest.host} replaces this one")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


if __name__ == "__main__":
    main()
