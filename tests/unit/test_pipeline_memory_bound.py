"""Reducers whose memory is always full give what they give in memory."""

from __future__ import annotations

import functools
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.pipeline import rollup
from heronpy.pipeline.exchange import Layout
from heronpy.pipeline.joins import JoinReducer
from heronpy.pipeline.memory import LIMIT_BYTES, Memory, limit_of
from heronpy.pipeline.outputs import SinkReducer, StoreReducer
from heronpy.pipeline.parts import sorted_rows, write_part
from heronpy.pipeline.reductions import KeyedWindowReducer, KeyReducer, WindowReducer
from heronpy.pipeline.spill import Overflow, Spill
from heronpy.pipeline.task import Task
from heronpy.pipeline.unique import UniqueReducer
from heronpy.pipeline.views import read_rows
from heronpy.stores import decode_key
from heronpy.streamlet import Builder, HyperLogLog, Sum, WindowConfig
from heronpy.streamlet.graph import JoinNode, Node, ReduceByKeyAndWindowNode, ReduceByKeyNode, ReduceByWindowNode
from heronpy.streamlet.monoid import Monoid
from tests.chaos.inline_spark import InlineContext

pytest.importorskip("pyarrow")

RNG = random.Random(5)
KEYS: list[Any] = [*range(-3, 40), *(f"k{i}" for i in range(60)), (1, "a"), (2.5, None), b"x"]
WINDOW = WindowConfig(10, 10)


class Full(Memory):
    """The process uses more than it may, whatever leaves."""

    def is_full(self) -> bool:
        return True


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(
        batch_length_ms=10_000,
        wanted=None,
        first=None,
        last=1000,
        counts={"x": 1},
        levels={"x": 1},
        parts={},
        default_parts=1,
        directory=tmp_path,
        version="v",
    )


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path, "1-00000000", 0, 10_000, lambda *_: True, {})


def node(kind: type[Node]) -> Any:
    builder = Builder()
    pairs = builder.new_source(lambda: None).event_time(lambda e: 0)
    made = {
        ReduceByKeyNode: lambda: pairs.reduce_by_key(lambda a, b: a + b),
        ReduceByKeyAndWindowNode: lambda: pairs.reduce_by_key_and_window(WINDOW, lambda a, b: a + b),
        ReduceByWindowNode: lambda: pairs.reduce_by_window(WINDOW, lambda a, b: a + b),
        JoinNode: lambda: pairs.join(pairs, WINDOW, lambda a, b: (a, b)),
    }[kind]()
    assert made is not None
    return next(n for n in builder.graph.named().nodes() if isinstance(n, kind))


def blocks(head: Callable[[int], Any], row: Callable[[int], Any]) -> list[bytes]:
    return [pickle.dumps((head(b), list({r[0]: r for r in (row(b) for _ in range(50))}.values()))) for b in range(30)]


def reduced(reducer: Any, data: list[bytes]) -> Counter[Any]:
    for block in data:
        reducer.take(block)
    return Counter(map(repr, reducer.results()))


@pytest.mark.parametrize(
    ("kind", "new", "head", "row"),
    [
        (
            ReduceByKeyNode,
            lambda n, t, la: KeyReducer(n, t, la, None),
            lambda b: b % 4,
            lambda b: (RNG.choice(KEYS), RNG.randrange(9), b % 4 * 10_000 + 5),
        ),
        (
            ReduceByKeyAndWindowNode,
            lambda n, t, la: KeyedWindowReducer(n, t),
            lambda b: b % 4 * 10_000,
            lambda b: (RNG.choice(KEYS), RNG.randrange(9)),
        ),
        (
            ReduceByWindowNode,
            lambda n, t, la: WindowReducer(n, t),
            lambda b: None,
            lambda b: (RNG.randrange(50) * 10_000, RNG.randrange(9)),
        ),
        (
            JoinNode,
            lambda n, t, la: JoinReducer(n, t, la, None),
            lambda b: b % 2,
            lambda b: (RNG.choice(KEYS), RNG.randrange(100) * 1000, RNG.randrange(9)),
        ),
    ],
)
def test_what_is_on_disk_is_reduced_as_in_memory(
    kind: type[Node], new: Any, head: Any, row: Any, layout: Layout, task: Task
):
    data = blocks(head, row)
    stage = node(kind)
    spilled = Overflow(lambda: new(stage, task, layout), Full(LIMIT_BYTES), None)
    in_memory = Overflow(lambda: new(stage, task, layout), Memory(2**60), None)
    expected = reduced(in_memory, data)
    assert len(expected) > 40
    assert reduced(spilled, data) == expected
    assert (bool(in_memory._spill.runs), bool(spilled._spill.runs)) == (False, True)


