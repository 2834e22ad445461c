"""`python -m heronpy.bench.spark`: a batch run against the same written by hand; `make bench-spark`.

The jobs count the words of each batch of an archive, each line once: `engine` is the program
`heronpy.examples.words_pipeline`; `rdd` and `mapInArrow` use the same Python functions with Spark's own API, and
`dataframe` does without Python. Those three run in stock sessions: `SparkSession.builder` with no setting of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heronpy.bench.spark_run import KINDS, SparkBenchConfig, run_spark
from heronpy.errors import HeronError

if TYPE_CHECKING:
    from heronpy.bench._spark_report import SparkReport
    from heronpy.bench.spark_scaling import ScalingReport


def main(
    build: Annotated[Path, typer.Option(help="Where the archive is made; it stays for the next time.")],
    mb: Annotated[float, typer.Option(help="Text in the archive, in 10^6 bytes.")] = 100,
    rounds: Annotated[int, typer.Option(help="Runs of each job, in turn; medians count.")] = 5,
    master: Annotated[str, typer.Option(help="Spark's master, on this machine.")] = "local[2]",
    only: Annotated[list[str] | None, typer.Option(help=f"Some of the jobs: {', '.join(KINDS)}.")] = None,
    executors: Annotated[
        list[int] | None,
        typer.Option(help="Instead: the engine on so many executors of a standalone cluster, in S3; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
) -> None:
    """Measure a batch run on this machine, next to three jobs written by hand for the same result."""
    from rich.console import Console

    try:
        steps = Console(stderr=True, quiet=as_json)
        with steps.status("bench") as shown:
            report = _measured(
                mb, rounds, master, only, executors, build.absolute(), lambda step: shown.update(f"bench: {step}")
            )
    except HeronError as e:
        sys.exit(f"bench: {e}")
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        Console().print(report.table())
    if not report.equal:
        sys.exit("bench: the jobs do not have equal results")


def _measured(
    mb: float,
    rounds: int,
    master: str,
    only: list[str] | None,
    executors: list[int] | None,
    build: Path,
    on_step: Callable[[str], None],
) -> SparkReport | ScalingReport:
    if executors:
        from heronpy.bench.spark_scaling import run_scaling

        return run_scaling(mb, executors, rounds, build, on_step=on_step)
    config = SparkBenchConfig(mb=mb, rounds=rounds, master=master, kinds=tuple(only or KINDS))
    return run_spark(config, build, on_step=on_step)


if __name__ == "__main__":
    typer.run(main)
