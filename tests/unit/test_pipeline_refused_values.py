"""Values that a reduction does not take leave what it has as it was, as in a topology."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter, dead_letter_counts
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, ViewReader, reductions, running
from heronpy.streamlet import Builder, Config, Max, Streamlet, WindowConfig
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, model

OTHERS = 20
"""A run in which more than a tenth of the elements is refused fails."""


@pytest.mark.parametrize("keys_max", [reductions.TABLE_KEYS_MAX, 0], ids=["where it is read", "where values meet"])
def test_a_refused_value_does_not_move_the_time_of_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_max: int
) -> None:
    model(monkeypatch, long=False)
    monkeypatch.setattr(reductions, "TABLE_KEYS_MAX", keys_max)
    builder, config = Builder(), Config()
    pairs = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive().map(_pair)
    windowed = pairs.reduce_by_key(_plus).reduce_by_key_and_window(WindowConfig(1, 1), max)
    windowed.map(lambda pair: ((pair[0].key, pair[0].window.start), pair[1])).to_store("v", Max())
    config.set_pipeline(tmp_path, batch_length=LENGTH_MS // 1000)
    for task, (time_ms, text) in enumerate([(1_000, "k 7"), (8_000, "k odd")]):
        with contextlib.closing(
            ArchiveWriter(
                tmp_path / "archive" / "events",
                task=f"{task}",
                batch_length_ms=LENGTH_MS,
                codec="columns",
                dead_letter=print,
            )
        ) as writer:
            for n in range(OTHERS):
                writer.add(f"{task}-{n}", 0, "others 1")
            writer.add(f"{task}", time_ms, text)
            writer.commit()
            writer.progress(LENGTH_MS)
    report = running.run(Job.of(Program("refused", config, builder.graph)), master="local[2]")
    assert report.dead_letters == 1
    with contextlib.closing(ViewReader(tmp_path, "v", Max())) as reader:
        assert dict(reader.items(0)) == {("k", 1.0): 7, ("others", 0.0): 2 * OTHERS}


def _pair(text: str) -> tuple[str, Any]:
    key, value = text.split()
    return key, int(value) if value.isdigit() else value


def _plus(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    "reduced",
    [
        lambda pairs: pairs.reduce_by_key(_plus),
        lambda pairs: pairs.reduce_by_key_and_window(WindowConfig(5, 5), _plus).map(lambda p: (p[0].key, p[1])),
        lambda pairs: (
            pairs.map(lambda pair: pair[1]).reduce_by_window(WindowConfig(5, 5), _plus).map(lambda p: ("k", p[1]))
        ),
    ],
    ids=["so far", "of windows by key", "of windows"],
)
def test_a_value_that_cannot_be_sent_takes_no_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: Callable[[Streamlet], Streamlet]
) -> None:
    model(monkeypatch, long=False)
    numbers = list(range(OTHERS))
    builder, config = Builder(), Config()
    source = ListSource(numbers, times=[1.0] * OTHERS, ids=[str(n) for n in numbers])
    pairs = builder.new_source(source).map(lambda n: ("k", [threading.Lock() if n == 7 else n]))
    others = builder.new_source(ListSource(["others"], times=[1.0], ids=["others"])).map(lambda key: (key, [0]))
    reduced(pairs).map(lambda pair: (pair[0], sorted(pair[1]))).union(others).to_store("v", Max())
    config.set_pipeline(tmp_path, batch_length=LENGTH_MS // 1000)
    report = running.run(Job.of(Program("unsendable", config, builder.graph)), master="local[2]")
    assert (report.dead_letters, report.elements) == (1, OTHERS + 1)
    with contextlib.closing(ViewReader(tmp_path, "v", Max())) as reader:
        assert dict(reader.items(0)) == {"k": [n for n in numbers if n != 7], "others": [0]}
    assert sum(dead_letter_counts(tmp_path).values()) == 1
    assert [path.name for path in tmp_path.glob("views/v/*/*/*")] == ["part-00000.parquet"], "the second attempt's"
