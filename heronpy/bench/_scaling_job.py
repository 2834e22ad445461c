"""A batch run on a cluster with its files in a store: `python -m heronpy.bench._scaling_job URL --master M --live DIR`.

It says "ready" when Spark and its Python workers run, waits for a line, works, and prints what it did as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heronpy.bench._spark_input import END_MS
from heronpy.examples import words_pipeline
from heronpy.filesystem import Location, location
from heronpy.pipeline import Job, run, spark_session
from heronpy.streamlet.runner import Program


def job_at(place: Location, live: Path) -> Job:
    """The example's program, reading the archive of a place."""
    arguments = words_pipeline.arguments_of(["Words", "--input", "none", "--directory", "unused", "--live", str(live)])
    arguments.directory = place
    config, builder = words_pipeline.program(arguments)
    return Job.of(Program("Words", config, builder.graph))


def conf_for(executors: int) -> Mapping[str, str]:
    """Executors of one core each, all there before the first task."""
    return {
        "spark.cores.max": str(executors),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }


def tasks_by_executor(sc: Any) -> dict[str, tuple[int, float]]:
    """How many tasks each executor has run so far, and for how many seconds in all."""
    found = sc._jsc.sc().statusStore().executorList(True)
    each = [found.apply(at) for at in range(found.size())]
    return {str(one.id()): (int(one.totalTasks()), one.totalDuration() / 1000) for one in each if one.id() != "driver"}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--live", type=Path, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--executors", type=int, required=True)
    arguments = parser.parse_args(argv)
    place = location("the job", arguments.url)
    with spark_session("bench scaling", arguments.master, conf_for(arguments.executors)) as session:
        sc = session.sparkContext
        sc.parallelize(range(sc.defaultParallelism), sc.defaultParallelism).map(str).collect()  # workers start
        print("ready", flush=True)
        sys.stdin.readline()
        before = tasks_by_executor(sc)
        began = time.monotonic()
        report = run(job_at(place, arguments.live), until_ms=END_MS, master=arguments.master)
        seconds = time.monotonic() - began
        ran = {
            name: (tasks - before.get(name, (0, 0.0))[0], busy_s - before.get(name, (0, 0.0))[1])
            for name, (tasks, busy_s) in tasks_by_executor(sc).items()
        }
        print(json.dumps({"seconds": seconds, "elements": report.elements, "ran": ran}), flush=True)


if __name__ == "__main__":
    main()
