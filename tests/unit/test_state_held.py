"""Mutable values of a component's own state, which it holds and changes without reading them again."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.state import IStatefulComponent
from heronpy.testing import Simulator


class Numbers(Spout):
    outputs = ("number",)
    limit = 0

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.position = context.task_state("position", default=0)

    def next_tuple(self) -> None:
        if (number := self.position.value) < Numbers.limit:
            self.position.value = number + 1
            self.emit([number])


class InComponentState(Bolt, IStatefulComponent):
    """As Heron's documentation has it."""

    def init_state(self, state: Any) -> None:
        self.counts = state.get("counts")
        if self.counts is None:
            self.counts = {}
            state.put("counts", self.counts)

    def process(self, tup: Tuple) -> None:
        self.counts[tup["number"] % 3] = self.counts.get(tup["number"] % 3, 0) + 1


class InTaskState(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.task_state("counts", default=dict).value

    def process(self, tup: Tuple) -> None:
        self.counts[tup["number"] % 3] = self.counts.get(tup["number"] % 3, 0) + 1


@pytest.mark.parametrize("bolt", [InComponentState, InTaskState])
def test_what_a_component_holds_is_saved_as_it_is_at_each_marker(bolt: type[Bolt]) -> None:
    builder = TopologyBuilder("held")
    numbers = builder.add_spout("numbers", Numbers, 1)
    builder.add_bolt("counting", bolt, 1, {numbers: Grouping.fields("number")})
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    Numbers.limit = 0
    with Simulator(builder) as simulator:
        simulator.activate()
        for _ in range(3):
            for _ in range(3):  # the first has it because it was read, or put, since the restore
                Numbers.limit += 200
                simulator.run(seconds=0.3)
                simulator.checkpoint()
            Numbers.limit += 100
            simulator.run(seconds=0.2)
            simulator.restore()
            simulator.activate()
            (counting,) = simulator.component("counting")
            (spout,) = simulator.component("numbers")
            assert sum(counting.counts.values()) == spout.position.value > 0
        simulator.run(seconds=0.4)
        assert sum(simulator.component("counting")[0].counts.values()) == Numbers.limit
