"""Programs that have other archives than before, or the same in another order: each keeps what was read of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, RunReport, ViewReader, running
from heronpy.streamlet import Builder, Config, Max
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, model

ROWS = {"words": 5, "clicks": 2}
"""Of each batch."""


class World:
    """Archives, of which a program reads some."""

    def __init__(self, place: Path) -> None:
        self._place, self._numbers = place, iter(range(10**6))
        self._writers = {
            name: ArchiveWriter(
                place / "archive" / name,
                task="0",
                batch_length_ms=LENGTH_MS,
                codec="columns",
                dead_letter=print,
                run="r",
            )
            for name in ROWS
        }

    def write(self, *batches: int) -> None:
        for name, writer in self._writers.items():
            for batch in batches:
                for n in (next(self._numbers) for _ in range(ROWS[name])):
                    writer.add(f"{name}{n}", batch * LENGTH_MS + n % LENGTH_MS, name)
            writer.commit()
            writer.progress((max(batches) + 1) * LENGTH_MS)

    def run(self, archives: Sequence[str], *, reduced: bool) -> RunReport:
        builder, config = Builder(), Config()
        streams = [builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name=name) for name in archives]
        united = streams[0]
        for stream in streams[1:]:
            united = united.union(stream)
        pairs = united.map(_one).set_name("pairs")
        (pairs.reduce_by_key(_plus).set_name("r") if reduced else pairs).to_store("v", Max())
        config.set_pipeline(self._place, batch_length=LENGTH_MS // 1000)
        return running.run(Job.of(Program("archives", config, builder.graph)), master="local[2]")

    def view(self) -> dict[int, dict[str, int]]:
        with contextlib.closing(ViewReader(self._place, "v", Max())) as reader:
            return {n: dict(reader.items(n)) for n in reader.batches()}


def _one(name: str) -> tuple[str, int]:
    return name, 1


def _plus(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("reduced", [False, True], ids=["each batch alone", "from everything"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["words", "clicks"], ["clicks", "words"]),
        (["words"], ["clicks", "words"]),
        (["clicks"], ["words", "clicks"]),
        (["words", "clicks"], ["clicks"]),
        (["words", "clicks"], ["words"]),
    ],
    ids=lambda archives: " ".join(archives),
)
def test_no_archive_is_taken_for_one_that_has_lost_what_another_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str], after: list[str], reduced: bool
) -> None:
    model(monkeypatch, long=False)
    world = World(tmp_path)
    world.write(*range(3))
    world.run(before, reduced=reduced)
    world.write(3)
    report = world.run(after, reduced=reduced)
    assert not [note for note in report.notes if "lost" in note]
    expected = {n: {name: ROWS[name] * (n + 1) if reduced else 1 for name in after} for n in range(4)}
    assert world.view() == expected
    assert world.run(after, reduced=reduced).batches == []
    (lost, *_) = (tmp_path / "archive" / after[0] / "batch=1").glob("*.parquet")
    lost.unlink()
    report = world.run(after, reduced=reduced)
    assert report.batches == []
    assert [note for note in report.notes if "lost rows" in note]
    assert world.view() == expected
