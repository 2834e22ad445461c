"""The verb `bench`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heronpy.bench._run import BenchConfig, run
from heronpy.examples.random_word_count import WORDS


def bench(
    topology: Annotated[str, typer.Option(help="word-count, or rtac: active users by second.")] = "word-count",
    spouts: Annotated[int, typer.Option(help="Spout tasks.")] = 1,
    bolts: Annotated[int, typer.Option(help="Counting tasks; rtac: and as many that distribute.")] = 1,
    containers: Annotated[int, typer.Option(help="Containers.")] = 1,
    reliability: Annotated[str, typer.Option(help="at-most-once, at-least-once or effectively-once.")] = "at-most-once",
    keys: Annotated[int, typer.Option(help="How many different words there are.")] = WORDS,
    checkpoint_interval: Annotated[
        float, typer.Option(help="Seconds between two checkpoints, effectively once.")
    ] = 10.0,
    seconds: Annotated[float, typer.Option(help="Measured time.")] = 10.0,
    warm_up: Annotated[float, typer.Option(help="Seconds before the measured time.")] = 2.0,
    rate: Annotated[float | None, typer.Option(help="Tuples per second; as many as possible unless given.")] = None,
    drain_interval_ms: Annotated[
        float | None, typer.Option(help="How long a tuple may wait to be sent with others; the default unless given.")
    ] = None,
    max_spout_pending: Annotated[
        int | None,
        typer.Option(help="Unacked tuples per spout task, at least once only; left to the engine unless given."),
    ] = None,
    tls: Annotated[bool, typer.Option(help="Encrypt the links between containers, as topologies do.")] = True,
    floor: Annotated[bool, typer.Option(help="Measure two plain processes, too, before and after.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Measure the engine on this machine, next to two plain Python processes that do the same work.

    The topology is the Heron paper's word count: random words (175,000), one of them in every next_tuple(), a fields
    grouping, a counting bolt; or RTAC, its other one, for which there is no floor. It runs in a place of its own and is
    removed afterwards, also after Ctrl-C.
    """
    from rich.console import Console

    config = BenchConfig(
        topology=topology,
        spouts=spouts,
        bolts=bolts,
        containers=containers,
        reliability=reliability,
        keys=keys,
        checkpoint_interval_s=checkpoint_interval,
        seconds=seconds,
        warm_up_s=warm_up,
        rate=rate,
        drain_interval_ms=drain_interval_ms,
        max_spout_pending=max_spout_pending,
        tls=tls,
        floor=floor,
    )
    steps = Console(stderr=True, quiet=as_json)
    with steps.status("heron bench") as shown:
        report = run(config, on_step=lambda step: shown.update(f"heron bench: {step}"))
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        Console().print(report.table())
