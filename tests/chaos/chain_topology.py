"""The topology of the chaos tests: numbers go through two bolts, and every deed is on record.

The records are files that are appended to by one system call each, so a `kill -9` of the writer loses none of them. The
spout's own record is its position: a new life of it continues with what was not acked.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

GOAL_LOOK_S = 0.02
RATE_PER_S = 250


class Record:
    """Append-only lines."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())


class Source(Spout):
    """Emits its share of the numbers below the one in the file `goal`, at a steady pace, again what failed."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.dir = Path(config["chaos.dir"])
        task = context.get_task_id()
        tasks = context.get_component_tasks(context.get_component_id()) or []
        self.number, self.stride = context.get_this_task_index(), len(tasks)
        position = self.dir / f"acked-{task}"
        self.acked = set(map(int, position.read_text().split())) if position.exists() else set()
        self.record = Record(position)
        self.replays: deque[int] = deque()
        self.goal = 0
        self.look_at = self.emit_at = 0.0

    def next_tuple(self) -> None:
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + GOAL_LOOK_S
            self.goal = int((self.dir / "goal").read_text())
        if now < self.emit_at:
            return
        number = self.replays.popleft() if self.replays else self.fresh()
        if number is not None:
            self.emit_at = max(self.emit_at + 1 / RATE_PER_S, now - 0.1)
            self.emit([number], tup_id=number)

    def fresh(self) -> int | None:
        while self.number < self.goal:
            number = self.number
            self.number += self.stride
            if number not in self.acked:
                return number
        return None

    def ack(self, tup_id: Any) -> None:
        self.acked.add(tup_id)
        self.record.add(str(tup_id))

    def fail(self, tup_id: Any) -> None:
        self.replays.append(tup_id)


class Middle(Bolt):
    """Passes numbers on, anchored."""

    outputs = ("number",)

    def process(self, tup: Tuple) -> None:
        self.emit([tup["number"]], anchors=[tup])
        self.ack(tup)


class Last(Bolt):
    """Writes down what it executed, and when."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.record = Record(Path(config["chaos.dir"]) / f"executed-{context.get_task_id()}")

    def process(self, tup: Tuple) -> None:
        self.record.add(f"{tup['number']} {time.monotonic()}")
        self.ack(tup)


def chain(name: str, records: Path, *, par: int, containers: int) -> TopologyBuilder:
    """Source, middle and last, each with `par` tasks, and at least once."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("source", Source, par)
    middle = builder.add_bolt("middle", Middle, par, {source: Grouping.SHUFFLE})
    builder.add_bolt("last", Last, par, {middle: Grouping.fields("number")})
    builder.set_config(
        {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 3,
            # So few that they are done in time on a slow machine: else all would be replayed again and again.
            "topology.max.spout.pending": 100,
            "topology.stmgrs": containers,
            "chaos.dir": str(records),
        }
    )
    return builder
