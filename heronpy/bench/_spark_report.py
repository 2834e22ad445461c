"""What the batch benchmark found, as JSON and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from heronpy.bench._spark_input import Input

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one job."""

    seconds: float
    cpu_s: float
    """Of all its processes."""
    rss_mb: dict[str, float]
    """Peaks: `driver`, `jvm`, `workers`, `largest_worker`, `all`."""
    conf: dict[str, str]
    """Spark's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkReport:
    """One measurement. Times begin when Spark and its workers run, and end when results are durable."""

    mb_per_s: dict[str, float]
    """Text per second, in 10^6 bytes, by job; this and the next are medians of the rounds."""
    seconds: dict[str, float]
    cpu_s: dict[str, float]
    """CPU time of all processes."""
    ratio_to: dict[str, float]
    """How many times as long another job takes as the engine's in the same round, the median; 2 is twice as long."""
    cpu_ratio_to: dict[str, float]
    """The same in CPU time."""
    rss_mb: dict[str, dict[str, float]]
    """Peaks of resident memory: `driver`, `jvm`, `workers` (all together), `largest_worker`, `all`."""
    runs_s: dict[str, list[float]]
    """Every run: their spread is the noise of the machine."""
    runs_cpu_s: dict[str, list[float]]
    equal: bool
    """Whether all jobs have the same results."""
    digests: dict[str, str]
    """Of the results."""
    conf: dict[str, dict[str, str]]
    """Of each job's session: what is set, also what Spark sets itself."""
    rows: int
    """Of the results."""
    input: Input
    config: dict[str, Any]
    machine: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made

    def table(self) -> Group:
        """For people."""
        from rich.console import Group
        from rich.table import Table

        table = Table(title="word count of an archive, in batch", title_justify="left")
        table.add_column("job")
        for name in ("MB / s", "s", "CPU s", "× engine", "CPU × engine", "JVM, MB", "workers, MB", "largest, MB"):
            table.add_column(name, justify="right")
        for kind, speed in self.mb_per_s.items():
            rss = self.rss_mb[kind]
            ratio = self.ratio_to.get(kind, 1.0), self.cpu_ratio_to.get(kind, 1.0)
            numbers = [f"{speed:.1f}", f"{self.seconds[kind]:.1f}", f"{self.cpu_s[kind]:.1f}"]
            numbers += [f"{one:.2f}" for one in ratio]
            numbers += [f"{rss[name]:,.0f}" for name in ("jvm", "workers", "largest_worker")]
            table.add_row(kind, *numbers)
        made = self.input
        return Group(
            table,
            f"input: {made.bytes / 1e6:,.0f} MB, {made.lines:,} lines ({made.replayed:,} twice), {made.words:,} words",
            f"results: {self.rows:,} rows, {'all equal' if self.equal else f'NOT EQUAL: {self.digests}'}",
            "config: " + ", ".join(f"{name}={value}" for name, value in self.config.items()),
            "machine: " + ", ".join(str(value) for value in self.machine.values()),
        )
