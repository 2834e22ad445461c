"""Programs that have other archives than before, or the same in another order: each keeps what was read of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, RunReport, ViewReader, rollup, running
from heronpy.streamlet import Builder, Config, Max, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, Killed, model

ROWS = {"words": 5, "clicks": 2}
"""Of each batch."""
SEEDS = 200 if os.environ.get("HERON_LONG") == "1" else 3
FIRST_SEED = int(os.environ.get("HERON_MODEL_SEED", "0"))
WINDOW = WindowConfig(3 * LENGTH_MS // 1000, LENGTH_MS // 1000)


class World:
    """Archives, of which a program reads some."""

    def __init__(self, place: Path) -> None:
        self._place, self._numbers, self.upto = place, iter(range(10**6)), -1
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

    def write(self, *batches: int, archives: Sequence[str] = tuple(ROWS)) -> None:
        self.upto = max(self.upto, *batches)
        for name, writer in self._writers.items():
            for batch in batches if name in archives else ():
                for n in (next(self._numbers) for _ in range(ROWS[name])):
                    writer.add(f"{name}{n}", batch * LENGTH_MS + n * 7919 % LENGTH_MS, name)
            writer.commit()
            writer.progress((self.upto + 1) * LENGTH_MS)

    def run(
        self,
        archives: Sequence[str],
        *,
        reduced: bool,
        windows: bool = False,
        place: Path | None = None,
        **options: Any,
    ) -> RunReport:
        builder, config = Builder(), Config()
        streams = [builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name=name) for name in archives]
        united = streams[0]
        for stream in streams[1:]:
            united = united.union(stream)
        pairs = united.map(_one).set_name("pairs")
        results = pairs.reduce_by_key(_plus).set_name("r") if reduced else pairs
        results.to_store("v", Max())
        if windows:
            results.reduce_by_key_and_window(WINDOW, _plus).set_name("w").map(_of_window).to_store("w", Sum())
        config.set_pipeline(place or self._place, batch_length=LENGTH_MS // 1000)
        return running.run(Job.of(Program("archives", config, builder.graph)), master="local[2]", **options)

    def view(self, name: str = "v", place: Path | None = None) -> dict[int, dict[str, int]]:
        monoid = {"v": Max(), "w": Sum()}[name]
        with contextlib.closing(ViewReader(place or self._place, name, monoid)) as reader:
            return {n: dict(reader.items(n)) for n in reader.batches()}


def _one(name: str) -> tuple[str, int]:
    return name, 1


def _plus(a: int, b: int) -> int:
    return a + b


def _of_window(pair: tuple[Any, int]) -> tuple[str, int]:
    return pair[0].key, pair[1]


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


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("reduced", [False, True])
def test_nothing_stays_of_an_archive_that_the_program_has_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool, long: bool
) -> None:
    model(monkeypatch, long=long)
    world = World(tmp_path)
    world.write(0, 2, 9, archives=["clicks"])
    world.write(2, 6, archives=["words"])
    world.run(["words", "clicks"], reduced=reduced, windows=True)
    assert world.view()[6] == {"words": 10 if reduced else 1}
    assert [n for n, rows in world.view("w").items() if "words" in rows] == [2, 3, 4, 6, 7, 8]
    report = world.run(["clicks"], reduced=reduced, windows=True)
    assert [note for note in report.notes if "no results any more" in note]
    assert not [note for note in report.notes if "lost" in note]
    assert {n: rows for n, rows in world.view().items() if rows} == {
        n: {"clicks": value if reduced else 1} for n, value in ((0, 2), (2, 4), (9, 6))
    }
    assert [n for n, rows in world.view("w").items() if rows] == [0, 1, 2, 3, 4, 9]
    assert world.run(["clicks"], reduced=reduced, windows=True, everything=True).batches == []


@pytest.mark.parametrize("reduced", [False, True])
def test_an_archive_in_the_place_of_another_is_not_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.write(0, 1, archives=["words"])
    world.write(1, 2, archives=["clicks"])
    world.run(["words"], reduced=reduced)
    report = world.run(["clicks"], reduced=reduced)
    assert not [note for note in report.notes if "lost" in note]
    found = {n: rows for n, rows in world.view().items() if rows}
    assert found == {1: {"clicks": 2 if reduced else 1}, 2: {"clicks": 4 if reduced else 1}}
    assert world.run(["clicks"], reduced=reduced, everything=True).batches == []


def test_an_archive_that_was_renamed_with_its_directory_is_the_same_and_may_lose_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch)
    world = World(tmp_path)
    world.write(0, 1, archives=["words"])
    world.run(["words"], reduced=False)
    shutil.rmtree(tmp_path / "archive" / "clicks")
    (tmp_path / "archive" / "words").rename(tmp_path / "archive" / "clicks")
    assert world.run(["clicks"], reduced=False).batches == []
    (lost, *_) = (tmp_path / "archive" / "clicks" / "batch=1").glob("*.parquet")
    lost.unlink()
    report = world.run(["clicks"], reduced=False, everything=True)
    assert report.batches == []
    assert [note for note in report.notes if "lost rows" in note]
    assert world.view() == {0: {"words": 1}, 1: {"words": 1}}


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize("reduced", [False, True])
def test_programs_whose_archives_come_and_go_make_what_a_run_from_nothing_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool, seed: int
) -> None:
    chance, place = random.Random(seed), tmp_path / "job"
    operations = model(monkeypatch, long=seed % 2 == 0)
    for name, value in {"_GROUP_BYTES": chance.choice([1, 2**30]), "_CORE_BYTES": 0}.items():
        monkeypatch.setattr(running, name, value)
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    monkeypatch.setattr("heronpy.pipeline.kept.TIER_BATCHES", 2)
    world, upto = World(place), 0
    for _ in range(10):
        upto += chance.randrange(4)
        archives = chance.choice([["words"], ["clicks"], ["words", "clicks"], ["clicks", "words"]])
        for name in ROWS:
            world.write(upto, *(chance.randrange(upto + 1) for _ in range(chance.randrange(2))), archives=[name])
            upto += chance.randrange(2)
        until = chance.randrange(upto + 2)
        until_ms = chance.choice([None, None, min(until, world.upto + 1) * LENGTH_MS])
        kill_at = chance.randrange(120) if chance.random() < 0.4 else None
        with contextlib.suppress(Killed), operations.watched(kill_at):
            world.run(archives, reduced=reduced, windows=True, until_ms=until_ms)
    world.run(archives, reduced=reduced, windows=True)
    assert world.run(archives, reduced=reduced, windows=True, everything=True).batches == []
    anew = tmp_path / "anew"
    shutil.copytree(place / "archive", anew / "archive")
    world.run(archives, reduced=reduced, windows=True, place=anew)
    for view in ("v", "w"):
        found, made = ({n: rows for n, rows in world.view(view, at).items() if rows} for at in (place, anew))
        assert found == made
