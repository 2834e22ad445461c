"""State of topologies as tables of Spark, and checkpoints that Spark writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from heronpy.checkpoints import newest_intact, open_storage
from heronpy.errors import AlreadyExistsError, HeronError, NotFoundError, UsageError
from heronpy.pipeline import StateTable, read_state, state_pairs, write_checkpoint

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


@pytest.mark.long
def test_what_spark_writes_it_reads_again_as_tables_of_the_same_types(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "saved")
    words = spark.createDataFrame([(f"word {n}", n) for n in range(500)], "key string, value long")
    pairs = spark.createDataFrame(
        [(("a", n), (1.5, [n]), 1_000 + n) for n in range(20)],
        "key struct<x string, n long>, value struct<mean double, all array<long>>, written_ms long",
    )
    offsets = spark.sparkContext.parallelize([("a.txt", 17), ("b.txt", None)])
    tables = [
        StateTable(component="count", state="counts", rows=words),
        StateTable(component="lines", state="positions", rows=offsets, kind="split"),
        StateTable(component="count", state="means", rows=pairs),
    ]
    assert write_checkpoint(url, tables, groups=16, parts=3) == [500, 2, 20]
    with open_storage(url) as storage:
        manifest, refused = newest_intact(storage)
        assert (manifest.groups, list(refused)) == (16, [])
        assert storage.names("objects/") == sorted(manifest.names)
    counts = read_state(spark, url, "count", "counts")
    assert counts.dtypes == [("key", "string"), ("value", "bigint"), ("task", "int"), ("written_ms", "bigint")]
    assert counts.rdd.getNumPartitions() == 3
    assert sorted(map(tuple, counts.collect())) == sorted((f"word {n}", n, None, None) for n in range(500))
    means = read_state(spark, url, "count", "means")
    rows = means.selectExpr("key._1", "key._2", "value._1", "value._2[0]", "written_ms").collect()
    assert sorted(map(tuple, rows)) == [("a", n, 1.5, n, 1_000 + n) for n in range(20)]
    assert dict(state_pairs(spark.sparkContext, url, "lines", "positions").collect()) == {"a.txt": 17, "b.txt": None}
    with pytest.raises(Exception, match=r"the value '.*' of key 'word .*' is of type int, and the table's is string"):
        read_state(spark, url, "count", "counts", schema="key string, value string").collect()
    with pytest.raises(NotFoundError, match="it has: counts, means"):
        read_state(spark, url, "count", "sums")
    with pytest.raises(AlreadyExistsError, match="choose an empty place"):
        write_checkpoint(url, tables)


def test_a_job_that_fails_leaves_no_checkpoint_and_can_be_repeated_there(spark: Any, tmp_path: Path) -> None:
    sc, url = spark.sparkContext, str(tmp_path / "saved")

    def table(rows: Any) -> StateTable:
        return StateTable(component="count", state="counts", rows=rows)

    twice = sc.parallelize([("a", 1), ("b", 2), ("a", 3)], 2)
    with pytest.raises(HeronError, match=r"component 'count', state 'counts': key 'a' is there twice"):
        write_checkpoint(url, [table(twice)], parts=2)
    with open_storage(url) as storage, pytest.raises(NotFoundError, match="no checkpoint"):
        newest_intact(storage)
    assert write_checkpoint(url, [table(sc.parallelize([("a", 1), ("b", 2)], 2))], parts=2) == [2]
    with open_storage(url) as storage:
        manifest, _ = newest_intact(storage)
        assert storage.names("objects/") == sorted(manifest.names), "nothing is left of the first job"
    assert not [name for _, _, names in os.walk(url) for name in names if name.startswith(".")]


def test_tables_that_do_not_fit_are_refused_before_spark_runs(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path)
    frame = spark.createDataFrame([("a", 1)], "word string, value long")
    rows = spark.sparkContext.parallelize([("a", 1)])
    one = StateTable(component="count", state="counts", rows=rows)
    with pytest.raises(UsageError, match="the columns word, value; key and value are needed"):
        write_checkpoint(url, [StateTable(component="count", state="counts", rows=frame)])
    with pytest.raises(UsageError, match="two tables are of state 'counts'"):
        write_checkpoint(url, [one, one])
    with pytest.raises(UsageError, match="only keyed and split state"):
        write_checkpoint(url, [StateTable(component="count", state="total", rows=rows, kind="task")])
    with pytest.raises(UsageError, match="power of two"):
        write_checkpoint(url, [one], groups=100)
    with pytest.raises(UsageError, match="no state is given"):
        write_checkpoint(url, [])
    assert not list(tmp_path.iterdir())
