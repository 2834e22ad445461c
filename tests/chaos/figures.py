"""Figures of campaigns of faults: a line of JSON for each fault, and a table of many.

    HERON_CHAOS_FIGURES=figures.jsonl make chaos FAULTS=25
    python tests/chaos/figures.py figures.jsonl

A fault that was not made good has no line; its run says that it failed.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PAIR = "two at once"


def append(path: str, **figures: object) -> None:
    """Add one line to a file of figures; an empty path means that nobody wants them."""
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(figures) + "\n")


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Recovery by kind of fault in a Markdown table, then what all runs add up to."""
    took: dict[str, list[float]] = defaultdict(list)
    runs: list[dict[str, Any]] = []
    for line in lines:
        if "kinds" in line:
            took[line["kinds"][0] if len(line["kinds"]) == 1 else PAIR].append(line["settled_s"])
        else:
            runs.append(line)
    every = [seconds for kind in took.values() for seconds in kind]
    yield "| fault | number | p50 s | p95 s | longest s |"
    yield "|---|---|---|---|---|"
    for kind, seconds in [*sorted(took.items()), *([("all", every)] if every else [])]:
        shown = " | ".join(f"{percentile(seconds, share):.1f}" for share in (0.5, 0.95, 1.0))
        yield f"| {kind.replace('_', ' ')} | {len(seconds)} | {shown} |"
    failed, numbers = (sum(run[key] for run in runs) for key in ("failed", "numbers"))
    yield f"{len(runs)} runs, {failed} of them failed: {numbers} numbers"
    counted = [run for run in runs if "lost" in run]  # the others fail at the first one
    if counted:
        lost, repeated = (sum(run[key] for run in counted) for key in ("lost", "repeated"))
        yield f"{lost} were lost, {repeated} executions were repeated"


if __name__ == "__main__":
    found = (json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines())
    print("\n".join(table(found)))
