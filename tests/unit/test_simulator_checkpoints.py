"""Checkpoints in the simulator: whatever is restored when, every tuple counts once."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.config import InstanceConfig
from heronpy.connectors import JsonLinesSink, ListSource, SinkBolt, SourceSpout
from heronpy.errors import CheckpointError, TupleError
from heronpy.testing import Simulator

NUMBERS = 60
KEYS = 7


class Numbers(Spout):
    outputs = ["number"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.position = context.task_state("position", default=0)

    def next_tuple(self) -> None:
        if self.position.value < NUMBERS:
            self.emit([self.position.value])
            self.position.value += 1


class Count(Bolt):
    outputs = ["key"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)
        self.fails = bool(config.get("fails")) and context.restore_epoch == 1
        self.epoch = context.restore_epoch

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        if self.fails and number == NUMBERS // 2:
            self.fail(tup)
        else:
            self.counts[number] += 1
            self.emit([number % KEYS])


class CountKeys(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        self.counts[tup["key"]] += 1


def counting(**config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("counting")
    numbers = builder.add_spout("numbers", Numbers, 1)
    count = builder.add_bolt("count", Count, 2, {numbers: Grouping.fields("number")})
    builder.add_bolt("keys", CountKeys, 2, {count: Grouping.fields("key")})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", **config})
    return builder


def counts(simulator: Simulator, component: str) -> Counter[int]:
    return Counter({key: n for bolt in simulator.component(component) for key, n in bolt.counts.items()})


def check_exact(simulator: Simulator) -> None:
    assert counts(simulator, "count") == dict.fromkeys(range(NUMBERS), 1)
    assert counts(simulator, "keys") == Counter(n % KEYS for n in range(NUMBERS))


STEPS = st.lists(st.sampled_from(["step", "step", "checkpoint", "abort", "unheard", "restore", "kill"]), max_size=40)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_counts_are_exact_whatever_is_restored_between_two_steps(steps: list[str]) -> None:
    with Simulator(counting()) as simulator:
        do: dict[str, Callable[[], object]] = {
            "step": simulator.step,
            "checkpoint": simulator.checkpoint,
            "abort": lambda: simulator.checkpoint(commit=False),
            "unheard": lambda: simulator.checkpoint(tell=False),
            "restore": simulator.restore,
            "kill": lambda: simulator.restore(kill=True),
        }
        for step in steps:
            do[step]()
        simulator.run(until=lambda: counts(simulator, "keys").total() >= NUMBERS, seconds=300)
        check_exact(simulator)


class HandedOver(Bolt):
    """Its threads emit and ack; those of an object that was replaced go on until they are told so."""

    outputs = ["number"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.todo: queue.SimpleQueue[Tuple] = queue.SimpleQueue()
        for _ in range(3):
            threading.Thread(target=self._work, daemon=True).start()

    def process(self, tup: Tuple) -> None:
        self.todo.put(tup)

    def _work(self) -> None:
        with contextlib.suppress(TupleError):
            while True:
                tup = self.todo.get()
                self.emit([tup["number"]], anchors=[tup])
                self.ack(tup)


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.sampled_from(["step", "step", "checkpoint", "abort", "restore"]), max_size=30))
def test_counts_are_exact_though_threads_emit_while_tasks_are_restored(steps: list[str]) -> None:
    builder = TopologyBuilder("counting")
    numbers = builder.add_spout("numbers", Numbers, 1)
    handed = builder.add_bolt("handed", HandedOver, 2, {numbers: Grouping.SHUFFLE})
    count = builder.add_bolt("count", Count, 2, {handed: Grouping.fields("number")})
    builder.add_bolt("keys", CountKeys, 2, {count: Grouping.fields("key")})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    with Simulator(builder, config=InstanceConfig(batch_tuples=2)) as simulator:
        do: dict[str, Callable[[], object]] = {
            "step": simulator.step,
            "checkpoint": simulator.checkpoint,
            "abort": lambda: simulator.checkpoint(commit=False),
            "restore": simulator.restore,
        }
        for step in steps:
            do[step]()
        simulator.run(until=lambda: counts(simulator, "keys").total() >= NUMBERS, seconds=300)
        simulator.checkpoint()  # which all that is handed over must be settled for
        check_exact(simulator)


def test_a_tuple_that_fails_restores_all_tasks() -> None:
    with Simulator(counting(fails=True)) as simulator:
        simulator.run(until=lambda: counts(simulator, "keys").total() >= NUMBERS, seconds=300)
        check_exact(simulator)
        assert {bolt.epoch for bolt in simulator.component("count")} == {2}


def test_a_value_that_cannot_be_saved_fails_the_checkpoint_and_nothing_else() -> None:
    with Simulator(counting()) as simulator:
        simulator.run(until=lambda: counts(simulator, "keys").total() >= NUMBERS, seconds=300)
        bolt = next(bolt for bolt in simulator.component("count") if 0 in bolt.counts)
        bolt.counts[0] = threading.Lock()
        with pytest.raises(CheckpointError, match=r"'count', state 'counts': the value of key 0"):
            simulator.checkpoint()
        bolt.counts[0] = 1
        simulator.checkpoint()
        simulator.restore()
        check_exact(simulator)


def test_what_a_sink_has_written_becomes_visible_at_the_interval_and_at_the_end(tmp_path: Path) -> None:
    builder = TopologyBuilder("copying")
    source = builder.add_spout("source", SourceSpout(ListSource(range(NUMBERS))), 1)
    builder.add_bolt("sink", SinkBolt(JsonLinesSink(tmp_path), field="value"), 1, {source: Grouping.SHUFFLE})
    interval = {"topology.stateful.checkpoint.interval.seconds": 0.05}
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", **interval})

    def written() -> list[int]:
        files = tmp_path.glob("part-*.jsonl")
        return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())

    with Simulator(builder) as simulator:
        simulator.step()
        assert written() == []
        simulator.run(until=lambda: len(written()) == NUMBERS, seconds=300)
    assert written() == list(range(NUMBERS))
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    with Simulator(builder) as simulator:
        simulator.step()
        assert written() == list(range(NUMBERS))
    assert written() == [0, *range(NUMBERS)]
