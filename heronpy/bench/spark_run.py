"""The batch benchmark: an engine's run, and the same written by hand, in turn, each in a new process tree."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from heronpy.bench._report import machine
from heronpy.bench._spark_input import Input, archive_at
from heronpy.bench._spark_report import Measured, SparkReport
from heronpy.bench.tree import watched_tree
from heronpy.child import Child
from heronpy.errors import ConfigError, UnavailableError

KINDS = ("engine", "dataframe", "mapInArrow", "rdd")
_END_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBenchConfig:
    """What to measure."""

    mb: float = 100
    """Text in the archive, in 10^6 bytes."""
    rounds: int = 5
    """How often each job runs, one after the other in every round; medians count."""
    master: str = "local[2]"
    """Spark's master: one on this machine."""
    kinds: tuple[str, ...] = KINDS
    """What to run: `engine`, and by hand `dataframe`, `mapInArrow`, `rdd`."""

    def __post_init__(self) -> None:
        if self.mb <= 0:
            raise ConfigError(f"mb must be more than 0, not {self.mb:g}")
        if self.rounds < 1:
            raise ConfigError(f"rounds must be at least 1, not {self.rounds}")
        if not self.master.startswith("local"):
            raise ConfigError(f"master must be local, as in local[2], not {self.master}: memory is measured here")
        if "mapInArrow" in self.kinds and importlib.util.find_spec("pandas") is None:
            raise ConfigError("PySpark's mapInArrow needs pandas: pip install pandas, or choose other jobs with --only")
        if not self.kinds or set(self.kinds) - set(KINDS):
            raise ConfigError(f"kinds must be some of {', '.join(KINDS)}")


def run_spark(
    config: SparkBenchConfig, build: Path, *, on_step: Callable[[str], None] = lambda step: None
) -> SparkReport:
    """Measure. The archive stays in `build` for the next time; no process is left.

    Args:
        config: what to measure.
        build: where the archive and the results are.
        on_step: called with a few words before each step.

    Raises:
        UnavailableError: Spark does not start, or a job failed.
    """
    from heronpy.bench._spark_jobs import archive_in, results_in, results_of_engine

    directory = build / f"{config.mb:g}mb"
    on_step(f"{config.mb:g} MB of text: {directory}")
    made = archive_at(directory, archive_in(directory), config.mb)
    measured: dict[str, list[Measured]] = {kind: [] for kind in config.kinds}
    for turn in range(config.rounds):
        for kind in config.kinds:
            on_step(f"round {turn + 1} of {config.rounds}: {kind}")
            measured[kind].append(_measure(kind, config, directory))
    on_step("comparing results")
    digests = {}
    rows = 0
    for kind in config.kinds:
        results = sorted(results_of_engine(directory) if kind == "engine" else results_in(directory / kind))
        rows = len(results)
        digests[kind] = hashlib.sha256(repr(results).encode()).hexdigest()[:16]
    return _report(config, made, measured, digests, rows)


def _report(
    config: SparkBenchConfig, made: Input, measured: dict[str, list[Measured]], digests: dict[str, str], rows: int
) -> SparkReport:
    seconds = {kind: [run.seconds for run in runs] for kind, runs in measured.items()}
    cpu_s = {kind: [run.cpu_s for run in runs] for kind, runs in measured.items()}
    return SparkReport(
        mb_per_s={kind: round(made.bytes / 1e6 / median(runs), 2) for kind, runs in seconds.items()},
        seconds={kind: round(median(runs), 2) for kind, runs in seconds.items()},
        cpu_s={kind: round(median(runs), 2) for kind, runs in cpu_s.items()},
        ratio_to=_ratios(seconds),
        cpu_ratio_to=_ratios(cpu_s),
        rss_mb={
            kind: {name: round(max(run.rss_mb[name] for run in runs), 1) for name in runs[0].rss_mb}
            for kind, runs in measured.items()
        },
        runs_s={kind: [round(run, 2) for run in runs] for kind, runs in seconds.items()},
        runs_cpu_s={kind: [round(run, 2) for run in runs] for kind, runs in cpu_s.items()},
        equal=len(set(digests.values())) == 1,
        digests=digests,
        conf={kind: runs[0].conf for kind, runs in measured.items()},
        rows=rows,
        input=made,
        config=asdict(config),
        machine=machine(),
    )


def _ratios(runs: dict[str, list[float]]) -> dict[str, float]:
    """Of each job to the engine in the same round, the median: what slows a round down slows both."""
    engine = runs.get("engine")
    if engine is None:
        return {}
    return {
        kind: round(median(one / ours for one, ours in zip(others, engine, strict=True)), 3)
        for kind, others in runs.items()
        if kind != "engine"
    }


def _measure(kind: str, config: SparkBenchConfig, directory: Path) -> Measured:
    command = [sys.executable, "-m", "heronpy.bench._spark_jobs", kind, str(directory)]
    command += ["--out", str(directory / kind), "--master", config.master]
    with tempfile.TemporaryFile("w+") as errors, started(command, errors) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise UnavailableError(last_line(errors) or f"{kind}: Spark does not start")
        with watched_tree(process.pid) as tree:
            process.stdin.write("go\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer:
            raise UnavailableError(f"{kind} failed: {last_line(errors)}")
        process.stdin.close()
        process.wait(_END_S)
        said = json.loads(answer)
        return Measured(said["seconds"], tree.cpu_s(), tree.rss_mb(), said["conf"])


@contextlib.contextmanager
def started(command: list[str], errors: object) -> Iterator[subprocess.Popen[str]]:
    """A process for the duration of the block, with pipes for requests and answers."""
    process = Child(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,  # type: ignore[call-overload]  # a temporary file
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:  # Ctrl-C, or it failed: its JVM ends with it
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def last_line(errors: object) -> str:
    """The last line of a temporary file that is not empty."""
    errors.seek(0)  # type: ignore[attr-defined]  # a temporary file
    lines = [line.strip() for line in errors if line.strip()]  # type: ignore[attr-defined]  # as above
    return lines[-1] if lines else ""
