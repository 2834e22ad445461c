"""A view that no batch run computes, beside those that one does: all of it is live, and stays."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource, Source, SourceContext, SourceReader
from heronpy.errors import TopologyError
from heronpy.pipeline import Job, MergedStore, running
from heronpy.pipeline.reconcile import drop_live_rows, reconcile
from heronpy.pipeline.status import collect
from heronpy.stores import StoreContext
from heronpy.streamlet import Builder, Config, Sum
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session

pytest.importorskip("pyspark", reason="batch runs need it")

LENGTH_MS = 10_000


class Unarchived(Source):
    """Has no past."""

    timed = True

    def open(self, context: SourceContext) -> SourceReader:
        raise NotImplementedError


def job_in(directory: Path, *, archives_all: bool = False) -> Job:
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="words")
    words.map(lambda word: (word, 1)).to_store("exact", Sum())
    others = words if archives_all else builder.new_source(Unarchived())
    others.map(lambda word: (word, 1)).to_store("alone", Sum())
    config.set_pipeline(directory, batch_length=LENGTH_MS // 1000, keep_live_batches=0)
    return Job.of(Program("both", config, builder.graph))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Three batches in archive and live views, of which the first two are complete."""
    monkeypatch.setattr(running, "spark_session", inline_session)
    job = job_in(tmp_path)
    directory = tmp_path / "archive" / "words"
    archive = ArchiveWriter(directory, task="0", batch_length_ms=LENGTH_MS, codec="columns", dead_letter=print, run="r")
    for n in range(30):
        archive.add(f"e{n}", n * 1000, "word")
    archive.commit()
    archive.progress(2 * LENGTH_MS)
    archive.close()
    for view, node in job.stores().items():
        context = StoreContext(view=view, monoid=node.monoid, directory=tmp_path)
        with closing(node.store.writer(context, "task-0")) as live:
            for n in range(30):
                live.merge("word", 2, n * 1000 // LENGTH_MS)  # each twice, as after a replay
            live.commit()
    return job


def run(job: Job) -> Any:
    report = running.run(job)
    drop_live_rows(job)
    return report


def read(job: Job, view: str, **options: Any) -> Any:
    with MergedStore(job, view, **options) as store:
        assert dict(store.items()) == {"word": store.get("word")}
        return store.get("word")


def test_a_view_without_a_batch_side_keeps_its_live_rows_and_the_others_are_computed(job: Job) -> None:
    report = run(job)
    assert report.rows == {"exact": 2}
    (note,) = report.notes
    assert note.startswith("view alone has no batch side: source-2 cannot be read in batch: Unarchived has no past")
    assert (read(job, "exact"), read(job, "alone")) == (20 + 2 * 10, 60)
    rows = {view["view"]: (view["live_rows"], view["live_rows_open"]) for view in collect(job)["views"]}
    assert rows == {"exact": (1, 1), "alone": (3, 3)}
    assert [view.view for view in reconcile(job).views] == ["exact"]


def test_what_asks_for_the_batch_side_of_a_view_without_one_is_told_why(job: Job) -> None:
    run(job)
    with pytest.raises(TopologyError, match="nothing of view alone is exact: source-2 cannot be read in batch"):
        read(job, "alone", exact_only=True)
    with pytest.raises(TopologyError, match="view alone has nothing to be compared with: source-2"):
        reconcile(job, view="alone")


def test_a_view_that_loses_its_batch_side_stops_runs_and_is_read_as_before(job: Job) -> None:
    before = job_in(Path(str(job.directory)), archives_all=True)
    run(before)
    exact = read(before, "alone")
    with pytest.raises(TopologyError, match="batches that are done have the view alone: give it another name"):
        run(job)
    assert read(job, "alone") == exact == 20 + 2 * 10
