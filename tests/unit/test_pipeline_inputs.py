"""What a batch run reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveFile, ArchiveWriter
from heronpy.connectors import ListSource, TextFile
from heronpy.pipeline import Job
from heronpy.pipeline.execute import ScanTask
from heronpy.pipeline.inputs import ArchiveInput, archive_readings, complete_before_ms, local_files, open_archives
from heronpy.pipeline.plan import plan_batch
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program


def test_what_is_archived_while_files_are_listed_is_not_taken_for_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()
    builder.new_source(ListSource(["a"])).archive().map(lambda word: (word, 1)).to_store("counts", Sum())
    config = Config()
    config.set_pipeline(tmp_path, batch_length=10)
    job = Job.of(Program("late", config, builder.graph))
    writer = ArchiveWriter(
        tmp_path / "archive" / "events", task="0", batch_length_ms=10_000, codec="columns", dead_letter=print, run="r"
    )
    writer.progress(10_000)
    listed = Archive.batches

    def batches(archive: Archive) -> Any:
        found = listed(archive)
        writer.add("a", 15_000, "word")
        writer.commit()
        writer.progress(20_000)
        return found

    monkeypatch.setattr(Archive, "batches", batches)
    (archive,) = open_archives(job, plan_batch(job))
    assert archive.files == {}
    assert complete_before_ms(job, [archive]) == 10_000, "batch 1 would be done without what is in it"


@pytest.mark.parametrize(
    ("files", "megabytes", "cores", "tasks"),
    [
        (100, 0.1, 160, 10),  # 10 MB: no task has less than a megabyte
        (100, 0.1, 8, 8),  # one task per core
        (100, 0.1, 2, 3),  # not smaller than 4 MB while every core has one
        (10, 0.1, 160, 1),
        (100, 1.0, 160, 100),
        (1000, 1.0, 16, 50),  # three per core
        (1000, 10.0, 2, 167),  # not larger than 64 MB
    ],
)
def test_task_sizes_come_from_bytes_and_cores(
    tmp_path: Path, files: int, megabytes: float, cores: int, tasks: int
) -> None:
    ArchiveWriter(tmp_path, task="0", batch_length_ms=10_000, codec="columns", dead_letter=print).close()
    size = int(megabytes * 1e6)
    found = [ArchiveFile(0, tmp_path / "batch=0" / f"{number}.parquet", size) for number in range(files)]
    readings = archive_readings([ArchiveInput("lines", Archive(tmp_path), {0: found})], None, cores)
    assert len(readings) == tasks
    assert sum(split.size_bytes for reading in readings for split in reading.splits) == files * size


def test_files_of_this_machine_are_found_among_what_sources_read(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\n")
    lines, listed = TextFile(str(path)).splits(1), ListSource(["a"]).splits(1)
    assert lines
    assert listed
    readings = [ScanTask("lines", tuple(lines)), ScanTask("listed", tuple(listed))]
    assert local_files(readings) == {"the input of lines": path}
