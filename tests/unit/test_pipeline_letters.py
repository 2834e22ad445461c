"""Dead letters of batch runs: each event has one, however often Spark tries a task and a batch is computed."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import dead_letter_counts, publish_letters
from heronpy.connectors import JsonLines
from heronpy.filesystem import files_of
from heronpy.pipeline import Job, run
from heronpy.pipeline.letters import find_letters, stale_letters
from heronpy.pipeline.manifest import Batch, Manifest
from heronpy.pipeline.task import Task
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from tests.unit.pipeline_model import model

FIRST, SECOND = "1a-00000001", "1b-00000002"


def attempt(directory: Path, version: str = FIRST, wanted: int = 3) -> Task:
    """One that fails on an element of batch 3, and on a row of a file of it."""
    task = Task(directory, version, 0, 10_000, lambda batch, _="": batch == wanted, {})
    task.failed("keyed", "\ud800", 35_000, ValueError("\ud800"))
    task.dead_letter("events", archived=True)("/x/batch=3/a.parquet, row group 0", None, "damaged")
    return task


def manifest(**versions: str) -> Manifest:
    return Manifest(10_000, batches={int(n[1:]): Batch(version, "f") for n, version in versions.items()})


def tidy_up(directory: Path, manifest: Manifest, newest: str = "") -> None:
    files_of(directory).delete(stale_letters(find_letters(directory), manifest, newest))


def test_only_the_attempt_that_counts_sets_aside(tmp_path: Path) -> None:
    attempt(tmp_path).close()  # fails afterwards, or is slower than the other
    report = attempt(tmp_path).finished()
    assert dead_letter_counts(tmp_path) == {"events": 0, "keyed": 0}
    publish_letters(report.letters)
    assert dead_letter_counts(tmp_path) == {"events": 1, "keyed": 1}
    tidy_up(tmp_path, manifest(b3=FIRST))
    assert len(list(tmp_path.rglob("*batch=*"))) == 2, "what the other attempt has left is removed"
    assert dead_letter_counts(tmp_path) == {"events": 1, "keyed": 1}
    (letter,) = (path.read_text() for path in (tmp_path / "dead-letter" / "keyed").iterdir())
    assert json.loads(letter)["row"] == "\ud800"


def test_what_is_looked_back_at_is_set_aside_by_its_own_batch(tmp_path: Path) -> None:
    report = attempt(tmp_path, wanted=4).finished()
    assert report.letters == []
    assert (report.raised, report.malformed, report.failed.total()) == (1, 0, 0)
    assert report.malformed_in == {"/x/batch=3/a.parquet"}


def test_a_batch_that_is_computed_again_replaces_its_dead_letters(tmp_path: Path) -> None:
    for version in (FIRST, SECOND):
        publish_letters(attempt(tmp_path, version).finished().letters)
        tidy_up(tmp_path, manifest(b3=version, b4=FIRST))
        assert dead_letter_counts(tmp_path) == {"events": 1, "keyed": 1}


def test_dead_letters_of_a_run_that_has_nothing_else_stay(tmp_path: Path) -> None:
    publish_letters(attempt(tmp_path, SECOND).finished().letters)
    tidy_up(tmp_path, Manifest(10_000), SECOND)
    assert dead_letter_counts(tmp_path) == {"events": 1, "keyed": 1}


def test_dead_letters_that_cannot_be_removed_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    publish_letters(attempt(tmp_path).finished().letters)
    monkeypatch.setattr(Path, "unlink", fails)
    with pytest.raises(OSError, match="Stale file handle"):
        tidy_up(tmp_path, manifest(b3=SECOND))


def test_dead_letters_of_no_known_batch_count_as_long_as_their_version(tmp_path: Path) -> None:
    task = Task(tmp_path, FIRST, 0, 10_000, lambda *_: True, {})
    task.dead_letter("source", archived=False)("rows.jsonl line 1", "{", "not JSON")
    publish_letters(task.finished().letters)
    tidy_up(tmp_path, manifest(b3=FIRST))
    assert dead_letter_counts(tmp_path) == {"source": 1}
    tidy_up(tmp_path, manifest(b3=SECOND))
    assert dead_letter_counts(tmp_path) == {"source": 0}


def test_more_batches_than_open_files_lose_no_dead_letter(tmp_path: Path) -> None:
    task = Task(tmp_path, FIRST, 0, 10_000, lambda *_: True, {})
    for _ in range(2):
        for batch in range(150):
            task.failed("keyed", batch, batch * 10_000, ValueError())
    publish_letters(task.finished().letters)
    assert dead_letter_counts(tmp_path) == {"keyed": 300}


def test_of_runs_that_compute_everything_the_last_alone_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(monkeypatch, long=False)
    (tmp_path / "rows.jsonl").write_text("{\n" + '{"word": "the"}\n' * 20)
    for _ in range(4):
        builder, config = Builder(), Config()
        rows = builder.new_source(JsonLines(tmp_path / "rows.jsonl"))
        rows.map(lambda row: (row["word"], 1)).to_store("counts", Sum())
        config.set_pipeline(tmp_path / "job", batch_length=10)
        run(Job.of(Program("rows", config, builder.graph)), master="local[2]")
        assert list(dead_letter_counts(tmp_path / "job").values()) == [1]
    found = Manifest.load(tmp_path / "job")
    assert list(found.lettered) == [done.version for done in found.batches.values()]
