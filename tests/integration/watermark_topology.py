"""A program whose watermarks are checked against its elements, by bolts that read the streams its windows read."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.component import GlobalStreamId
from heronpy.connectors import Record, Source, SourceContext, SourceReader
from heronpy.streamlet import Builder, Config, WindowConfig
from heronpy.streamlet.parts import plan_stages
from heronpy.windows import END

CHECKED = ("numbers", "shuffled")
"""A spout that sends watermarks, and a bolt that passes them on."""
CHECKERS = 3


class Times(Source):
    """Elements at these times, divided among tasks in turn: each task gets times that are out of order by a bound."""

    timed = True

    def __init__(self, times_ms: Sequence[int], at_a_time: int) -> None:
        self.times_ms = times_ms
        self.at_a_time = at_a_time

    def open(self, context: SourceContext) -> SourceReader:
        return TimesReader(self.times_ms[context.task_index :: context.num_tasks], self.at_a_time)


class TimesReader(SourceReader):
    def __init__(self, times_ms: Sequence[int], at_a_time: int) -> None:
        self.times_ms = times_ms
        self.at_a_time = at_a_time
        self.at = 0

    def read(self, limit: int) -> Sequence[Record]:
        found = self.times_ms[self.at : self.at + min(limit, self.at_a_time)]
        self.at += len(found)
        return [Record(time_ms, time_ms, "") for time_ms in found]

    @property
    def ended(self) -> bool:
        return self.at == len(self.times_ms)


class Checker(Bolt):
    """Counts elements, watermarks, and elements that came after a watermark that was later than they are."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.marks: dict[int, int] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.worst: list[Any] = []
        self.path = Path(config["records"]) / f"{context.get_task_id()}-{os.getpid()}" if config["records"] else None

    def process(self, tup: Tuple) -> None:
        task = tup.task
        self.counts["all"] += 1
        time_ms = tup.values[-1]
        self.counts[tup.component] += 1
        if time_ms < self.marks.get(task, time_ms):
            self.counts["overtaken"] += 1
            self.worst = [tup.component, task, time_ms, self.marks[task]]
        self.ack(tup)

    def receive_watermark(self, task: int, watermark: int) -> None:
        self.counts["watermarks"] += watermark != END
        self.marks[task] = watermark

    def process_tick(self, tup: Tuple) -> None:
        if self.path is not None:
            part = self.path.with_name(f".{self.path.name}")
            part.write_text(json.dumps({**self.counts, "worst": self.worst}))
            part.replace(self.path)


def checked(
    times_ms: Sequence[int], *, lateness_ms: int, at_a_time: int = 256, tasks: int = 2, records: str = "", acked: bool
) -> TopologyBuilder:
    """Windowed counts of elements, and bolts beside the windows that check what comes to them."""
    builder = Builder()
    numbers = builder.new_source(Times(times_ms, at_a_time)).set_num_partitions(tasks).set_name("numbers")
    shuffled = numbers.repartition(3).set_name("shuffled").map(lambda n: (n % 7, 1))
    window = WindowConfig(1, 1)
    shuffled.reduce_by_key_and_window(window, lambda a, b: a + b).set_name("sums")
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE if acked else Config.ATMOST_ONCE)
    config.set_num_containers(2)
    config.set_max_lateness(lateness_ms / 1000)
    config.set_idle_timeout(300)
    config.set_user_config("topology.message.timeout.secs", 300)
    config.set_user_config("topology.max.spout.pending", 4000)  # a watermark after every 500 records
    topology = TopologyBuilder("watermarks")
    builder.build(topology, config)
    inputs: dict[GlobalStreamId, Any] = {}
    for stage in plan_stages(builder.graph):
        if stage.name in CHECKED:
            inputs.update({GlobalStreamId(stage.name, exit.stream): Grouping.SHUFFLE for exit in stage.exits})
    topology.add_bolt("checker", Checker, CHECKERS, inputs, {"records": records, "topology.tick.tuple.freq.ms": 100})
    return topology
