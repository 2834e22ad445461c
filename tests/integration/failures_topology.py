"""Components for the tests of failures: what they do is told by their configuration, what they did is in files."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors import JsonLinesSink, ListSource, SinkBolt, SourceSpout

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


class Tries(Spout):
    """Emits the numbers below test.count, each again until it is acked; notes what became of each."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory = Path(config["test.dir"])
        self.left = deque(range(config["test.count"]))
        if config.get("test.block") == "spout initialize":
            block(self.directory)

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.popleft()
            self.emit([number], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        note(self.directory, f"acked {tup_id}")

    def fail(self, tup_id: Any) -> None:
        note(self.directory, f"failed {tup_id}")
        self.left.append(tup_id)


class Wild(Bolt):
    """Ends itself, or never ends, in every way that Python has; each way once, by the number in hand."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory = Path(config["test.dir"])
        self.block = config.get("test.block")
        if self.block == "initialize":
            block(self.directory)
        tried = self.directory / "tried-initialize"
        if config.get("test.exit") and not tried.exists():
            tried.touch()
            sys.exit(0)

    def process(self, tup: Tuple) -> None:
        if self.block == "process":
            block(self.directory)
        way = WAYS.get(tup["number"])
        if way is not None and not (self.directory / f"tried-{tup['number']}").exists():
            (self.directory / f"tried-{tup['number']}").touch()
            way()
        self.ack(tup)

    def cleanup(self) -> None:
        if self.block == "cleanup":
            block(self.directory)


def _raise() -> None:
    raise ValueError("a wrong value")


def exit_hard() -> None:
    """Die without a word, like an extension module that crashes."""
    os._exit(7)


def _interrupt() -> None:
    raise KeyboardInterrupt


WAYS = {
    2: _raise,
    4: lambda: sys.exit(0),
    6: lambda: sys.exit("this was wrong"),
    8: _interrupt,
    10: exit_hard,
}


def note(directory: Path, line: str) -> None:
    """Append to the file of notes, by one system call."""
    fd = os.open(directory / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def block(directory: Path) -> None:
    """Never return."""
    note(directory, f"blocks {os.getpid()}")
    while True:
        time.sleep(3600)


def wild(
    directory: Path, *, count: int, block: str = "", policy: str = "restart", exits: bool = False
) -> TopologyBuilder:
    """One container: a spout that tries again, and a bolt that does anything; `exits`: also while it is initialized."""
    builder = TopologyBuilder("wild")
    tries = builder.add_spout("tries", Tries, 1)
    builder.add_bolt("wild", Wild, 1, {tries: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.stmgrs": 1,
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 600,  # longer than the test: what fails, fails for another reason
            "topology.exception.policy": policy,
            "topology.max.spout.pending": 1,
            "test.dir": str(directory),
            "test.count": count,
            "test.block": block,
            "test.exit": exits,
        }
    )
    return builder


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


class Sender(Spout):
    """Notes, for each number, the tasks that emit said it goes to."""

    outputs = ("number", Stream(fields=["number"], name="direct", direct=True))

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory, self.task = Path(config["test.dir"]), context.get_task_id()
        self.targets = context.get_component_tasks("direct") or []
        self.left = deque(range(config["test.count"]))

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.popleft()
            tasks = [
                *self.emit([number], tup_id=number),
                *self.emit([number], stream="direct", direct_task=self.targets[number % len(self.targets)]),
            ]
            note(self.directory, f"sent {self.task} {number} {' '.join(map(str, tasks))}")

    def ack(self, tup_id: Any) -> None:
        note(self.directory, f"acked {self.task} {tup_id}")


class Receiver(Bolt):
    """Notes who got what from whom, and its ticks."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.directory, self.task = Path(config["test.dir"]), context.get_task_id()

    def process(self, tup: Tuple) -> None:
        note(self.directory, f"got {tup.task} {tup['number']} {self.task}")
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        note(self.directory, f"tick {self.task} {time.monotonic()}")


def groupings(directory: Path, *, count: int) -> TopologyBuilder:
    """Two containers, a spout in each, and a consumer of every grouping; values travel as MessagePack."""
    builder = TopologyBuilder("groupings")
    sender = builder.add_spout("sender", Sender, 2)
    for name, par, grouping in (
        ("shuffle", 2, Grouping.SHUFFLE),
        ("fields", 2, Grouping.fields("number")),
        ("all", 2, Grouping.ALL),
        ("lowest", 2, Grouping.LOWEST),
        ("local", 2, Grouping.LOCAL_OR_SHUFFLE),
    ):
        builder.add_bolt(name, Receiver, par, {sender: grouping})
    builder.add_bolt("direct", Receiver, 2, {sender["direct"]: Grouping.DIRECT})
    builder.set_config(
        {
            "topology.stmgrs": 2,
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 600,
            "topology.max.spout.pending": 20,
            "topology.tick.tuple.freq.ms": 100,
            "topology.serializer.classname": "heronpy.api.serializer.MsgpackSerializer",
            "test.dir": str(directory),
            "test.count": count,
        }
    )
    return builder


class Leaving(Bolt):
    """Passes numbers on; one ends its process, each time that it comes."""

    outputs = ("number",)

    def process(self, tup: Tuple) -> None:
        if tup["value"] == LEAVES_AT:
            sys.exit("this number always ends me")
        self.emit([tup["value"]])
        self.ack(tup)


LEAVES_AT = 5


def leaving(directory: Path, *, count: int) -> Any:
    """Numbers to files, effectively once."""
    builder = TopologyBuilder("leaving")
    numbers = builder.add_spout("numbers", SourceSpout(ListSource(range(count))), 1)
    passed = builder.add_bolt("leaving", Leaving, 1, {numbers: Grouping.fields("value")})
    builder.add_bolt("files", SinkBolt(JsonLinesSink(directory / "out")), 1, {passed: Grouping.SHUFFLE})
    builder.set_config(
        {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.stateful.checkpoint.interval.seconds": 0.5}
    )
    return builder.build()
