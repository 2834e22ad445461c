"""Word count at least once, with a record of every line and word: it tells what is lost, and what is repeated.

`lines` emits the lines below the number in the file `goal`, at a steady pace, and again what failed; `split` makes
words; `count` writes each word down with its line and place in it. A record is made by one system call, so that a
`kill -9` loses none; the position of a spout is its record of acks. Counts are those of different records: a sink that
is idempotent by the id of what it is given. The directory is one that all hosts have.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.examples.word_count import words_of
from heronpy.testing import eventually_sync

DIRECTORY, RATE = "words.directory", "words.lines.per.second"
GOAL_LOOK_S = 0.05


class Record:
    """Append-only lines."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())


class Lines(Spout):
    outputs = ("line", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.dir = Path(config[DIRECTORY])
        self.pause_s = 1 / float(config[RATE])
        self.lines = (self.dir / "input.txt").read_bytes().splitlines()
        tasks = context.get_component_tasks(context.get_component_id()) or []
        self.number, self.stride = context.get_this_task_index(), len(tasks)
        position = self.dir / f"acked-{context.get_task_id()}"
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
            self.emit_at = max(self.emit_at + self.pause_s, now - 0.1)
            self.emit([self.lines[number % len(self.lines)], number], tup_id=number)

    def fresh(self) -> int | None:
        while self.number < self.goal:
            number = self.number
            self.number += self.stride
            if number not in self.acked:
                return number
        return None

    def ack(self, tup_id: Any) -> None:
        if tup_id not in self.acked:
            self.acked.add(tup_id)
            self.record.add(str(tup_id))

    def fail(self, tup_id: Any) -> None:
        self.replays.append(tup_id)


class Split(Bolt):
    outputs = ("word", "number", "place")

    def process(self, tup: Tuple) -> None:
        line, number = tup.values
        for place, word in enumerate(words_of(line)):
            self.emit([word, number, place], anchors=[tup])
        self.ack(tup)


class Count(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.record = Record(Path(config[DIRECTORY]) / f"counted-{context.get_task_id()}")

    def process(self, tup: Tuple) -> None:
        word, number, place = tup.values
        self.record.add(f"{number} {place} {word} {time.monotonic()}")
        self.ack(tup)


def word_count(name: str, directory: Path, *, par: int, containers: int, lines_per_s: int = 100) -> TopologyBuilder:
    """The topology; each component has `par` tasks."""
    builder = TopologyBuilder(name)
    lines = builder.add_spout("lines", Lines, par)
    split = builder.add_bolt("split", Split, par, {lines: Grouping.SHUFFLE})
    builder.add_bolt("count", Count, par, {split: Grouping.fields("word")})
    builder.set_config(
        {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 5,
            "topology.max.spout.pending": 100,
            "topology.stmgrs": containers,
            DIRECTORY: str(directory),
            RATE: str(lines_per_s / par),
        }
    )
    return builder


class Words:
    """The records of a running word count."""

    def __init__(self, directory: Path, text: bytes) -> None:
        self.dir = directory
        self._lines = text.splitlines()
        self.goal = 0
        (directory / "input.txt").write_bytes(text)
        self.raise_goal(0)

    def raise_goal(self, by: int) -> None:
        """Have so many more lines counted."""
        self.goal += by
        new = self.dir / "goal.new"
        new.write_text(str(self.goal))
        os.replace(new, self.dir / "goal")

    def acked(self) -> set[int]:
        return {int(line) for path in self.dir.glob("acked-*") for line in _whole_lines(path)}

    def counted(self) -> Counter[tuple[int, int, str]]:
        """How often each word was counted, by line, place and word."""
        rows = (line.split() for path in self.dir.glob("counted-*") for line in _whole_lines(path))
        return Counter((int(number), int(place), word) for number, place, word, _ in rows)

    def wait_for(self, lines: int, *, within_s: float) -> None:
        """Wait until so many lines are acked."""

        def check() -> None:
            done = len(self.acked())
            assert done >= lines, f"{done} of {lines} lines are acked"

        eventually_sync(check, within_s=within_s)

    def wait_settled(self, *, within_s: float) -> None:
        """Wait until every line below the goal is acked."""
        self.wait_for(self.goal, within_s=within_s)

    def verify(self) -> int:
        """Compare the counts with those of the input, word by word; returns how many counts were repetitions."""
        counted = self.counted()
        expected = {
            (number, place, word)
            for number, line in zip(range(self.goal), itertools.cycle(self._lines), strict=False)
            for place, word in enumerate(words_of(line))
        }
        missing, strange = expected - counted.keys(), counted.keys() - expected
        assert not missing, f"{len(missing)} words were lost, e.g. {sorted(missing)[:5]}"
        assert not strange, f"{len(strange)} words are none, e.g. {sorted(strange)[:5]}"
        return counted.total() - len(counted)


def _whole_lines(path: Path) -> list[str]:
    return path.read_text().rpartition("\n")[0].splitlines()
