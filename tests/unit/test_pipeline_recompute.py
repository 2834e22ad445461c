"""Another attempt at a task sends the same elements to the same places: Spark keeps what has read the first one's.

When an executor is lost, so is what its tasks have sent, and Spark repeats them; tasks that have read it are done.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from heronpy.connectors import Chunk, JsonLinesSink, ListSource
from heronpy.pipeline import Job, execute
from heronpy.pipeline.blocks import unpacked
from heronpy.pipeline.exchange import REPORT, Layout
from heronpy.pipeline.execute import JobContext, ScanTask
from heronpy.pipeline.memory import Memory
from heronpy.pipeline.plan import plan_batch
from heronpy.pipeline.unique import UniqueReducer
from heronpy.streamlet import Builder, Config, WindowConfig
from heronpy.streamlet.runner import Program

PARTS = 3
ELEMENTS = 16_000


class Full(Memory):
    def is_full(self) -> bool:
        return True


@dataclass(frozen=True)
class Numbers:
    """A split: pairs of a key and a number, all of them in one batch."""

    count: int
    size_bytes = 0

    def read(self, dead_letter: Callable[[str, Any, str], None]) -> Iterator[Chunk]:
        for i in range(0, self.count, 3_000):
            numbers = range(i, min(i + 3_000, self.count))
            yield Chunk([(n, n) for n in numbers], [n % 10_000 for n in numbers])


class Stages:
    """Runs tasks of a job without Spark."""

    def __init__(self, directory: Path) -> None:
        builder, config = Builder(), Config()
        pairs = builder.new_source(ListSource([])).event_time(lambda pair: pair[1] % 10_000 / 1000)
        pairs.to_sink(JsonLinesSink(directory / "plain"))
        reduced = pairs.reduce_by_key_and_window(WindowConfig(1, 1), lambda a, b: a + b)
        reduced.to_sink(JsonLinesSink(directory / "reduced"))
        config.set_pipeline(directory, batch_length=10)
        plan = plan_batch(Job.of(Program("numbers", config, builder.graph)))
        self.layout = Layout(
            batch_length_ms=10_000,
            wanted=frozenset((0,)),
            first=0,
            last=0,
            counts=dict.fromkeys(plan.levels, PARTS),
            levels=plan.levels,
            parts={0: PARTS},
            default_parts=1,
            directory=directory,
            version="v",
        )
        (self.input,) = plan.inputs
        context = JobContext(plan, self.layout, {}, {})
        self.value = execute.pack(context)

    def reads(self, index: int) -> list[Any]:
        """What a reading task sends."""
        task = execute._Stage(execute._read_task, self, 0)
        return list(task(index, [execute.pack(ScanTask(self.input, (Numbers(ELEMENTS),)))]))

    def reduces(self, index: int, rows: Iterable[Any]) -> list[Any]:
        """What a reducing task sends of what was sent to it."""
        return list(execute._Stage(execute._reduce_task, self, 1)(index, rows))


def sent(blocks: Iterable[Any]) -> dict[Any, Counter[Any]]:
    """Rows by where they go."""
    found: dict[Any, Counter[Any]] = {}
    for target, (exchange, partition, data) in blocks:
        if exchange != REPORT:
            head, rows = unpacked(data)
            found.setdefault((target, exchange, partition, head), Counter()).update(map(repr, rows))
    return found


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


def test_a_reading_task_sends_a_sink_the_same_however_full_memory_is(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {at: rows for at, rows in sent(stages.reads(1)).items() if at[1].startswith("sink")}
    assert len(first) == PARTS
    assert max(rows.total() for rows in first.values()) < ELEMENTS // PARTS + 4_096
    monkeypatch.setattr(execute, "Memory", Full)
    assert {at: rows for at, rows in sent(stages.reads(1)).items() if at[1].startswith("sink")} == first


def test_a_reducing_task_sends_the_same_in_whatever_order_it_is_sent_to(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [block for target, block in stages.reads(0) if target == PARTS]
    rows = [(PARTS, block) for block in blocks if block[0] != REPORT]
    first = sent(stages.reduces(PARTS, rows))
    assert sum(rows.total() for rows in first.values()) > 5_000
    for shuffled in (random.Random(1).sample(rows, len(rows)), rows[::-1]):
        assert sent(stages.reduces(PARTS, shuffled)) == first
    monkeypatch.setattr(execute, "Memory", Full)
    assert sent(stages.reduces(PARTS, rows)) == first


def test_of_elements_with_one_id_and_time_the_first_of_the_input_counts(stages: Stages) -> None:
    task = execute._Work(execute.unpack(stages.value), 0, 0).task
    rows = [("a", 5, place, f"value {place}") for place in range(4)]
    for order in (rows, rows[::-1]):
        reducer = UniqueReducer(task, stages.layout)
        reducer.add("input", order[:2])
        reducer.add("input", order[2:])
        assert list(reducer.results()) == [("input", 5, "value 0")]


def test_places_of_elements_follow_from_the_input(stages: Stages) -> None:
    class Same:
        size_bytes = 0

        def read(self, dead_letter: Callable[[str, Any, str], None]) -> Iterator[Chunk]:
            for part in "ab":
                yield Chunk([part, "-"], [5, 6], ["x", "y"], np.array([7, 8]))

    context: JobContext = execute.unpack(stages.value)
    context.candidates = {stages.input: np.array([7])}
    stages.value = execute.pack(context)
    readings = [execute.pack(ScanTask(stages.input, (Same(),))) for _ in range(2)]
    blocks = list(execute._Candidates(stages, 1)(3, readings))
    rows = [row for _, block in blocks for row in unpacked(block)[1]]
    assert [value for _, _, _, value in rows] == ["a", "b", "a", "b"]
    places = [place for _, _, place, _ in rows]
    assert places == sorted(set(places))
