"""What runs that died have left, found without a search through a long history."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.connectors import ListSource
from heronpy.errors import StateError
from heronpy.pipeline import Job, Manifest, leftovers
from heronpy.pipeline.intents import INTENTS, intend, settle
from heronpy.pipeline.leftovers import find_leftovers, remove_leftovers
from heronpy.pipeline.letter_counts import COUNTS_FILE, dead_letters
from heronpy.pipeline.manifest import Batch, Parts, Tier
from heronpy.pipeline.vacuum import vacuum
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program

DONE, DEAD = "1a-00000001", "1b-00000002"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """With one batch that is done, in a history that is too long to be searched."""
    monkeypatch.setattr(leftovers, "_SEARCHED_BATCHES", 0)
    builder, config = Builder(), Config()
    builder.new_source(ListSource([("a", 1)])).archive().to_store("counts", Sum())
    config.set_pipeline(tmp_path, batch_length=10)
    manifest = Manifest(10_000, committed_watermark=3)
    manifest.batches[3] = Batch(DONE, "f", views={"counts": Parts(1, [1])})
    put(tmp_path, f"views/counts/batch=3/{DONE}/part-00000.parquet")
    manifest.save(tmp_path)
    return Job.of(Program("leftovers", config, builder.graph))


def put(directory: Path, name: str, text: str = "") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def clean(job: Job) -> None:
    remove_leftovers(find_leftovers(job, Manifest.load(job.directory)))


def test_a_run_that_died_leaves_nothing_of_what_it_had_noted(job: Job, tmp_path: Path) -> None:
    intend(tmp_path, DEAD, ["views/counts", "sinks/out"], [3, 4])
    dead = [
        put(tmp_path, f"views/counts/batch=3/{DEAD}/.part-00000-x"),
        put(tmp_path, f"views/counts/batch=4/{DEAD}/part-00000.parquet"),
        put(tmp_path, f"sinks/out/batch=4/{DEAD}/part-00000.jsonl"),
        put(tmp_path, f"dead-letter/out/.batch=4-{DEAD}-x.jsonl"),
        put(tmp_path, f"dead-letter/out/batch=4-{DEAD}-x.jsonl"),
    ]
    kept = put(tmp_path, f"dead-letter/out/batch=3-{DONE}-x.jsonl")
    clean(job)
    assert not any(path.exists() for path in dead)
    assert (tmp_path / f"views/counts/batch=3/{DONE}/part-00000.parquet").exists()
    assert kept.exists()


def test_what_a_run_was_writing_that_died_goes(job: Job, tmp_path: Path) -> None:
    torn = [
        put(tmp_path, ".manifest.json.77-01234567.tmp"),
        put(tmp_path, "history/.0-0123456789abcdef.json.77-01234567.tmp"),
        put(tmp_path, f"intents/.{DEAD}.json.77-01234567.tmp"),
    ]
    others = [put(tmp_path, ".notes.tmp"), put(tmp_path, "archive/events/_tmp/.x.tmp")]
    clean(job)
    assert [path for path in torn if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    assert Manifest.load(tmp_path).batches[3].version == DONE


@pytest.mark.parametrize("name", [".part-00000-0123456789ab", "..part-00000-0123456789ab.jsonl.77.tmp"])
def test_what_another_attempt_at_a_task_has_left_beside_what_counts_goes(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(leftovers, "_SEARCHED_BATCHES", 256)
    counts = tmp_path / f"views/counts/batch=3/{DONE}/part-00000.parquet"
    left = put(tmp_path, f"views/counts/batch=3/{DONE}/{name}")
    clean(job)
    assert not left.exists()
    assert counts.exists()
    left.write_text("")
    assert vacuum(job).leftovers == [str(left)]
    assert not left.exists()
    assert counts.exists()


def test_what_its_tasks_write_after_it_died_goes_with_a_later_run(job: Job, tmp_path: Path) -> None:
    note = Path(str(intend(tmp_path, DEAD, ["views/counts"], [4])))
    clean(job)
    late = put(tmp_path, f"views/counts/batch=4/{DEAD}/part-00000.parquet")
    clean(job)
    assert not late.exists()
    os.utime(note, (0, 0))
    clean(job)
    assert not note.exists()


def test_a_run_that_died_after_its_manifest_counted_has_done_its_work(job: Job, tmp_path: Path) -> None:
    note = Path(str(intend(tmp_path, DONE, ["views/counts"], [3])))
    manifest = Manifest.load(tmp_path)
    manifest.tiers["counts"] = [Tier("1c-00000003-0", None, 3, 1)]
    manifest.save(tmp_path)
    tier = put(tmp_path, "views/counts/base/1c-00000003-0/part-00000.parquet")
    intend(tmp_path, "1c-00000003", ["views/counts/base/1c-00000003-0", "views/counts/base/1c-00000003-1"])
    dead = put(tmp_path, "views/counts/base/1c-00000003-1/part-00000.parquet")
    clean(job)
    assert not note.exists()
    assert (tmp_path / f"views/counts/batch=3/{DONE}/part-00000.parquet").exists()
    assert tier.exists()
    assert not dead.exists()


def test_a_note_that_is_damaged_has_everything_searched(job: Job, tmp_path: Path) -> None:
    put(tmp_path, f"{INTENTS}/x.json", "{")
    dead = put(tmp_path, f"views/counts/batch=9/{DEAD}/part-00000.parquet")
    clean(job)
    assert not dead.exists()
    assert (tmp_path / f"views/counts/batch=3/{DONE}/part-00000.parquet").exists()


def test_a_note_that_is_settled_is_gone(tmp_path: Path) -> None:
    settle(intend(tmp_path, DONE, ["views/counts"], [3]))
    assert list((tmp_path / INTENTS).iterdir()) == []


@pytest.mark.parametrize("folder", ["../other", "views/counts/../../../other", "views", "/{other}", "", "."])
def test_what_a_manifest_names_outside_of_the_outputs_is_not_removed(job: Job, tmp_path: Path, folder: str) -> None:
    other = put(tmp_path, "other/precious.parquet")
    kept = put(tmp_path, f"views/counts/batch=3/{DONE}/part-00000.parquet")
    manifest = Manifest.load(job.directory)
    manifest.garbage = [folder.format(other=other.parent)]
    found = find_leftovers(job, manifest)
    assert not [path for path in found if other.is_relative_to(path) or kept.is_relative_to(path)]


def test_a_manifest_names_files_of_the_history_only(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    root = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**root, "retired": [["../manifest.json", 0.0]]}))
    with pytest.raises(StateError, match=r"names '\.\./manifest\.json' as a file of .*history"):
        Manifest.load(job.directory)


def test_a_vacuum_finds_what_nobody_has_noted_and_old_dead_letters(job: Job, tmp_path: Path) -> None:
    dead = put(tmp_path, f"views/counts/batch=9/{DEAD}/part-00000.parquet")
    old = put(tmp_path, f"dead-letter/out/batch=3-{DONE}-x.jsonl")
    young = put(tmp_path, f"dead-letter/out/batch=3-{DONE}-y.jsonl")
    live = put(tmp_path, "dead-letter/out/host-1-x.jsonl")
    for path in (old, live):
        os.utime(path, (0, 0))
    clean(job)
    assert dead.exists()
    found = vacuum(job, letters_older_than_s=60, dry_run=True)
    assert (found.leftovers, found.letters) == ([str(dead.parent)], [str(old)])
    assert old.exists()
    vacuum(job, letters_older_than_s=60)
    assert not dead.exists()
    assert not old.exists()
    assert young.exists()
    assert live.exists()
    assert vacuum(job).leftovers == []


LINE = '{"at": 1.5, "where": "x", "reason": "ValueError: no %s", "row": 1}\n'


def test_dead_letters_are_read_once_for_their_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "dead-letter/keyed/host-1-x.jsonl", LINE % 1 + LINE % 2)
    put(tmp_path, f"dead-letter/keyed/batch=3-{DONE}-y.jsonl", LINE % 1)
    put(tmp_path, f"dead-letter/keyed/.batch=3-{DONE}-x.jsonl", LINE % 3)
    put(tmp_path, "dead-letter/keyed/host-1-y.left-out", "7")
    expected = [("not read", "live", 7), ("ValueError", "live", 2), ("ValueError", "batch", 1)]
    assert [(one.reason, one.side, one.count) for one in dead_letters(tmp_path)] == expected
    assert {one.origin for one in dead_letters(tmp_path)} == {"keyed"}
    with path.open("a") as file:
        file.write(LINE % 4 + LINE[:20])
    text = path.read_text()
    path.write_text("x" * len(LINE % 1 + LINE % 2) + text[len(LINE % 1 + LINE % 2) :])
    assert dead_letters(tmp_path)[1].count == 3, "what was read before is read again"
    (tmp_path / COUNTS_FILE).write_text("{")
    assert sum(one.count for one in dead_letters(tmp_path)) == 9, "a line of others', one of ours and a run's"
    path.unlink()
    assert [(one.reason, one.count) for one in dead_letters(tmp_path)] == [("not read", 7), ("ValueError", 1)]
