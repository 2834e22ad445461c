"""Values that a reduction does not take beside others: late files make of them what a run from nothing makes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter, dead_letter_counts
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, ViewReader, rollup, running
from heronpy.streamlet import Builder, Config, Max, Streamlet, WindowConfig
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, Killed, model

SEEDS = 200 if os.environ.get("HERON_LONG") == "1" else 3
FIRST_SEED = int(os.environ.get("HERON_MODEL_SEED", "0"))
WINDOW = WindowConfig(15, 15)


def _parsed(word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    return key, int(value) if value.isdigit() else value


def _plus(a: Any, b: Any) -> Any:
    return a + b


def _shown(pair: tuple[str, Any]) -> tuple[str, str]:
    return pair[0], str(pair[1])


def _of_window(pair: tuple[Any, Any]) -> tuple[str, Any]:
    return pair[0].key, pair[1]


def _checked(pair: tuple[str, Any]) -> tuple[str, Any]:
    if pair[1] == 7:
        raise ValueError(pair)
    return pair


def _plain(words: Streamlet) -> None:
    words.map(_parsed).reduce_by_key(_plus).set_name("r").map(_checked).set_name("c").map(_shown).to_store("v", Max())


def _windowed(words: Streamlet) -> None:
    pairs = words.map(_parsed)
    so_far = pairs.reduce_by_key(_plus).set_name("r")
    so_far.map(_shown).to_store("v", Max())
    so_far.reduce_by_key_and_window(WINDOW, _plus).set_name("rw").map(_of_window).map(_shown).to_store("w", Max())
    of_windows = pairs.reduce_by_key_and_window(WINDOW, _plus).set_name("u").map(_of_window)
    of_windows.reduce_by_key(_plus).set_name("ur").map(_shown).to_store("x", Max())


def _nested(words: Streamlet) -> None:
    so_far = words.map(_parsed).reduce_by_key(_plus).set_name("r")
    so_far.map(_shown).to_store("v", Max())
    so_far.map(_checked).set_name("c").reduce_by_key(_plus).set_name("rr").map(_shown).to_store("w", Max())


def _views(place: Path, names: list[str]) -> dict[str, dict[int, dict[Any, Any]]]:
    found = {}
    for name in names:
        with contextlib.closing(ViewReader(place, name, Max())) as reader:
            found[name] = {n: rows for n in reader.batches() if (rows := dict(reader.items(n)))}
    return found


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize("define", [_plain, _windowed, _nested])
def test_late_files_make_of_them_what_a_run_from_nothing_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, define: Callable[[Streamlet], None], seed: int
) -> None:
    operations = model(monkeypatch, long=seed % 2 == 0)
    chance = random.Random(seed)
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    monkeypatch.setattr(running, "TIER_BATCHES", 2)
    monkeypatch.setattr(rollup, "TIER_TIERS", 2)
    monkeypatch.setattr(running, "_GROUP_BYTES", chance.choice([1, 2**30]))
    monkeypatch.setattr(running, "_CORE_BYTES", 0)

    def job_at(place: Path) -> Job:
        builder, config = Builder(), Config()
        define(builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="words"))
        config.set_pipeline(place, batch_length=LENGTH_MS // 1000)
        return Job.of(Program("words", config, builder.graph))

    place = tmp_path / "late"
    writer = ArchiveWriter(
        place / "archive" / "words", task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print, run="r"
    )
    number, upto = 0, -1
    typed: dict[tuple[int, str], str] = {}
    for _ in range(8):
        upto += chance.randrange(3)
        for batch in {chance.randrange(upto + 1) if upto >= 0 else 0, *range(max(0, upto - 1), upto + 1)}:
            words = ["x=1"] * chance.choice([1, 40])
            for _ in range(chance.randrange(3)):
                key = chance.choice("abcd")
                # In one batch and window, which of two comes first is not said.
                kind = typed.setdefault((batch // 3, key), chance.choice(["1", "1", "7", "one"]))
                words.append(f"{key}={kind}")
            for word in words:
                number += 1
                writer.add(f"e{number}", batch * LENGTH_MS + number * 7919 % LENGTH_MS, word)
        writer.commit()
        writer.progress((upto + 1) * LENGTH_MS)
        kill_at = chance.randrange(120) if chance.random() < 0.4 else None
        with contextlib.suppress(running.HeronError, Killed), operations.watched(kill_at):  # or too many are refused
            running.run(job_at(place), master="local[2]")
    for batch in range(upto + 1):
        for _ in range(400):
            number += 1
            writer.add(f"e{number}", batch * LENGTH_MS + number % LENGTH_MS, "y=1")
    writer.commit()
    writer.progress((upto + 1) * LENGTH_MS)
    running.run(job_at(place), master="local[2]")
    assert running.run(job_at(place), master="local[2]").batches == []
    anew = tmp_path / "anew"
    shutil.copytree(place / "archive", anew / "archive")
    running.run(job_at(anew), master="local[2]")
    names = {_plain: ["v"], _windowed: ["v", "w", "x"], _nested: ["v", "w"]}[define]
    assert _views(place, names) == _views(anew, names)
    assert +Counter(dead_letter_counts(place)) == Counter(dead_letter_counts(anew))
