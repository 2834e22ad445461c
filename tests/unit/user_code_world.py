"""A spout and a bolt whose methods a test writes, in instances that talk to a Stream Manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from heronpy.api import BasicBolt, Bolt, Grouping, Spout, TopologyBuilder, Tuple
from heronpy.api.task_hook import ITaskHook
from heronpy.config import InstanceConfig
from heronpy.proto import stmgr_pb2
from heronpy.testing import Simulator

SECOND = 1_000_000_000


class Script:
    """What the components below do in the test at hand."""

    values: ClassVar[list[Any]] = []
    """What the spout emits, one by one, each with its index as id."""
    process: ClassVar[Callable[[Any, Tuple], None]]
    tick: ClassVar[Callable[[Any, Tuple], None]]
    on: ClassVar[dict[str, Callable[..., None]]] = {}
    """More callbacks by name."""


def call(name: str, *args: Any) -> None:
    if name in Script.on:
        Script.on[name](*args)


class Source(Spout):
    outputs = ("value",)

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.next = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        call("spout_init", self)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        call("spout_initialize", self)

    def activate(self) -> None:
        call("activate", self)

    def next_tuple(self) -> None:
        call("next_tuple", self)
        if self.next < len(Script.values):
            self.next += 1
            self.emit([Script.values[self.next - 1]], tup_id=self.next - 1)

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)
        call("ack", self, tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)
        call("fail", self, tup_id)


class Worker(Bolt):
    outputs = ("value",)

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.held: list[Tuple] = []
        call("bolt_init", self)

    def process(self, tup: Tuple) -> None:
        Script.process(self, tup)

    def process_tick(self, tup: Tuple) -> None:
        Script.tick(self, tup)

    def cleanup(self) -> None:
        call("cleanup", self)


class BasicWorker(BasicBolt):
    outputs = ("value",)

    def process(self, tup: Tuple) -> None:
        Script.process(self, tup)


class Sink(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup["value"])
        self.ack(tup)


class BrokenHook(ITaskHook):
    def spout_ack(self, spout_ack_info: Any) -> None:
        raise RuntimeError("the hook is broken")

    def spout_fail(self, spout_fail_info: Any) -> None:
        raise RuntimeError("the hook is broken")

    def bolt_execute(self, bolt_execute_info: Any) -> None:
        raise RuntimeError("the hook is broken")


class CountingHook(ITaskHook):
    bolt_acks = 0

    def bolt_ack(self, bolt_ack_info: Any) -> None:
        CountingHook.bolt_acks += 1


@pytest.fixture(autouse=True)
def script() -> None:
    Script.values = []
    Script.on = {}
    Script.process = passed_on
    Script.tick = lambda _bolt, _tup: None


def passed_on(bolt: Any, tup: Tuple) -> None:
    bolt.emit([tup["value"]], anchors=[tup])
    bolt.ack(tup)


class World(Simulator):
    """source -> worker -> sink, at least once, with a clock that the test moves."""

    def __init__(self, values: list[Any], *, worker: Any = Worker, config: InstanceConfig | None = None, **keys: Any):
        Script.values = values
        self.now_ns = SECOND
        self.sent: list[stmgr_pb2.Batch] = []
        builder = TopologyBuilder("world")
        source = builder.add_spout("source", Source, 1)
        bolt = builder.add_bolt("worker", worker, 1, {source: Grouping.SHUFFLE})
        builder.add_bolt("sink", Sink, 1, {bolt: Grouping.SHUFFLE})
        builder.set_config(
            {
                "topology.reliability.mode": "ATLEAST_ONCE",
                "topology.message.timeout.secs": 10,
                "topology.exception.policy": "fail",
                **{key.replace("__", "."): value for key, value in keys.items()},
            }
        )
        super().__init__(
            builder,
            config=config or InstanceConfig(drain_interval_ms=0),
            clock=lambda: self.now_ns,
            lose=lambda batch: bool(self.sent.append(batch)),
        )

    def settle(self) -> None:
        for _ in range(300):
            self.now_ns += SECOND // 1000
            self.step()

    @property
    def source(self) -> Source:
        return self.component("source")[0]  # type: ignore[no-any-return]

    @property
    def worker(self) -> Any:
        return self.component("worker")[0]

    @property
    def seen(self) -> list[Any]:
        return self.component("sink")[0].seen  # type: ignore[no-any-return]
