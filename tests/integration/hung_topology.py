"""Components that hang. A module of its own, because every instance imports it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from failures_topology import Tries, note

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple

HANGS = 3
"""The number with which the bolt hangs, once."""


class Endless(Bolt):
    """Hangs once, in a loop that never ends."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory = Path(config["test.dir"])

    def process(self, tup: Tuple) -> None:
        if tup["number"] == HANGS and not (self.directory / "hung").exists():
            (self.directory / "hung").touch()
            self.wait_for_what_never_comes()
        self.ack(tup)

    def wait_for_what_never_comes(self) -> None:
        while True:
            pass


class Slow(Bolt):
    """Takes long for the first tuple, within its own limit, and a little for each of the others."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory, self.first_s = Path(config["test.dir"]), config["test.first.seconds"]

    def process(self, tup: Tuple) -> None:
        time.sleep(self.first_s if tup["number"] == 0 else 0.2)
        note(self.directory, f"executed {tup['number']}")
        self.ack(tup)


def hanging(directory: Path, bolt: type[Bolt], *, count: int, limit_s: float, first_s: float = 0) -> TopologyBuilder:
    """One container: a spout that tries again, and a bolt."""
    builder = TopologyBuilder("hanging")
    tries = builder.add_spout("tries", Tries, 1)
    own = {"topology.component.task.timeout.secs": limit_s}
    builder.add_bolt("bolt", bolt, 1, {tries: Grouping.SHUFFLE}, config=own)
    builder.set_config(
        {
            "topology.stmgrs": 1,
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 60,
            "test.dir": str(directory),
            "test.count": count,
            "test.first.seconds": first_s,
        }
    )
    return builder