def test_of_elements_with_one_id_the_earliest_counts_once(layout: Layout, tmp_path: Path):
    rows = [(f"input-{n % 2}", str(RNG.randrange(60)), RNG.randrange(10**6)) for n in range(300)]
    earliest: dict[tuple[str, str], int] = {}
    dropped: Counter[int] = Counter()
    for stage, name, time in rows:
        before = earliest.setdefault((stage, name), time)
        earliest[stage, name] = min(time, before)
    dropped.update(time // 10_000 for _, _, time in rows)
    dropped.subtract(time // 10_000 for time in earliest.values())
    for memory in (Memory(2**60), Full(LIMIT_BYTES)):
        task = Task(tmp_path, "1-00000000", 0, 10_000, lambda *_: True, {})
        with Overflow(functools.partial(UniqueReducer, task, layout), memory, None) as unique:
            for i in range(0, len(rows), 50):
                for side in ("input-0", "input-1"):
                    some = [(name, time, i, (name, time)) for stage, name, time in rows[i : i + 50] if stage == side]
                    unique.add(side, some)
            found = list(unique.results())
        assert sorted(found) == sorted((stage, t, (name, t)) for (stage, name), t in earliest.items())
        assert task.report.duplicates == +dropped


@pytest.mark.parametrize("monoid", [Sum(), HyperLogLog()])
def test_runs_on_disk_become_the_same_files(monoid: Any, layout: Layout, task: Task, tmp_path: Path):
    builder = Builder()
    builder.new_source(lambda: None).to_store("counts", monoid)
    (stage,) = [n for n in builder.graph.named().nodes() if hasattr(n, "monoid")]
    data = [
        pickle.dumps(((batch, part), [(key, _acc(monoid, i)) for key in RNG.sample(KEYS, 40)]))
        for i in range(12)
        for batch in (1, 2)
        for part in (0, 3)
    ]
    files = []
    for memory in (Memory(2**60), Full(LIMIT_BYTES)):
        reducer = StoreReducer(stage, task, layout, memory, str(tmp_path))
        for block in data:
            reducer.take(block)
        reducer.finish()
        parts, task.report.parts = task.report.parts, []
        files.append({(p.batch, p.number): (p.rows, _read(p.written, monoid)) for p in parts})
    assert files[0] == files[1]
    assert files[0].keys() == {(1, 0), (1, 3), (2, 0), (2, 3)}
    assert min(rows for rows, _ in files[0].values()) > 60


class Refusing(Sum):
    """Does not merge what is odd."""

    def merge(self, a: int, b: int) -> int:
        if b % 2:
            raise ValueError("odd")
        return a + b


def test_what_a_monoid_does_not_merge_is_set_aside_also_on_disk(layout: Layout, task: Task, tmp_path: Path):
    builder = Builder()
    builder.new_source(lambda: None).to_store("counts", Refusing())
    (stage,) = [n for n in builder.graph.named().nodes() if hasattr(n, "monoid")]
    for memory in (Memory(2**60), Full(LIMIT_BYTES)):
        reducer = StoreReducer(stage, task, layout, memory, str(tmp_path))
        for number in (4, 5, 6):
            reducer.take(pickle.dumps(((1, 0), [("key", number)])))
        reducer.finish()
    assert [_read(part.written, stage.monoid) for part in task.report.parts] == [{"key": 10}, {"key": 10}]
    assert task.report.failed == {1: 2}


def _acc(monoid: Any, number: int) -> Any:
    acc = monoid.lift(number)
    return acc if isinstance(monoid, Sum) else monoid.encode(acc)


def _read(path: Path, monoid: Any) -> dict[Any, Any]:
    rows = [(decode_key(key), monoid.result(monoid.decode(value))) for key, value in read_rows(path)]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_elements_for_a_sink_wait_on_disk(layout: Layout, task: Task, tmp_path: Path):
    from heronpy.connectors import JsonLinesSink

    builder = Builder()
    builder.new_source(lambda: None).to_sink(JsonLinesSink(tmp_path / "out"))
    (stage,) = [n for n in builder.graph.named().nodes() if hasattr(n, "sink")]
    reducer = SinkReducer(stage, task, layout, Full(LIMIT_BYTES), None)
    for i in range(20):
        reducer.take(pickle.dumps(((1, 0), [{"n": i}] * 3)))
    reducer.finish()
    (part,) = task.report.parts
    assert part.rows == 60
    assert part.written.read_text().count('"n"') == 60


def test_what_is_held_is_measured():
    memory = Memory(1)
    held: list[bytearray] = []
    assert not memory.is_full()
    for _ in range(8):
        held.append(bytearray(b"x" * 16 * 1024 * 1024))
    assert memory.is_full()
    memory.emptied()
    assert not memory.is_full()


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 512 << 20), ("1g", 1 << 30), ("64", 64 << 20), ("100kb", 100 << 10), ("", LIMIT_BYTES)],
)
def test_the_limit_is_what_spark_takes_it_for(text: str, size: int):
    assert limit_of(text) == size


@pytest.fixture(autouse=True)
def _tidy(task: Task) -> Iterator[None]:
    yield
    task.close()


@pytest.mark.parametrize("monoid", [Sum(), HyperLogLog()], ids=["sums", "sketches"])
def test_tiers_that_do_not_fit_in_memory_have_what_they_have_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monoid: Monoid
) -> None:
    pytest.importorskip("pyspark", reason="roll-ups are Spark's")
    files = []
    for number in range(6):
        rows = [(f"k{RNG.randrange(5_000)}", monoid.lift(RNG.randrange(9))) for _ in range(3_000)]
        files.append(tmp_path / f"part-{number:05d}.parquet")
        write_part(files[-1], sorted_rows(rows, monoid, refuse), monoid, refuse)

    def merged(name: str) -> list[dict[bytes, Any]]:
        target = rollup._Target(tuple(files), 3, tmp_path / name)
        (parts,) = rollup._merged(InlineContext(), [target], monoid)
        found = [dict(read_rows(tmp_path / name / parts.file_of(index))) for index in range(3)]
        assert [len(rows) for rows in found] == parts.part_rows
        return [{key: monoid.result(monoid.decode(value)) for key, value in rows.items()} for rows in found]

    in_memory = merged("whole")
    blocks: list[bytes] = []
    write_block = Spill.write_block
    monkeypatch.setattr(
        Spill, "write_block", lambda spill, run, block: (blocks.append(block), write_block(spill, run, block))
    )
    monkeypatch.setattr(rollup, "Memory", Full)
    assert merged("spilled") == in_memory
    assert len(blocks) > 3


def refuse(*what: Any) -> None:
    raise AssertionError(what)
