"""The control side of checkpoints: all processes but instances, in whose place are some that only obey."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from topology_on_disk import EngineProcess, launch_in, submit

from heronpy.proto import checkpoint_pb2, state_pb2, stmgr_pb2, tmaster_pb2, topology_pb2
from heronpy.proto.tmaster_pb2_grpc import TmasterStub
from heronpy.rpc import channel
from heronpy.runtime import Launch, running
from heronpy.security import container_identity
from heronpy.statemgr import Kind, StateManager, open_statemgr
from heronpy.stmgr import Stmgr
from heronpy.testing import eventually
from heronpy.tmaster import TopologyMaster

Status = checkpoint_pb2.TaskStatus
KEYS = {"heron.metrics.export.interval.ms": 500}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path, KEYS, checkpoints=str(tmp_path / "checkpoints"))
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with contextlib.closing(open_statemgr(launch.statemgr)) as sm:
        submit(sm, 1, 2)
        topology = topology_pb2.Topology.FromString(sm.get(Kind.TOPOLOGIES, launch.topology) or b"")
        topology.topology_config.kvs.add(key="topology.reliability.mode", value="EFFECTIVELY_ONCE")
        topology.topology_config.kvs.add(key="topology.stateful.checkpoint.interval.seconds", value="0.5")
        sm.set(Kind.TOPOLOGIES, launch.topology, topology.SerializeToString())
        yield sm


class Instance:
    """A task without state that does what it is ordered. It stays attached until its `run` is cancelled."""

    def __init__(self, launch: Launch, task: int) -> None:
        self.name, self.task = f"container_{task}_word_{task}", task
        self.status = Status(task=task, incarnation=task * 100)
        self.orders: list[checkpoint_pb2.CheckpointOrder] = []
        self.frames: list[stmgr_pb2.Frame] = []
        """Of batches."""
        self.number = 0
        self._launch = launch
        self._call: Any = None

    @property
    def restored(self) -> int:
        """The checkpoint that it was restored from last."""
        return [order.restore.checkpoint for order in self.orders if order.HasField("restore")][-1]

    async def run(self) -> None:
        while True:
            path = self._launch.socket_dir(self.task) / "stmgr.sock"
            async with channel(f"unix:{path}", self._launch.security(self.name)) as link:
                self._call = link.stream_stream("/heronpy.Stmgr/Attach")(
                    metadata=self._launch.security(self.name).metadata
                )
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self._serve()
            await asyncio.sleep(0.05)

    async def _serve(self) -> None:
        await self.report(status=self.status)
        while isinstance(data := await self._call.read(), bytes):
            frame = stmgr_pb2.Frame.FromString(data)
            if frame.batches:
                self.frames.append(frame)
            for order in frame.orders:
                self.orders.append(order)
                await self._obey(order)

    async def _obey(self, order: checkpoint_pb2.CheckpointOrder) -> None:
        status = self.status
        if order.HasField("restore") and order.restore.epoch > status.epoch:
            status.epoch, status.phase, self.number = order.restore.epoch, Status.RESTORED, 0
        elif order.HasField("resume") and order.resume.epoch == status.epoch:
            status.phase = Status.RUNNING
        elif order.HasField("commit"):
            status.committed = order.commit.checkpoint
        elif order.HasField("begin"):
            stored = checkpoint_pb2.SnapshotStored(
                task=self.task,
                incarnation=status.incarnation,
                checkpoint=order.begin.checkpoint,
                epoch=order.begin.epoch,
            )
            await self.report(stored=stored)
        await self.report(status=status)

    async def report(self, **report: Any) -> None:
        frame = stmgr_pb2.Frame(reports=[checkpoint_pb2.InstanceReport(**report)])
        await self._call.write(frame.SerializeToString())

    async def send(self, dest: int, *, skip: int = 0) -> None:
        """A frame with one batch; frames between it and the last are lost."""
        self.number += 1 + skip
        batch = stmgr_pb2.Batch(dest_task=dest, count=1, body=b"x", src_task=self.task)
        frame = stmgr_pb2.Frame(batches=[batch], epoch=self.status.epoch, number=self.number)
        await self._call.write(frame.SerializeToString())


@contextlib.asynccontextmanager
async def attached(*instances: Instance) -> AsyncIterator[None]:
    runs = [asyncio.create_task(instance.run()) for instance in instances]
    try:
        yield
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


def record(launch: Launch, state: StateManager) -> state_pb2.Checkpoints:
    return state_pb2.Checkpoints.FromString(state.get(Kind.STATEFULCHECKPOINTS, launch.topology) or b"")


async def status_of(launch: Launch, state: StateManager) -> tmaster_pb2.StatusReply:
    at = state_pb2.TmasterLocation.FromString(state.get(Kind.TMASTERS, launch.topology) or b"")
    security = launch.security("heron")
    async with channel(f"{at.host}:{at.port}", security, container_identity(0)) as link:
        stub: Any = TmasterStub(link)  # type: ignore[no-untyped-call]  # generated without types
        reply: tmaster_pb2.StatusReply = await stub.GetStatus(
            tmaster_pb2.TopologyRequest(), metadata=security.metadata, timeout=60
        )
        return reply


async def test_checkpoints_commit_and_every_process_may_be_replaced(launch: Launch, state: StateManager) -> None:
    one, two = Instance(launch, 1), Instance(launch, 2)

    def committed_since(checkpoint: int) -> None:
        assert one.status.phase == two.status.phase == Status.RUNNING
        assert min(one.status.committed, two.status.committed) > checkpoint

    def in_epoch(epoch: int) -> None:
        assert one.status.epoch == two.status.epoch == epoch
        committed_since(one.restored)

    with EngineProcess("ckptmgr", launch, 0) as ckptmgr:
        async with contextlib.AsyncExitStack() as stack:
            masters = await stack.enter_async_context(contextlib.AsyncExitStack())
            await masters.enter_async_context(running(TopologyMaster(launch)))
            await stack.enter_async_context(running(Stmgr(launch, 1)))
            replaced = await stack.enter_async_context(contextlib.AsyncExitStack())
            await replaced.enter_async_context(running(Stmgr(launch, 2)))
            await stack.enter_async_context(attached(one, two))
            await eventually(lambda: committed_since(1))
            assert one.status.epoch == 1
            assert 1 <= len(record(launch, state).committed) <= 5, "so many are kept"
            reply = await status_of(launch, state)
            assert (reply.checkpoints.phase, reply.checkpoints.restore_epoch) == ("running", 1)
            assert reply.checkpoints.newest >= 2

            # Batches move in order, and a frame that is missing is a restore.
            await one.send(2)
            await eventually(lambda: _assert([frame.number for frame in two.frames] == [1]))
            await one.send(2, skip=1)
            await eventually(lambda: in_epoch(2))
            assert one.restored > 0

            # A Stream Manager that is replaced has lost what it held.
            await replaced.aclose()
            await stack.enter_async_context(running(Stmgr(launch, 2)))
            await eventually(lambda: in_epoch(3))

            # The next Topology Master restores nobody.
            await masters.aclose()
            await stack.enter_async_context(running(TopologyMaster(launch)))
            before = one.status.committed
            await eventually(lambda: committed_since(before))
            assert one.status.epoch == 3

            # Without a Checkpoint Manager nothing is committed, and nothing else stops.
            ckptmgr.kill()
            before = one.status.committed
            with EngineProcess("ckptmgr", launch, 0):
                await eventually(lambda: committed_since(before + 1))
            assert (one.status.epoch, two.status.epoch) == (3, 3)
    assert sorted(record(launch, state).committed)[-1] >= before


def _assert(done: bool) -> None:
    assert done
