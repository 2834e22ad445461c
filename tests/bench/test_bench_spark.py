"""The batch benchmark with a tiny input: it runs, its numbers hang together, all jobs have equal results."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.bench.spark_run import KINDS, SparkBenchConfig
from heronpy.errors import ConfigError
from heronpy.testing.servers import s3_missing

pytest.importorskip("pyspark")


@pytest.mark.long
def test_the_engine_and_the_jobs_written_by_hand_have_equal_results(tmp_path: Path):
    kinds = [kind for kind in KINDS if kind != "mapInArrow" or importlib.util.find_spec("pandas")]
    if len(kinds) < len(KINDS):
        print("mapInArrow is left out: PySpark's needs pandas, which is not installed")
    command = [sys.executable, "-m", "heronpy.bench.spark", "--build", str(tmp_path)]
    command += [f"--only={kind}" for kind in kinds]
    done = subprocess.run(
        [*command, "--mb", "5", "--rounds", "1", "--json"],
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
    for kind in kinds:
        assert report["mb_per_s"][kind] == pytest.approx(report["input"]["bytes"] / 1e6 / report["seconds"][kind], 0.05)
        assert 0 < report["cpu_s"][kind] <= report["seconds"][kind] * report["machine"]["cores"] * 1.2 + 1
        assert 0 < report["rss_mb"][kind]["largest_worker"] <= report["rss_mb"][kind]["workers"]
        assert 100 < report["rss_mb"][kind]["jvm"] < 4000
    assert set(report["ratio_to"]) == {*kinds} - {"engine"}
    ours = {"spark.driver.memory", "spark.python.daemon.module", "spark.python.worker.memory"}
    set_by_us = {kind: ours & set(conf) for kind, conf in report["conf"].items()}
    assert set_by_us.pop("engine") == ours
    assert not any(set_by_us.values()), "what is written by hand runs in stock sessions"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"mb": 0.0}, "mb"), ({"rounds": 0}, "rounds"), ({"master": "spark://x:1"}, "master"), ({"kinds": ()}, "kinds")],
)
def test_an_impossible_measurement_is_refused(wrong: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=named):
        SparkBenchConfig(**{"kinds": ("engine",), **wrong})


@pytest.mark.long
@pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")
def test_runs_on_more_executors_have_equal_results_and_all_of_them_have_tasks(tmp_path: Path):
    command = [sys.executable, "-m", "heronpy.bench.spark", "--build", str(tmp_path), "--mb", "20", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--executors", "1", "--executors", "2", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["equal"]
    assert report["rows"] >= report["input"]["distinct_words"] > 10_000
    assert {count: len(rounds[0]) for count, rounds in report["tasks"].items()} == {"1": 1, "2": 2}
    assert all(tasks > 0 for rounds in report["tasks"].values() for each in rounds for tasks in each)
    assert all(cpu["executors"] > 0 and cpu["driver"] > 0 for cpu in report["cpu_s"].values())
