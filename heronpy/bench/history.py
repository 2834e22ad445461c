"""What a batch run, and a query, cost as the history grows: `make bench-history`.

Histories are made up (`_history_input`): a manifest of so many batches, files in the archive that are listed and never
read, the tiers of a view. To each of them runs add one batch at a time, in turn, each in a process of its own. All
figures are CPU time, of all processes, and medians.
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

from heronpy.bench._history_input import KEYS, LENGTH_MS, grow, job_at, with_writer
from heronpy.bench._history_plot import plot
from heronpy.bench.tree import watched_tree
from heronpy.pipeline import run
from heronpy.pipeline.look import look
from heronpy.pipeline.merged import MergedStore

SIZES = (1_000, 10_000, 100_000)
ELEMENTS = 2_000
"""Of the batch that a run adds."""
GETS = 5_000
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
    opened: list[float] = field(default_factory=list)
    """To open a view and ask for a key, after a run."""
    asked: list[float] = field(default_factory=list)
    """To ask for another key."""


def add_batch(directory: Path, batch: int) -> None:
    """What a topology archives between two runs."""
    (node,) = job_at(directory).archives().values()
    with closing(with_writer(Path(str(job_at(directory).archive_path(node))), batch)) as writer:
        for i in range(ELEMENTS):
            writer.add(f"{batch}-{i}", batch * LENGTH_MS + i, f"w{i % KEYS}")
        writer.commit()
        writer.progress((batch + 1) * LENGTH_MS)


def run_here(directory: Path, master: str, batch: int) -> None:
    """A run, as `heron pipeline run` makes it; prints what the driver needed."""
    job = job_at(directory)
    began_s = time.process_time()
    report = run(job, master=master)
    look(job, time.time_ns() // 1_000_000)
    print(json.dumps({"driver_ms": (time.process_time() - began_s) * 1000}))
    if batch not in report.batches or report.committed_watermark != batch:
        raise SystemExit(f"batch {batch} is not done: {report}")


def measure_run(one: Costs, master: str, batch: int) -> None:
    """Have a process run, and add what it needed."""
    command = [sys.executable, "-m", "heronpy.bench.history", "--run", str(one.directory), "--master", master]
    with subprocess.Popen([*command, "--batch", str(batch)], stdout=subprocess.PIPE, text=True) as process:
        with watched_tree(process.pid) as tree:
            out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a run ended with {process.returncode}")
    one.runs.append(tree.cpu_s() * 1000)
    one.drivers.append(float(json.loads(out.splitlines()[-1])["driver_ms"]))


def measure_query(one: Costs, chance: random.Random) -> None:
    """Ask for keys."""
    began_s = time.process_time()
    with MergedStore(job_at(one.directory), "counts", exact_only=True) as view:
        view.get("w0")
        one.opened.append((time.process_time() - began_s) * 1000)
        keys = [f"w{chance.randrange(KEYS)}" for _ in range(GETS)]
        began_s = time.process_time()
        for key in keys:
            view.get(key)
        one.asked.append((time.process_time() - began_s) * 1000 / GETS)


def rows(found: Sequence[Costs]) -> list[tuple[str, list[float]]]:
    """What is measured, and a median for each history."""
    return [
        ("a run that adds one batch, CPU ms of all processes", [median(one.runs) for one in found]),
        ("of these the driver, CPU ms", [median(one.drivers) for one in found]),
        ("to open a view and ask for the first key, CPU ms", [median(one.opened) for one in found]),
        ("to ask for another key, CPU ms", [median(one.asked) for one in found]),
    ]


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="batches of each history")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, help="write the plot here")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        run_here(arguments.run, arguments.master, arguments.batch)
        return
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="heron-history-") as scratch:
        found = [Costs(batches, Path(scratch) / str(batches)) for batches in sorted(arguments.sizes)]
        for one in found:
            print(f"making {one.batches:,} batches", file=sys.stderr)
            grow(one.directory, one.batches)
            # The first run looks at all of a history that it has not made.
            add_batch(one.directory, one.batches)
            measure_run(one, arguments.master, one.batches)
            print(f"the first run: {one.runs.pop():.0f} ms, its driver {one.drivers.pop():.0f}", file=sys.stderr)
        for number in range(1, arguments.rounds + 1):
            for one in found:
                add_batch(one.directory, one.batches + number)
                measure_run(one, arguments.master, one.batches + number)
                measure_query(one, chance)
            print(f"round {number} of {arguments.rounds}", file=sys.stderr)
    titled = rows(found)
    print("| | " + " | ".join(f"{one.batches:,} batches" for one in found) + " | ratio |")
    print("|---|" + "---|" * (len(found) + 1))
    for title, values in titled:
        print(f"| {title} | " + " | ".join(f"{v:.3g}" for v in values) + f" | {values[-1] / values[0]:.2f} |")
    if arguments.out is not None:
        arguments.out.write_text(plot([one.batches for one in found], titled), encoding="utf-8")
    over = [title for title, values in titled if values[-1] > TARGET * values[0]]
    print(f"over {TARGET} times: {'; '.join(over) or 'none'}")


if __name__ == "__main__":
    main()
