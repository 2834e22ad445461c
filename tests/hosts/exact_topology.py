"""Keys that are counted effectively once on several hosts: files, a count of each key as state, files.

Every line of the input is a key. `count` emits each with its number among its equals, and `sink` writes that: a count
that was lost or repeated shows as a number that is missing or there twice. Input, output and checkpoints are in a
directory that all hosts have.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors import JsonLinesSink, SinkBolt, SourceSpout, TextFile
from heronpy.testing import eventually_sync

KEYS = 97
FILES = 6


class Count(Bolt):
    outputs = ("counted",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        key = tup.values[0]
        self.counts[key] += 1
        self.emit([[key, self.counts[key]]])


def exact_count(name: str, directory: Path, *, par: int, containers: int) -> TopologyBuilder:
    """The topology; each component has `par` tasks."""
    builder = TopologyBuilder(name)
    keys = SourceSpout(TextFile(directory / "in" / "*.txt"), discover_every_s=0.2)
    spec = builder.add_spout("keys", keys, par)
    counts = builder.add_bolt("count", Count, par, {spec: Grouping.fields("value")})
    sink = SinkBolt(JsonLinesSink(directory / "out"), field="counted")
    builder.add_bolt("sink", sink, par, {counts: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 1,
            "topology.stmgrs": containers,
        }
    )
    return builder


class Keys:
    """What is given to the topology, and what it has committed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.given: Counter[str] = Counter()
        self._next = itertools.cycle(f"key-{n * n % KEYS}" for n in range(KEYS))
        (directory / "in").mkdir()

    def give(self, number: int) -> None:
        """Append so many keys, to all files in turn."""
        keys = list(itertools.islice(self._next, number))
        for file in range(FILES):
            with (self.directory / "in" / f"{file}.txt").open("a") as f:
                f.write("".join(f"{key}\n" for key in keys[file::FILES]))
        self.given.update(keys)

    def counted(self) -> Counter[tuple[str, int]]:
        """How often each count of each key is in the output."""
        files = list((self.directory / "out").glob("part-*.jsonl"))
        return Counter((key, n) for file in files for key, n in map(json.loads, file.read_text().splitlines()))

    def wait_counted(self, number: int, *, within_s: float) -> None:
        """Wait until so many are in the output."""

        def check() -> None:
            done = self.counted().total()
            assert done >= number, f"{done} of {number} keys are counted"

        eventually_sync(check, within_s=within_s)

    def wait_exact(self, *, within_s: float) -> None:
        """Wait until each count of each key that was given is in the output, once."""
        expected = {(key, n) for key, times in self.given.items() for n in range(1, times + 1)}

        def check() -> None:
            counted = self.counted()
            missing = expected - counted.keys()
            assert not missing, (
                f"{len(missing)} of {len(expected)} counts are not there yet, e.g. {sorted(missing)[:3]}"
            )

        def exact() -> None:
            counted = self.counted()
            twice = [count for count, times in counted.items() if times > 1]
            strange = counted.keys() - expected
            assert not twice, f"{len(twice)} counts are there twice, e.g. {sorted(twice)[:5]}"
            assert not strange, f"{len(strange)} counts are none, e.g. {sorted(strange)[:5]}"

        eventually_sync(check, within_s=within_s)
        exact()
