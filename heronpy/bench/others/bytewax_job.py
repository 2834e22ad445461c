"""The keyed count in Bytewax, one process, with recovery. Run by the interpreter of an environment that has it.

python bytewax_job.py KEYS INTERVAL_S DIRECTORY: goes on until it is ended; the number of words is in DIRECTORY/count.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

BATCH = 1000


class Words(FixedPartitionedSource):
    def __init__(self, keys: int) -> None:
        self.keys = keys

    def list_parts(self) -> list[str]:
        return ["words"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> WordsPart:
        return WordsPart(self.keys, resume_state or 0)


class WordsPart(StatefulSourcePartition):
    def __init__(self, keys: int, emitted: int) -> None:
        self.words = [f"word-{number}" for number in range(keys)]
        self.emitted = emitted

    def next_batch(self) -> list[str]:
        self.emitted += BATCH
        words, pick, keys = self.words, random.random, len(self.words)
        return [words[int(pick() * keys)] for _ in range(BATCH)]

    def snapshot(self) -> int:
        return self.emitted


class Counted(DynamicSink):
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountedPart:
        return CountedPart(self.directory)


class CountedPart(StatelessSinkPartition):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = self.written = 0

    def write_batch(self, items: list[Any]) -> None:
        self.count += len(items)
        if self.count >= self.written + 10 * BATCH:
            self.written = self.count
            (self.directory / "count.new").write_text(str(self.count))
            os.replace(self.directory / "count.new", self.directory / "count")


def counted(state: int | None, value: int) -> tuple[int, int]:
    number = (state or 0) + value
    return number, number


def main(keys: int, interval_s: float, directory: Path) -> None:
    flow = Dataflow("count")
    words = op.input("words", flow, Words(keys))
    pairs = op.map("pairs", words, lambda word: (word, 1))
    counts = op.stateful_map("count", pairs, counted)
    op.output("out", counts, Counted(directory))
    (directory / "recovery").mkdir()
    init_db_dir(directory / "recovery", 1)
    cli_main(
        flow,
        epoch_interval=timedelta(seconds=interval_s),
        recovery_config=RecoveryConfig(str(directory / "recovery")),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
