"""A Stream Manager's registration with the Topology Master: find it, register, receive plans, send heartbeats.

With checkpoints it also receives orders, and sends reports in the order in which they were made: what may be lost is
known to the Topology Master before any snapshot that was taken behind it.

The data plane does not depend on any of this: while the Topology Master is away, the last plan stands, and the saved
one is taken by a Stream Manager that has none (see `_plans`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.address import join_address
from heronpy.errors import DamagedStateError
from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import checkpoint_pb2, state_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel, read_message, write_message
from heronpy.runtime import Launch, StreamLost, sleep_until, until_one_ends
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, follow, opened, records
from heronpy.stmgr._core import StmgrCore
from heronpy.stmgr._plans import PlanIntake

log = logging.getLogger(__name__)

RETRY_S = 0.2
_LOOK_S = 0.1
"""How soon a change is reported that is not announced by `send`."""
_REPORTS_MAX = 10_000
"""So many reports may wait; without those before, a checkpoint fails at most."""


class Registration:
    """Keeps one Stream Manager registered."""

    def __init__(
        self,
        launch: Launch,
        location: StmgrLocation,
        core: StmgrCore,
        *,
        replan: Callable[[PhysicalPlan], None],
        obey: Callable[[Sequence[checkpoint_pb2.CheckpointOrder]], None],
        stop_reason: Callable[[], str],
        waiting: Callable[[], Sequence[str]],
    ) -> None:
        """Prepare the registration of the Stream Manager at `location`.

        Args:
            launch: of the topology.
            location: what is registered.
            core: what is reported.
            replan: called with each plan.
            obey: called with orders.
            stop_reason: why the topology should be stopped; empty: it should not.
            waiting: ids of instances that wait for a plan that has them.
        """
        self._launch = launch
        self._location = location
        self._core = core
        self._replan, self._obey, self._stop_reason, self._waiting = replan, obey, stop_reason, waiting
        self._reports: deque[tmaster_pb2.StmgrMessage] = deque(maxlen=_REPORTS_MAX)
        self._reported = asyncio.Event()
        self._intake = PlanIntake(launch.topology_id, time.monotonic())
        self._master: state_pb2.TmasterLocation | None = None
        self._changed = asyncio.Event()

    def send(self, message: tmaster_pb2.StmgrMessage) -> None:
        """Send a report behind those before, as soon as there is a Topology Master."""
        if message.HasField("report") and self._reports and self._reports[-1].HasField("report"):
            self._reports.pop()  # the newer says all
        self._reports.append(message)
        self._reported.set()

    async def run(self) -> None:
        """Stay registered until cancelled."""
        async with opened(self._launch.statemgr) as state:
            await until_one_ends(self._find_master(state), self._follow_saved_plan(state), self._stay_registered())

    async def _find_master(self, state: StateManager) -> None:
        async for value in follow(state, Kind.TMASTERS, self._launch.topology):
            topology = self._launch.topology
            self._master = records.readable(records.tmaster_location, topology, value, before=self._master)
            self._changed.set()

    async def _follow_saved_plan(self, state: StateManager) -> None:
        async for value in follow(state, Kind.PPLANS, self._launch.topology):
            if value is None:
                continue
            try:
                saved = records.physical_plan(self._launch.topology, value)
            except DamagedStateError as e:
                log.error("%s; what was there before stands", e)
                continue
            self._take(self._intake.saved(saved, time.monotonic()))
            if (due_s := self._intake.due_s) is not None:
                await sleep_until(due_s)
                self._take(self._intake.advance(time.monotonic()))

    def _take(self, plan: PhysicalPlan | None) -> None:
        if plan is not None:
            self._replan(plan)

    async def _stay_registered(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (master := self._master) is not None and not self._changed.is_set():
                await self._stay_with(master)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._changed.wait()

    async def _stay_with(self, master: state_pb2.TmasterLocation) -> None:
        """One registration: until the stream ends or another Topology Master appears."""
        security = self._launch.security(self._location.id)
        async with channel(join_address(master.host, master.port), security, container_identity(0)) as link:
            stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated without types
            call = stub.Register(metadata=security.metadata)
            try:
                await until_one_ends(self._receive(call), self._send(call), self._until_replaced())
            except StreamLost as lost:
                log.info("disconnected from the Topology Master at port %d: %s", master.port, lost)
            finally:
                call.cancel()

    async def _receive(self, call: Any) -> None:
        while (message := await read_message(call)) is not None:
            if message.HasField("plan"):
                self._take(self._intake.sent(PhysicalPlan.from_proto(message.plan)))
            if message.orders:
                self._obey(message.orders)
        raise StreamLost("it closed the stream")

    async def _until_replaced(self) -> None:
        await self._changed.wait()
        raise StreamLost("it is another one now, or none")

    async def _send(self, call: Any) -> None:
        await write_message(call, tmaster_pb2.StmgrMessage(hello=self._hello()))
        # This Topology Master is to know everything before it is given what has waited for it.
        self._reports = deque((m for m in self._reports if not m.HasField("report")), _REPORTS_MAX)
        if (report := self._core.report) is not None:
            self._reports.appendleft(tmaster_pb2.StmgrMessage(report=report))
        sent, due_s = tmaster_pb2.StmgrHeartbeat(), 0.0
        while True:
            # A change is reported at once, and everything every heartbeat interval.
            if (heartbeat := self._heartbeat()) != sent or time.monotonic() >= due_s:
                await write_message(call, tmaster_pb2.StmgrMessage(heartbeat=heartbeat))
                if due_s and (report := self._core.report) is not None:
                    self.send(tmaster_pb2.StmgrMessage(report=report))
                sent, due_s = heartbeat, time.monotonic() + self._launch.config.stmgr.heartbeat_interval_ms / 1e3
            self._reported.clear()
            while self._reports:
                await write_message(call, self._reports.popleft())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._reported.wait()

    def _heartbeat(self) -> tmaster_pb2.StmgrHeartbeat:
        return tmaster_pb2.StmgrHeartbeat(
            attached=self._core.attached,
            stop_reason=self._stop_reason(),
            restore_epoch=self._core.epoch,
            waiting=self._waiting(),
        )

    def _hello(self) -> tmaster_pb2.StmgrHello:
        hello = tmaster_pb2.StmgrHello(location=self._location.to_proto(), restore_epoch=self._core.epoch)
        if (plan := self._intake.plan) is not None:
            hello.plan_version = plan.version
            hello.peers.extend(peer.to_proto() for peer in plan.stmgrs)
        return hello
