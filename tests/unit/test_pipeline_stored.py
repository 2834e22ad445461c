"""Batch runs whose files are in a store, where another run may take over at any moment."""

from __future__ import annotations

import errno
import itertools
import os
import time
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

pytest.importorskip("pyspark", reason="batch runs are Spark's")

from heronpy.archive import Archive, ArchiveWriter, DeadLetters, dead_letter_counts
from heronpy.checkpoints import ArrowStorage
from heronpy.connectors import ListSource
from heronpy.errors import AlreadyExistsError, FencedError, HeronError, UnavailableError
from heronpy.filesystem import Location, StoredFiles, UrlPath, files_of
from heronpy.pipeline import Job, Manifest, ViewReader, run
from heronpy.pipeline import vacuum as vacuums
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.leftovers import find_leftovers
from heronpy.pipeline.letters import find_letters, staged_name, stale_letters
from heronpy.pipeline.manifest import Batch, Parts, lock
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


def test_a_run_that_wakes_up_leaves_its_successor_the_lease_and_the_manifest(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    with lock(place) as asleep:
        monkeypatch.setattr(time, "time", lambda: now_s + 1000)
        monkeypatch.setattr("heronpy.pipeline._manifest_log._LEASE_S", 0.0)
        with lock(place) as awake:
            monkeypatch.setattr("heronpy.pipeline._manifest_log._LEASE_S", 120.0)
            manifest = Manifest.load(place, 10_000)
            awake()
            manifest.claim(place)
            Manifest.load(place)
            with pytest.raises(AlreadyExistsError, match="another batch run works on"):
                asleep()
            awake()
    assert files_of(place).below(place / "manifest.lock") == []


def test_a_run_that_wakes_up_goes_on_if_nobody_has_come(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    with lock(place) as asleep:
        monkeypatch.setattr(time, "time", lambda: now_s + 1000)
        asleep()
        with pytest.raises(AlreadyExistsError), lock(place):
            pass
        asleep()


def test_a_vacuum_that_slept_leaves_another_the_manifest(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(*args: Any, **kwargs: Any) -> list[Location]:
        files_of(place).write(place / "manifest.lock" / "00000000000001-another@1.json", b"{}")
        return []

    Manifest(10_000).save(place)
    successor = Manifest.load(place, 10_000)
    monkeypatch.setattr(vacuums, "find_leftovers", sleep)
    with pytest.raises(AlreadyExistsError, match="another batch run works on"):
        vacuums.vacuum(job_at(place))
    successor.claim(place)


def test_a_lease_that_could_not_be_removed_is_in_no_way_of_the_same_process(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise UnavailableError("the store is away")

    with monkeypatch.context() as patch, lock(place):
        patch.setattr(StoredFiles, "delete", away)
    assert len(files_of(place).below(place / "manifest.lock")) == 1
    with lock(place), pytest.raises(AlreadyExistsError), lock(place):
        pass
    assert files_of(place).below(place / "manifest.lock") == []


def test_dead_letters_that_a_saved_manifest_names_are_published_by_the_next_run(place: Location) -> None:
    letters = DeadLetters(place, "keyed", staged=staged_name(3, "1a-00000001"))
    letters("row", "x", "ValueError")
    letters.close()
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    manifest.batches[3] = Batch("1a-00000001", "")
    manifest.letters = [f"keyed/{letters.files[0].name}"]
    manifest.save(place)
    assert dead_letter_counts(place) == {"keyed": 0}
    for _ in range(2):
        run(job_at(place), until_ms=0)
        assert dead_letter_counts(place) == {"keyed": 1}
    files_of(place).delete_folder(place / "dead-letter")
    run(job_at(place), until_ms=0)
    assert dead_letter_counts(place) == {}, "who tidies up is in no run's way"


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


def test_what_others_have_in_a_directory_that_is_a_whole_bucket_is_no_leftover(place: Location) -> None:
    others = ["states-1990/census.csv", "states-of-matter", "views/notes.txt"]
    for name in (*others, "states-19a0b1c2d3e-0a1b2c3d/part-00000"):
        files_of(place).write(place / name, b"1")
    (left,) = find_leftovers(job_at(place), Manifest(10_000), thorough=True)
    assert left == place / "states-19a0b1c2d3e-0a1b2c3d/part-00000"


def test_what_a_run_has_left_that_died_while_it_asked_what_the_store_does_is_removed(place: Location) -> None:
    probe = place / "manifest.json" / "probe-0123456789abcdef"
    files_of(place).write(probe, b"7")
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    assert probe in files_of(place).below(place), "it may be somebody's who is at it"
    manifest.save(place)
    assert probe not in files_of(place).below(place)


def test_what_attempts_have_left_that_did_not_count_is_removed_by_the_next_run(place: Location) -> None:
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    counts = put_batch(place, manifest, 0, {"a": 1})
    manifest.save(place)
    files_of(place).write(counts.with_name("part-00000-aaaaaaaaaaaa.parquet"), b"of a worker that was killed")
    run(job_at(place), until_ms=0)
    assert files_of(place).below(place / "views") == [counts]


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
    files_of(place).delete(stale_letters(found, Manifest(10_000)))
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


def history_of(directory: Location) -> set[str]:
    return {file.path.name for file in files_of(directory).listed(directory / "history")}


def test_of_two_runs_the_segments_of_the_one_that_counts_stay(place: Location) -> None:
    first = Manifest.load(place, 10_000)
    first.claim(place)
    put_batch(place, first, 1, {"a": 1})
    first.save(place)
    asleep, awake = Manifest.load(place), Manifest.load(place)
    asleep.claim(place)
    awake = Manifest.load(place)
    awake.claim(place)
    put_batch(place, awake, 2, {"b": 2})
    put_batch(place, asleep, 2, {"c": 3})
    with pytest.raises(FencedError):
        asleep.save(place)
    awake.save(place)
    assert len(history_of(place)) == 3, "of the first, which others may read; of both runs"
    run(job_at(place), until_ms=0)
    after = Manifest.load(place)
    assert history_of(place) == after.segment_files()
    assert after.batches[2] == awake.batches[2]
    assert len(after.batches) == 2


def test_a_run_that_dies_between_its_segment_and_its_manifest_leaves_the_former_one(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    put_batch(place, manifest, 1, {"a": 1})
    manifest.save(place)
    reader = ViewReader(place, "counts", Sum())
    put_batch(place, manifest, 1, {"a": 5})
    with monkeypatch.context() as patched:
        patched.setattr("heronpy.pipeline._manifest_log.append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            manifest.save(place)
    assert reader.get("a") == ViewReader(place, "counts", Sum()).get("a") == 1
    run(job_at(place), until_ms=0)
    assert history_of(place) == Manifest.load(place).segment_files()
    assert ViewReader(place, "counts", Sum()).get("a") == 1
    reader.close()


def test_a_reader_goes_on_when_the_segments_of_its_manifest_are_gone(place: Location) -> None:
    manifest = Manifest.load(place, 10_000)
    manifest.claim(place)
    put_batch(place, manifest, 1, {"a": 1})
    manifest.save(place)
    reader = ViewReader(place, "counts", Sum(), Manifest.load(place))
    for n in range(40):
        put_batch(place, manifest, 2, {"a": n})
        manifest.save(place)
    assert reader.get("a") == 40
    reader.close()
