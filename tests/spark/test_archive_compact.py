"""Compaction with Spark: equal before and after, killed at any moment, one at a time, and users' own SQL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.files import locked
from heronpy.errors import UnavailableError
from heronpy.pipeline.compaction import compact
from heronpy.testing import eventually_sync

sys.path.insert(0, str(Path(__file__).parent))
from archive_compacting import BATCH_MS, job

SCRIPT = Path(__file__).with_name("archive_compacting.py")


pytestmark = pytest.mark.spark


def refuse(where: str, _row: Any, reason: str) -> None:
    raise AssertionError(f"{where}: {reason}")


def fill(directory: Path, batches: int, commits: int = 4) -> Archive:
    """Commits of some rows in each batch; every row has a field that only its commit has."""
    path = directory / "archive/events"
    writer = ArchiveWriter(path, task="t-0", batch_length_ms=BATCH_MS, codec="columns", dead_letter=refuse)
    for commit in range(commits):
        for batch in range(batches):
            for row in range(5):
                value = {"n": row if commit % 2 else row / 2, f"f{commit}": f"{batch}", "tags": [{"t": row}]}
                writer.add(f"{batch}-{commit}-{row}", batch * BATCH_MS + row, value)
        writer.commit()
    writer.progress(None)
    return Archive(path)


def rows(archive: Archive) -> list[str]:
    """Every row as text, in an order; one that is there twice is there twice."""
    found = []
    for files in archive.batches().values():
        for split in archive.splits(files, 1 << 20):
            for chunk in split.read(refuse):
                for id_, time_ms, value in zip(map(str, chunk.ids or ()), chunk.times_ms, chunk.values, strict=True):
                    found.append(f"{id_} {time_ms} {sorted(value.items())}")
    return sorted(found)


def prints(archive: Archive) -> str:
    return archive.fingerprint(file for files in archive.batches().values() for file in files)


def counts(archive: Archive) -> set[int]:
    """How many files the batches have."""
    return {len(files) for files in archive.batches().values()}


@pytest.mark.usefixtures("spark")
def test_an_archive_is_equal_before_and_after(tmp_path: Path) -> None:
    archive = fill(tmp_path, batches=5)
    before, fingerprint = rows(archive), prints(archive)
    assert counts(archive) == {4}
    lines: list[str] = []
    report = compact(job(tmp_path), master="local[2]", min_files=4, progress=lines.append)
    assert (report.batches, report.files_before, report.files_after, report.rows) == (5, 20, 5, 100)
    assert lines[0] == "20 files to merge into 5"
    archive = Archive(archive.directory)
    assert counts(archive) == {1}
    assert (rows(archive), prints(archive)) == (before, fingerprint)
    assert list((archive.directory / "_tmp").iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_replaced_files_stay_for_their_readers_and_go_later(tmp_path: Path) -> None:
    archive = fill(tmp_path, batches=2)
    listed = [file.path for files in archive.batches().values() for file in files]
    before = rows(archive)
    compact(job(tmp_path), master="local[2]", min_files=2)
    assert all(path.exists() for path in listed)
    assert compact(job(tmp_path), master="local[2]", min_files=2).removed == 0
    assert compact(job(tmp_path), master="local[2]", min_files=2, keep_replaced_s=0).removed == 8
    assert not any(path.exists() for path in listed)
    assert rows(Archive(archive.directory)) == before


def test_incomplete_batches_and_few_files_are_left_alone_without_spark(tmp_path: Path) -> None:
    archive = fill(tmp_path, batches=3)
    (archive.directory / "_progress/@t-0.json").unlink()
    assert compact(job(tmp_path), min_files=2).files_before == 0
    fill(tmp_path, batches=1, commits=1)
    assert compact(job(tmp_path), min_files=20).files_before == 0
    assert compact(job(tmp_path / "nothing")).files_before == 0


@pytest.mark.usefixtures("spark")
def test_a_damaged_file_is_skipped_by_name_and_the_others_are_merged(tmp_path: Path) -> None:
    archive = fill(tmp_path, batches=1)
    bad = archive.batches()[0][1].path
    content = bytearray(bad.read_bytes())
    content[len(content) // 4] ^= 1
    bad.write_bytes(content)
    report = compact(job(tmp_path), master="local[2]", min_files=2)
    assert (report.files_before, report.files_after) == (3, 1)
    assert [line.partition(":")[0] for line in report.skipped] == [str(bad)]
    assert bad in [file.path for file in Archive(archive.directory).batches()[0]]


def test_two_compactions_at_once_are_refused(tmp_path: Path) -> None:
    archive = fill(tmp_path, batches=1)
    with (
        locked(archive.directory / "_compact.lock", "the other one"),
        pytest.raises(UnavailableError, match="archive events is being compacted already"),
    ):
        compact(job(tmp_path), min_files=2)


@contextlib.contextmanager
def compacting(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A compaction as a process of its own; at the end its Spark is gone too."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(directory)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(300)
        assert process.stdout is not None
        process.stdout.close()
        eventually_sync(lambda: no_process_of(process.pid))


def no_process_of(session: int) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                assert os.getsid(process.pid) != session, process


@pytest.mark.long
def test_killed_in_the_middle_every_event_is_there_once_and_the_next_one_goes_on(tmp_path: Path, spark: Any) -> None:
    batches = 40  # more than one round of tasks
    archive = fill(tmp_path, batches)
    before, fingerprint = rows(archive), prints(archive)
    with compacting(tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(10)]
        process.kill()
        process.wait(300)
        assert lines[-1].startswith("events: 4 files became "), "the ninth of the merged batches"
        archive = Archive(archive.directory)
        assert counts(archive) == {1, 4}
        assert (rows(archive), prints(archive)) == (before, fingerprint)
    assert compact(job(tmp_path), master="local[2]", min_files=2, keep_replaced_s=0).files_after < batches
    archive = Archive(archive.directory)
    assert counts(archive) == {1}
    assert (rows(archive), prints(archive)) == (before, fingerprint)
    assert list((archive.directory / "_tmp").iterdir()) == []


def test_users_query_an_archive_with_sql(tmp_path: Path, spark: Any) -> None:
    archive = fill(tmp_path, batches=2)
    spark.read.option("mergeSchema", "true").parquet(str(archive.directory)).createOrReplaceTempView("events")
    query = "SELECT count(*) AS events, sum(value.n) AS n, max(value.f2) AS f FROM events WHERE batch = 1"
    (row,) = spark.sql(query).collect()
    assert (row.events, row.n, row.f) == (20, 30.0, "1")


def test_a_field_that_was_always_none_does_not_keep_spark_from_merging_schemas(tmp_path: Path, spark: Any) -> None:
    for index, value in enumerate([{"a": None, "b": 1}, {"a": "text", "b": None}]):
        writer = ArchiveWriter(tmp_path, task="t-0", batch_length_ms=BATCH_MS, codec="columns", dead_letter=refuse)
        writer.add(f"id-{index}", 0, value)
        writer.commit()
    table = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id")
    assert [(row.value.a, row.value.b) for row in table.collect()] == [(None, 1), ("text", None)]
