"""Numbers that are counted by key, effectively once: each spout's position and all counts are state.

Nobody keeps a record of his own, so what is counted twice or not at all shows. At each commit a bolt writes what it had
counted at that checkpoint to a file; the spout's share of the goal is in a file, too, so that a test can raise it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.state import ITwoPhaseStatefulComponent, State

KEYS = 97
RATE_PER_S = 300
GOAL_LOOK_S = 0.05


class Source(Spout):
    """Emits its share of the numbers below the goal; where it is, is state."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.goal_file = Path(config["chaos.dir"]) / "goal"
        self.stride = len(context.get_component_tasks(context.get_component_id()) or [])
        self.position = context.task_state("position", default=context.get_this_task_index())
        self.goal = 0
        self.look_at = self.emit_at = 0.0

    def next_tuple(self) -> None:
        now = time.monotonic()
        if now >= self.look_at:
            self.look_at = now + GOAL_LOOK_S
            self.goal = int(self.goal_file.read_text())
        number = self.position.value
        if number < self.goal and now >= self.emit_at:
            self.emit_at = max(self.emit_at + 1 / RATE_PER_S, now - 0.05)
            self.position.value = number + self.stride
            self.emit([f"key-{number % KEYS}", number])


class Middle(Bolt):
    """Passes them on."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.crossings = context.register_counter("passed")

    def process(self, tup: Tuple) -> None:
        self.crossings.incr()
        self.emit(tup.values)


class Count(Bolt, ITwoPhaseStatefulComponent):
    """Counts numbers by key."""

    def init_state(self, state: State) -> None:
        self.own = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        tasks = len(context.get_component_tasks(context.get_component_id()) or [])
        self.file = Path(config["chaos.dir"]) / f"committed-{context.get_this_task_index()}-of-{tasks}"
        self.counts = context.keyed_state("counts", default=0)
        self.prepared: dict[str, dict[str, int]] = {}

    def process(self, tup: Tuple) -> None:
        self.counts[tup.values[0]] += 1
        self.ack(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        self.prepared[checkpoint_id] = dict(self.counts)

    def post_save(self, checkpoint_id: str) -> None:
        committed = {int(id): counts for id, counts in self.prepared.items() if int(id) <= int(checkpoint_id)}
        if committed:
            newest = max(committed)
            new = self.file.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps({"checkpoint": newest, "counts": committed[newest]}))
            new.replace(self.file)
        self.prepared = {id: counts for id, counts in self.prepared.items() if int(id) > int(checkpoint_id)}


def counting(name: str, directory: Path, *, par: int = 2, containers: int = 2, interval_s: float = 0.5) -> type[Any]:
    """`source` → `middle` (shuffle) → `count` (fields), `par` tasks each."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("source", Source, par)
    middle = builder.add_bolt("middle", Middle, par, {source: Grouping.SHUFFLE})
    builder.add_bolt("count", Count, par, {middle: Grouping.fields("key")})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": interval_s,
            "topology.stmgrs": containers,
            "chaos.dir": str(directory),
        }
    )
    return builder.build()
