"""Programs that read their sources in each batch run: all results are of one reading."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.connectors import ListSource
from heronpy.pipeline import Job, Manifest, RunReport, ViewReader, running
from heronpy.streamlet import Builder, Config, Max
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import LENGTH_MS, model


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    model(monkeypatch, long=False)


def run(place: Path, batches: Sequence[int], *, until: int | None = None) -> RunReport:
    """Count the elements so far of a source with one in each of these batches."""
    builder, config = Builder(), Config()
    times = [batch * LENGTH_MS / 1000 for batch in batches]
    source = ListSource(["all"] * len(batches), times=times, ids=[str(n) for n in range(len(batches))])
    builder.new_source(source).count_by_key(str).to_store("so-far", Max())
    config.set_pipeline(place, batch_length=LENGTH_MS // 1000)
    until_ms = None if until is None else until * LENGTH_MS
    return running.run(Job.of(Program("read", config, builder.graph)), master="local[2]", until_ms=until_ms)


def so_far(place: Path) -> dict[int, int]:
    with contextlib.closing(ViewReader(place, "so-far", Max())) as reader:
        return {batch: rows["all"] for batch in reader.batches() if (rows := dict(reader.items(batch)))}


@pytest.mark.parametrize("before", [None, 4])
def test_what_is_done_stays_so_and_is_of_the_last_reading(tmp_path: Path, before: int | None) -> None:
    run(tmp_path, [0, 1, 2, 3], until=before)
    report = run(tmp_path, [0, 0, 1, 2, 3], until=2)
    assert report.committed_watermark == 3
    assert so_far(tmp_path) == {0: 2, 1: 3, 2: 4, 3: 5}


def test_a_source_that_has_less_than_before_makes_no_batch_live_again(tmp_path: Path) -> None:
    run(tmp_path, [0, 1, 2])
    assert run(tmp_path, [0, 1]).committed_watermark == 2
    assert so_far(tmp_path) == {0: 1, 1: 2}
    assert Manifest.load(tmp_path).committed_watermark == 2


def test_batches_after_the_last_that_is_wanted_are_for_later_runs(tmp_path: Path) -> None:
    assert run(tmp_path, [0, 1, 2], until=2).committed_watermark == 1
    assert so_far(tmp_path) == {0: 1, 1: 2}
