"""Word count over text files as a streamlet, effectively once.

    heron submit local heronpy.examples.exactly_once_streamlet - ExactWords --input FILE … --output DIRECTORY

A word is a run of ASCII letters, in lower case, as in `heronpy.examples.exactly_once_word_count`. Every second a
checkpoint is taken of the positions in the files, of all counts, and of what is written: lines `["word", n]` for the
n-th time that a word came, each of them once, whatever dies. They appear in DIRECTORY as the checkpoint is committed.
Lines that are added to the files are counted, too; the topology does not end by itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from heronpy.api import api_constants
from heronpy.connectors import JsonLinesSink, TextFile
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, input_files, name_and_containers, parsed_with_input
from heronpy.streamlet import Builder, Config, Runner

_WORD = re.compile("[a-z]+")


def words_of(line: str) -> list[str]:
    """The words of a line."""
    return _WORD.findall(line.lower())


def program(arguments: argparse.Namespace) -> tuple[Config, Builder]:
    """The program for parsed arguments."""
    builder = Builder()
    # Latin-1 keeps every byte apart, and lower() makes no ASCII letter of any of its others.
    files = TextFile([path.absolute() for path in arguments.input], encoding="latin-1")
    lines = builder.new_source(files, discover_every_s=1).set_name("lines").set_num_partitions(arguments.sources)
    counts = lines.flat_map(words_of).count_by_key(str).set_name("counts").set_num_partitions(arguments.counts)
    counts.to_sink(JsonLinesSink(arguments.output.absolute()))
    config = Config()
    config.set_num_containers(arguments.containers)
    config.set_delivery_semantics(Config.EFFECTIVELY_ONCE)
    config.set_user_config(api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS, arguments.checkpoint_interval)
    return config, builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="exactly_once_streamlet", description="Word count, each word once.")
    name_and_containers(parser)
    input_files(parser, "text files")
    parser.add_argument("--output", type=Path, required=True, help="directory for the counts")
    count(parser, "--sources", 1, "read")
    count(parser, "--counts", 2, "count")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default 1)")
    return parsed_with_input(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        Runner().run(arguments.name, *program(arguments))
    except HeronError as e:
        sys.exit(f"exactly_once_streamlet: {e}")


if __name__ == "__main__":
    main()
