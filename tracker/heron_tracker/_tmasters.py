"""Calls to Topology Masters: reused channels, bounded waits, and the last status of each."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio

from heron_tracker._circuit_breaker import CircuitBreaker
from heron_tracker._topology import Identity, Topology
from heron_tracker._trust import LaunchOf, check_address
from heronpy.address import join_address
from heronpy.errors import HeronError, UnavailableError, UsageError
from heronpy.proto import tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import TRACKER, Security, container_identity

CALL_TIMEOUT_S = 5.0
PROBE_WAIT_S = 0.5
"""How long the caller that starts a probe waits for it. The probe itself may take as long as any call, so that one that
is only slow comes back, too."""
CHANNELS_MAX = 256
CALLS_MAX = 64
"""Most calls at a time, to all Topology Masters."""
CALLS_PER_TOPOLOGY_MAX = 4
STATUS_AGE_S = 1.0
"""A status that is not older is served again."""


class UnreachableError(UnavailableError):
    """A Topology Master that does not answer."""


@dataclass(slots=True)
class _Link:
    """What is kept for one topology."""

    security: Security
    calls: asyncio.Semaphore
    target: str = ""
    channel: grpc.aio.Channel | None = None
    busy: int = 0
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    probe: asyncio.Task[None] | None = None
    status: tmaster_pb2.StatusReply | None = None
    status_s: float = 0.0
    asking: asyncio.Lock | None = None


class Tmasters:
    """The Topology Masters of all topologies."""

    def __init__(
        self, launch_of: LaunchOf, called: Callable[[str, bool], None] = lambda method, answered: None
    ) -> None:
        """Make none yet.

        Args:
            launch_of: Returns a topology's launch values, with its credentials. Raises UnavailableError.
            called: Called after every call with its method, and whether it was answered.
        """
        self._launch_of = launch_of
        self._links: OrderedDict[Identity, _Link] = OrderedDict()
        self._gone: list[_Link] = []  # to be closed by the next one who may wait
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._called = called

    async def metrics(self, topology: Topology, request: tmaster_pb2.MetricsRequest) -> tmaster_pb2.MetricsReply:
        """Metrics, over a time. Raises UnreachableError."""
        reply: tmaster_pb2.MetricsReply = await self._ask(topology, "GetMetrics", request)
        return reply

    async def health(self, topology: Topology) -> tmaster_pb2.Health:
        """How the topology is. Raises UnreachableError."""
        reply: tmaster_pb2.Health = await self._ask(topology, "GetHealth", tmaster_pb2.TopologyRequest())
        return reply

    async def exceptions(
        self, topology: Topology, request: tmaster_pb2.ExceptionsRequest
    ) -> tmaster_pb2.ExceptionsReply:
        """Exceptions, the latest last. Raises UnreachableError."""
        reply: tmaster_pb2.ExceptionsReply = await self._ask(topology, "GetExceptions", request)
        return reply

    async def exception_summary(
        self, topology: Topology, request: tmaster_pb2.ExceptionsRequest
    ) -> tmaster_pb2.ExceptionSummaryReply:
        """Exceptions by their classes. Raises UnreachableError."""
        reply: tmaster_pb2.ExceptionSummaryReply = await self._ask(topology, "GetExceptionSummary", request)
        return reply

    async def status(self, topology: Topology) -> tuple[tmaster_pb2.StatusReply | None, str]:
        """The status, and how its Topology Master is: `ok`, or `unreachable since …` with the last known status.

        Never raises for a Topology Master that is unreachable. The status is None if it has never answered.
        """
        try:
            link = await self._link(topology)
        except HeronError as e:
            return None, str(e)
        try:
            await self._admit(link, topology)  # before the lock, where callers would queue up for what is known
            link.asking = link.asking or asyncio.Lock()
            async with link.asking:  # of several callers, one asks
                if time.monotonic() - link.status_s > STATUS_AGE_S or link.status is None:
                    link.status = await self._ask(topology, "GetStatus", tmaster_pb2.TopologyRequest())
                    link.status_s = time.monotonic()
        except HeronError as e:
            since = self.unreachable_since(topology)
            return link.status, f"unreachable since {since}" if since else str(e)
        return link.status, "ok"

    def unreachable_since(self, topology: Topology) -> str | None:
        """Since when (ISO 8601) it has been unreachable; None if the last call was answered."""
        link = self._links.get(topology.identity)
        times = [t for t in (topology.tmaster_lost_s, link.breaker.since_s if link else None) if t is not None]
        return iso_time(min(times)) if times else None

    def keep(self, topologies: Iterable[Topology]) -> None:
        """Drop all topologies but these, and update the locations of their Topology Masters."""
        kept = {topology.identity: topology for topology in topologies}
        for id in self._links.keys() - kept.keys():
            self._gone.append(self._links.pop(id))
        for id, link in self._links.items():
            link.breaker.located(kept[id].tmaster)

    def forget(self, topology: Topology) -> None:
        """Connect anew: the topology has other credentials."""
        if link := self._links.pop(topology.identity, None):
            self._gone.append(link)

    async def close(self) -> None:
        """Close all channels; calls under way fail."""
        self.keep(())
        await self._close_gone()

    async def _close_gone(self) -> None:
        while self._gone:
            link = self._gone.pop()
            if link.probe is not None:
                link.probe.cancel()
                await asyncio.wait({link.probe})
            if link.channel is not None:
                await link.channel.close()

    async def _ask(self, topology: Topology, method: str, request: Any) -> Any:
        link = await self._link(topology)
        await self._admit(link, topology)
        link.busy += 1
        try:
            async with asyncio.timeout(2 * CALL_TIMEOUT_S), link.calls, self._calls:
                if link.breaker.open:  # an earlier call failed while this one waited
                    raise self._unreachable(link, topology)
                reply = await self._call(link, topology, method, request)
        except TimeoutError as e:
            raise UnreachableError(
                f"the Topology Master of {topology.key.name} was not asked: too many calls wait; try again later"
            ) from e
        finally:
            link.busy -= 1
        return reply

    async def _admit(self, link: _Link, topology: Topology) -> None:
        """Return if it can be called. Raises UnreachableError, at once while the circuit is open."""
        if topology.tmaster is None:
            raise UnreachableError(
                f"topology {topology.key.name} has no Topology Master since {self.unreachable_since(topology)}: "
                "its metrics cannot be read until it is back"
            )
        if not link.breaker.open:
            return
        if link.breaker.may_probe(time.monotonic()):
            link.breaker.probing = True
            link.probe = asyncio.create_task(self._probe(link, topology), name=f"tracker/probe/{topology.key.name}")
            await asyncio.wait({link.probe}, timeout=PROBE_WAIT_S)
        if link.breaker.open:
            raise self._unreachable(link, topology)

    async def _probe(self, link: _Link, topology: Topology) -> None:
        # Not counted among the calls: there is one per Topology Master, and many unreachable ones must not use them up.
        try:
            link.status = await self._call(link, topology, "GetStatus", tmaster_pb2.TopologyRequest())
            link.status_s = time.monotonic()
        except HeronError:
            pass  # the breaker has it
        finally:
            link.breaker.probing = False

    async def _call(self, link: _Link, topology: Topology, method: str, request: Any) -> Any:
        try:
            stub = tmaster_pb2_grpc.TmasterStub(await self._channel(link, topology))  # type: ignore[no-untyped-call]  # generated
            reply = await getattr(stub, method)(request, metadata=link.security.metadata, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as e:
            if e.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise UsageError(str(e.details())) from e  # it asked for too much
            self._called(method, False)
            why = "no answer in time" if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED else str(e.details())
            link.breaker.failed(topology.tmaster, why, time.monotonic(), time.time())
            raise self._unreachable(link, topology) from e
        except asyncio.CancelledError as e:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task: the channel was closed under the call, because there is a new address.
            self._called(method, False)
            raise self._unreachable(link, topology) from e
        self._called(method, True)
        link.breaker.answered()
        return reply

    def _unreachable(self, link: _Link, topology: Topology) -> UnreachableError:
        return UnreachableError(
            f"the Topology Master of {topology.key.name} at {link.target or 'no address'} is unreachable since "
            f"{self.unreachable_since(topology) or iso_time(time.time())}: "
            f"{link.breaker.why or 'it has moved, ask again'}"
        )

    async def _link(self, topology: Topology) -> _Link:
        link = self._links.get(topology.identity)
        if link is None:
            launch = await self._launch_of(topology)
            security = await asyncio.to_thread(_security, topology, launch)
            link = self._links.get(topology.identity) or _Link(security, asyncio.Semaphore(CALLS_PER_TOPOLOGY_MAX))
            link.breaker.located(topology.tmaster)
            self._links[topology.identity] = link
            await self._make_room()
        if topology.identity in self._links:  # else the topology went away meanwhile
            self._links.move_to_end(topology.identity)
        return link

    async def _make_room(self) -> None:
        idle = [id for id, link in self._links.items() if not link.busy]
        for id in idle[: max(0, len(self._links) - CHANNELS_MAX)]:
            self._gone.append(self._links.pop(id))
        await self._close_gone()

    async def _channel(self, link: _Link, topology: Topology) -> grpc.aio.Channel:
        assert topology.tmaster is not None
        check_address(topology, topology.tmaster.host, proves_itself=link.security.tls is not None)
        target = join_address(topology.tmaster.host, topology.tmaster.port)
        old = link.channel
        if old is None or link.target != target:
            link.channel, link.target = channel(target, link.security, container_identity(0)), target
            if old is not None:
                await old.close()
        assert link.channel is not None
        return link.channel


def iso_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _security(topology: Topology, launch: Launch) -> Security:
    try:
        return launch.security(TRACKER)
    except HeronError as e:
        raise UnavailableError(f"topology {topology.key.name} cannot be asked from here: {e}") from e
