"""Small topologies for the tests of the cluster. A module of its own, because every instance imports it."""

from __future__ import annotations

from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyContext, Tuple


class NumberSpout(Spout):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < 1000:  # enough to see; the machine is also needed for the other tests
            self.next += 1
            self.emit([self.next])


class SumBolt(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.sum = 0

    def process(self, tup: Tuple) -> None:
        self.sum += tup.values[0]


class BrokenBolt(SumBolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        raise RuntimeError("the database is not there")


class Numbers(Topology):
    config = {"topology.stmgrs": 2}  # noqa: RUF012  # Heron's way to declare
    numbers = NumberSpout.spec(par=2)
    sums = SumBolt.spec(par=2, inputs={numbers: Grouping.SHUFFLE})


class Small(Topology):
    """In one container: half of the processes."""

    config = {"topology.stmgrs": 1}  # noqa: RUF012  # Heron's way to declare
    numbers = NumberSpout.spec()
    sums = SumBolt.spec(inputs={numbers: Grouping.SHUFFLE})


class Apart(Topology):
    """In two containers, with few processes."""

    config = {"topology.stmgrs": 2}  # noqa: RUF012  # Heron's way to declare
    numbers = NumberSpout.spec()
    sums = SumBolt.spec(inputs={numbers: Grouping.SHUFFLE})


class Many(Topology):
    config = {"topology.stmgrs": 3}  # noqa: RUF012  # Heron's way to declare
    numbers = NumberSpout.spec(par=4)
    sums = SumBolt.spec(par=6, inputs={numbers: Grouping.SHUFFLE})


class Broken(Topology):
    numbers = NumberSpout.spec()
    broken = BrokenBolt.spec(inputs={numbers: Grouping.SHUFFLE})
