"""Counts the words of old text files with Spark, for a topology that goes on counting.

    python -m heronpy.examples.archived_word_counts --input OLD … --to DIRECTORY
    heron submit --from DIRECTORY local heronpy.examples.exactly_once_word_count - NAME --input NEW … --output OUTPUT

The first writes a checkpoint with the counts as state of that topology's bolt; the second begins with it, so that each
word of all files counts once. Needs the extra `spark`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from operator import add
from pathlib import Path
from typing import Any

from heronpy.connectors import Split, TextFile
from heronpy.errors import HeronError, UserCodeError
from heronpy.examples._arguments import input_files, parsed_with_input
from heronpy.pipeline import StateTable, spark_session, write_checkpoint

_SPLIT_BYTES = 32 * 1024 * 1024
_WORD = re.compile("[a-z]+")


def write_counts(spark: Any, files: Sequence[Path], url: str) -> int:
    """Write a checkpoint with the number of each word in these files; how many words there are."""
    splits = TextFile([path.absolute() for path in files], encoding="latin-1").splits(_SPLIT_BYTES)
    counts = spark.sparkContext.parallelize(splits, max(1, len(splits))).flatMap(_words).reduceByKey(add)
    (words,) = write_checkpoint(url, [StateTable(component="count", state="counts", rows=counts)])
    return words


def _words(split: Split) -> Iterator[tuple[str, int]]:
    for chunk in split.read(_refuse):
        for line in chunk.values:
            for word in _WORD.findall(line.lower()):
                yield word, 1


def _refuse(where: str, row: Any, reason: str) -> None:
    raise UserCodeError(f"{where}: {reason}")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="archived_word_counts", description="Counts to begin with.")
    input_files(parser, "text files")
    parser.add_argument("--to", type=Path, required=True, help="directory for the checkpoint, new or empty")
    arguments = parsed_with_input(parser, sys.argv[1:] if argv is None else argv)
    try:
        with spark_session("archived word counts") as spark:
            words = write_counts(spark, arguments.input, str(arguments.to.absolute()))
    except HeronError as e:
        sys.exit(f"archived_word_counts: {e}")
    print(f"{words} words are in {arguments.to}")


if __name__ == "__main__":
    main()
