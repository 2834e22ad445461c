"""Event time of bolts in a cycle: what comes round holds up no window and no timer."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    GlobalStreamId,
    Grouping,
    Spout,
    Timer,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.testing import Simulator

STEP_NS = 20_000_000


class Times(Spout):
    outputs = ["at"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < 100:
            self.at += 1
            self.emit([self.at])


class Windowed(BaseWindowedBolt):
    """Sends the end of each window to itself."""

    outputs = ["at"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.ends: list[int] = []

    def execute(self, window: TupleWindow) -> None:
        self.ends.append(window.get_end_timestamp())
        self.emit([window.get_end_timestamp()])


class Timed(Bolt):
    """The same with a timer for each ten."""

    outputs = ["at"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.ends: list[int] = []
        self.timers = context.timers

    def process(self, tup: Tuple) -> None:
        self.timers.event(tup["at"] // 10, tup["at"] // 10 * 10 + 10)
        self.ack(tup)

    def on_timer(self, timer: Timer) -> None:
        self.ends.append(timer.at_ms)
        self.emit([timer.at_ms])


@pytest.mark.parametrize("windowed", [True, False], ids=["windows", "timers"])
def test_what_comes_round_is_not_waited_for(windowed: bool) -> None:
    builder = TopologyBuilder("cycle")
    builder.add_spout("times", Times, 1)
    bolt = Windowed.with_tumbling_window(Duration(10)) if windowed else Timed
    inputs = {GlobalStreamId(name, "default"): Grouping.SHUFFLE for name in ("times", "round")}
    time = {
        "topology.bolts.tuple.timestamp.field.name": "at",
        "topology.bolts.watermark.event.interval.ms": 20,
        "topology.bolts.watermark.idle.after.ms": 3_600_000,
    }
    builder.add_bolt("round", bolt, 1, inputs, time)
    now_ns = 1_000_000_000
    with Simulator(builder, clock=lambda: now_ns) as simulator:
        for _ in range(200):
            now_ns += STEP_NS
            simulator.step()
        (one,) = simulator.component("round")
        assert one.ends[:9] == [10, 20, 30, 40, 50, 60, 70, 80, 90]
