"""The batch benchmark with a tiny input: it runs, its numbers hang together, all jobs have equal results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.bench.spark_run import KINDS, SparkBenchConfig
from heronpy.errors import ConfigError

pytest.importorskip("pyspark")


@pytest.mark.long
def test_the_engine_and_the_jobs_written_by_hand_have_equal_results(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "heronpy.bench.spark", "--build", str(tmp_path), "--mb", "5", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["equal"]
    assert report["rows"] >= report["input"]["distinct_words"] > 10_000
    assert report["input"]["bytes"] == pytest.approx(5e6, rel=0.05)
    assert report["input"]["replayed"] > 0
    for kind in KINDS:
        assert report["mb_per_s"][kind] == pytest.approx(report["input"]["bytes"] / 1e6 / report["seconds"][kind], 0.05)
        assert 0 < report["cpu_s"][kind] <= report["seconds"][kind] * report["machine"]["cores"] * 1.2 + 1
        assert 0 < report["rss_mb"][kind]["largest_worker"] <= report["rss_mb"][kind]["workers"]
        assert 100 < report["rss_mb"][kind]["jvm"] < 4000
    assert set(report["ratio_to"]) == {"pyspark", "dataframe"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"mb": 0.0}, "mb"), ({"rounds": 0}, "rounds"), ({"master": "spark://x:1"}, "master"), ({"kinds": ()}, "kinds")],
)
def test_an_impossible_measurement_is_refused(wrong: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=named):
        SparkBenchConfig(**wrong)
