"""Numbers from a source that keeps its position, counted by key; the counts are files."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from threading import Lock
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.serializer import PythonSerializer

KEYS = 100
SERIALIZER = "keyed_count_topology.Compressing"


class Numbers(Spout):
    """Emits so many numbers as keys, so many a second; its position is state. One cannot be sent, if told so."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.position = context.task_state("position", default=0)
        self.limit, self.pause_s = int(config["test.numbers"]), 1 / float(config["test.rate"])
        self.unsendable_at = int(config["test.error.at"]) if config.get("test.error") == "unsendable" else -1
        self.next_s = time.monotonic()

    def next_tuple(self) -> None:
        now_s = time.monotonic()
        if self.position.value < self.limit and now_s >= self.next_s:
            self.next_s = max(self.next_s + self.pause_s, now_s - 0.1)
            number = self.position.value
            self.position.value = number + 1
            self.emit([f"key {number % KEYS}", Lock() if number == self.unsendable_at else number])


class Ongoing(Numbers):
    """Emits until the file `finish` appears, and then to the last key; how many those are is in the file `emitted`."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.directory, self.noted = Path(config["test.dir"]), -1

    def next_tuple(self) -> None:
        number = self.position.value
        if number % KEYS or not (self.directory / "finish").exists():
            super().next_tuple()
        elif self.noted != number:
            self.noted = number
            (self.directory / "emitted.tmp").write_text(str(number))
            os.replace(self.directory / "emitted.tmp", self.directory / "emitted")


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Compressing(PythonSerializer):
    """What it has written can be read by nothing else, and is never the same."""

    def serialize(self, obj: Any) -> bytes:
        return os.urandom(8) + zlib.compress(super().serialize(obj), 1)

    def deserialize(self, input_str: bytes) -> Any:
        return super().deserialize(zlib.decompress(input_str[8:]))


class Pass(Bolt):
    """Has no state, and something in its queues. Emits what nobody can read for one number, if told to."""

    outputs = ("key", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        unreadable = config.get("test.error") in ("unreadable", "compressed")
        self.unreadable_at = int(config["test.error.at"]) if unreadable else -1

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        self.emit([tup["key"], Unreadable() if number == self.unreadable_at else number], anchors=[tup])
        self.ack(tup)


class Count(Bolt):
    """Counts keys, slowly if told to, and fails on one number, once or always. Five times a second it writes a file."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)
        self.path = Path(config["test.dir"]) / f"counts-{context.get_this_task_index()}.json"
        self.error, self.error_at = config.get("test.error", ""), int(config.get("test.error.at", -1))
        self.work_s = float(config.get("test.work.s", 0))

    def process(self, tup: Tuple) -> None:
        self.counts[tup["key"]] += 1
        if self.work_s:
            time.sleep(self.work_s)
        if tup["number"] == self.error_at and self.error == "always":
            raise ValueError("an error of user code")
        if tup["number"] == self.error_at and not (flag := self.path.with_name("failed")).exists():
            flag.touch()
            if self.error == "fail":
                self.fail(tup)
                return
            raise ValueError("an error of user code")
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dict(self.counts)))
        os.replace(temporary, self.path)


def counts_in(directory: Path) -> dict[str, int]:
    """What all tasks have counted together."""
    counts: dict[str, int] = {}
    for path in directory.glob("counts-*.json"):
        counts |= json.loads(path.read_text())
    return counts


def keyed_count_topology(
    directory: Path, *, numbers: int = 0, rate: int, counts: int = 2, **config: Any
) -> type[Topology]:
    """`numbers` (1) → `pass` (2) → `count` (2, or as many as `counts`), in two containers.

    Of `numbers` 0 there is no end until the file `finish` is in the directory.
    """
    builder = TopologyBuilder("keyed-count")
    source = builder.add_spout("numbers", Numbers if numbers else Ongoing, 1)
    through = builder.add_bolt("pass", Pass, 2, {source: Grouping.SHUFFLE})
    config_of_count = {"topology.tick.tuple.freq.ms": 200}
    builder.add_bolt("count", Count, counts, {through: Grouping.fields("key")}, config=config_of_count)
    builder.set_config(
        {
            "topology.stmgrs": 2,
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 1,
            "test.dir": str(directory),
            "test.numbers": numbers or 1 << 40,
            "test.rate": rate,
            **({"topology.serializer.classname": SERIALIZER} if config.get("test.error") == "compressed" else {}),
            **config,
        }
    )
    return builder.build()
