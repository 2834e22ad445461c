"""Numbers of a source that gives again what is not acknowledged, counted by key in state; results are files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple

BUCKETS = 50


def numbers_in(paths: Iterable[Path]) -> set[int]:
    """The numbers in files of lines; a line that is being written does not count."""
    return {int(line) for path in paths for line in path.read_text().split("\n")[:-1]}


class Replaying(Spout):
    """Emits its share of the numbers below a goal, in a file; appends what is acked to a file of its own."""

    outputs = ("number", "bucket")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.dir, self.index = Path(config["test.dir"]), context.get_this_task_index()
        self.step = len(context.get_component_tasks("source"))
        acked = numbers_in(self.dir.glob("acked-*"))
        self.next = self.index
        self.known, self.waiting = acked, list[int]()
        self.acks = open(self.dir / f"acked-{self.index}", "a")  # noqa: SIM115  # as long as the process lives
        self.goal = 0

    def next_tuple(self) -> None:
        if not self.waiting and self.next >= self.goal:
            self.goal = int((self.dir / "goal").read_text() or 0)
        if self.waiting:
            number = self.waiting.pop()
        elif self.next < self.goal:
            number, self.next = self.next, self.next + self.step
            if number in self.known:
                return
        else:
            return
        self.emit([number, number % BUCKETS], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        self.acks.write(f"{tup_id}\n")
        self.acks.flush()

    def fail(self, tup_id: Any) -> None:
        self.waiting.append(tup_id)


class Pass(Bolt):
    """Has no state, and something in its queues: it takes its time."""

    outputs = ("number", "bucket")

    def process(self, tup: Tuple) -> None:
        time.sleep(0.002)
        self.emit([tup["number"], tup["bucket"]], anchors=[tup])
        self.ack(tup)


class Seen(Bolt):
    """Has in its state how often each number came; writes that to a file several times a second."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen = context.keyed_state("seen", default=None)
        self.path = Path(config["test.dir"]) / f"seen-{context.get_this_task_index()}.json"

    def process(self, tup: Tuple) -> None:
        counts = dict(self.seen[tup["bucket"]] or {})
        counts[tup["number"]] = counts.get(tup["number"], 0) + 1
        self.seen[tup["bucket"]] = counts
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps([each for counts in dict(self.seen).values() for each in counts.items()]))
        os.replace(temporary, self.path)


def seen_in(directory: Path) -> dict[int, int]:
    """How often each number is in the state of all tasks together, as of their last files."""
    files = [json.loads(path.read_text()) for path in directory.glob("seen-*.json")]
    return {number: count for file in files for number, count in file}


def replaying(directory: Path, par: int = 2) -> type[Topology]:
    """`source` → `middle` → `seen`, in two containers, with a checkpoint every second."""
    builder = TopologyBuilder("replaying")
    source = builder.add_spout("source", Replaying, par)
    middle = builder.add_bolt("middle", Pass, par, {source: Grouping.SHUFFLE})
    ticks = {"topology.tick.tuple.freq.ms": 200}
    builder.add_bolt("seen", Seen, par, {middle: Grouping.fields("bucket")}, config=ticks)
    builder.set_config(
        {
            "topology.stmgrs": 2,
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 1,
            "topology.max.spout.pending": 50,
            "test.dir": str(directory),
        }
    )
    return builder.build()
