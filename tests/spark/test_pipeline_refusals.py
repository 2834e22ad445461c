"""What must not make views lie: other monoids, other views, archives that have lost rows, times of the future."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from pipeline_lists import Lists
from pipeline_program import archive

from heronpy.errors import DamagedInputError, HeronError, StateError
from heronpy.pipeline import Job, Manifest, MergedStore, ViewReader, run
from heronpy.pipeline.execute import translated
from heronpy.pipeline.reconcile import live_reader
from heronpy.stores import SqliteStore, StoreContext
from heronpy.streamlet import Builder, Config, Max, Monoid, Sum
from heronpy.streamlet.runner import Program
from heronpy.testing import eventually_sync

pyspark = pytest.importorskip("pyspark")

ROWS = [(f"w{i % 7}", i * 100, f"id-{i}") for i in range(500)]
"""50 s: batches 0 to 4."""
END_MS = 50_000


def name_of(process: psutil.Process) -> str:
    """Empty, if it has just ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def test_an_interrupt_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
        "from pipeline_program import job_at, run; "
        f"run(job_at(Path(sys.argv[2])), master='local[1]', until_ms={END_MS})"
    )
    process = psutil.Popen(
        [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started: list[psutil.Process] = []

    def starts() -> None:
        # A shell, which becomes the JVM, and what it calls to find out how.
        started[:] = process.children(recursive=True)
        assert "java" in {name_of(child) for child in started}

    try:
        eventually_sync(starts)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) != 0
        _, alive = psutil.wait_procs(started, timeout=120)
        assert not alive
    finally:
        for left in [process, *started]:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


def job_of(directory: Path, monoid: Monoid | None = None, view: str = "counts", *, reduced: bool = False) -> Job:
    builder = Builder()
    words = builder.new_source(Lists()).archive().map(lambda word: (word, 1))
    if reduced:
        words = words.reduce_by_key(lambda a, b: a + b)
    words.to_store(view, monoid or Sum())
    config = Config()
    config.set_pipeline(directory, batch_length=10)
    return Job.of(Program("hunted", config, builder.graph))


def totals(job: Job, view: str = "counts") -> dict[Any, Any]:
    with closing(ViewReader(job.directory, view, job.stores()[view].monoid)) as reader:
        return dict(reader.totals())


EXACT = dict(Counter(word for word, _, _ in ROWS))


@pytest.mark.usefixtures("spark")
def test_a_view_with_another_monoid_is_refused_until_it_is_computed_anew(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    run(job_of(tmp_path), until_ms=END_MS)
    changed = job_of(tmp_path, Max())
    with closing(MergedStore(changed, "counts")) as store, pytest.raises(StateError, match=r"made with Sum\(\)"):
        store.get("w1")
    assert run(changed, until_ms=END_MS).batches == [0, 1, 2, 3, 4]
    assert totals(changed) == dict.fromkeys(EXACT, 1)
    assert run(changed, until_ms=END_MS).batches == []


@pytest.mark.usefixtures("spark")
def test_a_new_view_is_refused_until_the_batches_that_are_done_have_it(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    run(job_of(tmp_path), until_ms=END_MS)
    renamed = job_of(tmp_path, view="renamed")
    with closing(MergedStore(renamed, "renamed")) as store, pytest.raises(StateError, match="not computed for 5"):
        store.get("w1")
    run(renamed, until_ms=END_MS)
    assert totals(renamed, "renamed") == EXACT


@pytest.mark.usefixtures("spark")
def test_results_stay_when_their_batches_are_removed_from_the_archive(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    archive(tmp_path, [("w1", 21_000, "more")], task="t-1")
    run(job_of(tmp_path), until_ms=END_MS)
    before = totals(job_of(tmp_path))
    folder = tmp_path / "archive" / "events"
    shutil.rmtree(folder / "batch=1")
    next((folder / "batch=2").glob("*-t-1-*")).unlink()
    report = run(job_of(tmp_path), until_ms=END_MS)
    assert report.batches == []
    assert report.notes == [
        "the archive has lost rows of 2 batches (1970-01-01 00:00:10 to 1970-01-01 00:00:20): "
        "their results stay as they are"
    ]
    archive(tmp_path, [("late", 12_000, "late"), ("late", 45_000, "late-too")])
    for batches, done in (
        (None, [4]),
        ([1, 2, 3], [3]),
    ):  # one cannot be done with the late row, nor without the others
        with pytest.raises(DamagedInputError, match=r"00:00:10 cannot be done: .* are gone; put back") as refused:
            run(job_of(tmp_path), until_ms=END_MS, batches=batches)
        assert refused.value.report.batches == done
    assert totals(job_of(tmp_path)) == {**before, "late": 1}


@pytest.mark.usefixtures("spark")
def test_a_reduction_over_everything_does_not_begin_with_what_is_lost(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    job = job_of(tmp_path, Max(), reduced=True)
    run(job, until_ms=END_MS)
    shutil.rmtree(tmp_path / "archive" / "events" / "batch=0")
    assert run(job, until_ms=END_MS).batches == []
    assert totals(job) == EXACT
    archive(tmp_path, [("w1", 51_000, "next")])
    with pytest.raises(StateError, match="batch 1970-01-01 00:00:50 cannot be computed"):
        run(job, until_ms=60_000)
    assert totals(job) == EXACT


@pytest.mark.usefixtures("spark")
def test_nothing_is_done_before_its_time(tmp_path: Path) -> None:
    future_ms = time.time_ns() // 1_000_000 + 10**9
    archive(tmp_path, [*ROWS, ("w1", future_ms, "future")])
    job = job_of(tmp_path)
    closed = run(job, until_ms=2 * future_ms).committed_watermark
    assert closed is not None
    assert closed * 10_000 < time.time() * 1000
    assert totals(job) == EXACT
    assert Manifest.load(tmp_path).committed_watermark == closed


@pytest.mark.usefixtures("spark")
def test_a_store_that_stays_open_says_the_same_through_runs_roll_ups_and_drops(tmp_path: Path) -> None:
    rows = [(f"w{i % 7}", i * 500, f"id-{i}") for i in range(800)]  # 40 batches
    exact = Counter(word for word, _, _ in rows)
    archive(tmp_path, rows)
    job = job_of(tmp_path)
    live = SqliteStore().writer(StoreContext(view="counts", monoid=Sum(), directory=tmp_path), "0")
    for word, time_ms, _ in rows:
        live.merge(word, 1, time_ms // 10_000)
    live.commit()
    reads, wrong, over = 0, [], threading.Event()

    def read_on(store: MergedStore) -> None:
        nonlocal reads
        while not over.wait(0.002):
            key = f"w{reads % 7}"
            reads += 1
            if (value := store.get(key)) != exact[key]:
                wrong.append((store.committed_watermark, key, value))

    with closing(MergedStore(job, "counts")) as store:
        reader = threading.Thread(target=read_on, args=[store])
        reader.start()
        try:
            for end_s in (190, 200, 390):
                run(job, until_ms=end_s * 1000)
                with live_reader(job, job.stores()["counts"]) as closed:  # as the command does with keep_live_batches=0
                    closed.drop(end_s // 10 - 1)
                    assert closed.batches() == list(range(end_s // 10, 40))
                assert dict(store.items()) == exact
        finally:
            over.set()
            reader.join()
        assert [tier.upto for tier in Manifest.load(tmp_path).tiers["counts"]] == [15, 31]
    live.close()
    assert reads > 100
    assert not wrong


def test_a_full_disk_is_one_line() -> None:
    trace = (
        "Traceback (most recent call last):\n  File x\nOSError: [Errno 28] Error writing: [errno 28] No space left\n\n"
    )
    error = translated(f"An error occurred\n{trace}\tat org.apache")
    assert type(error) is HeronError
    assert str(error).startswith("the Spark job cannot write: [Errno 28]")
    assert "\n" not in str(error)


def test_a_worker_that_was_killed_is_one_line() -> None:
    error = translated("Job aborted: Python worker exited unexpectedly (crashed)\n\tat org.apache\nEOFException")
    assert str(error).startswith("the Spark job failed: one of its Python workers was killed")
    assert "\n" not in str(error)
