"""Views that a program no longer has: they stay in its batches, until a vacuum is told that they may go."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, Manifest, ViewReader, running
from heronpy.pipeline.vacuum import vacuum
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session

pytest.importorskip("pyspark", reason="batch runs need it")

LENGTH_MS = 10_000
BATCHES = 20
"""So many that there are tiers."""


def job_in(directory: Path, *views: str) -> Job:
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="words")
    for view in views:
        pairs = words.map(lambda word: (word, 1))
        if view == "running":
            pairs = pairs.reduce_by_key(lambda a, b: a + b).set_name("all")
        pairs.to_store(view, Sum())
    config.set_pipeline(directory, batch_length=LENGTH_MS // 1000)
    return Job.of(Program("gone", config, builder.graph))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Batches with three views."""
    monkeypatch.setattr(running, "spark_session", inline_session)
    archive = ArchiveWriter(
        tmp_path / "archive" / "words", task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print, run="r"
    )
    for n in range(BATCHES):
        archive.add(f"e{n}", n * LENGTH_MS, "word")
    archive.commit()
    archive.progress(BATCHES * LENGTH_MS)
    archive.close()
    running.run(job_in(tmp_path, "kept", "old", "running"))
    return tmp_path


def total(job: Job, view: str) -> int:
    with closing(ViewReader(job.directory, view, Sum())) as reader:
        return int(dict(reader.totals())["word"])


def folders(directory: Path) -> set[str]:
    return {path.name for path in (directory / "views").iterdir() if any(one.is_file() for one in path.rglob("*"))}


def test_views_that_are_gone_are_named_and_stay(directory: Path) -> None:
    now = job_in(directory, "kept")
    gone = {"old": BATCHES, "running": BATCHES, "~all": BATCHES}
    assert vacuum(now).gone_views == gone
    report = vacuum(now, gone_views=True, dry_run=True)
    assert report.gone_views == gone
    assert {Path(path).parts[-3] for path in report.leftovers} >= {"old", "running", "~all"}
    assert folders(directory) == {"kept", "old", "running", "~all"}
    assert total(job_in(directory, "kept", "old", "running"), "old") == BATCHES


def test_views_that_may_go_leave_no_file_and_come_back_computed(directory: Path) -> None:
    now = job_in(directory, "kept", "running")
    vacuum(now, gone_views=True)
    assert folders(directory) == {"kept", "running", "~all"}
    assert "old" not in Manifest.load(directory).tiers
    assert total(now, "kept") == BATCHES
    assert running.run(now).batches == [], "nothing of it is another"
    assert vacuum(now).gone_views == {}
    back = job_in(directory, "kept", "old", "running")
    assert running.run(back).batches == [*range(BATCHES)]
    assert (total(back, "old"), total(back, "kept")) == (BATCHES, BATCHES)
