"""Archives and batch runs whose files are in HDFS: a real NameNode and DataNode."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter, dead_letter_counts
from heronpy.connectors import ListSource, TextSink
from heronpy.errors import AlreadyExistsError, FencedError
from heronpy.filesystem import Location, files_of, location
from heronpy.pipeline import Job, Manifest, ViewReader, run
from heronpy.pipeline.compaction import compact
from heronpy.pipeline.manifest import lock
from heronpy.stores import SqliteStore
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from heronpy.testing.files_kit import FilesKit
from heronpy.testing.hdfs import HdfsCluster, hdfs_missing
from heronpy.testing.servers import spark_missing

pytestmark = pytest.mark.skipif(hdfs_missing() is not None, reason=hdfs_missing() or "")

_NUMBERS = itertools.count()
ROWS = [(f"w{i % 7} w{i % 3}", i * 100, f"id-{i}") for i in range(300)]
END_MS = 30_000


@pytest.fixture
def place(hdfs: HdfsCluster) -> Location:
    return location("it", hdfs.url("jobs")) / str(next(_NUMBERS))


class TestHdfsFiles(FilesKit):
    pass


@pytest.fixture(scope="module")
def spark(hdfs: HdfsCluster) -> Iterator[None]:
    if why := spark_missing():
        pytest.skip(why)
    from heronpy.pipeline import spark_session

    with spark_session("tests", "local[2]"):  # the runs below find it, and leave it
        yield


def job_at(directory: Location, live: Path) -> Job:
    def word(text: str) -> tuple[str, int]:
        return text, 1 // (text != "bad")

    builder, config = Builder(), Config()
    words = builder.new_source(ListSource([], times=[], ids=[])).archive().flat_map(str.split)
    words.map(word).to_store("counts", Sum(), SqliteStore(live))
    words.to_sink(TextSink("unused"))
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("in-hdfs", config, builder.graph))


def archive(directory: Location, rows: list[tuple[str, int, str]], task: str = "t-0") -> None:
    def no_letter(*letter: Any) -> None:
        raise AssertionError(letter)

    path = directory / "archive" / "events"
    writer = ArchiveWriter(path, task=task, batch_length_ms=10_000, codec="columns", dead_letter=no_letter, run="r")
    for value, time_ms, name in rows:
        writer.add(name, time_ms, value)
    writer.commit()
    writer.progress(END_MS)
    writer.close()


def counts(rows: list[tuple[str, int, str]]) -> dict[int, dict[str, int]]:
    batches: dict[int, Counter[str]] = {}
    for line, time_ms, _ in {name: (line, time_ms, name) for line, time_ms, name in rows}.values():
        batches.setdefault(time_ms // 10_000, Counter()).update(word for word in line.split() if word != "bad")
    return {batch: dict(words) for batch, words in batches.items()}


def view_of(job: Job) -> dict[int, dict[str, int]]:
    with contextlib.closing(ViewReader(job.directory, "counts", Sum())) as reader:
        return {batch: dict(reader.items(batch)) for batch in reader.batches()}


def sunk(place: Location) -> int:
    """Lines in the sink's files."""
    files = files_of(place)
    return sum(len(files.read(path).splitlines()) for path in files.below(place / "sinks"))


@pytest.mark.usefixtures("spark")
def test_what_is_archived_in_hdfs_is_computed_exactly_and_again_when_it_is_late(
    place: Location, tmp_path: Path
) -> None:
    job = job_at(place, tmp_path)
    rows = [*ROWS, ("bad", 9_999, "id-bad")]
    archive(place, rows)
    archive(place, ROWS[:40], task="t-1")
    report = run(job, until_ms=END_MS)
    assert (report.batches, report.elements, report.duplicates, report.dead_letters) == ([0, 1, 2], 301, 40, 1)
    assert view_of(job) == counts(rows)
    assert (sunk(place), sum(dead_letter_counts(place).values())) == (601, 1)
    rows.append(("w1 late", 5_000, "late"))
    archive(place, rows[-1:])
    assert run(job, until_ms=END_MS).batches == [0]
    assert view_of(job) == counts(rows)
    assert (sunk(place), sum(dead_letter_counts(place).values())) == (603, 1)


@pytest.mark.usefixtures("spark")
def test_of_two_runs_in_hdfs_the_later_one_counts(place: Location, tmp_path: Path) -> None:
    job = job_at(place, tmp_path)
    archive(place, ROWS)
    run(job, until_ms=10_000)
    asleep = Manifest.load(place, job.batch_length_ms)
    asleep.claim(place)
    assert run(job, until_ms=END_MS).batches == [1, 2]
    with pytest.raises(FencedError, match="another batch run has taken over"):
        asleep.save(place)
    assert view_of(job) == counts(ROWS)
    with lock(place), pytest.raises(AlreadyExistsError, match="another batch run works on hdfs://"):
        run(job, until_ms=END_MS)


@pytest.mark.usefixtures("spark")
def test_an_archive_in_hdfs_is_compacted(place: Location, tmp_path: Path) -> None:
    job = job_at(place, tmp_path)
    for part in range(9):
        archive(place, ROWS[part::9], task=f"t-{part}")
    report = compact(job, master="local[2]")
    assert (report.batches, report.files_before, report.files_after, report.rows) == (3, 27, 3, 300)
    assert [len(files) for files in Archive(place / "archive" / "events").batches().values()] == [1, 1, 1]
    assert run(job, until_ms=END_MS).batches == [0, 1, 2]
    assert view_of(job) == counts(ROWS)
    assert compact(job, master="local[2]", keep_replaced_s=0).removed == 27
