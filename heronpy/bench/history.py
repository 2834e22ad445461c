"""What a batch run, and a query, cost as the history grows: `make bench-history`.

Histories are made up (`_history_input`): a manifest of so many batches, files in the archive of which only those are
real that runs read, and views in tiers: of counts, of a `reduce_by_key` over everything, of one over windows. In turn,
and each in a process of its own, runs add a batch to each history, and a late file to an old batch of it. All figures
are CPU time, of all processes, and medians.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from heronpy.bench._history_input import GROUPS, KEYS, LATE, LENGTH_MS, REACH, grow, job_at, window_key, with_writer
from heronpy.bench._history_plot import plot
from heronpy.bench.tree import watched_tree
from heronpy.pipeline import run
from heronpy.pipeline.look import look
from heronpy.pipeline.merged import MergedStore

SIZES = (1_000, 10_000, 100_000)
ELEMENTS = 2_000
"""Of the batch that a run adds."""
GETS = 5_000
WINDOW_GETS = 500
TARGET = 1.5


@dataclass
class Costs:
    """Of a history, CPU milliseconds."""

    batches: int
    directory: Path
    runs: list[float] = field(default_factory=list)
    """Runs that add one batch, with Spark's processes, from the start of Python to its end."""
    drivers: list[float] = field(default_factory=list)
    """Of these, the driver's own, without its imports."""
    late_runs: list[float] = field(default_factory=list)
    """Runs after a late file, as `runs`."""
    late_drivers: list[float] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    """To open a view and ask for a key, after these runs."""
    asked: list[float] = field(default_factory=list)
    """To ask for another key."""
    windows_asked: list[float] = field(default_factory=list)
    """To ask for a key of a window, of any time."""


def add_batch(directory: Path, batch: int) -> None:
    """What a topology archives between two runs."""
    _archive(directory, batch, [(f"{batch}-{i}", i, f"w{i % KEYS}") for i in range(ELEMENTS)], complete=batch + 1)


def add_late(directory: Path, number: int, complete: int) -> None:
    """A late file: a word that no batch has, for an old batch.

    Args:
        directory: the job's.
        number: of the late file.
        complete: before which batch the archive is complete.
    """
    _archive(directory, LATE, [(f"late-{number}", number, f"w{KEYS + number}")], complete=complete)


def _archive(directory: Path, batch: int, elements: Sequence[tuple[str, int, str]], *, complete: int) -> None:
    (node,) = job_at(directory).archives().values()
    with closing(with_writer(Path(str(job_at(directory).archive_path(node))), complete)) as writer:
        for id_, offset_ms, word in elements:
            writer.add(id_, batch * LENGTH_MS + offset_ms, word)
        writer.commit()


