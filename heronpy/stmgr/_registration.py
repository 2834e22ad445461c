"""A Stream Manager's life with the Topology Master: find it, register, hear plans, send heartbeats.

The data plane does not depend on any of this: while the Topology Master is away, the last plan stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from heronpy.errors import StateError
from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.runtime import Launch, StreamLost, channel, metadata, read_message, until_one_ends, write_message
from heronpy.statemgr import Kind, StateManager, open_statemgr

log = logging.getLogger(__name__)

RETRY_S = 0.2


class Registration:
    """Registers one Stream Manager, again and again."""

    def __init__(
        self,
        launch: Launch,
        location: StmgrLocation,
        replan: Callable[[PhysicalPlan], None],
        attached: Callable[[], list[str]],
    ) -> None:
        self._launch = launch
        self._location = location
        self._replan = replan
        self._attached = attached
        self._version = 0
        self._master: state_pb2.TmasterLocation | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Stay registered until cancelled."""
        state = await self._open_state()
        loop = asyncio.get_running_loop()

        def found(value: bytes | None) -> None:
            loop.call_soon_threadsafe(self._found, value)

        watch = await asyncio.to_thread(state.watch, Kind.TMASTERS, self._launch.topology, found)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while (master := self._master) is not None and not self._changed.is_set():
                    await self._stay_with(master)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_S):
                            await self._changed.wait()
        finally:
            watch.cancel()
            state.close()

    async def _open_state(self) -> StateManager:
        while True:
            try:
                return await asyncio.to_thread(open_statemgr, self._launch.statemgr)
            except StateError as error:
                log.warning("%s", error)
                await asyncio.sleep(1.0)

    def _found(self, value: bytes | None) -> None:
        self._master = state_pb2.TmasterLocation.FromString(value) if value else None
        self._changed.set()

    async def _stay_with(self, master: state_pb2.TmasterLocation) -> None:
        """One registration: until the stream ends or another Topology Master appears."""
        async with channel(f"{master.host}:{master.port}") as link:
            stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated without types
            call = stub.Register(metadata=metadata(self._launch.token(), self._location.id))
            try:
                await until_one_ends(self._hear(call), self._tell(call), self._leave())
            except StreamLost as lost:
                log.info("no longer with the Topology Master at port %d: %s", master.port, lost)
            finally:
                call.cancel()

    async def _hear(self, call: Any) -> None:
        while (message := await read_message(call)) is not None:
            plan = PhysicalPlan.from_proto(message.plan)
            self._version = max(self._version, plan.version)
            self._replan(plan)
        raise StreamLost("it closed the stream")

    async def _leave(self) -> None:
        await self._changed.wait()
        raise StreamLost("it is another one now, or none")

    async def _tell(self, call: Any) -> None:
        hello = tmaster_pb2.StmgrHello(location=self._location.to_proto(), plan_version=self._version)
        await write_message(call, tmaster_pb2.StmgrMessage(hello=hello))
        sent: list[str] | None = None
        while True:
            # What is attached is told at once when it changes, and every heartbeat interval.
            for _ in range(max(1, self._launch.config.stmgr.heartbeat_interval_ms // 100)):
                if self._attached() != sent:
                    break
                await asyncio.sleep(0.1)
            sent = self._attached()
            await write_message(call, tmaster_pb2.StmgrMessage(heartbeat=tmaster_pb2.StmgrHeartbeat(attached=sent)))
