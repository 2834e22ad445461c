"""What tasks of a session get from Spark, and what jobs of the session's owner keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark]

GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def test_tasks_spill_where_spark_does(spark: Any) -> None:
    def where(rows: Iterable[int]) -> Iterator[str]:
        from heronpy.pipeline.spill import local_directory

        yield str(local_directory(0))

    (found,) = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert Path(found).is_relative_to(spark.conf.get("spark.local.dir"))
    assert Path(found).is_dir()


def test_jobs_of_the_sessions_owner_stay_in_their_group(spark: Any) -> None:
    from heronpy.pipeline.progress import watched

    sc = spark.sparkContext
    sc.setJobGroup("mine", "my own", interruptOnCancel=True)
    try:
        with watched(sc, "compute", [1], lambda progress: None):
            assert sc.getLocalProperty("spark.job.description") == "compute"
        assert [sc.getLocalProperty(name) for name in GROUP] == ["mine", "my own", "true"]
    finally:
        for name in GROUP:
            sc.setLocalProperty(name, None)
