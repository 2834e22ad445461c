"""Asking Topology Masters: reused channels, bounded waits, and what each of them said last."""

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

from heron_tracker._silence import Silence
from heron_tracker._topology import Topology
from heronpy.errors import HeronError, UnavailableError, UsageError
from heronpy.proto import tmaster_pb2, tmaster_pb2_grpc
from heronpy.runtime import Launch, channel, metadata

CALL_TIMEOUT_S = 5.0
PROBE_WAIT_S = 0.5
"""How long who probes a silent one waits for it. The probe itself goes on for as long as any call may take: one that is
only slow must come back, too."""
CHANNELS_MAX = 256
CALLS_MAX = 64
"""Most calls at a time, to all Topology Masters."""
CALLS_PER_TOPOLOGY_MAX = 4
STATUS_AGE_S = 1.0
"""A status that is not older is told again instead of asking again."""


class SilentError(UnavailableError):
    """A Topology Master that does not answer."""


@dataclass(slots=True)
class _Link:
    """What is kept for one topology."""

    topology_id: str
    token: str
    calls: asyncio.Semaphore
    target: str = ""
    channel: grpc.aio.Channel | None = None
    busy: int = 0
    silence: Silence = field(default_factory=Silence)
    probe: asyncio.Task[None] | None = None
    status: tmaster_pb2.StatusReply | None = None
    status_s: float = 0.0
    asking: asyncio.Lock | None = None


