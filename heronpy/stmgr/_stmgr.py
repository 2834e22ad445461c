"""The Stream Manager's process: connections, files and time around the core.

Instances attach over a unix socket; of each pair of Stream Managers, the one with the smaller container number dials
the other. What happens on the links is reported to the core, and what it decides is done. Nothing here is done per
tuple.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from heronpy.address import join_address
from heronpy.metricsmgr import Reporter
from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import checkpoint_pb2, stmgr_pb2
from heronpy.rpc import UnixServer, caller_of, channel, incarnation_of, listen, wait_connected, write_message
from heronpy.runtime import Launch, StreamLost, essential
from heronpy.security import container_identity, is_container
from heronpy.stmgr._core import StmgrCore
from heronpy.stmgr._link import Link
from heronpy.stmgr._plans import peers_to_dial
from heronpy.stmgr._registration import Registration
from heronpy.stmgr._spill import SpillDirectory
from heronpy.stmgr.events import (
    CloseLink,
    DeleteSpill,
    Effect,
    Event,
    HoldReads,
    LinkClosed,
    LinkOpened,
    Log,
    OrdersReceived,
    PlanReceived,
    ReadSpill,
    ResumeReads,
    SendToTmaster,
    StopTopology,
    TimePassed,
    Wake,
    WakeAt,
    WriteFrame,
    WriteSpill,
)

log = logging.getLogger(__name__)

SERVICE = "heronpy.Stmgr"
PEER = f"/{SERVICE}/Peer"
TICK_S = 1.0


class Stmgr:
    """One Stream Manager."""

    def __init__(self, launch: Launch, container: int) -> None:
        self.started = asyncio.Event()
        self.id = f"stmgr-{container}"
        self._incarnation = time.time_ns()
        self.core = StmgrCore(container, launch.config.stmgr, launch.config.instance, self._incarnation)
        self._launch = launch
        self._security = launch.security(self.id)
        self._config = launch.config.stmgr
        self._container = container
        self._planned = asyncio.Event()
        self._early: dict[asyncio.Event, str] = {}
        """Instances that wait for a plan that has them, by what wakes them: those that an update needs are started
        before its plan is in force."""
        self._read_ahead: checkpoint_pb2.CheckpointOrder | None = None
        """The newest such order since the last plan, which goes to them, too."""
        self._links: dict[int, Link] = {}
        self._numbers = itertools.count(1)
        self._dialing: dict[str, tuple[StmgrLocation, asyncio.Task[None]]] = {}
        self._stop_reason = ""
        self._spill = SpillDirectory(launch.container_dir(container) / "spill", self._step)
        self._reporter = Reporter(
            launch,
            container=container,
            source=self.id,
            component="__stmgr__",
            collect=lambda: self.core.collect(time.monotonic_ns()),
        )
        self._actions = self._all_actions()

    async def run(self) -> None:
        """Serve until cancelled. On return every connection and socket is closed."""
        instances = UnixServer(lambda: self._launch.socket_dir(self._container) / "stmgr.sock", self._instance_server)
        listener = listen(
            self._launch.bind_address,
            self._launch.advertised_host(),
            self._security,
            callers=is_container,
            newest=lambda container: self.core.newest_incarnation(f"stmgr-{container}"),
        )
        peers = listener.server
        peers.add_generic_rpc_handlers((_handler("Peer", self._peer),))
        await instances.start()
        await peers.start()
        self._location = StmgrLocation(
            self.id,
            self._container,
            listener.host,
            listener.port,
            os.getpid(),
            self._incarnation,
            self._security.incarnation,
        )
        registration = self._registration = Registration(
            self._launch,
            self._location,
            self.core,
            replan=self._replan,
            obey=self._obey,
            stop_reason=lambda: self._stop_reason,
            waiting=lambda: self.waiting,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(essential(registration.run()), name=f"{self.id}/registration")
                tasks.create_task(essential(self._reporter.run()), name=f"{self.id}/metrics")
                tasks.create_task(essential(self._spill.run()), name=f"{self.id}/spill")
                tasks.create_task(essential(instances.run()), name=f"{self.id}/socket")
                tasks.create_task(essential(self._tick()), name=f"{self.id}/tick")
                log.info("%s listens for peers at %s", self.id, listener.address)
                self.started.set()
        finally:
            with contextlib.suppress(Exception):  # what ends this process matters more than its last metrics
                await self._reporter.flush(0.5)
            await instances.stop()
            await peers.stop(0)
            self._spill.remove()

    @property
    def waiting(self) -> list[str]:
        """Ids of instances that wait for a plan that has them."""
        return sorted(set(self._early.values()))

    def disconnect(self, name: str, reason: str) -> None:
        """Close the connection with an instance or a peer, if there is one; it will connect again."""
        for link in self._links.values():
            if link.name == name:
                link.close(reason)

    # the core

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            self._actions[type(effect)](effect)

    def _all_actions(self) -> dict[type[Effect], Callable[[Any], None]]:
        links = self._links
        return {
            WriteFrame: lambda effect: links[effect.link].write(effect.data),
            Wake: lambda effect: links[effect.link].wake(),
            WakeAt: lambda effect: links[effect.link].wake_at(effect.at_ns),
            HoldReads: lambda effect: links[effect.link].hold_reads(),
            ResumeReads: lambda effect: links[effect.link].resume_reads(),
            CloseLink: lambda effect: links[effect.link].close(effect.reason),
            WriteSpill: self._spill.put,
            ReadSpill: self._spill.put,
            DeleteSpill: self._spill.put,
            SendToTmaster: lambda effect: self._registration.send(effect.message),
            StopTopology: self._stop_topology,
            Log: lambda effect: log.log(effect.level, "%s", effect.text),
        }

    def _stop_topology(self, effect: StopTopology) -> None:
        self._stop_reason = effect.reason
        if effect.reason:
            self._reporter.exception(effect.reason)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._step(TimePassed(time.monotonic_ns()))

    def _obey(self, orders: Sequence[checkpoint_pb2.CheckpointOrder]) -> None:
        """Take orders from the Topology Master."""
        self._step(OrdersReceived(orders, time.monotonic_ns()))
        for order in orders:
            if order.HasField("read_ahead"):
                self._read_ahead = order
                for waiting in self._early:
                    waiting.set()

    # plans

    def _replan(self, plan: PhysicalPlan) -> None:
        """Take a plan from the Topology Master."""
        self._step(PlanReceived(plan, time.monotonic_ns()))
        self._read_ahead = None
        self._planned.set()
        assert self.core.routes is not None
        for planned, instance_id in self._early.items():
            if instance_id in self.core.routes.tasks:
                planned.set()
        self._dial_peers(self.core.routes.plan)

    def _dial_peers(self, plan: PhysicalPlan) -> None:
        wanted = peers_to_dial(plan, self._location)
        for peer_id, (location, task) in list(self._dialing.items()):
            if wanted.get(peer_id) != location:
                task.cancel()
                del self._dialing[peer_id]
        for peer_id, location in wanted.items():
            if peer_id not in self._dialing:
                task = self._tasks.create_task(essential(self._dial(location)), name=f"{self.id}/to/{peer_id}")
                self._dialing[peer_id] = location, task

    # links

    async def _dial(self, peer: StmgrLocation) -> None:
        """Stay connected to a peer until its location changes."""
        while True:
            async with channel(
                join_address(peer.host, peer.port), self._security, container_identity(peer.container)
            ) as link:
                call: Any = link.stream_stream(PEER)(metadata=self._security.metadata)
                try:
                    await wait_connected(call)
                    self.core.metrics.greeted(peer.id)
                    await self._serve(peer.id, call, peer.container_incarnation)
                except StreamLost as lost:
                    log.debug("%s: %s", peer.id, lost)
                finally:
                    call.cancel()
            await asyncio.sleep(self._config.peer_reconnect_ms / 1e3)

    async def _peer(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """The handler of a peer's stream."""
        await self._planned.wait()
        assert self.core.routes is not None
        peer_id = caller_of(context)
        if peer_id not in self.core.routes.peers:
            log.warning("%s is not in the plan", peer_id)
            return
        await self._serve(peer_id, context, incarnation_of(context))

    def _instance_server(self, bind: str) -> grpc.aio.Server:
        instances = listen(bind, "", self._security, newest=lambda _container: self._security.incarnation).server
        instances.add_generic_rpc_handlers((_handler("Attach", self._attach),))
        return instances

    async def _attach(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """The handler of an instance's stream."""
        instance_id = caller_of(context)
        sent = None
        while self.core.routes is None or instance_id not in self.core.routes.tasks:
            if (order := self._read_ahead) is not None and order is not sent:
                sent = order
                await write_message(context, stmgr_pb2.Frame(orders=[order]).SerializeToString())
                continue
            self._early[wakes := asyncio.Event()] = instance_id
            try:
                await wakes.wait()
            finally:
                del self._early[wakes]
        await self._serve(instance_id, context, incarnation_of(context))

    async def _serve(self, name: str, stream: Any, incarnation: int) -> None:
        """Exchange frames with an instance or a peer until either side closes."""
        link = Link(next(self._numbers), name, stream, self._step)
        self._links[link.number] = link
        reason = "its handler ended"
        try:
            self._step(LinkOpened(link.number, name, time.monotonic_ns(), incarnation))
            log.info("connected to %s", name)
            reason = await link.serve()
        finally:
            log.info("disconnected from %s: %s", name, reason)
            self._step(LinkClosed(link.number, time.monotonic_ns()))
            del self._links[link.number]


def _handler(method: str, serve: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(SERVICE, {method: grpc.stream_stream_rpc_method_handler(serve)})
