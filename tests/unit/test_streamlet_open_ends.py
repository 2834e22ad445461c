"""Streamlets that nothing reads: a builder of the user's own may add components that do, as in Heron."""

from __future__ import annotations

import itertools

import pytest

from heronpy.api import Bolt, Grouping, TopologyBuilder
from heronpy.api.component import GlobalStreamId
from heronpy.api.tuple import Tuple
from heronpy.streamlet import Builder, Config
from heronpy.testing import Simulator


class Reads(Bolt):
    def initialize(self, config: object, context: object) -> None:
        self.seen: list[int] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup["element"])
        self.ack(tup)


class Aggregating(TopologyBuilder):
    """Attaches a bolt to the end of a program."""


def program(topology: TopologyBuilder) -> TopologyBuilder:
    builder = Builder()
    counted = itertools.count()
    builder.new_source(lambda: next(counted)).set_name("numbers").repartition(2).map(lambda n: 2 * n).set_name("ends")
    builder.build(topology, Config())
    return topology


@pytest.mark.parametrize("own", [True, False])
def test_what_a_program_leaves_over_can_be_read_through_a_builder_of_the_users_own(own: bool) -> None:
    topology = program(Aggregating("left") if own else TopologyBuilder("left"))
    last = [name for name in topology._specs if name != "numbers"][-1]
    outputs = topology._specs[last].outputs or []
    assert bool(outputs) == own
    if not own:
        return
    topology.add_bolt("reads", Reads, 1, {GlobalStreamId(last, "default"): Grouping.SHUFFLE})
    with Simulator(topology) as simulator:
        (reads,) = simulator.component("reads")
        simulator.run(until=lambda: len(reads.seen) >= 50, seconds=300)
    assert sorted(reads.seen)[:20] == list(range(0, 40, 2))
