"""`python -m heronpy.bench.state`: what state and checkpoints cost, next to their targets; `make bench-state`."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from heronpy.bench._run import BenchConfig, run
from heronpy.bench.state_costs import LOOP_MS, STOP_MS_MAX, StateCosts, measure
from heronpy.errors import HeronError

DIRTY_BYTES_MAX: Final = 0.02
RATIO_MIN: Final = 0.85


def ratios(rounds: int, keys: int, seconds: float, warm_up_s: float, interval_s: float) -> list[float]:
    """Tuples per core-second effectively once, by those at most once just before and after, once per round.

    Their user code is the same; only its map of counts is a plain dictionary at most once.
    """
    options: dict[str, Any] = {"keys": keys, "seconds": seconds, "floor": False}
    plain = BenchConfig(**options, warm_up_s=min(warm_up_s, 10.0), counted_apart=True)
    stateful = BenchConfig(
        **options, warm_up_s=warm_up_s, reliability="effectively-once", checkpoint_interval_s=interval_s
    )
    found = []
    before = run(plain).cpu_us_per_tuple["total"] if rounds else 0.0
    for _ in range(rounds):
        between = run(stateful).cpu_us_per_tuple["total"]
        after = run(plain).cpu_us_per_tuple["total"]
        found.append((before + after) / 2 / between)
        before = after
    return found


def main(
    keys: Annotated[list[int] | None, typer.Option(help="Numbers of keys; 10 thousand, 1 and 10 million.")] = None,
    rounds: Annotated[int, typer.Option(help="Pairs of topologies, with and without checkpoints; 0 for none.")] = 3,
    topology_keys: Annotated[int, typer.Option(help="Different words in the topologies.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Measured time of each topology.")] = 20.0,
    warm_up: Annotated[float, typer.Option(help="Seconds before it, with checkpoints.")] = 32.0,
    interval: Annotated[float, typer.Option(help="Seconds between two checkpoints.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Measure what checkpoints of state by key cost: stops and bytes in one task, and CPU in a topology."""
    costs = [measure(number) for number in keys or [10_000, 1_000_000, 10_000_000]]
    try:
        found = ratios(rounds, topology_keys, seconds, warm_up, interval)
    except HeronError as e:
        sys.exit(f"bench: {e}")
    if as_json:
        print(json.dumps({"costs": [asdict(each) for each in costs], "ratios": found}, indent=2))
    else:
        _print(costs, found)


def _print(costs: list[StateCosts], found: list[float]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "target", *(f"{each.keys:,} keys" for each in costs))
    table.add_row("longest stop, ms", f"≤ {STOP_MS_MAX:g}", *(f"{each.stop_ms:.1f} ({each.stop_at})" for each in costs))
    table.add_row("steps beyond it", "", *(f"{each.long_steps} of {each.steps:,}" for each in costs))
    table.add_row(f"longest empty loop of {LOOP_MS:g} ms, as many", "", *(f"{each.loop_ms:.1f}" for each in costs))
    table.add_row(
        "bytes with 1 % changed", f"≤ {DIRTY_BYTES_MAX:.0%} of all", *(f"{each.dirty_bytes:.1%}" for each in costs)
    )
    table.add_row("CPU to write a key, ns", "", *(f"{each.write_ns:.0f}" for each in costs))
    table.add_row("CPU to restore a key, ns", "", *(f"{each.restore_ns:.0f}" for each in costs))
    console = Console()
    console.print(table)
    if found:
        console.print(
            f"tuples per core-second with checkpoints, by those at most once without: {statistics.median(found):.2f} "
            f"({min(found):.2f}–{max(found):.2f} in {len(found)} rounds; target ≥ {RATIO_MIN:g})"
        )


if __name__ == "__main__":
    typer.run(main)
