"""What a batch run reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job
from heronpy.pipeline.inputs import complete_before_ms, open_archives
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
