"""Batch runs over an archive: duplicates, late data, runs that are killed, a cluster."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from pipeline_program import WINDOW, archive, job_at
from test_pipeline_refusals import name_of

from heronpy.errors import ConfigError
from heronpy.pipeline import Job, Manifest, ViewReader, run
from heronpy.streamlet import Sum
from heronpy.streamlet.windows import window_at
from heronpy.testing import eventually_sync
from heronpy.testing.servers import ServerProcess, free_port

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

Rows = list[tuple[str, int, str]]
HERE = Path(__file__).parent
RNG = random.Random(7)
ROWS: Rows = [(f"w{RNG.randrange(9)} w{RNG.randrange(3)}", RNG.randrange(100_000), f"id-{i}") for i in range(3000)]
END_MS = 100_000


def views(job: Job) -> dict[str, dict[int, dict[Any, Any]]]:
    return {name: _view(job, name) for name in job.stores()}


def _view(job: Job, name: str) -> dict[int, dict[Any, Any]]:
    reader = ViewReader(job.directory, name, Sum())
    return {batch: rows for batch in reader.batches() if (rows := dict(reader.items(batch)))}


def exact(rows: Rows) -> dict[str, dict[int, dict[Any, Any]]]:
    counts: dict[int, Counter[Any]] = defaultdict(Counter)
    windows: dict[int, Counter[Any]] = defaultdict(Counter)
    for line, time, _ in {name: (line, time, name) for line, time, name in rows}.values():
        counts[time // 10_000].update(line.split())
        start = time - time % WINDOW.duration_ms
        result = start + WINDOW.duration_ms - 1
        if result < END_MS:
            window = window_at(start, WINDOW)
            windows[result // 10_000].update((word, window) for word in line.split())
    return {"counts": dict(counts), "windows": dict(windows)}


@pytest.mark.usefixtures("spark")
def test_duplicates_over_files_are_counted_once(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    archive(tmp_path, ROWS[:50] + ROWS[:10], task="t-1")
    report = run(job_at(tmp_path), until_ms=END_MS)
    assert views(job_at(tmp_path)) == exact(ROWS)
    assert (report.elements, report.duplicates, report.committed_watermark) == (3000, 60, 9)


@pytest.mark.usefixtures("spark")
def test_only_what_is_complete_and_new_is_computed(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    job = job_at(tmp_path)
    assert run(job, until_ms=45_000).batches == [0, 1, 2, 3]
    before = Manifest.load(tmp_path)
    assert before.committed_watermark == 3
    report = run(job, until_ms=END_MS)
    assert report.batches == [4, 5, 6, 7, 8, 9]
    assert Manifest.load(tmp_path).batches[2] == before.batches[2]
    assert views(job) == exact(ROWS)
    assert run(job, until_ms=END_MS).batches == []


@pytest.mark.usefixtures("spark")
def test_late_data_recomputes_what_it_can_be_seen_in(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    job = job_at(tmp_path)
    run(job, until_ms=END_MS)
    late: Rows = [("w1 late", 21_000, "late")]
    archive(tmp_path, late)
    # Its batch, and as many after it as a window of 15 s that contains it can end in.
    assert run(job, until_ms=END_MS).batches == [2, 3, 4]
    assert views(job) == exact(ROWS + late)
    versions = {batch.version for batch in Manifest.load(tmp_path).batches.values()}
    assert {path.name for path in (tmp_path / "views" / "counts").glob("batch=*/*")} <= versions
    assert len(list((tmp_path / "views" / "counts").glob("batch=2/*"))) == 1


@pytest.mark.usefixtures("spark")
def test_a_backfill_computes_what_it_is_told(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    job = job_at(tmp_path)
    run(job, until_ms=END_MS)
    before = Manifest.load(tmp_path)
    assert run(job, until_ms=END_MS, batches=[3, 7]).batches == [3, 7]
    after = Manifest.load(tmp_path)
    changed = {n for n in before.batches if before.batches[n].version != after.batches[n].version}
    assert changed == {3, 7}
    assert views(job) == exact(ROWS)


@pytest.mark.usefixtures("spark")
def test_many_batches_are_rolled_up_and_a_late_one_is_still_right(tmp_path: Path) -> None:
    rows: Rows = [(f"w{i % 3}", i * 1000, str(i)) for i in range(250)]
    archive(tmp_path, rows)
    job = job_at(tmp_path)
    run(job, until_ms=250_000)
    manifest = Manifest.load(tmp_path)
    (tier,) = manifest.tiers["counts"]
    assert (tier.after, tier.upto) == (None, 15)
    assert ViewReader(tmp_path, "counts", Sum()).get("w1") == 83
    assert dict(ViewReader(tmp_path, "counts", Sum()).totals()) == {"w0": 84, "w1": 83, "w2": 83}
    assert ViewReader(tmp_path, "counts", Sum()).get("w1", upto=0) == 3
    archive(tmp_path, [("w1", 5_000, "late")])
    run(job, until_ms=250_000)
    assert ViewReader(tmp_path, "counts", Sum()).get("w1") == 84
    assert len(list((tmp_path / "views" / "counts" / "base").iterdir())) == 1


@pytest.mark.usefixtures("spark")
def test_another_batch_length_is_refused(tmp_path: Path) -> None:
    archive(tmp_path, ROWS[:10])
    job = job_at(tmp_path)
    run(job, until_ms=END_MS)
    job.config.batch_length_ms = 5000
    with pytest.raises(ConfigError, match="has batches of 10 s and the program's are 5 s"):
        run(job, until_ms=END_MS)


@pytest.mark.long
def test_a_killed_run_leaves_the_old_views_and_no_jvm(tmp_path: Path) -> None:
    archive(tmp_path, ROWS)
    command = [sys.executable, str(HERE / "pipeline_program.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent.parent)))}
    job = job_at(tmp_path)
    run(job, master="local[1]", until_ms=END_MS, batches=range(10))
    manifest = Manifest.load(tmp_path)
    archive(tmp_path, [("w1 late", 21_000, "late")])
    from heronpy.archive import ArchiveWriter

    writer = ArchiveWriter(
        tmp_path / "archive" / "events", task="t-0", batch_length_ms=10_000, codec="columns", dead_letter=print, run="r"
    )
    writer.progress(END_MS)
    marker = tmp_path / "computing"
    process = subprocess.Popen([*command, str(marker)], env=environment)
    try:
        eventually_sync(lambda: _exists(marker))
        family = psutil.Process(process.pid).children(recursive=True)
        assert any("java" in name_of(child) for child in family)
    finally:
        process.kill()
        process.wait(300)
    assert Manifest.load(tmp_path) == manifest
    assert views(job) == exact(ROWS)
    _, alive = psutil.wait_procs(family, timeout=120)
    assert not alive
    marker.unlink(missing_ok=True)
    subprocess.run(command, env=environment, check=True, timeout=250)
    assert views(job) == exact([*ROWS, ("w1 late", 21_000, "late")])


def _exists(path: Path) -> None:
    assert path.exists()


@pytest.mark.long
def test_a_cluster_computes_the_same_views(tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    port, ui = free_port(), free_port()
    logs = tmp_path / "logs"
    logs.mkdir()
    settings = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_NO_DAEMONIZE": "1",
    }
    env = ["env", *(f"{name}={value}" for name, value in settings.items()), str(home / "bin" / "spark-class")]
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    options = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui)]
    servers = [ServerProcess([*env, f"{deploy}.master.Master", *options], logs / "master")]
    try:
        for n in range(2):
            options = ["--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "700m", master]
            servers.append(ServerProcess([*env, f"{deploy}.worker.Worker", *options], logs / f"worker-{n}"))

        def registered() -> None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{ui}/json/", timeout=5) as answer:
                    assert b'"aliveworkers" : 2' in answer.read()
            except OSError as e:
                raise AssertionError from e

        eventually_sync(registered)
        directory = tmp_path / "job"
        archive(directory, ROWS + ROWS[:40])
        job = job_at(directory)
        report = run(
            job, master=master, until_ms=END_MS, conf={"spark.executor.memory": "512m", "spark.cores.max": "2"}
        )
        assert views(job) == exact(ROWS)
        assert report.duplicates == 40
    finally:
        for server in reversed(servers):
            server.stop()
