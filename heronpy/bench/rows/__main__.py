"""One command for each promise of effectively once that is measured with real processes or files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heronpy.bench.rows import _measures as measures
from heronpy.errors import HeronError

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

Keys = Annotated[int, typer.Option(help="Keys of each counting task.")]
Rate = Annotated[float, typer.Option(help="Tuples per second.")]
Interval = Annotated[float, typer.Option(help="Seconds between two checkpoints.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]


@app.command()
def latency(
    rate: Rate = 20_000,
    keys: Keys = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Measured time of each topology.")] = 30.0,
    rounds: Annotated[int, typer.Option(help="Pairs of topologies.")] = 3,
    interval: Interval = 10.0,
    as_json: AsJson = False,
) -> None:
    """p99 at a given rate, with checkpoints and without."""
    _run(measures.latency, as_json, rate=rate, keys=keys, seconds=seconds, rounds=rounds, interval_s=interval)


@app.command()
def recovery(
    keys: Keys = 1_000_000,
    kills: Annotated[int, typer.Option(help="How often a task is killed.", min=1)] = 20,
    rate: Rate = 20_000,
    interval: Interval = 5.0,
    as_json: AsJson = False,
) -> None:
    """From `kill -9` of a task to the first output of all."""
    _run(measures.recovery, as_json, keys=keys, kills=kills, rate=rate, interval_s=interval)


@app.command()
def slow(
    checkpoints: Annotated[int, typer.Option(help="How many.", min=1)] = 100,
    rate: Rate = 20_000,
    payload: Annotated[int, typer.Option(help="Bytes of a tuple besides its key, which has eight.")] = 0,
    interval: Interval = 1.0,
    as_json: AsJson = False,
) -> None:
    """Checkpoints while a bolt is ten times too slow."""
    _run(measures.slow, as_json, checkpoints=checkpoints, rate=rate, payload_bytes=payload, interval_s=interval)


@app.command()
def rescale(
    gb: Annotated[float, typer.Option(help="State of all tasks together, in 10^9 bytes.")] = 1.0,
    numbers: Annotated[str, typer.Option(help="Numbers of tasks, one after the other.")] = "2,3,8,1",
    rate: Rate = 5_000,
    interval: Interval = 10.0,
    as_json: AsJson = False,
) -> None:
    """Other numbers of tasks under load."""
    tasks = [int(number) for number in numbers.split(",")]
    _run(measures.rescale, as_json, gb=gb, numbers=tasks, rate=rate, interval_s=interval)


@app.command()
def memory(
    mb: Annotated[int, typer.Option(help="topology.state.memory.mb of the task.", min=1)] = 32,
    times: Annotated[float, typer.Option(help="The state, by that.")] = 10.0,
    value: Annotated[int, typer.Option(help="Bytes of a value.", min=1)] = 1000,
    seconds: Annotated[float, typer.Option(help="Measured time with all of the state.")] = 10.0,
    rate: Rate = 8_000,
    interval: Interval = 1.0,
    as_json: AsJson = False,
) -> None:
    """State that is larger than memory."""
    _run(
        measures.memory,
        as_json,
        mb=mb,
        times=times,
        value_bytes=value,
        seconds=seconds,
        rate=rate,
        interval_s=interval,
    )


@app.command()
def sessions(
    keys: Annotated[int, typer.Option(help="How many come, each once.", min=100)] = 10_000_000,
    rate: Rate = 40_000,
    gap: Annotated[int, typer.Option(help="Gap of the sessions, in ms of event time.", min=1)] = 1_000,
    seconds: Annotated[float, typer.Option(help="Measured time, early and late.")] = 20.0,
    kills: Annotated[int, typer.Option(help="How often the task is killed, early and late.", min=1)] = 5,
    interval: Interval = 2.0,
    as_json: AsJson = False,
) -> None:
    """Sessions of keys that come once leave nothing behind."""
    _run(
        measures.sessions,
        as_json,
        keys=keys,
        rate=rate,
        gap_ms=gap,
        seconds=seconds,
        kills=kills,
        interval_s=interval,
    )


@app.command()
def others(
    bytewax: Annotated[Path | None, typer.Option(help="The Python of an environment with Bytewax.")] = None,
    flink: Annotated[Path | None, typer.Option(help="The same, with PyFlink (apache-flink).")] = None,
    keys: Annotated[int, typer.Option(help="Different words.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="Measured time of each engine.")] = 30.0,
    warm_up: Annotated[float, typer.Option(help="Seconds before it.")] = 32.0,
    rounds: Annotated[int, typer.Option(help="Of all engines.")] = 3,
    interval: Interval = 10.0,
    as_json: AsJson = False,
) -> None:
    """The keyed count in other engines with recovery, where they are installed."""
    engines = {name: path for name, path in (("bytewax", bytewax), ("flink", flink)) if path is not None}
    if not engines:
        sys.exit("bench: say where there is another engine: --bytewax VENV/bin/python, --flink VENV/bin/python")
    _run(
        measures.others,
        as_json,
        engines=engines,
        keys=keys,
        seconds=seconds,
        warm_up_s=warm_up,
        rounds=rounds,
        interval_s=interval,
    )


@app.command()
def sinks(as_json: AsJson = False) -> None:
    """Output that is prepared, and committed by another process an hour later."""
    _run(measures.sinks, as_json)


def _run(measure: Callable[..., list[measures.Row]], as_json: bool, **options: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True, quiet=as_json)
    try:
        with console.status(measure.__name__) as shown:
            rows = measure(**options, on_step=lambda step: shown.update(f"{measure.__name__}: {step}"))
    except HeronError as e:
        sys.exit(f"bench: {e}")
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("", "figure", "target", "verdict")
    for row in rows:
        table.add_row(row.what, row.figure, row.target, ("met" if row.met else "missed") if row.target else "")
    Console().print(table)


if __name__ == "__main__":
    app()
