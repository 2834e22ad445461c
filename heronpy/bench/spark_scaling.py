"""The same batch run on more and more executors of a standalone cluster, with its files in S3: what it costs, by part.

Master, workers, executors, S3 server and driver are all on this machine, so that times say how many cores it has. What
shows is whether the CPU of the whole grows with the executors, and whether all of them have tasks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from heronpy.bench._report import machine
from heronpy.bench._scaling_job import job_at
from heronpy.bench._spark_input import Input, archive_at
from heronpy.bench.spark_run import last_line, started
from heronpy.bench.tree import watched_tree
from heronpy.errors import ConfigError, UnavailableError
from heronpy.filesystem import Location, files_of, location
from heronpy.pipeline import ViewReader
from heronpy.streamlet import Sum
from heronpy.testing.servers import S3Server, s3_missing
from heronpy.testing.spark import SparkCluster, spark_missing

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, slots=True)
class Scaled:
    """One run."""

    seconds: float
    cpu_s: dict[str, float]
    """`driver`, `executors`, `store`."""
    tasks: list[int]
    """Of each executor."""
    busy_s: float
    """Of all tasks together."""
    digest: str
    """Of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingReport:
    """By number of executors; medians of the rounds."""

    seconds: dict[int, float]
    cpu_s: dict[int, dict[str, float]]
    tasks: dict[int, list[list[int]]]
    """Of each executor, in each round."""
    busy_s: dict[int, float]
    runs_cpu_s: dict[int, list[float]]
    """Of every run, all parts together."""
    equal: bool
    """Whether all runs have the same results."""
    rows: int
    input: Input
    mb: float
    machine: dict[str, Any] = field(default_factory=machine)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"input": {name: getattr(self.input, name) for name in self.input.__struct_fields__}}

    def table(self) -> Group:
        """For people."""
        from rich.console import Group
        from rich.table import Table

        table = Table(title="word count of an archive in S3, by executors of one core", title_justify="left")
        for name in ("executors", "s", "CPU s", "executors'", "driver's", "store's", "tasks", "of each", "busy s"):
            table.add_column(name, justify="right")
        for count, cpu in self.cpu_s.items():
            each = self.tasks[count][0]
            numbers = [f"{self.seconds[count]:.1f}", f"{sum(cpu.values()):.1f}"]
            numbers += [f"{cpu[part]:.1f}" for part in ("executors", "driver", "store")]
            table.add_row(
                str(count), *numbers, str(sum(each)), f"{min(each)} to {max(each)}", f"{self.busy_s[count]:.1f}"
            )
        return Group(
            table,
            f"input: {self.input.bytes / 1e6:,.0f} MB, {self.input.lines:,} lines ({self.input.replayed:,} twice)",
            f"results: {self.rows:,} rows, {'all equal' if self.equal else 'NOT EQUAL'}",
            "machine: " + ", ".join(str(value) for value in self.machine.values()),
        )


def run_scaling(
    mb: float, executors: list[int], rounds: int, build: Path, *, on_step: Callable[[str], None] = lambda step: None
) -> ScalingReport:
    """Measure. The archive stays in `build` for the next time; no process is left.

    Args:
        mb: text in the archive, in 10^6 bytes.
        executors: how many, of one core each.
        rounds: how often each number of them is measured, one after the other in every round.
        build: where the archive is.
        on_step: called with a few words before each step.

    Raises:
        ConfigError: something is missing on this machine, or a number is not positive.
        UnavailableError: Spark does not start, or the run failed.
    """
    if missing := spark_missing() or s3_missing():
        raise ConfigError(missing)
    if rounds < 1 or min(executors) < 1:
        raise ConfigError("executors and rounds must be at least 1")
    directory = build / f"{mb:g}mb-s3"
    runs: dict[int, list[Scaled]] = {count: [] for count in executors}
    rows = 0
    with _credentials(), S3Server(build / "s3") as store:
        place = location("the job", store.url("bench")) / f"{mb:g}mb"
        on_step(f"{mb:g} MB of text: {place}")
        made = archive_at(directory, place / "archive" / "events", mb)
        for turn in range(rounds):
            for count in executors:
                on_step(f"round {turn + 1} of {rounds}: {count} executors")
                _remove_results(place)
                with SparkCluster(count, cores=1) as cluster:
                    done, rows = _measure(place, directory, store, cluster, count)
                runs[count].append(done)
    return ScalingReport(
        seconds={count: round(median(one.seconds for one in done), 2) for count, done in runs.items()},
        cpu_s={
            count: {part: round(median(one.cpu_s[part] for one in done), 2) for part in done[0].cpu_s}
            for count, done in runs.items()
        },
        tasks={count: [one.tasks for one in done] for count, done in runs.items()},
        busy_s={count: round(median(one.busy_s for one in done), 2) for count, done in runs.items()},
        runs_cpu_s={count: [round(sum(one.cpu_s.values()), 2) for one in done] for count, done in runs.items()},
        equal=len({one.digest for done in runs.values() for one in done}) == 1,
        rows=rows,
        input=made,
        mb=mb,
    )


@contextlib.contextmanager
def _credentials() -> Iterator[None]:
    """The store's, in the environment that Spark's workers have, too."""
    before = {name: os.environ.get(name) for name in S3Server.credentials}
    os.environ.update(S3Server.credentials)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _remove_results(place: Location) -> None:
    """Leave nothing of an earlier run but the archive."""
    files = files_of(place)
    kept = f"{place / 'archive'}/"
    files.delete([path for path in files.below(place) if not str(path).startswith(kept)])


def _measure(place: Any, where: Path, store: S3Server, cluster: SparkCluster, count: int) -> tuple[Scaled, int]:
    command = [sys.executable, "-m", "heronpy.bench._scaling_job", place.url, "--live", str(where / "live")]
    command += ["--master", cluster.master, "--executors", str(count)]
    with tempfile.TemporaryFile("w+") as errors, started(command, errors) as process, contextlib.ExitStack() as stack:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise UnavailableError(last_line(errors) or "Spark does not start")
        parts = {"driver": [process.pid], "executors": cluster.daemons(), "store": [store.pid]}
        trees = {part: [stack.enter_context(watched_tree(pid)) for pid in pids] for part, pids in parts.items()}
        process.stdin.write("go\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise UnavailableError(f"the run failed: {last_line(errors)}")
        cpu_s = {part: sum(tree.cpu_s() for tree in found) for part, found in trees.items()}
        said = json.loads(answer)
    rows = sorted(_results(place, where / "live"))
    ran = [tuple(one) for one in said["ran"].values()]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return Scaled(said["seconds"], cpu_s, [tasks for tasks, _ in ran], sum(busy for _, busy in ran), digest), len(rows)


def _results(place: Location, live: Path) -> Iterator[tuple[int, str, int]]:
    (view,) = job_at(place, live).stores()
    reader = ViewReader(place, view, Sum())
    for batch in reader.batches():
        for word, number in reader.items(batch):
            yield batch, word, number
