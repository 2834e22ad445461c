"""Word count, live and in batch, from one definition.

    heron submit local heronpy.examples.words_pipeline - Words --input FILE.jsonl --directory DIR
    heron pipeline run heronpy.examples.words_pipeline Words --input FILE.jsonl --directory DIR
    heron pipeline query Words the

The input is lines of JSON: {"timestamp": 1700000000.25, "text": "the cow jumped over the moon"}, with the timestamp in
seconds. The topology archives every line and counts its words as they come; the Spark job counts those of whole batches
(one a minute here) from the archive, each line once, however often it was replayed. A query adds the two.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from heronpy.connectors import JsonLines
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, input_files, name_and_containers
from heronpy.stores import store_at
from heronpy.streamlet import Builder, Config, Runner, Sum

BATCH_LENGTH_S = 60

_WORD = re.compile("[a-z]+")


def time_of(line: dict[str, Any]) -> float:
    """The event time of a line, in seconds since the epoch."""
    return float(line["timestamp"])


def words_of(line: dict[str, Any]) -> list[tuple[str, int]]:
    """Each word of a line, with a one."""
    return [(word, 1) for word in _WORD.findall(line["text"].lower())]


def program(arguments: argparse.Namespace) -> tuple[Config, Builder]:
    """The program for parsed arguments."""
    builder = Builder()
    lines = builder.new_source(JsonLines(arguments.input)).set_name("lines").set_num_partitions(arguments.sources)
    (
        lines.event_time(time_of)
        .archive()
        .flat_map(words_of)
        .set_name("words")
        .to_store(
            "counts", Sum(), store_at(arguments.live) if arguments.live else None, num_partitions=arguments.counts
        )
    )
    config = Config()
    config.set_num_containers(arguments.containers)
    config.set_pipeline(arguments.directory, batch_length=BATCH_LENGTH_S, keep_live_batches=10_000)
    return config, builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="words_pipeline", description="Word count, live and in batch.")
    name_and_containers(parser)
    input_files(parser, "files with one JSON line of text a line")
    parser.add_argument("--directory", required=True, help="where archive, views and live stores are kept, or its URL")
    parser.add_argument(
        "--live", help="where live views are kept instead, needed with a URL: a directory, redis://… or postgresql://…"
    )
    count(parser, "--sources", 1, "read")
    count(parser, "--counts", 2, "count")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        Runner().run(arguments.name, *program(arguments))
    except HeronError as e:
        sys.exit(f"words_pipeline: {e}")


if __name__ == "__main__":
    main()
