"""What batch runs use of a Spark context, in one process: tasks one after the other, each tried twice.

For campaigns that ask thousands of times what a run makes of a store that fails. It starts in no time, and all that is
written, read and committed is as with Spark; what Spark itself does about dead workers and memory it does not have.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError

CORES = 2
ATTEMPTS = 2
Partitions = Callable[[], list[list[Any]]]


class InlineContext:
    """A Spark context."""

    defaultParallelism = CORES
    master = "local[2]"

    def getConf(self) -> Any:
        return SimpleNamespace(get=lambda _key, default="": default)

    def parallelize(self, items: Iterable[Any], count: int) -> InlineRdd:
        rows = list(items)
        return InlineRdd(lambda: [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)])

    def broadcast(self, value: Any) -> Any:
        return SimpleNamespace(value=value, destroy=lambda: None)


@dataclass(frozen=True)
class InlineRdd:
    """An RDD."""

    partitions: Partitions

    def mapPartitionsWithIndex(self, run: Callable[[int, Iterable[Any]], Iterable[Any]]) -> InlineRdd:
        return InlineRdd(lambda: [_tried(run, i, rows) for i, rows in enumerate(self.partitions())])

    def mapPartitions(self, run: Callable[[Iterable[Any]], Iterable[Any]]) -> InlineRdd:
        return self.mapPartitionsWithIndex(lambda _, rows: run(rows))

    def map(self, run: Callable[[Any], Any]) -> InlineRdd:
        return self.mapPartitions(lambda rows: map(run, rows))

    def union(self, other: InlineRdd) -> InlineRdd:
        return InlineRdd(lambda: [*self.partitions(), *other.partitions()])

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> InlineRdd:
        def shuffled() -> list[list[Any]]:
            made: list[list[Any]] = [[] for _ in range(count)]
            for rows in self.partitions():
                for row in rows:
                    made[place(row[0]) % count].append(row)
            return made

        return InlineRdd(shuffled)

    def collect(self) -> list[Any]:
        return [row for rows in self.partitions() for row in rows]


def _tried(run: Callable[[int, Iterable[Any]], Iterable[Any]], index: int, rows: list[Any]) -> list[Any]:
    """What a task makes of a partition; an error as the driver gets it from Spark."""
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return list(run(index, iter(rows)))
        except Exception as error:
            if not attempts_left:
                raise Py4JError(f"the task failed\n{traceback.format_exc()}") from error
    raise AssertionError("there is an attempt")


@contextmanager
def inline_session(*_: Any) -> Iterator[Any]:
    """In place of `heronpy.pipeline.spark_session`."""
    yield SimpleNamespace(sparkContext=InlineContext())
