"""What a benchmark found, as JSON and as a table."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One measurement. All rates and costs are of the time between warm-up and the end of the window."""

    tuples_per_s: float
    """Tuples that the bolts executed per second."""
    tuples_per_core_s: float
    """Tuples per second of CPU time, of all processes of the topology together."""
    floor_tuples_per_core_s: float | None
    """The same for the two plain processes, the mean of the runs before and after; None if they did not run."""
    ratio_to_floor: float | None
    """tuples_per_core_s / floor_tuples_per_core_s."""
    floor_runs_tuples_per_core_s: list[float]
    """The floor of each run: their spread is the noise of the machine."""
    cpu_us_per_tuple: dict[str, float]
    """CPU time per tuple in µs: `total`, and by kind of process."""
    cpu_share: dict[str, float]
    """The share of all CPU time, by kind of process."""
    cpu_cores: float
    """Cores in use: CPU seconds of all processes per second."""
    latency_ms: dict[str, float | None]
    """From just before emit() in the spout to the beginning of process() in the bolt: p50, p99, p999."""
    latency_samples: int
    """How many tuples carried the time."""
    rss_mb: dict[str, float]
    """Peak resident memory of the largest process of each kind, since it started."""
    lost: int
    """Tuples that were emitted but not executed, after the spouts were stopped and everything had arrived."""
    config: dict[str, Any]
    machine: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def table(self) -> Group:
        """For people."""
        from rich.console import Group
        from rich.table import Table

        totals = Table(
            title=f"heron bench: {self.config['topology'].replace('-', ' ')}", title_justify="left", show_header=False
        )
        totals.add_column(style="bold")
        totals.add_column(justify="right")
        rows = {
            "tuples / s": f"{self.tuples_per_s:,.0f}",
            "tuples / core-second": f"{self.tuples_per_core_s:,.0f}",
            "cores in use": f"{self.cpu_cores:.2f}",
            "lost": f"{self.lost:,}",
        }
        if self.floor_tuples_per_core_s is not None:
            runs = ", ".join(f"{run:,.0f}" for run in self.floor_runs_tuples_per_core_s)
            rows["floor, tuples / core-second"] = f"{self.floor_tuples_per_core_s:,.0f} (runs: {runs})"
            rows["ratio to floor"] = f"{self.ratio_to_floor:.3f}"
        for name, ms in self.latency_ms.items():
            rows[f"latency {name}"] = "-" if ms is None else f"{ms:.2f} ms"
        rows["latency samples"] = f"{self.latency_samples:,}"
        for name, value in rows.items():
            totals.add_row(name, value)
        by_kind = Table("process", "CPU µs / tuple", "share of CPU", "peak RSS, MB")
        for column in by_kind.columns[1:]:
            column.justify = "right"
        for kind in self.rss_mb:
            by_kind.add_row(
                kind, f"{self.cpu_us_per_tuple[kind]:.3f}", f"{self.cpu_share[kind]:.1%}", f"{self.rss_mb[kind]:.1f}"
            )
        by_kind.add_row("total", f"{self.cpu_us_per_tuple['total']:.3f}", "", "")
        config = ", ".join(f"{k}={v}" for k, v in self.config.items() if v is not None)
        machine = ", ".join(str(v) for v in self.machine.values())
        return Group(totals, by_kind, f"config: {config}", f"machine: {machine}")


def machine() -> dict[str, Any]:
    """What the measurement was made on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
