"""The benchmark with tiny inputs: it runs, its numbers hang together, and it cleans up after itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.bench import BenchConfig
from heronpy.errors import ConfigError
from heronpy.testing import eventually_sync

HERON = Path(sys.executable).with_name("heron")
KINDS = {"spout", "bolt", "stmgr", "other"}


def bench(*args: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(HERON), "bench", "--json", "--seconds", "0.8", "--warm-up", "0.3", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_consistent(report: dict[str, Any]) -> None:
    assert report["lost"] == 0
    assert set(report["cpu_share"]) == set(report["rss_mb"]) == KINDS
    assert set(report["cpu_us_per_tuple"]) == KINDS | {"total"}
    assert sum(report["cpu_share"].values()) == pytest.approx(1, abs=0.01)
    parts = sum(report["cpu_us_per_tuple"][kind] for kind in KINDS)
    assert parts == pytest.approx(report["cpu_us_per_tuple"]["total"], rel=0.01)
    assert report["tuples_per_core_s"] == pytest.approx(1e6 / report["cpu_us_per_tuple"]["total"], rel=0.01)
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["p999"]
    assert all(20 < mb < 2000 for mb in report["rss_mb"].values())
    assert report["config"]["seconds"] == 0.8
    assert report["machine"]["cores"] >= 1


@pytest.mark.parametrize("reliability", [pytest.param("at-most-once", marks=pytest.mark.long), "at-least-once"])
def test_at_full_speed_nothing_is_lost_and_the_floor_is_cheaper(reliability: str):
    report = bench("--reliability", reliability, "--spouts", "1", "--bolts", "2", "--containers", "2")
    check_consistent(report)
    assert len(report["floor_runs_tuples_per_core_s"]) == 2
    assert report["ratio_to_floor"] > 0  # how much is for a quiet machine to say, as is how many tuples
    assert report["tuples_per_s"] > 0


@pytest.mark.long
def test_at_a_given_rate_that_rate_is_emitted_and_latency_is_measured():
    report = bench("--rate", "2000", "--drain-interval-ms", "0", "--no-floor")
    check_consistent(report)
    # What a busy machine holds up before the window arrives in it, and the other way round: at most twice as much, or
    # half. At full speed it would be a hundred times as much.
    assert 1000 < report["tuples_per_s"] < 4000
    assert report["latency_samples"] > 100
    assert report["ratio_to_floor"] is None


@pytest.mark.long
@pytest.mark.parametrize("rate", [[], ["--rate", "500"]], ids=["at full speed", "at a rate"])
@pytest.mark.parametrize("reliability", ["at-most-once", "at-least-once"])
def test_rtac_is_measured_without_a_floor(reliability: str, rate: list[str]):
    report = bench("--topology", "rtac", "--reliability", reliability, "--bolts", "2", "--containers", "2", *rate)
    check_consistent(report)
    assert report["latency_samples"] > 0
    assert report["floor_runs_tuples_per_core_s"] == []


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory for sockets, whose paths may have at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hb-") as path:
        yield Path(path)


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_an_interrupted_bench_leaves_no_process(signum: signal.Signals, short_directory: Path):
    env = {**os.environ, "TMPDIR": str(short_directory)}
    running = subprocess.Popen(
        [str(HERON), "bench", "--no-floor", "--seconds", "60"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:

        def spouts_run() -> None:
            assert list(short_directory.glob("heron-bench-*/probes/words-0.sock"))

        eventually_sync(spouts_run, within_s=300)
        running.send_signal(signum)
        running.wait(300)
    finally:
        running.kill()
        running.wait()
    if signum is signal.SIGINT:  # a killed bench cannot remove its files
        assert not list(short_directory.glob("heron-bench-*"))

    def nothing_runs() -> None:
        assert [p for p in psutil.process_iter() if str(short_directory) in environment(p).get("TMPDIR", "")] == []

    eventually_sync(nothing_runs)


def environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:
        return {}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"spouts": 0}, "spouts"),
        ({"topology": "rtca"}, "rtac"),
        ({"topology": "rtac", "reliability": "effectively-once"}, "no state"),
        ({"reliability": "exactly-once"}, "at-least-once"),
        ({"seconds": 0.0}, "seconds"),
        ({"rate": 0.0}, "rate"),
        ({"drain_interval_ms": -1.0}, "drain-interval-ms"),
        ({"max_spout_pending": 0}, "max-spout-pending"),
    ],
)
def test_an_impossible_measurement_is_refused(wrong: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=named):
        BenchConfig(**wrong)