def run_here(directory: Path, master: str) -> None:
    """A run, as `heron pipeline run` makes it; prints which batches it computed, and what the driver needed."""
    job = job_at(directory)
    began_s = time.process_time()
    report = run(job, master=master)
    look(job, time.time_ns() // 1_000_000)
    driver_ms = (time.process_time() - began_s) * 1000
    print(json.dumps({"driver_ms": driver_ms, "batches": report.batches, "upto": report.committed_watermark}))


def measured_run(directory: Path, master: str, batches: Sequence[int], upto: int) -> tuple[float, float]:
    """Have a process run; CPU ms of all of its processes, and of the driver.

    Args:
        directory: the job's.
        master: Spark's.
        batches: those that it must have computed.
        upto: the batch up to which all are done then.
    """
    command = [sys.executable, "-m", "heronpy.bench.history", "--run", str(directory), "--master", master]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with watched_tree(process.pid) as tree:
            out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a run ended with {process.returncode}")
    did = json.loads(out.splitlines()[-1])
    if did["upto"] != upto or did["batches"] != [*batches]:
        raise SystemExit(f"batches {[*batches]} were to be computed, up to {upto}: {did}")
    return tree.cpu_s() * 1000, float(did["driver_ms"])


def measure(one: Costs, master: str, number: int) -> None:
    """A run that adds a batch, and one after a late file."""
    batch = one.batches + number
    add_batch(one.directory, batch)
    run_ms, driver_ms = measured_run(one.directory, master, [batch], batch)
    one.runs.append(run_ms)
    one.drivers.append(driver_ms)
    add_late(one.directory, number, batch + 1)
    run_ms, driver_ms = measured_run(one.directory, master, range(LATE, LATE + REACH + 1), batch)
    one.late_runs.append(run_ms)
    one.late_drivers.append(driver_ms)


def measure_queries(one: Costs, chance: random.Random) -> None:
    """Ask for keys."""
    began_s = time.process_time()
    with MergedStore(job_at(one.directory), "counts", exact_only=True) as view:
        view.get("w0")
        one.opened.append((time.process_time() - began_s) * 1000)
        one.asked.append(_asked(view, [f"w{chance.randrange(KEYS)}" for _ in range(GETS)]))
    with MergedStore(job_at(one.directory), "windows", exact_only=True) as view:
        windows = [window_key(chance.randrange(one.batches), chance.randrange(GROUPS)) for _ in range(WINDOW_GETS)]
        one.windows_asked.append(_asked(view, windows))


def _asked(view: MergedStore, keys: Sequence[Any]) -> float:
    """CPU ms for each."""
    began_s = time.process_time()
    for key in keys:
        if view.get(key) is None:
            raise SystemExit(f"{key} is in no batch")
    return (time.process_time() - began_s) * 1000 / len(keys)


def rows(found: Sequence[Costs]) -> list[tuple[str, list[float]]]:
    """What is measured, and a median for each history."""
    return [
        ("a run that adds one batch, CPU ms of all processes", [median(one.runs) for one in found]),
        ("of these the driver, CPU ms", [median(one.drivers) for one in found]),
        ("a run after a late file, CPU ms of all processes", [median(one.late_runs) for one in found]),
        ("of these after a late file the driver, CPU ms", [median(one.late_drivers) for one in found]),
        ("to open a view and ask for the first key, CPU ms", [median(one.opened) for one in found]),
        ("to ask for another key, CPU ms", [median(one.asked) for one in found]),
        ("to ask for the key of a window, CPU ms", [median(one.windows_asked) for one in found]),
    ]


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="batches of each history")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, help="write the plot here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--plot", type=Path, metavar="JSON", help="measure nothing, plot what --json has written")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        run_here(arguments.run, arguments.master)
        return
    if arguments.plot is not None:
        if arguments.out is None:
            parser.error("--plot needs --out")
        known = json.loads(arguments.plot.read_text(encoding="utf-8"))
        arguments.out.write_text(plot(known["batches"], [*known["rows"].items()], TARGET), encoding="utf-8")
        return
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="heron-history-") as scratch:
        found = [Costs(batches, Path(scratch) / str(batches)) for batches in sorted(arguments.sizes)]
        for one in found:
            print(f"making {one.batches:,} batches", file=sys.stderr)
            grow(one.directory, one.batches)
            # The first run looks at all of a history that it has not made.
            add_batch(one.directory, one.batches)
            first_ms, driver_ms = measured_run(one.directory, arguments.master, [one.batches], one.batches)
            print(f"the first run: {first_ms:.0f} ms, its driver {driver_ms:.0f}", file=sys.stderr)
        for number in range(1, arguments.rounds + 1):
            for one in found:
                measure(one, arguments.master, number)
                measure_queries(one, chance)
            print(f"round {number} of {arguments.rounds}", file=sys.stderr)
    titled = rows(found)
    print("| | " + " | ".join(f"{one.batches:,} batches" for one in found) + " | ratio |")
    print("|---|" + "---|" * (len(found) + 1))
    for title, values in titled:
        print(f"| {title} | " + " | ".join(f"{v:.3g}" for v in values) + f" | {values[-1] / values[0]:.2f} |")
    batches = [one.batches for one in found]
    if arguments.out is not None:
        arguments.out.write_text(plot(batches, titled, TARGET), encoding="utf-8")
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"batches": batches, "rows": dict(titled)}, indent=1) + "\n", encoding="utf-8"
        )
    over = [title for title, values in titled if values[-1] > TARGET * values[0]]
    print(f"over {TARGET} times: {'; '.join(over) or 'none'}")


if __name__ == "__main__":
    main()
