"""Measures the keyed count of another engine from outside: CPU of all its processes for each word."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from heronpy.errors import UnavailableError

JOBS: Final = {engine: Path(__file__).with_name(f"{engine}_job.py") for engine in ("bytewax", "flink")}
START_TIMEOUT_S: Final = 300.0
STOP_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1


def words_per_core_s(
    engine: str, python: Path, *, keys: int, interval_s: float, warm_up_s: float, seconds: float
) -> float:
    """Words that an engine counts per second of CPU of all its processes.

    Args:
        engine: `bytewax` or `flink`.
        python: The interpreter of an environment that has it.
        keys: How many different words there are.
        interval_s: From checkpoint to checkpoint.
        warm_up_s: Between the first words and the measurement.
        seconds: How long is measured, from one report of the job to another.

    Raises:
        UnavailableError: it does not start, or ends by itself; with the end of what it said.
    """
    with tempfile.TemporaryDirectory(prefix="heron-others-") as scratch, open(f"{scratch}/log", "w+") as log:
        running = psutil.Popen(
            [str(python), str(JOBS[engine]), str(keys), str(interval_s), scratch],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _next_report(running, Path(scratch))
            time.sleep(warm_up_s)
            before, used_before_s = _next_report(running, Path(scratch)), _cpu_s(running)
            time.sleep(seconds)
            after, used_after_s = _next_report(running, Path(scratch)), _cpu_s(running)
        except UnavailableError as e:
            log.seek(0)
            raise UnavailableError(f"{engine}: {e}: {log.read()[-1000:]}") from e
        finally:
            _kill(running)
    return (after - before) / max(used_after_s - used_before_s, 1e-9)


def _next_report(running: psutil.Popen, directory: Path) -> int:
    """Wait until the job reports another number of words than now, and return it: reports come in steps."""
    give_up_s = time.monotonic() + START_TIMEOUT_S
    before = _count(directory)
    while (now := _count(directory)) == before:
        if running.poll() is not None:
            raise UnavailableError(f"it ended with {running.returncode}")
        if time.monotonic() > give_up_s:
            raise UnavailableError(f"it counts nothing within {START_TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    return now


def _count(directory: Path) -> int:
    path = directory / "count"
    return int(path.read_text()) if path.exists() else 0


def _cpu_s(running: psutil.Popen) -> float:
    """CPU of a process and those that it has started."""
    used = 0.0
    for process in (running, *running.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _kill(running: psutil.Popen) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        started = running.children(recursive=True)
        for process in (running, *started):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([running, *started], timeout=STOP_TIMEOUT_S)
