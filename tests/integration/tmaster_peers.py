"""Who talks to a Topology Master in its tests: Stream Managers and a client."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import launch_in, submit

from heronpy.plan import PhysicalPlan, StmgrLocation
from heronpy.proto import plan_pb2, state_pb2, tmaster_pb2, tmaster_pb2_grpc
from heronpy.rpc import channel
from heronpy.runtime import Launch
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.testing import eventually

REQUEST = tmaster_pb2.TopologyRequest()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def sm(launch: Launch) -> Iterator[StateManager]:
    with open_statemgr(launch.statemgr) as sm:
        submit(sm, 1, 2)
        yield sm


class Stmgr:
    """A Stream Manager's conversation with the Topology Master: says hello, beats, and keeps the plans it gets."""

    def __init__(self, launch: Launch, container: int, *, incarnation: int = 1) -> None:
        self.id = f"stmgr-{container}"
        self.plans: list[PhysicalPlan] = []
        self.ended: grpc.StatusCode | None = None
        self.location = StmgrLocation(self.id, container, "127.0.0.1", 1000 + incarnation, 1, incarnation)
        self._security = launch.security(self.id)
        self._metadata = self._security.metadata
        self._attached: list[str] = []
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        return self.plans[-1].version if self.plans else 0

    def attach(self, *instances: str) -> None:
        self._attached = list(instances)
        self._changed.set()

    @contextlib.asynccontextmanager
    async def registered(self, target: str, *, beats: bool = True) -> AsyncIterator[Stmgr]:
        async with channel(target, self._security, container_identity(0)) as to_tmaster:
            call = tmaster_pb2_grpc.TmasterStub(to_tmaster).Register(metadata=self._metadata, wait_for_ready=True)
            hello = tmaster_pb2.StmgrHello(location=self.location.to_proto(), plan_version=self.version)
            await call.write(tmaster_pb2.StmgrMessage(hello=hello))
            tasks = [asyncio.create_task(self._read(call))]
            if beats:
                tasks.append(asyncio.create_task(self._beat(call)))
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, call: Any) -> None:
        try:
            async for message in call:
                self.plans.append(PhysicalPlan.from_proto(message.plan))
        except grpc.aio.AioRpcError as e:
            self.ended = e.code()

    async def _beat(self, call: Any) -> None:
        while True:
            heartbeat = tmaster_pb2.StmgrHeartbeat(attached=self._attached)
            await call.write(tmaster_pb2.StmgrMessage(heartbeat=heartbeat))
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self._changed.wait()


class Client:
    """Unary calls."""

    def __init__(self, launch: Launch, stub: Any) -> None:
        self._metadata = launch.security("heron").metadata
        self._stub = stub

    async def call(self, name: str, request: Any = REQUEST) -> Any:
        return await getattr(self._stub, name)(request, metadata=self._metadata, timeout=60, wait_for_ready=True)


@contextlib.asynccontextmanager
async def client(launch: Launch, target: str) -> AsyncIterator[Client]:
    async with channel(target, launch.security("heron"), container_identity(0)) as to_tmaster:
        yield Client(launch, tmaster_pb2_grpc.TmasterStub(to_tmaster))


def location(sm: StateManager) -> state_pb2.TmasterLocation:
    value = sm.get(Kind.TMASTERS, "words")
    assert value is not None, "no Topology Master has the node"
    return state_pb2.TmasterLocation.FromString(value)


def target(sm: StateManager) -> str:
    found = location(sm)
    return f"{found.host}:{found.port}"


async def target_of(sm: StateManager, pid: int) -> str:
    """The address of a certain Topology Master, once it is the active one."""

    def active() -> str:
        assert location(sm).pid == pid
        return target(sm)

    return await eventually(active)


def saved_plan(sm: StateManager) -> PhysicalPlan:
    value = sm.get(Kind.PPLANS, "words")
    assert value is not None, "no plan is saved"
    return PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(value))


def at_version(version: int, *stmgrs: Stmgr) -> Any:
    def check() -> None:
        assert [s.version for s in stmgrs] == [version] * len(stmgrs)

    return check
