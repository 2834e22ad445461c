"""emit, ack and fail from threads of user code: as safe as Storm's collector."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.testing import Simulator

THREADS = 4
TUPLES = 6000


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Numbers(Spout):
    outputs = ["n"]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.next = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.next < TUPLES:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: int) -> None:
        self.failed.append(tup_id)


class ThreadSpout(Numbers):
    """Emits from threads only."""

    def initialize(self, config: Any, context: Any) -> None:
        super().initialize(config, context)
        for first in range(THREADS):
            threading.Thread(target=self._emit, args=(first,), daemon=True).start()

    def _emit(self, first: int) -> None:
        for number in range(first, TUPLES, THREADS):
            self.emit([number], tup_id=number)
            if number % 500 < THREADS:
                time.sleep(0.001)

    def next_tuple(self) -> None:
        pass


class ThreadBolt(Bolt):
    """Hands every tuple to a thread, which emits, then acks or fails."""

    outputs = [Stream(["n"], name="odd"), Stream(["n"], name="even")]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.fails = bool(config.get("fails"))
        self.todo: queue.SimpleQueue[Tuple] = queue.SimpleQueue()
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()

    def process(self, tup: Tuple) -> None:
        self.todo.put(tup)

    def _work(self) -> None:
        while True:
            tup = self.todo.get()
            number = tup["n"]
            if self.fails and number % 5 == 0:
                self.fail(tup)
                continue
            self.emit([number], stream="odd" if number % 2 else "even", anchors=[tup])
            self.ack(tup)


class Collect(Bolt):
    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[tuple[int, str]] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append((tup["n"], tup.stream))
        self.ack(tup)


def topology(mode: str, grouping: Any, *, spout: type[Numbers] = Numbers, fails: bool = False) -> TopologyBuilder:
    builder = TopologyBuilder("threads")
    numbers = builder.add_spout("numbers", spout, 1)
    worker = builder.add_bolt("worker", ThreadBolt, 1, {numbers["default"]: grouping}, {"fails": fails})
    builder.add_bolt("collect", Collect, 2, {worker["odd"]: grouping, worker["even"]: grouping})
    builder.set_config({"topology.reliability.mode": mode, "topology.message.timeout.secs": 300})
    return builder


@pytest.mark.parametrize("spout", [Numbers, ThreadSpout])
@pytest.mark.parametrize("grouping", [Grouping.SHUFFLE, Grouping.ALL])
@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_what_threads_emit_and_ack_is_delivered_once_and_acked_once(
    mode: str, grouping: Any, spout: type[Numbers]
) -> None:
    copies = 2 if grouping == Grouping.ALL else 1
    with Simulator(topology(mode, grouping, spout=spout)) as simulator:
        (source,), sinks = simulator.component("numbers"), simulator.component("collect")

        def done() -> bool:
            return len(source.acked) == TUPLES and sum(len(sink.seen) for sink in sinks) == copies * TUPLES

        simulator.run(until=done, seconds=300)
        seen = sorted(item for sink in sinks for item in sink.seen)
        for task in simulator.tasks.values():
            task.check_invariants()
    assert sorted(source.acked) == list(range(TUPLES))
    assert source.failed == []
    assert seen == sorted([(n, "odd" if n % 2 else "even") for n in range(TUPLES)] * copies)


def test_what_threads_fail_is_failed_once() -> None:
    with Simulator(topology("ATLEAST_ONCE", Grouping.SHUFFLE, fails=True)) as simulator:
        (source,) = simulator.component("numbers")
        simulator.run(until=lambda: len(source.acked) + len(source.failed) >= TUPLES, seconds=300)
    assert sorted(source.failed) == list(range(0, TUPLES, 5))
    assert sorted(source.acked) == [n for n in range(TUPLES) if n % 5]
