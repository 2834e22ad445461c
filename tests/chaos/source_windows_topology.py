"""Numbers of a source in windows by its watermarks, at least once with checkpoints.

At each commit a bolt writes to a file what was in which window, as of that checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from heronpy.api import (
    BaseWindowedBolt,
    Bolt,
    Duration,
    Grouping,
    ITwoPhaseStatefulComponent,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    TupleWindow,
)
from heronpy.connectors import Record, Source, SourceContext, SourceReader, SourceSpout

WINDOW, NUMBERS = 50, 1500
PER_SECOND = 200


class Numbers(SourceReader):
    """Numbers, whose event times are milliseconds; so many a second."""

    def __init__(self) -> None:
        self._next, self._began_s = 0, time.monotonic()

    def read(self, limit: int) -> list[Record]:
        due = min(NUMBERS, int((time.monotonic() - self._began_s) * PER_SECOND), self._next + limit)
        records = [Record(n, n, str(n)) for n in range(self._next, due)]
        self._next = max(due, self._next)
        return records


class Paced(Source):
    timed = True

    def open(self, context: SourceContext) -> SourceReader:
        return Numbers()


class Windows(BaseWindowedBolt):
    outputs = ("start", "numbers")

    def execute(self, window: TupleWindow) -> None:
        self.emit([window.get_start_timestamp(), [tup["value"] for tup in window.get()]])


class Collect(Bolt, ITwoPhaseStatefulComponent):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.file = Path(config["test.dir"]) / "collected"
        self.received = context.task_state("received", default=dict)
        self.prepared: dict[int, str] = {}

    def process(self, tup: Tuple) -> None:
        self.received.value.setdefault(str(tup["start"]), []).extend(tup["numbers"])
        self.ack(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        self.prepared[int(checkpoint_id)] = json.dumps(self.received.value)

    def post_save(self, checkpoint_id: str) -> None:
        if (text := self.prepared.pop(int(checkpoint_id), None)) is not None:
            new = self.file.with_suffix(f".{os.getpid()}")
            new.write_text(text)
            new.replace(self.file)


def source_windows(directory: Path) -> type[Any]:
    """`source` → `windows` → `collect`; the watermark is asked for by nobody but the windows."""
    builder = TopologyBuilder("source-windows")
    source = builder.add_spout("source", SourceSpout(Paced()), 1)
    bolt = Windows.with_tumbling_window(Duration(WINDOW)).with_timestamp_field("time_ms")
    config = {"topology.bolts.watermark.event.interval.ms": 20}
    windows = builder.add_bolt("windows", bolt, 1, {source: Grouping.SHUFFLE}, config)
    builder.add_bolt("collect", Collect, 1, {windows: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.stmgrs": 1,
            "test.dir": str(directory),
        }
    )
    return builder.build()
