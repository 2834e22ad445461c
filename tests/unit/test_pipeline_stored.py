"""Batch runs whose files are in a store, where another run may take over at any moment."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import Archive, ArchiveWriter
from heronpy.checkpoints import ArrowStorage
from heronpy.connectors import ListSource
from heronpy.errors import FencedError, HeronError
from heronpy.filesystem import Location, UrlPath, files_of
from heronpy.pipeline import Job, Manifest, ViewReader, run
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.letters import find_letters, remove_letters
from heronpy.pipeline.manifest import Batch, Parts
from heronpy.pipeline.parts import sorted_rows, unused, write_part
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program

_NUMBERS = itertools.count()


def refuse(*what: Any) -> None:
    raise AssertionError(what)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """What HDFS has, in PyArrow's local file system."""
    storage = ArrowStorage(pyarrow.fs.LocalFileSystem(), str(tmp_path / "store"))
    monkeypatch.setattr("heronpy.checkpoints.open_storage", lambda url: storage)
    return UrlPath(f"hdfs://stored-{os.getpid()}-{next(_NUMBERS)}/x", "job")


def job_at(directory: Location) -> Job:
    builder, config = Builder(), Config()
    builder.new_source(ListSource([("a", 1)])).archive().to_store("counts", Sum())
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("stored", config, builder.graph))


def put_batch(directory: Location, manifest: Manifest, batch: int, rows: dict[str, int]) -> Location:
    """What a run does for a batch before it saves the manifest."""
    version = f"1a-{next(_NUMBERS):08x}"
    path = unused(directory / "views" / "counts" / f"batch={batch}" / version, 0)
    count = write_part(path, sorted_rows(rows.items(), Sum(), refuse), Sum(), refuse)
    parts = Parts(count, [count], [path.name])
    manifest.batches[batch] = Batch(version, "f", views={"counts": parts}, monoids={"counts": Sum().signature})
    return path


def test_a_run_that_slept_while_others_saved_many_versions_is_fenced(place: Location) -> None:
    asleep = Manifest.load(place, 10_000)
    asleep.claim(place)
    late = Manifest.load(place, 10_000)
    for number in range(15):
        other = Manifest.load(place, 10_000)
        other.claim(place)
        other.batches[number] = Batch("v", "")
        other.save(place)
    asleep.batches[3] = Batch("mine", "")
    with pytest.raises(FencedError):
        asleep.save(place)
    with pytest.raises(FencedError):
        late.claim(place)
    assert Manifest.load(place) == other


def test_runs_that_find_nothing_to_do_leave_few_versions(place: Location) -> None:
    first = Manifest.load(place, 10_000)
    first.claim(place)
    first.batches[1] = Batch("v", "")
    first.save(place)
    for _ in range(40):
        Manifest.load(place).claim(place)
    assert Manifest.load(place).batches == first.batches
    assert len(files_of(place).listed(place / "manifest.json")) <= 12


def test_what_a_later_run_has_written_is_no_leftover_of_an_earlier_one(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_at(place)
    stale = put_batch(place, Manifest(10_000), 0, {"a": 1})
    claim = Manifest.claim
    written: list[Location] = []

    def claim_and_sleep(manifest: Manifest, directory: Location) -> None:
        claim(manifest, directory)
        if not written:
            later = Manifest.load(place)
            claim(later, place)
            written.append(put_batch(place, later, 1, {"b": 2}))
            later.save(place)

    monkeypatch.setattr(Manifest, "claim", claim_and_sleep)
    run(job, until_ms=0)
    files = files_of(place).below(place / "views")
    assert stale not in files
    assert files == written
    assert dict(ViewReader(place, "counts", Sum()).items(1)) == {"b": 2}


def test_other_peoples_objects_among_the_views_do_not_end_a_run(place: Location) -> None:
    notes = [place / "views" / "README", place / "views" / "counts" / "batch=1" / "a" / "b" / "c"]
    for path in notes:
        files_of(path).write(path, b"mine")
    stale = put_batch(place, Manifest(10_000), 0, {"a": 1})
    run(job_at(place), until_ms=0)
    assert sorted(files_of(place).below(place / "views")) == sorted(notes)
    assert stale not in notes


def test_dead_letters_of_a_later_run_stay(place: Location) -> None:
    folder = place / "dead-letter" / "keyed"
    mine, theirs = folder / "batch=3-1a-00000001-x.jsonl", folder / "~batch=3-1b-00000002-x.jsonl"
    files_of(mine).write(mine, b"{}\n")
    found = find_letters(place)
    files_of(theirs).write(theirs, b"{}\n")
    remove_letters(found, Manifest(10_000))
    assert files_of(folder).below(folder) == [theirs]


def test_an_open_reader_goes_on_with_the_newest_when_its_object_is_removed(place: Location) -> None:
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    rows = {f"{n:06d}{os.urandom(40).hex()}": n for n in range(40_000)}  # larger than what is read at once
    old = put_batch(place, manifest, 1, rows)
    manifest.save(place)
    keys = sorted(rows)
    reader = ViewReader(place, "counts", Sum())
    assert reader.get(keys[-1]) == 39_999
    put_batch(place, manifest, 1, {key: n + 1 for key, n in rows.items()})
    manifest.save(place)
    files_of(old).delete([old])
    assert reader.get(keys[0]) == 1
    reader.close()


def fail_listing(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    scandir = os.scandir

    def fails(path: Any = ".") -> Any:
        if os.fspath(path).endswith(f"/{folder}"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fails)


@pytest.mark.parametrize("folder", ["_tmp", "_progress", "batch=0"])
def test_an_archive_that_cannot_be_listed_is_an_error_of_one_line(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "archive" / "events"
    writer = ArchiveWriter(directory, task="0", batch_length_ms=10_000, codec="columns", dead_letter=refuse)
    writer.add("a", 0, 1)
    writer.commit()
    fail_listing(monkeypatch, folder)
    with pytest.raises(HeronError, match="Input/output error"):
        compact(job_at(tmp_path))
    if folder == "batch=0":
        with pytest.raises(HeronError, match="Input/output error"):
            Archive(directory).batches()


def test_views_that_cannot_be_listed_are_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_listing(monkeypatch, "views")
    with pytest.raises(HeronError, match=r"files of stored cannot be read or written.*Input/output error"):
        run(job_at(tmp_path), until_ms=0)
