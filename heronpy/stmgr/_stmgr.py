"""The Stream Manager's process: connections around the router and the set of culprits.

Instances attach over a unix socket; of each pair of Stream Managers, the one with the smaller container number dials
the other. A frame is read, its batches are put into outboxes, and each link's sender takes what waits. Nothing here is
done per tuple.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from heronpy.metricsmgr import Reporter
from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import metrics_pb2, stmgr_pb2
from heronpy.runtime import (
    ID_KEY,
    Launch,
    StreamLost,
    channel,
    essential,
    metadata,
    read_message,
    server,
    wait_connected,
)
from heronpy.stmgr._backpressure import Backpressure
from heronpy.stmgr._link import Link
from heronpy.stmgr._metrics import FROM_STMGRS, FROM_WORKERS, TO_WORKERS, StmgrMetrics, Way, to_stmgr
from heronpy.stmgr._outbox import Outbox
from heronpy.stmgr._registration import Registration
from heronpy.stmgr._router import Gate, Router

log = logging.getLogger(__name__)

SERVICE = "heronpy.Stmgr"
PEER = f"/{SERVICE}/Peer"


class Stmgr:
    """One Stream Manager."""

    def __init__(self, launch: Launch, container: int, *, host: str = "127.0.0.1") -> None:
        self.started = asyncio.Event()
        self.id = f"stmgr-{container}"
        self._launch = launch
        self._token = launch.token()
        self._config = launch.config.stmgr
        self._container = container
        self._host = host
        self._backpressure = Backpressure(self.id)
        self._metrics = StmgrMetrics()
        self._router = Router(container, self._outbox)
        self._plan: PhysicalPlan | None = None
        self._planned = asyncio.Event()
        self._spouts_may_send = asyncio.Event()
        self._spouts_may_send.set()
        self._attached: dict[str, Link] = {}
        self._connected: dict[str, Link] = {}
        self._dialing: dict[str, tuple[StmgrLocation, asyncio.Task[None]]] = {}
        self._reporter = Reporter(
            launch, container=container, source=self.id, component="__stmgr__", collect=self._collect
        )

    async def run(self) -> None:
        """Serve until cancelled. On return every connection and socket is closed."""
        instances = server(self._token)
        peers = server(self._token)
        instances.add_generic_rpc_handlers((_handler("Attach", self._attach),))
        peers.add_generic_rpc_handlers((_handler("Peer", self._peer),))
        socket = self._launch.socket_dir(self._container) / "stmgr.sock"
        socket.unlink(missing_ok=True)  # of an earlier life that was killed
        instances.add_insecure_port(f"unix:{socket}")
        port = peers.add_insecure_port(f"{self._host}:0")
        await instances.start()
        await peers.start()
        location = StmgrLocation(self.id, self._container, self._host, port, os.getpid(), time.time_ns())
        registration = Registration(self._launch, location, self._replan, lambda: sorted(self._attached))
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(essential(registration.run()), name=f"{self.id}/registration")
                tasks.create_task(essential(self._reporter.run()), name=f"{self.id}/metrics")
                log.info("%s listens for peers on port %d", self.id, port)
                self.started.set()
        finally:
            with contextlib.suppress(Exception):
                await self._reporter.flush(0.5)
            await instances.stop(0)
            await peers.stop(0)
            socket.unlink(missing_ok=True)

    # plans

    def _replan(self, plan: PhysicalPlan) -> None:
        """Take a plan from the Topology Master."""
        if self._plan is not None and plan.version <= self._plan.version:
            return
        log.info("plan %d: %d containers, %s", plan.version, len(plan.packing.containers), plan.state.name)
        self._plan = plan
        now_ns = time.monotonic_ns()
        for outbox in self._router.replan(plan):
            if self._backpressure.stopped(self.id, outbox.name, now_ns):
                self._announce(stopped=outbox.name)
        self._hold_or_release()
        self._planned.set()
        for id, link in [*self._attached.items(), *self._connected.items()]:
            if id not in self._router.instances and id not in self._router.peers:
                link.close("it is no longer in the plan")
            elif id in self._router.instances:
                link.send_control(stmgr_pb2.Frame(plan=plan.to_proto()))
        self._dial_peers(plan)

    def _dial_peers(self, plan: PhysicalPlan) -> None:
        wanted = {s.id: s for s in plan.stmgrs if s.container > self._container and s.port}
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
            async with channel(f"{peer.host}:{peer.port}") as link:
                call: Any = link.stream_stream(PEER)(metadata=metadata(self._token, self.id))
                try:
                    await wait_connected(call)
                    self._metrics.greeted(peer.id)
                    await self._serve_peer(peer.id, call)
                except StreamLost as lost:
                    log.debug("%s: %s", peer.id, lost)
                finally:
                    call.cancel()
            await asyncio.sleep(self._config.peer_reconnect_ms / 1e3)

    async def _peer(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """The handler of a peer's stream."""
        await self._planned.wait()
        await self._serve_peer(_caller(context), context)

    async def _serve_peer(self, peer_id: str, stream: Any) -> None:
        """Exchange frames with a peer until either side closes."""
        outbox = self._router.peers.get(peer_id)
        if outbox is None:
            log.warning("%s is not in the plan", peer_id)
            return
        link = Link(peer_id, stream, outbox, self._metrics, to_stmgr(peer_id))
        if (old := self._connected.get(peer_id)) is not None:
            old.close("a newer connection has taken its place")
            self._forget(peer_id)
        self._connected[peer_id] = link
        for culprit in self._backpressure.local():
            link.send_control(_start(self.id, culprit))
        for name, mine in self._router.instances.items():
            if mine.full:
                link.send_control(_start(self.id, name, full=True))
        self._metrics.connected()
        log.info("connected to %s", peer_id)

        async def read() -> None:
            while (data := await read_message(stream)) is not None:
                frame = stmgr_pb2.Frame.FromString(data)
                self._metrics.moved(len(data), FROM_STMGRS)
                if self._connected.get(peer_id) is link:  # news of a connection that was replaced is old
                    self._hear(frame)
                self._pass_on(frame, FROM_STMGRS)  # never held: see Router

        why = "this Stream Manager ends"
        try:
            why = await link.serve(read)
        finally:
            log.info("lost %s: %s", peer_id, why)
            if self._connected.get(peer_id) is link:
                del self._connected[peer_id]
                self._forget(peer_id)

    def _forget(self, peer_id: str) -> None:
        """Forget what a peer announced: if it is still so, it will announce it again when it is connected."""
        self._backpressure.lost(peer_id, time.monotonic_ns())
        self._router.peer_lost(peer_id)
        self._hold_or_release()

    async def _attach(self, _requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """The handler of an instance's stream."""
        await self._planned.wait()
        assert self._plan is not None
        instance_id = _caller(context)
        outbox = self._router.instances.get(instance_id)
        if outbox is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{instance_id} is not in the plan of {self.id}")
        assert outbox is not None
        link = Link(instance_id, context, outbox, self._metrics, TO_WORKERS)
        if (old := self._attached.get(instance_id)) is not None:
            old.close("a newer connection has taken its place")
        self._attached[instance_id] = link
        link.send_control(stmgr_pb2.Frame(plan=self._plan.to_proto()))
        log.info("%s attached", instance_id)

        async def read() -> None:
            while True:
                if instance_id in self._router.spouts:
                    await self._spouts_may_send.wait()
                if (data := await read_message(context)) is None:
                    return
                self._metrics.moved(len(data), FROM_WORKERS)
                for full in self._pass_on(stmgr_pb2.Frame.FromString(data), FROM_WORKERS):
                    await full.has_room()

        why = "its connection ended"
        try:
            why = await link.serve(read)
        finally:
            log.info("%s detached: %s", instance_id, why)
            if self._attached.get(instance_id) is link:
                del self._attached[instance_id]

    def _pass_on(self, frame: stmgr_pb2.Frame, way: Way) -> Sequence[Outbox | Gate]:
        for batch in frame.batches:
            self._metrics.passed(batch, way)
        return self._router.route(frame.batches)

    # backpressure

    def _outbox(self, name: str) -> Outbox:
        return Outbox(name, self._config, self._over_high, self._under_low, self._full_changed)

    def _over_high(self, outbox: Outbox) -> None:
        if self._backpressure.started(self.id, outbox.name, time.monotonic_ns()):
            log.warning("backpressure starts: %d bytes wait for %s", outbox.bytes, outbox.name)
            self._announce(started=outbox.name)
            self._hold_or_release()

    def _under_low(self, outbox: Outbox) -> None:
        if self._backpressure.stopped(self.id, outbox.name, time.monotonic_ns()):
            log.info("backpressure ends for %s", outbox.name)
            self._announce(stopped=outbox.name)
            self._hold_or_release()

    def _full_changed(self, outbox: Outbox) -> None:
        if outbox.name in self._router.instances:  # whoever sends to a peer is here, and held here
            change = _start if outbox.full else _stop
            self._tell_peers(change(self.id, outbox.name, full=True))

    def _announce(self, *, started: str = "", stopped: str = "") -> None:
        self._tell_peers(_start(self.id, started) if started else _stop(self.id, stopped))

    def _tell_peers(self, frame: stmgr_pb2.Frame) -> None:
        for link in self._connected.values():
            link.send_control(frame)

    def _hear(self, frame: stmgr_pb2.Frame) -> None:
        """Take a peer's news of its culprits."""
        if not frame.start_backpressure and not frame.stop_backpressure:
            return
        now_ns = time.monotonic_ns()
        for start in frame.start_backpressure:
            if start.full:
                self._router.far_full(start.culprit, True)
            else:
                self._backpressure.started(start.stmgr, start.culprit, now_ns)
        for stop in frame.stop_backpressure:
            if stop.full:
                self._router.far_full(stop.culprit, False)
            else:
                self._backpressure.stopped(stop.stmgr, stop.culprit, now_ns)
        self._hold_or_release()

    def _hold_or_release(self) -> None:
        if self._backpressure.holds_spouts:
            self._spouts_may_send.clear()
        else:
            self._spouts_may_send.set()

    def _collect(self) -> Iterable[metrics_pb2.Metric]:
        return self._metrics.collect(self._backpressure, self._router.all(), time.monotonic_ns())


def _start(stmgr: str, culprit: str, *, full: bool = False) -> stmgr_pb2.Frame:
    start = stmgr_pb2.StartBackpressure(stmgr=stmgr, culprit=culprit, full=full)
    return stmgr_pb2.Frame(start_backpressure=[start])


def _stop(stmgr: str, culprit: str, *, full: bool = False) -> stmgr_pb2.Frame:
    stop = stmgr_pb2.StopBackpressure(stmgr=stmgr, culprit=culprit, full=full)
    return stmgr_pb2.Frame(stop_backpressure=[stop])


def _handler(method: str, serve: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(SERVICE, {method: grpc.stream_stream_rpc_method_handler(serve)})


def _caller(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    return next((str(v) for k, v in context.invocation_metadata() or () if k == ID_KEY), "")
