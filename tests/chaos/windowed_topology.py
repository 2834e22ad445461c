"""Numbers in windows of event time, and counted by key until a timer fires: both are state.

At each commit a bolt writes to a file what it had been given at that checkpoint, as often as it was.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from counting_topology import Source

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    ITwoPhaseStatefulComponent,
    Timer,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)

WINDOW = 50
"""Numbers in a window."""
EVENT_TIME = {
    "topology.bolts.tuple.timestamp.field.name": "number",
    "topology.bolts.watermark.event.interval.ms": 20,
}


class Windowed(BaseWindowedBolt):
    """Sums of windows, and how often each key was in each window, when a timer at its end fires."""

    outputs = ("what", "value")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.timers = context.timers
        self.counts = context.keyed_state("counts", default=dict)

    def execute(self, window: TupleWindow) -> None:
        numbers = [tup["number"] for tup in window.get()]
        self.emit([f"window {window.get_start_timestamp()}", [len(numbers), sum(numbers)]])

    def process(self, tup: Tuple) -> None:
        end = tup["number"] - tup["number"] % WINDOW + WINDOW
        counts = self.counts[tup["key"]]
        counts[end] = counts.get(end, 0) + 1
        self.timers.event(tup["key"], end)
        super().process(tup)

    def on_timer(self, timer: Timer) -> None:
        count = self.counts[timer.key].pop(timer.at_ms)
        self.emit([f"{timer.key} until {timer.at_ms}", count])


class Collect(Bolt, ITwoPhaseStatefulComponent):
    """Everything that was received."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.file = Path(config["chaos.dir"]) / "collected"
        self.received = context.task_state("received", default=dict)
        self.prepared: dict[int, str] = {}

    def process(self, tup: Tuple) -> None:
        self.received.value.setdefault(tup["what"], []).append(tup["value"])
        self.ack(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        self.prepared[int(checkpoint_id)] = json.dumps(self.received.value)

    def post_save(self, checkpoint_id: str) -> None:
        if (text := self.prepared.get(int(checkpoint_id))) is not None:
            new = self.file.with_suffix(f".{os.getpid()}")
            new.write_text(text)
            new.replace(self.file)
        self.prepared = {id: text for id, text in self.prepared.items() if id > int(checkpoint_id)}


def windowed(name: str, directory: Path) -> type[Any]:
    """`source` → `windowed` → `collect`."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("source", Source, 1)
    bolt = Windowed.with_tumbling_window(Duration(WINDOW))
    windows = builder.add_bolt("windowed", bolt, 1, {source: Grouping.fields("key")}, EVENT_TIME)
    builder.add_bolt("collect", Collect, 1, {windows: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.stmgrs": 1,
            "chaos.dir": str(directory),
        }
    )
    return builder.build()
