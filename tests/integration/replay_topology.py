"""A source that replays what fails, and a bolt that is slow, so that it always has something before it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.metrics import CountMetric

PENDING_MAX = 3000


class Replaying(Spout):
    """Emits numbers until the file `finish` appears, each until it is acked."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.finish = Path(config["test.dir"]) / "finish"
        self.next, self.waiting = 0, list[int]()
        self.emitted, self.acked, self.failed = CountMetric(), CountMetric(), CountMetric()
        context.register_metric("emitted", self.emitted, 1)
        context.register_metric("acked", self.acked, 1)
        context.register_metric("failed", self.failed, 1)

    def next_tuple(self) -> None:
        if self.waiting:
            number = self.waiting.pop()
            self.emit([number], tup_id=number)
        elif not self.finish.exists():
            self.emit([self.next], tup_id=self.next)
            self.next += 1
            self.emitted.incr()

    def ack(self, tup_id: Any) -> None:
        self.acked.incr()

    def fail(self, tup_id: Any) -> None:
        self.failed.incr()
        self.waiting.append(tup_id)


class Slow(Bolt):
    """Needs a millisecond for a tuple."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        pass

    def process(self, tup: Tuple) -> None:
        time.sleep(0.001)
        self.ack(tup)


def replay_topology(directory: Path, **config: Any) -> type[Topology]:
    """`numbers` in container 1 → `slow` in container 2."""
    builder = TopologyBuilder("replay")
    source = builder.add_spout("numbers", Replaying, 1)
    builder.add_bolt("slow", Slow, 1, {source: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.stmgrs": 2,
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.max.spout.pending": PENDING_MAX,
            "topology.message.timeout.secs": 600,
            "test.dir": str(directory),
            **config,
        }
    )
    return builder.build()
