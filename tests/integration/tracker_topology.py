"""A topology whose every number is known, for the tests of the Tracker. A module of its own: instances import it."""

from __future__ import annotations

from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyContext, Tuple
from heronpy.api.metrics import CountMetric

NUMBERS = 1000
"""How many numbers each of the two spouts emits."""
BAD = 77
"""The number on which the bolt fails, once for each spout."""


class Numbers(Spout):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = 0
        self.logger.info("it begins: <b>heron & stork</b> ☂")

    def next_tuple(self) -> None:
        if self.next < NUMBERS:
            self.next += 1
            self.emit([self.next], tup_id=self.next)


class Sums(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.even = CountMetric()
        context.register_metric("even", self.even, 1)

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        if number == BAD:
            raise ValueError(f"{number} is a bad number")
        if number % 2 == 0:
            self.even.incr()
        self.ack(tup)


class Tracked(Topology):
    config = {  # noqa: RUF012  # Heron's way to declare
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 600,  # only those fail that are meant to
        "topology.exception.policy": "fail",
        "app.database.password": "swordfish",
        "app.greeting": "hello",
    }
    numbers = Numbers.spec(par=2)
    sums = Sums.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
