"""The topology of the schedulers' tests: numbers, counted. Two containers, and few resources."""

from __future__ import annotations

import time
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology

MIB = 1024 * 1024


class Numbers(Spout):
    outputs = ["number"]  # noqa: RUF012  # as users write it

    def initialize(self, config: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        self.emit([self.next], tup_id=self.next)
        self.next += 1
        time.sleep(0.001)


class Count(Bolt):
    def initialize(self, config: Any, context: Any) -> None:
        self.count = 0

    def process(self, tup: Any) -> None:
        self.count += 1
        self.ack(tup)


class KitTopology(Topology):
    numbers = Numbers.spec(name="numbers", par=2)
    counts = Count.spec(name="counts", par=2, inputs={numbers: Grouping.fields("number")})
    config = {  # noqa: RUF012  # as users write it
        "topology.container.ram": 600 * MIB,
        "topology.container.cpu": 1.0,
        "topology.container.ram.padding": 200 * MIB,
        "topology.container.cpu.padding": 0.2,
        "topology.tmanager.ram": 200 * MIB,
    }
