"""The simulator: a topology in one thread, with the tasks that the instances run."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, ClassVar

import pytest

from heronpy.api import Bolt, Grouping, ITaskHook, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.bolt.bolt import BasicBolt
from heronpy.instance.task import TaskFailed
from heronpy.testing import Simulator

SECOND = 1_000_000_000


class Numbers(Spout):
    outputs = ("number",)
    count = 100

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.calls: list[str] = []
        self.thread = threading.get_ident()
        self.number = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []

    def activate(self) -> None:
        self.calls.append("activate")

    def deactivate(self) -> None:
        self.calls.append("deactivate")

    def close(self) -> None:
        self.calls.append("close")

    def next_tuple(self) -> None:
        if self.number < self.count:
            self.emit([self.number], tup_id=self.number)
            self.number += 1

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)


class Double(BasicBolt):
    outputs = ("number",)

    def process(self, tup: Tuple) -> None:
        self.emit([2 * tup["number"]])


class Sum(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.sum = 0
        self.ticks = 0

    def process(self, tup: Tuple) -> None:
        self.sum += tup["number"]
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.ticks += 1


class Odd(Sum):
    def process(self, tup: Tuple) -> None:
        (self.fail if tup["number"] % 2 else self.ack)(tup)


class Broken(BasicBolt):
    def process(self, tup: Tuple) -> None:
        raise ValueError("no such row")


class Hook(ITaskHook):
    """Counts what it hears, over all tasks."""

    heard: ClassVar[Counter[str]] = Counter()

    def prepare(self, conf: Any, context: TopologyContext) -> None:
        self.heard["prepare"] += 1

    def clean_up(self) -> None:
        self.heard["clean_up"] += 1

    def emit(self, emit_info: Any) -> None:
        assert isinstance(emit_info.out_tasks, list)
        self.heard["emit"] += 1

    def spout_ack(self, spout_ack_info: Any) -> None:
        self.heard["spout_ack"] += 1

    def spout_fail(self, spout_fail_info: Any) -> None:
        self.heard["spout_fail"] += 1

    def bolt_execute(self, bolt_execute_info: Any) -> None:
        assert bolt_execute_info.execute_latency_ms >= 0
        self.heard["bolt_execute"] += 1

    def bolt_ack(self, bolt_ack_info: Any) -> None:
        self.heard["bolt_ack"] += 1

    def bolt_fail(self, bolt_fail_info: Any) -> None:
        self.heard["bolt_fail"] += 1


def topology(mode: str = "ATLEAST_ONCE", last: type[Bolt] = Sum, **config: Any) -> type[Topology]:
    builder = TopologyBuilder("sums")
    numbers = builder.add_spout("numbers", Numbers, 2)
    doubles = builder.add_bolt("doubles", Double, 3, {numbers: Grouping.SHUFFLE})
    builder.add_bolt("sums", last, 2, {doubles if last is Sum else numbers: Grouping.fields("number")})
    builder.set_config({"topology.reliability.mode": mode, **{k.replace("_", "."): v for k, v in config.items()}})
    return builder.build()


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_everything_that_was_emitted_is_executed_when_it_is_drained(mode: str) -> None:
    with Simulator(topology(mode)) as simulator:
        simulator.run(until=lambda: all(spout.number == 100 for spout in simulator.component("numbers")))
        simulator.drain()
        assert sum(bolt.sum for bolt in simulator.component("sums")) == 2 * 2 * sum(range(100))
        for spout in simulator.component("numbers"):
            assert sorted(spout.acked) == list(range(100))
            assert spout.failed == []
        assert simulator.total("__emit-count/default") == 400
        assert simulator.total("__execute-count/doubles/default") == 200


def test_emit_returns_the_tasks_that_get_the_tuple() -> None:
    with Simulator(topology()) as simulator:
        told: list[tuple[int, list[int]]] = []
        spout = simulator.component("numbers")[0]
        for number in range(7):
            told.append((number, list(spout.emit([number]))))
        spout.number = Numbers.count
        received: list[tuple[int, list[int]]] = []
        for task, bolt in zip(simulator.plan.component_tasks["doubles"], simulator.component("doubles"), strict=True):
            bolt.process = lambda tup, task=task: received.append((tup["number"], [task]))
        simulator.drain()
        assert sorted(n for n in received if n in told) == told


def test_a_drained_topology_goes_on() -> None:
    with Simulator(topology()) as simulator:
        simulator.step()
        simulator.drain()
        simulator.run(until=lambda: all(len(spout.acked) == 100 for spout in simulator.component("numbers")))


def test_what_is_failed_is_told_to_the_spout() -> None:
    with Simulator(topology(last=Odd)) as simulator:
        simulator.run(until=lambda: all(s.number == 100 for s in simulator.component("numbers")))
        simulator.drain()
        for spout in simulator.component("numbers"):
            assert sorted(spout.failed) == list(range(1, 100, 2))
            assert sorted(spout.acked) == list(range(0, 100, 2))


def test_user_code_runs_in_the_callers_thread_and_sees_its_whole_life() -> None:
    with Simulator(topology()) as simulator:
        spout = simulator.component("numbers")[0]
        assert spout.thread == threading.get_ident()
        assert spout.calls == ["activate"]
        simulator.deactivate()
        simulator.activate()
    assert spout.calls == ["activate", "deactivate", "activate", "deactivate", "close"]


def test_a_deactivated_topology_emits_nothing() -> None:
    with Simulator(topology()) as simulator:
        simulator.deactivate()
        for _ in range(10):
            simulator.step()
        assert [spout.number for spout in simulator.component("numbers")] == [0, 0]


def test_ticks_come_by_the_clock_that_is_given() -> None:
    now_ns = SECOND

    with Simulator(topology(**{"topology.tick.tuple.freq.secs": 10}), clock=lambda: now_ns) as simulator:
        for _ in range(35):
            now_ns += SECOND
            simulator.step()
        assert [bolt.ticks for bolt in simulator.component("sums")] == [3, 3]


def test_user_code_that_raises_ends_the_simulation_with_its_own_error() -> None:
    with pytest.raises(TaskFailed, match=r"process\(\)") as failed, Simulator(topology(last=Broken)) as simulator:
        simulator.run(seconds=10)
    assert isinstance(failed.value.__cause__, ValueError)


def test_with_the_policy_fail_an_error_fails_the_tuple_and_goes_on() -> None:
    with Simulator(topology(last=Broken, **{"topology.exception.policy": "fail"})) as simulator:
        simulator.run(until=lambda: all(len(s.failed) == 100 for s in simulator.component("numbers")), seconds=300)
        assert simulator.total("__exception-count") == 200
        assert all(len(s.failed) == 100 for s in simulator.component("numbers"))


@pytest.mark.parametrize("last", [Sum, Odd])
@pytest.mark.parametrize("added", ["by configuration", "in initialize()"])
def test_hooks_hear_of_everything(last: type[Bolt], added: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Hook.heard = Counter()
    hooks = {"topology.auto.task.hooks": [f"{Hook.__module__}.Hook"]} if added == "by configuration" else {}
    if not hooks:
        for kind in (Numbers, Double, last):
            initialize = kind.initialize

            def with_hook(self: Any, config: Any, context: TopologyContext, initialize: Any = initialize) -> None:
                initialize(self, config, context)
                context.add_task_hook(Hook())

            monkeypatch.setattr(kind, "initialize", with_hook)
    with Simulator(topology(last=last, **hooks)) as simulator:
        simulator.run(until=lambda: all(s.number == 100 for s in simulator.component("numbers")))
        simulator.drain()
    odd = 100 if last is Odd else 0
    assert Hook.heard == Counter(
        prepare=7,
        clean_up=7,
        emit=200 + 200,
        spout_ack=200 - odd,
        bolt_execute=400,
        bolt_ack=400 - odd,
        **({"spout_fail": odd, "bolt_fail": odd} if odd else {}),
    )


class Unheeding(Spout):
    """Has no ack() and no fail() of its own, and adds a hook when it is told to."""

    outputs = ("number",)
    hook_at: ClassVar[int] = -1

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.context, self.number = context, 0

    def next_tuple(self) -> None:
        if self.number == self.hook_at:
            self.context.add_task_hook(Hook())
        if self.number < 100:
            self.emit([self.number], tup_id=self.number)
            self.number += 1


def unheeding(hook_at: int) -> TopologyBuilder:
    Hook.heard, Unheeding.hook_at = Counter(), hook_at
    builder = TopologyBuilder("Unheeding")
    numbers = builder.add_spout("numbers", Unheeding, par=1)
    builder.add_bolt("sums", Sum, par=1, inputs={numbers: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
    return builder


def test_a_hook_hears_of_acks_that_its_spout_does_not_want() -> None:
    with Simulator(unheeding(hook_at=0)) as simulator:
        simulator.run(until=lambda: Hook.heard["spout_ack"] == 100, seconds=300)
        assert Hook.heard == Counter(emit=100, spout_ack=100)


def test_a_hook_that_would_miss_acks_is_refused() -> None:
    with pytest.raises(TaskFailed) as failed, Simulator(unheeding(hook_at=50)) as simulator:
        simulator.run(seconds=300)
    assert "must be added before it emits" in str(failed.value.__cause__)


def test_a_builder_a_class_and_a_message_are_all_topologies() -> None:
    built = topology()
    for form in (built, built.protobuf_topology):
        with Simulator(form) as simulator:
            assert len(simulator.component("doubles")) == 3
