"""`python -m heronpy.bench.spark`: a batch run against the same written by hand; `make bench-spark`.

The jobs count the words of each batch of an archive, each line once: `engine` is the program
`heronpy.examples.words_pipeline`; `rdd` and `mapInArrow` use the same Python functions with Spark's own API, and
`dataframe` does without Python. Those three run in stock sessions: `SparkSession.builder` with no setting of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from heronpy.bench.spark_run import KINDS, SparkBenchConfig, run_spark
from heronpy.errors import HeronError


def main(
    build: Annotated[Path, typer.Option(help="Where the archive is made; it stays for the next time.")],
    mb: Annotated[float, typer.Option(help="Text in the archive, in 10^6 bytes.")] = 100,
    rounds: Annotated[int, typer.Option(help="Runs of each job, in turn; medians count.")] = 5,
    master: Annotated[str, typer.Option(help="Spark's master, on this machine.")] = "local[2]",
    only: Annotated[list[str] | None, typer.Option(help=f"Some of the jobs: {', '.join(KINDS)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Measure a batch run on this machine, next to three jobs written by hand for the same result."""
    from rich.console import Console

    try:
        config = SparkBenchConfig(mb=mb, rounds=rounds, master=master, kinds=tuple(only or KINDS))
        steps = Console(stderr=True, quiet=as_json)
        with steps.status("bench") as shown:
            report = run_spark(config, build.absolute(), on_step=lambda step: shown.update(f"bench: {step}"))
    except HeronError as e:
        sys.exit(f"bench: {e}")
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        Console().print(report.table())
    if not report.equal:
        sys.exit("bench: the jobs do not have equal results")


if __name__ == "__main__":
    typer.run(main)
