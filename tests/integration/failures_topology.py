"""Components for the tests of failures: what they do is told by their configuration, what they did is in files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

LINE_BYTES = 20_000


class Files(Spout):
    """Emits the numbers below test.count."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number, self.count = 0, config["test.count"]

    def next_tuple(self) -> None:
        if self.number < self.count:
            self.number += 1
            self.emit([self.number])


class Split(Bolt):
    """Makes many large tuples of one, in no time."""

    outputs = ("number", "line")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.each = config["test.each"]

    def process(self, tup: Tuple) -> None:
        for number in range(self.each):
            self.emit([number, bytes(LINE_BYTES)])
        self.ack(tup)


class Parse(Bolt):
    """Makes ten tuples of one, slowly."""

    outputs = ("number", "line")

    def process(self, tup: Tuple) -> None:
        time.sleep(0.001)
        for _ in range(10):
            self.emit([tup["number"], bytes(LINE_BYTES)])
        self.ack(tup)


class Count(Bolt):
    """Counts what arrives, in a file whose size is the count."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        path = Path(config["test.dir"]) / f"count-{context.get_task_id()}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def process(self, tup: Tuple) -> None:
        os.write(self.file, b".")
        self.ack(tup)


def amplifying(directory: Path, *, count: int, each: int) -> TopologyBuilder:
    """Two containers, every component in both; far more tuples in flight than the outboxes take."""
    builder = TopologyBuilder("amplifying")
    files = builder.add_spout("files", Files, 2)
    split = builder.add_bolt("split", Split, 2, {files: Grouping.SHUFFLE})
    parse = builder.add_bolt("parse", Parse, 2, {split: Grouping.SHUFFLE})
    builder.add_bolt("count", Count, 2, {parse: Grouping.SHUFFLE})
    config = {"topology.stmgrs": 2, "test.dir": str(directory), "test.count": count, "test.each": each}
    builder.set_config(config)
    return builder
