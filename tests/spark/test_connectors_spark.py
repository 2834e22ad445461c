"""The batch face of sources, read in Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import CsvFile, JsonLines, ListSource, ParquetFile, Source, Split, TextFile
from heronpy.testing.connectors_kit import drain, open_source

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def test_all_sources_are_read_in_spark_tasks_as_in_a_topology(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"ä {n}\n" for n in range(5000)))
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(5000)))
    (tmp_path / "a.csv").write_text("n,m\n" + "".join(f"{n},x\n" for n in range(500)))
    pq.write_table(pa.table({"n": list(range(500))}), tmp_path / "a.parquet", row_group_size=100)
    sources: list[Source] = [
        TextFile(tmp_path / "*.txt"),
        JsonLines(tmp_path / "*.jsonl"),
        CsvFile(tmp_path / "*.csv"),
        ParquetFile(tmp_path / "*.parquet"),
        ListSource(range(500)),
    ]

    def read(split: Split) -> Iterator[tuple[int, str, int]]:
        def refuse(where: str, row: Any, reason: str) -> None:
            raise AssertionError(f"{where}: {reason}")

        for chunk in split.read(refuse):
            for value, time_ms in zip(chunk.values, chunk.times_ms, strict=True):
                yield os.getpid(), repr(value), time_ms

    for source in sources:
        splits = source.splits(3000)
        assert splits
        found = spark.sparkContext.parallelize(splits, 4).flatMap(read).collect()
        expected = [(repr(record.value), record.time_ms) for record in drain(open_source(source))]
        assert sorted((value, time_ms) for _, value, time_ms in found) == sorted(expected)
        assert os.getpid() not in {pid for pid, _, _ in found}


@pytest.mark.long
def test_a_table_with_a_file_that_cannot_be_read_is_an_error_that_names_it(spark: Any, tmp_path: Path) -> None:
    for name in ("good", "torn"):
        pq.write_table(pa.table({"n": list(range(500))}), tmp_path / f"{name}.parquet")
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(torn.read_bytes()[:-100])
    table = spark.read.schema("n long").parquet(str(tmp_path))
    with pytest.raises(Exception, match=r"torn\.parquet"):
        table.count()
    torn.unlink()
    assert spark.read.schema("n long").parquet(str(tmp_path)).count() == 500
