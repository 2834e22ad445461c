"""One of the batch benchmark's jobs, in a process of its own: `python -m heronpy.bench._spark_jobs KIND DIRECTORY`.

It says "ready" when Spark and its Python workers run, waits for a line, works, and prints what it did as JSON.
All of them read one archive and count the words of each batch, each line once. The engine's job has the session that
`heron pipeline run` makes; those written by hand have a stock one, as `SparkSession.builder` gives it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from heronpy.bench._spark_input import END_MS
from heronpy.examples import words_pipeline
from heronpy.examples.words_pipeline import words_of
from heronpy.pipeline import Job, ViewReader, run, spark_session
from heronpy.streamlet import Sum
from heronpy.streamlet.runner import Program

VIEW = "counts"


def job_in(directory: Path) -> Job:
    """The example's program, reading the archive that is in its directory."""
    arguments = words_pipeline.arguments_of(["Words", "--input", "none", "--directory", str(directory)])
    config, builder = words_pipeline.program(arguments)
    return Job.of(Program("Words", config, builder.graph))


def archive_in(directory: Path) -> Path:
    """Where the program has its archive."""
    job = job_in(directory)
    (node,) = job.archives().values()
    found = job.archive_path(node)
    assert isinstance(found, Path)
    return found


def engine(session: Any, directory: Path, out: Path) -> None:
    """The engine's batch run."""
    job = job_in(directory)
    remove_engine_output(directory)
    run(job, until_ms=END_MS)


def remove_engine_output(directory: Path) -> None:
    """Leave nothing of an earlier run but the archive."""
    shutil.rmtree(directory / "views", ignore_errors=True)
    (directory / "manifest.json").unlink(missing_ok=True)


def _lines(session: Any, directory: Path) -> Any:
    """Each line of the archive once, as a DataFrame."""
    return session.read.parquet(str(archive_in(directory))).dropDuplicates(["id"])


def rdd(session: Any, directory: Path, out: Path) -> None:
    """What one would write by hand with the program's Python functions, row by row."""
    lines = _lines(session, directory).select("batch", "value.text")
    counts = lines.rdd.flatMap(_batch_words).reduceByKey(operator.add)
    rows = counts.map(_row)
    session.createDataFrame(rows, "batch long, word string, count long").write.parquet(str(out))


def _batch_words(row: Any) -> Iterator[tuple[tuple[int, str], int]]:
    batch, text = row
    for word, number in words_of({"text": text}):
        yield (batch, word), number


def _row(pair: tuple[tuple[int, str], int]) -> tuple[int, str, int]:
    (batch, word), count = pair
    return batch, word, count


def map_in_arrow(session: Any, directory: Path, out: Path) -> None:
    """The same in blocks of Arrow, which is how Spark runs Python fastest, summed per block before the shuffle."""
    lines = _lines(session, directory).select("batch", "value.text")
    counts = lines.mapInArrow(_block_counts, "batch long, word string, count long").groupBy("batch", "word")
    counts.agg({"count": "sum"}).withColumnRenamed("sum(count)", "count").write.parquet(str(out))


def _block_counts(blocks: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for block in blocks:
        counts: Counter[tuple[int, str]] = Counter()
        for batch, text in zip(block.column("batch").to_pylist(), block.column("text").to_pylist(), strict=True):
            for word, number in words_of({"text": text}):
                counts[batch, word] += number
        batches, words = zip(*counts, strict=True) if counts else ((), ())
        columns = [pa.array(batches, pa.int64()), pa.array(words, pa.string()), pa.array(counts.values(), pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, names=["batch", "word", "count"])


def dataframe(session: Any, directory: Path, out: Path) -> None:
    """What one would write by hand, if nothing of the program had to be Python."""
    from pyspark.sql import functions as F

    lines = _lines(session, directory)
    words = lines.select("batch", F.explode(F.regexp_extract_all(F.lower("value.text"), F.lit("[a-z]+"), F.lit(0))))
    words.groupBy("batch", F.col("col").alias("word")).count().write.parquet(str(out))


JOBS: dict[str, Callable[[Any, Path, Path], None]] = {
    "engine": engine,
    "dataframe": dataframe,
    "mapInArrow": map_in_arrow,
    "rdd": rdd,
}


def results_of_engine(directory: Path) -> Iterator[tuple[int, str, int]]:
    """Batch, word, count of every row that the engine has made."""
    reader = ViewReader(directory, VIEW, Sum())
    for batch in reader.batches():
        for word, count in reader.items(batch):
            yield batch, word, count


def results_in(out: Path) -> Iterator[tuple[int, str, int]]:
    """Batch, word, count of every row in the Parquet files of a job written by hand."""
    import pyarrow.parquet as pq

    for path in sorted(out.glob("*.parquet")):
        table = pq.read_table(path, columns=["batch", "word", "count"])
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


@contextlib.contextmanager
def session_for(kind: str, master: str) -> Iterator[Any]:
    """The session of a job: its own for the engine, and one without any setting for what is written by hand."""
    if kind == "engine":
        with spark_session(f"bench {kind}", master) as session:
            yield session
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers run what this process runs; nothing else is set
    session = SparkSession.builder.master(master).appName(f"bench {kind}").getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=JOBS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--master", required=True)
    arguments = parser.parse_args(argv)
    shutil.rmtree(arguments.out, ignore_errors=True)
    with session_for(arguments.kind, arguments.master) as session:
        cores = session.sparkContext.defaultParallelism
        session.sparkContext.parallelize(range(cores), cores).map(partial(operator.add, 1)).collect()  # workers start
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        JOBS[arguments.kind](session, arguments.directory, arguments.out)
        seconds = time.monotonic() - began
        print(json.dumps({"seconds": seconds, "conf": dict(session.sparkContext.getConf().getAll())}), flush=True)


if __name__ == "__main__":
    main()
