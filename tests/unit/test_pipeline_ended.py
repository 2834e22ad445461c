"""Sources that have ended: what is done ends with their last batch, so later input is seen live before the next run."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from heronpy.archive import ArchiveWriter
from heronpy.connectors import ListSource
from heronpy.pipeline import Job, MergedStore, running
from heronpy.stores import StoreContext
from heronpy.streamlet import Builder, Config, Sum, WindowConfig
from heronpy.streamlet.runner import Program
from tests.chaos.inline_spark import inline_session

pytest.importorskip("pyspark", reason="batch runs need it")

LENGTH_MS = 10_000


class Ended:
    """A program with plain and windowed counts, and its archive."""

    def __init__(self, directory: Path, window_s: int) -> None:
        builder, config = Builder(), Config()
        ones = builder.new_source(ListSource(["a"], times=[0], ids=["a"])).archive(name="words").map(lambda w: (w, 1))
        ones.to_store("counts", Sum())
        ones.reduce_by_key_and_window(WindowConfig(window_s, window_s), lambda a, b: a + b).to_store("windows", Sum())
        config.set_pipeline(directory, batch_length=LENGTH_MS // 1000)
        self.job = Job.of(Program("ended", config, builder.graph))
        self.directory = directory
        self._number = 0

    def write(self, *batches: int, upto_ms: int | None = None) -> None:
        """As a topology that reads a source to its end (None), or up to a time."""
        self._number += 1
        writer = ArchiveWriter(
            self.directory / "archive" / "words",
            task="0",
            batch_length_ms=LENGTH_MS,
            codec="columns",
            dead_letter=print,
            run=f"r{self._number}",
        )
        node = self.job.stores()["counts"]
        context = StoreContext(view="counts", monoid=node.monoid, directory=self.directory)
        with closing(node.store.writer(context, f"task-{self._number}")) as live:
            for batch in batches:
                writer.add(f"{self._number}-{batch}", batch * LENGTH_MS, "word")
                live.merge("word", 1, batch)
            live.commit()
        writer.commit()
        writer.progress(upto_ms)
        writer.close()

    def count(self) -> int:
        with MergedStore(self.job, "counts") as store:
            return int(store.get("word"))


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "spark_session", inline_session)


@pytest.mark.parametrize(("window_s", "reach"), [(10, 1), (60, 6)])
def test_done_is_what_there_is_with_all_that_its_windows_reach_into(tmp_path: Path, window_s: int, reach: int) -> None:
    program = Ended(tmp_path, window_s)
    program.write(0, 1, 2)
    report = running.run(program.job)
    assert report.committed_watermark == 2 + reach
    assert report.rows["windows"] == len({batch * LENGTH_MS // (window_s * 1000) for batch in (0, 1, 2)})
    assert running.run(program.job).committed_watermark == 2 + reach


def test_what_comes_after_the_end_is_seen_live_before_the_next_run(tmp_path: Path) -> None:
    program = Ended(tmp_path, 10)
    program.write(0, 1, 2)
    running.run(program.job)
    program.write(7, 8)
    assert program.count() == 5
    assert running.run(program.job).committed_watermark == 9
    assert program.count() == 5


def test_a_source_that_goes_on_says_itself_how_far_all_is_done(tmp_path: Path) -> None:
    program = Ended(tmp_path, 10)
    program.write(0, 1, 2, upto_ms=6 * LENGTH_MS)
    assert running.run(program.job).committed_watermark == 5


def test_events_ahead_of_the_clock_are_not_done_before_their_time(tmp_path: Path) -> None:
    program = Ended(tmp_path, 10)
    program.write(0, int(time.time() * 1000) // LENGTH_MS + 1_000)
    committed = running.run(program.job).committed_watermark
    assert committed is not None
    assert (committed + 1) * LENGTH_MS <= time.time() * 1000
    assert program.count() == 2


def test_a_source_that_goes_on_is_not_taken_for_ended_because_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Ended(tmp_path, 10)
    with monkeypatch.context() as patched:
        patched.setattr("heronpy.archive._progress.time.time_ns", lambda now=time.time_ns: now() + 10**9 * 3600)
        program.write(0)
    for n in (1, 2, 3):  # each begins after the one before
        program.write(n, upto_ms=n * LENGTH_MS)
        assert running.run(program.job).committed_watermark == n - 1
        assert program.count() == n + 1, "what is not done is live"
