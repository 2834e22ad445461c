"""Programs of many kinds, killed, with late files, and values that are refused: a run from nothing makes the same."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import ArchiveWriter, dead_letter_counts
from heronpy.connectors import JsonLinesSink, ListSource
from heronpy.pipeline import Job, Manifest, ViewReader, rollup, running
from heronpy.streamlet import Builder, Config, Max, Streamlet, Sum, WindowConfig
from heronpy.streamlet.graph import StoreNode
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, Killed, model

SEEDS = 200 if os.environ.get("HERON_LONG") == "1" else 3
FIRST_SEED = int(os.environ.get("HERON_MODEL_SEED", "0"))
WINDOW, SLIDING = WindowConfig(15, 15), WindowConfig(25, 5)


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


def _one(pair: tuple[str, Any]) -> tuple[str, int]:
    return pair[0], 1


def _both(a: int | None, b: int | None) -> int:
    return 1000 * (a or 0) + (b or 0)


def _stored(results: Streamlet) -> None:
    results.to_store("v", Sum())
    results.to_store("w", Max())


def _join(words: Streamlet) -> None:
    left, right = (words.map(_parsed).filter(keys.__contains__).map(_one) for keys in (_Keys("abx"), _Keys("bcx")))
    _stored(left.outer_join(right, SLIDING, _both))


def _join_of_reductions(words: Streamlet) -> None:
    left, right = (words.map(_parsed).filter(keys.__contains__).map(_one) for keys in (_Keys("abx"), _Keys("bcx")))
    so_far = left.reduce_by_key(_plus).set_name("r").map(_itself)
    _stored(so_far.outer_join(right.reduce_by_key(_plus).set_name("s").map(_itself), SLIDING, _both))


def _join_with_elements(words: Streamlet) -> None:
    pairs = words.map(_parsed).map(_one)
    _stored(pairs.reduce_by_key(_plus).set_name("r").map(_itself).outer_left_join(pairs, WINDOW, _both))


def _windows_of_windows(words: Streamlet) -> None:
    inner = words.map(_parsed).map(_one).reduce_by_key_and_window(SLIDING, _plus).set_name("u").map(_of_window)
    _stored(inner.reduce_by_key_and_window(WINDOW, _plus).set_name("w").map(_of_window))


def _windows_between(words: Streamlet) -> None:
    so_far = words.map(_parsed).map(_one).reduce_by_key(_plus).set_name("r")
    windows = so_far.reduce_by_key_and_window(SLIDING, _plus).set_name("w").map(_of_window)
    _stored(windows.reduce_by_key(max).set_name("s").map(_itself))
    windows.reduce_by_window(WINDOW, max).set_name("m").to_store("x", Max())


def _sinks(words: Streamlet) -> None:
    so_far = words.map(_parsed).map(_one).reduce_by_key(_plus).set_name("r")
    so_far.to_sink(JsonLinesSink("/nonexistent"))
    _stored(words.map(_parsed).map(_one).reduce_by_key_and_window(SLIDING, _plus).map(_of_window).union(so_far))


def _unsendable(words: Streamlet) -> None:
    pairs = words.map(_parsed).map(_one)
    so_far = pairs.reduce_by_key(_plus).set_name("r").map(_locked)
    pairs.map(_locked).outer_join(so_far, SLIDING, _either).set_name("j").map(_of_window).to_store("v", Max())
    so_far.reduce_by_key_and_window(SLIDING, _either).set_name("rw").map(_of_window).to_store("w", Max())


def _locked(pair: tuple[str, int]) -> tuple[str, Any]:
    return (pair[0], threading.Lock()) if pair[0] == "c" else pair


def _either(a: Any, b: Any) -> Any:
    return b if a is None else a


def _options(chance: random.Random, upto: int) -> dict[str, Any]:
    """Of a run: most compute all that there is."""
    kind = chance.choice(["", "", "until", "batches", "everything"])
    if kind == "until":
        return {"until_ms": chance.randrange(upto + 2) * LENGTH_MS}
    if kind == "batches":
        return {"batches": [chance.randrange(-1, upto + 2) for _ in range(2)]}
    return {"everything": kind == "everything"}


class _Keys:
    def __init__(self, keys: str) -> None:
        self._keys = keys

    def __contains__(self, pair: Any) -> bool:
        return pair[0] in self._keys


def _itself(pair: Any) -> Any:
    return pair


def _lines(place: Path) -> dict[int, list[str]]:
    """By batch, what is in the files of sinks that count."""
    found = {}
    for n, done in Manifest.load(place).batches.items():
        folders = [place / folder for folder in done.folders(n) if folder.startswith("sinks/")]
        lines = [line for folder in folders for path in folder.glob("*") for line in path.read_text().splitlines()]
        if lines:
            found[n] = sorted(lines)
    return found


def _views(place: Path, stores: Mapping[str, StoreNode]) -> dict[str, dict[int, dict[Any, Any]]]:
    found = {}
    for name, node in stores.items():
        with contextlib.closing(ViewReader(place, name, node.monoid)) as reader:
            found[name] = {n: rows for n in reader.batches() if (rows := dict(reader.items(n)))}
    return found


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize(
    "define",
    [
        _plain,
        _windowed,
        _nested,
        _join,
        _join_of_reductions,
        _join_with_elements,
        _windows_of_windows,
        _windows_between,
        _sinks,
        _unsendable,
    ],
)
def test_late_files_and_deaths_leave_what_a_run_from_nothing_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, define: Callable[[Streamlet], None], seed: int
) -> None:
    operations = model(monkeypatch, long=seed % 2 == 0)
    chance = random.Random(seed)
    monkeypatch.setattr(rollup, "TIER_BATCHES", 2)
    monkeypatch.setattr("heronpy.pipeline.kept.TIER_BATCHES", 2)
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
            words = ["y=1"] * 40 + ["x=1"] * chance.randrange(3)
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
        with contextlib.suppress(Killed), operations.watched(kill_at):
            running.run(job_at(place), master="local[2]", **_options(chance, upto))
    running.run(job_at(place), master="local[2]")
    assert running.run(job_at(place), master="local[2]").batches == []
    anew = tmp_path / "anew"
    shutil.copytree(place / "archive", anew / "archive")
    monkeypatch.setattr(running, "_GROUP_BYTES", 2**30)  # all at once
    running.run(job_at(anew), master="local[2]")
    stores = job_at(place).stores()
    assert _views(place, stores) == _views(anew, stores)
    assert _lines(place) == _lines(anew)
    assert +Counter(dead_letter_counts(place)) == Counter(dead_letter_counts(anew))