class Tmasters:
    """The Topology Masters of all topologies."""

    def __init__(self, called: Callable[[str, bool], None] = lambda method, answered: None) -> None:
        """Make none yet.

        Args:
            called: Told of every call: its method, and whether it was answered.
        """
        self._links: OrderedDict[str, _Link] = OrderedDict()
        self._gone: list[_Link] = []  # to be closed by the next one who may wait
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._called = called

    async def metrics(self, topology: Topology, request: tmaster_pb2.MetricsRequest) -> tmaster_pb2.MetricsReply:
        """Metrics, over a time. Raises SilentError."""
        reply: tmaster_pb2.MetricsReply = await self._ask(topology, "GetMetrics", request)
        return reply

    async def exceptions(
        self, topology: Topology, request: tmaster_pb2.ExceptionsRequest
    ) -> tmaster_pb2.ExceptionsReply:
        """Exceptions, the latest last. Raises SilentError."""
        reply: tmaster_pb2.ExceptionsReply = await self._ask(topology, "GetExceptions", request)
        return reply

    async def exception_summary(
        self, topology: Topology, request: tmaster_pb2.ExceptionsRequest
    ) -> tmaster_pb2.ExceptionSummaryReply:
        """Exceptions by their classes. Raises SilentError."""
        reply: tmaster_pb2.ExceptionSummaryReply = await self._ask(topology, "GetExceptionSummary", request)
        return reply

    async def status(self, topology: Topology) -> tuple[tmaster_pb2.StatusReply | None, str]:
        """The status, and how its Topology Master is: `ok`, or `unreachable since …` with the last known status.

        Never raises for a Topology Master that is silent. The status is None if it has never answered.
        """
        try:
            link = await self._link(topology)
        except HeronError as e:
            return None, str(e)
        try:
            await self._admit(link, topology)  # before the lock: nobody waits for one who finds out what is known
            link.asking = link.asking or asyncio.Lock()
            async with link.asking:  # of several who want it at once, one asks
                if time.monotonic() - link.status_s > STATUS_AGE_S or link.status is None:
                    link.status = await self._ask(topology, "GetStatus", tmaster_pb2.TopologyRequest())
                    link.status_s = time.monotonic()
        except HeronError as e:
            since = self.silent_since(topology)
            return link.status, f"unreachable since {since}" if since else str(e)
        return link.status, "ok"

    def silent_since(self, topology: Topology) -> str | None:
        """Since when (ISO 8601) it does not answer, as far as anybody asked; None if the last call was answered."""
        link = self._links.get(topology.id)
        times = [t for t in (topology.tmaster_lost_s, link.silence.since_s if link else None) if t is not None]
        return iso_time(min(times)) if times else None

    def keep(self, topologies: Iterable[Topology]) -> None:
        """Forget all topologies but these, and take notice of where their Topology Masters are."""
        kept = {topology.id: topology for topology in topologies}
        for id in self._links.keys() - kept.keys():
            self._gone.append(self._links.pop(id))
        for id, link in self._links.items():
            link.silence.located(kept[id].tmaster)

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
                if link.silence.known:  # those before it found out while this one waited
                    raise self._silent(link, topology)
                reply = await self._call(link, topology, method, request)
        except TimeoutError as e:
            raise SilentError(
                f"the Topology Master of {topology.key.name} was not asked: too many calls wait; try again later"
            ) from e
        finally:
            link.busy -= 1
        return reply

    async def _admit(self, link: _Link, topology: Topology) -> None:
        """Return if it can be asked. Raises SilentError: at once if it is known to be silent and not to be tried."""
        if topology.tmaster is None:
            raise SilentError(
                f"topology {topology.key.name} has no Topology Master since {self.silent_since(topology)}: "
                "its metrics cannot be read until it is back"
            )
        if not link.silence.known:
            return
        if link.silence.may_probe(time.monotonic()):
            link.silence.probing = True
            link.probe = asyncio.create_task(self._probe(link, topology), name=f"tracker/probe/{topology.key.name}")
            await asyncio.wait({link.probe}, timeout=PROBE_WAIT_S)
        if link.silence.known:
            raise self._silent(link, topology)

    async def _probe(self, link: _Link, topology: Topology) -> None:
        # It takes no place among the calls: there is one a Topology Master, and many silent ones must not use them up.
        try:
            link.status = await self._call(link, topology, "GetStatus", tmaster_pb2.TopologyRequest())
            link.status_s = time.monotonic()
        except HeronError:
            pass  # it is remembered
        finally:
            link.silence.probing = False

    async def _call(self, link: _Link, topology: Topology, method: str, request: Any) -> Any:
        try:
            stub = tmaster_pb2_grpc.TmasterStub(await self._channel(link, topology))  # type: ignore[no-untyped-call]  # generated
            reply = await getattr(stub, method)(
                request, metadata=metadata(link.token, "tracker"), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as e:
            if e.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise UsageError(str(e.details())) from e  # it asked for too much
            self._called(method, False)
            why = "no answer in time" if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED else str(e.details())
            link.silence.failed(topology.tmaster, why, time.monotonic(), time.time())
            raise self._silent(link, topology) from e
        except asyncio.CancelledError as e:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task: the channel was closed under the call, because there is a new address.
            self._called(method, False)
            raise self._silent(link, topology) from e
        self._called(method, True)
        link.silence.answered()
        return reply

    def _silent(self, link: _Link, topology: Topology) -> SilentError:
        return SilentError(
            f"the Topology Master of {topology.key.name} at {link.target or 'no address'} is unreachable since "
            f"{self.silent_since(topology) or iso_time(time.time())}: {link.silence.why or 'it has moved, ask again'}"
        )

    async def _link(self, topology: Topology) -> _Link:
        link = self._links.get(topology.id)
        if link is None:
            token = await asyncio.to_thread(_token, topology)
            link = self._links.get(topology.id) or _Link(topology.id, token, asyncio.Semaphore(CALLS_PER_TOPOLOGY_MAX))
            link.silence.located(topology.tmaster)
            self._links[topology.id] = link
            await self._make_room()
        if topology.id in self._links:  # else the topology went away meanwhile
            self._links.move_to_end(topology.id)
        return link

    async def _make_room(self) -> None:
        idle = [id for id, link in self._links.items() if not link.busy]
        for id in idle[: max(0, len(self._links) - CHANNELS_MAX)]:
            self._gone.append(self._links.pop(id))
        await self._close_gone()

    async def _channel(self, link: _Link, topology: Topology) -> grpc.aio.Channel:
        assert topology.tmaster is not None
        target = f"{topology.tmaster.host}:{topology.tmaster.port}"
        old = link.channel
        if old is None or link.target != target:
            link.channel, link.target = channel(target), target
            if old is not None:
                await old.close()
        assert link.channel is not None
        return link.channel


def iso_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _token(topology: Topology) -> str:
    try:
        return Launch.load(topology.directory).token()
    except HeronError as e:
        raise UnavailableError(
            f"topology {topology.key.name} cannot be asked from this host: its token is in its directory "
            f"{topology.directory}, and {e}"
        ) from e
    except Exception as e:
        # Whatever stands in somebody's launch.yaml: it is their topology that cannot be asked, nothing else.
        raise UnavailableError(f"topology {topology.key.name} cannot be asked: {topology.directory}: {e}") from e
