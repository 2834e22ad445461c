"""A topology where everything that dashboards show happens, a known number of times. Every instance imports it."""

from __future__ import annotations

from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyContext, Tuple

NUMBERS = 1000
"""How many numbers each of the two spouts emits."""
BAD, FORGOTTEN = 77, 78
"""The bolt fails on the first, and never acks the second; once for each spout."""


class Numbers(Spout):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < NUMBERS:
            self.next += 1
            self.emit([self.next], tup_id=self.next)


class Doubled(Bolt):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        pass

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        if number == BAD:
            raise ValueError(f"{number} is a bad number")
        self.emit([2 * number], anchors=[tup])
        if number != FORGOTTEN:
            self.ack(tup)


class Last(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        pass

    def process(self, tup: Tuple) -> None:
        self.ack(tup)


class Watched(Topology):
    config = {  # noqa: RUF012  # Heron's way to declare
        "topology.stmgrs": 2,
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.exception.policy": "fail",
        "topology.message.timeout.secs": 5,
    }
    numbers = Numbers.spec(par=2)
    doubled = Doubled.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
    last = Last.spec(par=2, inputs={doubled: Grouping.SHUFFLE})
