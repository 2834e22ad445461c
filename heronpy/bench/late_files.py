"""What a late file costs a batch run, and which batches it computes: `make bench-late`.

Histories are real ones: archived, and computed by a run. Then one element comes for an old batch, of a word that occurs
in no other batch, in some, or in all; a run follows, in a process of its own. Figures are of all its processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from heronpy.archive import ArchiveWriter
from heronpy.bench._history_input import LENGTH_MS, job_at, with_writer
from heronpy.bench.tree import watched_tree
from heronpy.pipeline import run

SIZES = (1_000, 10_000)
LATE = 10
"""The batch that late files are for."""
WORDS = 100
"""Of a batch."""
SPREAD = 100
"""A word that is in some batches is in one of so many."""
_KINDS = {"in no other batch": "new", f"in one of {SPREAD} batches": f"some-{LATE}-0", "in all batches": "all-0"}


def words_of(batch: int) -> list[str]:
    """Half of them are in all batches."""
    return [f"all-{i}" for i in range(WORDS // 2)] + [f"some-{batch % SPREAD}-{i}" for i in range(WORDS // 2)]


def grow(directory: Path, batches: int) -> None:
    """Archive batches."""
    with closing(_writer(directory, batches)) as writer:
        for batch in range(batches):
            for i, word in enumerate(words_of(batch)):
                writer.add(f"{batch}-{i}", batch * LENGTH_MS + i, word)
            writer.commit()


def add_late(directory: Path, word: str, batches: int) -> None:
    """Archive one element more, of an old batch."""
    with closing(_writer(directory, batches)) as writer:
        writer.add(f"late-{time.time_ns()}", LATE * LENGTH_MS, word)
        writer.commit()


def run_here(directory: Path, master: str) -> None:
    """A run; prints what it did."""
    began_s = time.monotonic()
    report = run(job_at(directory), master=master)
    print(json.dumps({"batches": len(report.batches), "elements": report.elements, "s": time.monotonic() - began_s}))


def measured(directory: Path, master: str) -> tuple[float, float, int, int]:
    """CPU s of a run in a process of its own, from the start of Python to its end; its s; its batches and elements."""
    command = [sys.executable, "-m", "heronpy.bench.late_files", "--run", str(directory), "--master", master]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with watched_tree(process.pid) as tree:
            out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a run ended with {process.returncode}")
    did = json.loads(out.splitlines()[-1])
    return tree.cpu_s(), did["s"], did["batches"], did["elements"]


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="batches of each history")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        run_here(arguments.run, arguments.master)
        return
    print("| batches | the late word is | CPU s | s | batches computed | elements in those that are read |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="heron-late-") as scratch:
        for batches in arguments.sizes:
            directory = Path(scratch) / str(batches)
            grow(directory, batches)
            _print(batches, "(the first run)", measured(directory, arguments.master))
            for _ in range(arguments.rounds):
                for kind, word in _KINDS.items():
                    add_late(directory, word, batches)
                    _print(batches, kind, measured(directory, arguments.master))


def _print(batches: int, kind: str, figures: tuple[float, float, int, int]) -> None:
    cpu_s, s, computed, elements = figures
    print(f"| {batches:,} | {kind} | {cpu_s:.1f} | {s:.1f} | {computed:,} | {elements:,} |", flush=True)


def _writer(directory: Path, batches: int) -> ArchiveWriter:
    (node,) = job_at(directory).archives().values()
    return with_writer(Path(str(job_at(directory).archive_path(node))), batches)


if __name__ == "__main__":
    main()
