"""Joins of a key that does not fit in memory: what is on disk gives what it gives in memory, and memory is bounded."""

from __future__ import annotations

import pickle
import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronpy.pipeline.exchange import Layout
from heronpy.pipeline.joins import JoinReducer
from heronpy.pipeline.memory import Memory
from heronpy.pipeline.spill import Overflow
from heronpy.pipeline.task import Task
from heronpy.streamlet import Builder, WindowConfig
from heronpy.streamlet.graph import JoinNode, JoinType

pytest.importorskip("pyarrow")

MIB = 1024 * 1024
HOT, ROW_BYTES, WINDOWS, OF_WINDOW = "hot", 16_384, 4, 2_000
LIMIT_BYTES = 64 * MIB
WINDOW_S = 10


def layout_in(directory: Path) -> Layout:
    return Layout(
        batch_length_ms=1000 * WINDOW_S,
        wanted=None,
        first=None,
        last=10**6,
        counts={"x": 1},
        levels={"x": 1},
        parts={},
        default_parts=1,
        directory=directory,
        version="v",
    )


def task_in(directory: Path) -> Task:
    return Task(directory, "1-00000000", 0, 1000 * WINDOW_S, lambda *_: True, {})


def join_of(window: WindowConfig, how: JoinType = JoinType.INNER, function: Any = lambda a, b: (a, b)) -> JoinNode:
    builder = Builder()
    pairs = builder.new_source(lambda: None).event_time(lambda e: 0)
    pairs.join(pairs, window, function)
    node = next(n for n in builder.graph.named().nodes() if isinstance(n, JoinNode))
    node.how = how
    return node


@pytest.mark.parametrize("how", JoinType)
@pytest.mark.parametrize(
    "window",
    [
        WindowConfig.create_tumbling_window(10),
        WindowConfig.create_sliding_window(15, 5),
        WindowConfig.create_sliding_window(7, 3),
        WindowConfig.create_session_window(3),
    ],
    ids=repr,
)
def test_what_a_key_has_on_disk_is_joined_as_in_memory(tmp_path: Path, window: WindowConfig, how: JoinType) -> None:
    rng = random.Random(7)
    rows: list[tuple[int, Any]] = []  # of both sides; of some windows only one has any
    for n in range(600):
        time, side = rng.randrange(-60_000, 120_000), rng.randrange(2)
        if not (side == 0 and 0 <= time < 20_000) and not (side == 1 and 60_000 <= time < 80_000):
            rows.append((side, (rng.choice("ab"), time, n)))
    results = []
    for spilled_after in (len(rows), 200):
        reducer = JoinReducer(join_of(window, how), task_in(tmp_path), layout_in(tmp_path), None, str(tmp_path))
        for n, (side, row) in enumerate(rows):
            reducer.add(side, [row])
            if n == spilled_after:
                reducer.spill()
        assert bool(reducer._spill.runs) == (spilled_after < len(rows))
        results.append(Counter(reducer.results()))
    assert results[0] == results[1]
    assert len(results[0]) > 100


class Kept:
    """A port that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, Any, int]] = []

    def add(self, values: list[Any], times: Any) -> None:
        rows = zip(values, times, strict=True)
        self.rows += [(pickle.loads(name), *pickle.loads(element), time) for (name, element), time in rows]

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("spilled_after", [599, 200])
def test_elements_are_kept_of_sessions_that_are_open_at_the_end_of_a_batch(tmp_path: Path, spilled_after: int) -> None:
    gap_ms, length_ms, rng = 3_000, 1000 * WINDOW_S, random.Random(8)
    rows = [(rng.randrange(2), (rng.choice("abc"), rng.randrange(-60_000, 120_000), n)) for n in range(600)]
    layout, kept = layout_in(tmp_path), Kept()
    layout.wanted, layout.first, layout.last = frozenset({-3, 0, 1, 7, 11}), -3, 11
    join = join_of(WindowConfig.create_session_window(gap_ms / 1000))
    reducer = JoinReducer(join, task_in(tmp_path), layout, None, str(tmp_path), kept)
    for n, (side, row) in enumerate(rows):
        reducer.add(side, [row])
        if n == spilled_after:
            reducer.spill()
    assert len([*filter(None, reducer.results())]) > 100
    expected = Counter[Any]()
    for batch in layout.wanted:
        for key in "abc":
            open_from_ms = end_ms = (batch + 1) * length_ms
            for side, (_, time, value) in sorted((row for row in rows if row[1][0] == key), key=lambda row: -row[1][1]):
                if open_from_ms - gap_ms < time < end_ms:
                    open_from_ms = time
                    expected[key, (side, time, value), batch * length_ms] += 1
    assert Counter(kept.rows) == expected
    assert len(expected) > 30


def joined_of_hot_key(directory: Path) -> None:
    """Join one key that has more on both sides than a process may hold; what it makes, and the most that it held."""
    node = join_of(WindowConfig.create_tumbling_window(WINDOW_S), function=lambda a, b: len(a) + len(b))
    memory = Memory(LIMIT_BYTES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: Counter[Any] = Counter()
    task, layout = task_in(directory), layout_in(directory)
    with Overflow(lambda: JoinReducer(node, task, layout, None, str(directory)), memory, str(directory)) as join:
        for n in range(OF_WINDOW * WINDOWS):
            window, place = divmod(n, OF_WINDOW)
            time = window * 1000 * WINDOW_S + place
            join.add(0, [(HOT, time, bytes([n % 251]) * ROW_BYTES)])
            if place % 50 == 0:
                join.add(1, [(HOT, time, b"r" * 50 * ROW_BYTES)])
        for (named, made), _ in join.results():
            found[named.window.start, made] += 1
    assert found == {(float(WINDOW_S * n), 51 * ROW_BYTES): OF_WINDOW * (OF_WINDOW // 50) for n in range(WINDOWS)}
    print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def test_a_key_with_more_on_both_sides_than_memory_is_joined_within_the_bound(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.unit.test_pipeline_joins import joined_of_hot_key; "
        "joined_of_hot_key(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    before_kib, most_kib = map(int, done.stdout.split())
    # Each side has 130 MB. What is held beside the limit is a pass's blocks, and what the allocator keeps.
    assert most_kib * 1024 < max(before_kib * 1024, LIMIT_BYTES) + 64 * MIB
    assert [*tmp_path.iterdir()] == []
