"""emit, ack and fail from threads of user code: as safe as Storm's collector."""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.config import InstanceConfig
from heronpy.instance.task import InBatch, RootRing
from heronpy.packing import RoundRobinPacking
from heronpy.plan import PhysicalPlan
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
    count = TUPLES

    def initialize(self, config: Any, context: Any) -> None:
        self.next = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.next < self.count:
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


SMALL = InstanceConfig(batch_tuples=8)
"""The threads themselves send, every few tuples."""


def watch_overlaps(monkeypatch: pytest.MonkeyPatch, cls: type, *names: str) -> list[str]:
    """Make calls of these methods take long. Returns a list of those that begin while another one is under way."""
    inside, met = threading.Lock(), []

    def alone(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if not inside.acquire(blocking=False):
                met.append(name)
                return method(*args)
            try:
                time.sleep(0.0005)
                return method(*args)
            finally:
                inside.release()

        return call

    for name in names:
        monkeypatch.setattr(cls, name, alone(name, getattr(cls, name)))
    return met


def test_a_spouts_trees_are_changed_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acks that come while a thread sends would else be applied to arrays that are just being replaced."""
    met = watch_overlaps(monkeypatch, RootRing, "commit", "ack", "fail", "expire")
    with Simulator(topology("ATLEAST_ONCE", Grouping.SHUFFLE, spout=ThreadSpout), config=SMALL) as simulator:
        (source,) = simulator.component("numbers")
        simulator.run(until=lambda: len(source.acked) == TUPLES, seconds=300)
    assert sorted(source.acked) == list(range(TUPLES))
    assert met == []


def _looks_slowly(batch: InBatch) -> bool:
    time.sleep(0.0002)
    return len(batch.ids) > 0


def test_what_a_bolt_holds_is_counted_though_threads_ack_while_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InBatch, "tracked", property(_looks_slowly))  # another thread has its turn then
    with Simulator(topology("ATLEAST_ONCE", Grouping.SHUFFLE), config=SMALL) as simulator:
        (source,) = simulator.component("numbers")
        simulator.run(until=lambda: len(source.acked) == TUPLES, seconds=300)
        for task in simulator.tasks.values():
            task.check_invariants()


class Patient(ThreadBolt):
    """Begins the timeouts of what its threads work at anew."""

    errors: list[Exception] = []  # noqa: RUF012  # of the class, like its threads

    def _work(self) -> None:
        while True:
            tup = self.todo.get()
            try:
                self.reset_timeout(tup)
            except Exception as error:
                self.errors.append(error)
            self.ack(tup)


class Few(Numbers):
    count = 500


def test_threads_may_reset_timeouts_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that send what waits would else take it from each other."""
    met = watch_overlaps(monkeypatch, InBatch, "roots_of")
    Patient.errors.clear()
    builder = TopologyBuilder("threads")
    numbers = builder.add_spout("numbers", Few, 1)
    builder.add_bolt("patient", Patient, 1, {numbers: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.enable.message.timeouts": False})
    ticks = itertools.count(1)
    with Simulator(builder, clock=lambda: next(ticks) * 10_000_000) as simulator:  # so that each is sent at once
        (source,) = simulator.component("numbers")
        simulator.run(until=lambda: len(source.acked) == Few.count or bool(Patient.errors), seconds=300)
    assert Patient.errors == []
    assert met == []


def test_what_a_thread_emits_while_the_plan_changes_is_sent() -> None:
    with Simulator(topology("ATMOST_ONCE", Grouping.SHUFFLE)) as simulator:
        before = simulator.plan
        builder = topology("ATMOST_ONCE", Grouping.SHUFFLE)
        builder.set_config({"topology.stmgrs": 4, "topology.reliability.mode": "ATMOST_ONCE"})
        logical = before.logical
        moved = PhysicalPlan(2, logical, RoundRobinPacking(Simulator(builder).plan.logical).pack(), ())
        assert moved.packing != before.packing
        (task,) = (task for id, task in simulator.tasks.items() if id in before.component_tasks["worker"])
        chosen = task.core.outputs.choosers["odd"]([1])  # a thread is as far as that
        task.replan(moved)
        task.replan(PhysicalPlan(3, logical, moved.packing, ()))
        assert task.doze(True)
        task.doze(False)
        chosen.put([1])
        assert not task.doze(True), "something waits"
        task.flush()
        assert task.doze(True)
        simulator.step()
        assert [item for sink in simulator.component("collect") for item in sink.seen] == [(1, "odd")]
