"""A topology with metrics of its own. A module of its own, because every instance imports it."""

from __future__ import annotations

from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyContext, Tuple

TUPLES = 1000


class Numbers(Spout):
    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < TUPLES:
            self.next += 1
            self.emit([self.next], tup_id=self.next)


class Looking(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen = context.register_counter("seen", 1)
        self.lookups = context.register_timer("lookup", 1)
        self.sizes = context.register_histogram("size", 1)

    def process(self, tup: Tuple) -> None:
        self.seen.incr()
        self.sizes.update(tup.values[0])
        with self.lookups.time():
            self.ack(tup)


class Measured(Topology):
    config = {  # noqa: RUF012  # Heron's way to declare
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 600,  # all are acked, on a machine that is late too
        "topology.stmgrs": 2,
    }
    numbers = Numbers.spec(par=1)
    looking = Looking.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
