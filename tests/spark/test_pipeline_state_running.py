"""The life of state between Spark and topologies: counted in batch, gone on with live, read again as a table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronpy import submit
from heronpy.examples.archived_word_counts import write_counts
from heronpy.examples.results import read_results
from heronpy.pipeline import read_state
from heronpy.testing import LocalCluster, eventually_sync

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long]

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}


def words_in(path: Path, seed: int, lines: int) -> Counter[str]:
    """Write a file of random words, and count them."""
    chosen = random.Random(seed)
    words = [
        [f"word{'abcdefghij'[chosen.randrange(10)] * chosen.randrange(1, 9)}" for _ in range(8)] for _ in range(lines)
    ]
    path.write_text("".join(" ".join(line) + "\n" for line in words))
    return Counter(word for line in words for word in line)


def test_a_topology_goes_on_with_what_spark_has_counted_and_spark_reads_the_sum(spark: Any, tmp_path: Path) -> None:
    archived = words_in(tmp_path / "old.txt", 1, 5000)
    expected = archived + words_in(tmp_path / "new.txt", 2, 3000)
    begin, saved, output = tmp_path / "begin", tmp_path / "saved", tmp_path / "counts"
    assert write_counts(spark, [tmp_path / "old.txt"], str(begin)) == len(archived)
    args = ["words", "--input", str(tmp_path / "new.txt"), "--output", str(output), "--counts", "3"]
    with LocalCluster(FAST) as cluster:
        handle = cluster.submit("heronpy.examples.exactly_once_word_count", args=args, start_from=begin)
        handle.wait_running(300)

        def exact() -> None:
            assert {word: int(count) for word, count in read_results(output)} == expected

        eventually_sync(exact, within_s=400)
        submit.save_checkpoint(handle.launch, str(saved))
        counts = read_state(spark, str(saved), "count", "counts")
        assert {row.key: row.value for row in counts.collect()} == expected
        positions = read_state(spark, str(saved), "lines", "positions")
        assert positions.count() == 1
        with pytest.raises(Exception, match="no component 'sum'; it has: count, lines"):
            read_state(spark, str(saved), "sum", "counts")
