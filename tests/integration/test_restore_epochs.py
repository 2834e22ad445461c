"""An instance and the restore epochs of its frames, seen from its Stream Manager."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from topology_on_disk import launch_in

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.packing import RoundRobinPacking
from heronpy.plan import LogicalPlan, PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.rpc import UnixServer, listen
from heronpy.runtime import PARENT_ENV, Launch
from heronpy.wire import DATA, tuple_batch

PASS = "container_1_pass_2"
SOURCE = """
from heronpy.api import Bolt, Spout

class Source(Spout):
    outputs = ("number",)

class Pass(Bolt):
    outputs = ("number",)

    def process(self, tup):
        self.emit([tup.values[0]])
"""


class Source(Spout):
    outputs = ("number",)


class Pass(Bolt):
    outputs = ("number",)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = launch_in(tmp_path)
    (launch.dir / "package").mkdir()
    (launch.dir / "package" / "passing.py").write_text(SOURCE)
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


def plan() -> PhysicalPlan:
    """source_1 → pass_2 → last_3, all in one container."""
    builder = TopologyBuilder("words")
    source = builder.add_spout("source", Source, 1)
    passing = builder.add_bolt("pass", Pass, 1, {source: Grouping.SHUFFLE})
    builder.add_bolt("last", Pass, 1, {passing: Grouping.SHUFFLE})
    builder.set_config({"topology.stmgrs": 1})
    message = builder.build().protobuf_topology
    message.bolts[0].comp.class_name = "passing.Pass"
    logical = LogicalPlan.from_proto(message)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


def frame(epoch: int, *numbers: int) -> stmgr_pb2.Frame:
    values = pickle.dumps([[number] for number in numbers])
    batch = tuple_batch(src_task=1, dest_task=2, streams=("default",), count=len(numbers), values=values)
    return stmgr_pb2.Frame(batches=[batch], epoch=epoch)


def instance(launch: Launch) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "heronpy.instance", "--dir", launch.dir, "--container", "1", "--instance", PASS],
        env={**os.environ, PARENT_ENV: str(os.getpid()), "HERON_TOPOLOGY_ID": launch.topology_id},
        stdin=subprocess.DEVNULL,
    )


class StandIn:
    """A Stream Manager for one instance."""

    def __init__(self, launch: Launch) -> None:
        self._security = launch.security("stmgr-1")
        self.stream: asyncio.Queue[Any] = asyncio.Queue()
        self.server = UnixServer(lambda: launch.socket_dir(1) / "stmgr.sock", self._make)

    def _make(self, bind: str) -> grpc.aio.Server:
        made = listen(bind, "", self._security).server
        handler = grpc.stream_stream_rpc_method_handler(self._attach)
        made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("heronpy.Stmgr", {"Attach": handler}),))
        return made

    async def _attach(self, _requests: Any, context: Any) -> None:
        self.stream.put_nowait(context)
        await asyncio.get_running_loop().create_future()

    async def received(self, stream: Any, count: int) -> list[int]:
        """Restore epochs of the next `count` tuples that the instance emits."""
        epochs: list[int] = []
        async with asyncio.timeout(120):
            while len(epochs) < count:
                got = stmgr_pb2.Frame.FromString(await stream.read())
                epochs += [got.epoch for batch in got.batches if batch.kind == DATA for _ in range(batch.count)]
        return epochs


async def test_an_instance_sends_in_its_epoch_and_drops_what_was_sent_in_another(launch: Launch) -> None:
    stand_in = StandIn(launch)
    await stand_in.server.start()
    process = instance(launch)
    try:
        async with asyncio.timeout(120):
            stream = await stand_in.stream.get()
        first = dataclasses.replace(plan(), restore_epoch=3)
        second = dataclasses.replace(first, version=2, restore_epoch=4)
        for sent in (
            stmgr_pb2.Frame(plan=first.to_proto()),
            frame(2, 1, 2, 3),
            frame(3, 4, 5),
        ):
            await stream.write(sent.SerializeToString())
        assert await stand_in.received(stream, 2) == [3, 3]
        for sent in (stmgr_pb2.Frame(plan=second.to_proto()), frame(3, 6), frame(4, 7), frame(4, 8)):
            await stream.write(sent.SerializeToString())
        assert await stand_in.received(stream, 2) == [4, 4]
    finally:
        process.kill()
        process.wait()
        await stand_in.server.stop()
