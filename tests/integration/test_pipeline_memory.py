"""Batch runs with more keys than their workers may hold: exact, and within the bound."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.archive import ArchiveWriter
from heronpy.bench.tree import watched_tree
from heronpy.connectors import ListSource, TextSink
from heronpy.pipeline import Job, Manifest, ViewReader, run, spark_session
from heronpy.streamlet import Builder, Config, SetUnion, Sum, WindowConfig
from heronpy.streamlet.runner import Program

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.long, pytest.mark.spark]

LIMIT_MB = 170
WINDOW = WindowConfig(50, 50)
LINES, WORDS = 100_000, 12
BATCH_MS = 100_000
END_MS = 2 * BATCH_MS


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("tests", "local[2]", {"spark.python.worker.memory": f"{LIMIT_MB}m"}) as session:
        # One that others have left is used with its own.
        assert session.sparkContext.getConf().get("spark.python.worker.memory") == f"{LIMIT_MB}m"
        yield session


def lines() -> list[list[int]]:
    """Numbers, hardly any of them twice."""
    rng = random.Random(3)
    return [[rng.randrange(10**7) for _ in range(WORDS)] for _ in range(LINES)]


def job_in(directory: Path) -> Job:
    builder = Builder()
    words = builder.new_source(ListSource([], times=[])).archive().flat_map(list).map(lambda word: (f"word-{word}", 1))
    words.to_store("counts", Sum())
    words.reduce_by_key_and_window(WINDOW, lambda a, b: a + b).map(lambda kw: (kw[0].key, kw[1])).to_store(
        "windows", Sum()
    )
    words.map(lambda pair: (pair[0][-3:], pair[0])).to_store("names", SetUnion())
    words.map(lambda pair: pair[0]).to_sink(TextSink(directory / "out"))
    config = Config()
    config.set_pipeline(directory, batch_length=BATCH_MS / 1000)
    return Job.of(Program("many", config, builder.graph))


@pytest.mark.usefixtures("spark")
def test_many_distinct_keys_are_counted_within_the_bound(tmp_path: Path):
    job = job_in(tmp_path)
    ((_, node),) = job.archives().items()
    writer = ArchiveWriter(
        job.archive_path(node), task="t", batch_length_ms=BATCH_MS, codec="columns", dead_letter=print
    )
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for i, line in enumerate(lines()):
        time_ms = i * END_MS // LINES
        writer.add(str(i), time_ms, line)
        counts[time_ms // BATCH_MS].update(f"word-{word}" for word in line)
    writer.commit()
    with watched_tree(psutil.Process().pid) as tree:
        run(job, until_ms=END_MS)
    views = {name: ViewReader(tmp_path, name, stage.monoid) for name, stage in job.stores().items()}
    for batch, exact in counts.items():
        assert dict(views["counts"].items(batch)) == exact
        assert dict(views["windows"].items(batch)) == exact
        names: dict[str, set[str]] = defaultdict(set)
        for word in exact:
            names[word[-3:]].add(word)
        assert {key: set(value) for key, value in views["names"].items(batch)} == names
    done = Manifest.load(tmp_path).batches
    assert sum(parts.rows for batch in done.values() for parts in batch.sinks.values()) == LINES * WORDS
    # The rest is what is being read, merged and written at the moment. Without the limit it is 390 MB.
    assert tree.rss_mb()["largest_worker"] < LIMIT_MB + 130
