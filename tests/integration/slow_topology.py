"""Spouts without a limit, and a bolt that needs a millisecond for a tuple. Every instance imports this module."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.metrics import CountMetric

SLEEP_S = 0.001


class Flood(Spout):
    """Emits numbered tuples as fast as it is let, until a file appears; then about 700 a second."""

    outputs = ("number", "payload")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0
        self.words = int(config["test.payload.bytes"]) // 8
        self.released = Path(config["test.released"])
        self.paced = self.released.exists()

    def next_tuple(self) -> None:
        if self.number % 100 == 0:
            self.paced = self.released.exists()
        if self.paced:
            time.sleep(SLEEP_S)
        # A payload of its own for each tuple: an object that is emitted again and again travels once for a batch.
        self.emit([self.number, self.number.to_bytes(8, "little") * self.words], tup_id=self.number)
        self.number += 1


class Slow(Bolt):
    """Sleeps for each tuple, until a file appears; counts what is missing in each sender's sequence."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next: dict[int, int] = {}
        self.released = Path(config["test.released"])
        self.fast = self.released.exists()
        self.missing = CountMetric()
        context.register_metric("missing", self.missing, 1)

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        if number != self.next.setdefault(tup.task, number):
            self.missing.incr(abs(number - self.next[tup.task]))
        self.next[tup.task] = number + 1
        if not self.fast:
            time.sleep(SLEEP_S)
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.fast = self.released.exists()


class Bystander(Flood):
    """Has nothing to do with the slow bolt, a modest pace and small tuples: no flood, however late they are taken."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.words = 1

    def next_tuple(self) -> None:
        super().next_tuple()
        time.sleep(5 * SLEEP_S)


class Quick(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        pass

    def process(self, tup: Tuple) -> None:
        self.ack(tup)


def slow_topology(released: Path, *, payload_bytes: int, **config: Any) -> type[Topology]:
    """`flood` → `slow` in container 1, `bystander` → `quick` in container 2. `slow` hurries once `released` exists."""
    builder = TopologyBuilder("slow")
    flood = builder.add_spout("flood", Flood, 1)
    bystander = builder.add_spout("bystander", Bystander, 1)
    builder.add_bolt("slow", Slow, 1, {flood: Grouping.SHUFFLE}, config={"topology.tick.tuple.freq.ms": 100})
    builder.add_bolt("quick", Quick, 1, {bystander: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.stmgrs": 2,
            "test.payload.bytes": payload_bytes,
            "test.released": str(released),
            **config,
        }
    )
    return builder.build()
