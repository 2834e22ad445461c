"""`python -m heronpy.bench.nexmark`: run the queries, compare their answers, and say what they cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heronpy.bench import RELIABILITIES
from heronpy.bench.nexmark import QUERIES, Options, answer, events, written
from heronpy.bench.nexmark.running import Found, run_query
from heronpy.errors import HeronError


def main(
    queries: Annotated[
        list[str] | None, typer.Argument(help=f"Some of {', '.join(QUERIES)}; all unless given.")
    ] = None,
    build: Annotated[Path, typer.Option(help="Where the events are made; they stay for the next time.")] = Path(
        "build/bench-nexmark"
    ),
    count: Annotated[int, typer.Option("--events", help="Events of all kinds.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Other seeds, other events.")] = 1,
    sources: Annotated[int, typer.Option(help="Tasks that read.")] = 1,
    tasks: Annotated[int, typer.Option(help="Tasks of every other component.")] = 2,
    reliability: Annotated[
        list[str] | None, typer.Option(help="at-most-once, at-least-once or effectively-once; the first and the last.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two checkpoints, effectively once.")] = 10.0,
    kill_every: Annotated[
        float | None, typer.Option(help="Kill a process so often, in seconds, between new rows; effectively once.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="After so many seconds rows are taken for lost.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Run Nexmark's queries, and compare their answers with those of plain Python. Exits with 1 if one differs."""
    from rich.console import Console

    modes = reliability or ["at-most-once", "effectively-once"]
    names = queries or list(QUERIES)
    for wrong in [*(set(names) - QUERIES.keys()), *(set(modes) - RELIABILITIES.keys())]:
        sys.exit(f"bench: unknown: {wrong}")
    found = []
    steps = Console(stderr=True, quiet=as_json)
    with steps.status("nexmark: making events") as shown:
        files = written(build.absolute(), count, seed=seed)
        for name in names:
            for mode in modes:
                shown.update(f"nexmark: {name}, {mode}")
                exact = mode == "effectively-once"
                options = Options(
                    sources=sources, tasks=tasks, reliability=RELIABILITIES[mode], checkpoint_interval_s=interval
                )
                expected = answer(name, events(count, seed=seed))
                try:
                    found.append(
                        run_query(
                            name,
                            files,
                            expected,
                            options,
                            kill_every_s=kill_every if exact else None,
                            timeout_s=timeout,
                            seed=seed,
                        )
                    )
                except HeronError as e:
                    sys.exit(f"bench: {name}: {e}")
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        _print(found, count)
    if any(each.wrong for each in found):
        sys.exit("bench: there are wrong answers")


def _print(found: Sequence[Found], count: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("query", "reliability", "rows", "answer", "s", "CPU µs per event", "killed")
    for column in (2, 4, 5, 6):
        table.columns[column].justify = "right"
    for each in found:
        cost = "-" if each.cpu_s is None else f"{each.cpu_s / count * 1e6:.2f}"
        verdict = each.wrong or "right"
        table.add_row(
            each.query, each.reliability, f"{each.rows:,}", verdict, f"{each.seconds:.1f}", cost, str(each.kills)
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
