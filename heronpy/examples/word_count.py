"""Word count over text files, at least once.

    heron submit local heronpy.examples.word_count - WordCount --input FILE [FILE ...] --output DIRECTORY

A word is a run of ASCII letters, in lower case, as in

    tr -cs 'A-Za-z' '\\n' | tr 'A-Z' 'a-z' | sort | uniq -c

When all lines have been processed, every counting task writes `part-<n>.tsv` (word, tab, count) and then
`part-<n>.done`. Counts are exact as long as no process dies; after a death, lines that were on their way are counted
again, and what a counting task had in memory is gone with it.

`lines` reads, `split` makes words (shuffle), `count` counts them (fields grouping: equal words meet in one task).
`count` also reads the stream `end` of `lines` with Grouping.ALL: a spout task sends it when everything that it emitted
is acked. No task acks `end` before the results are on disk, so that a counting task that dies before receives it again.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.errors import HeronError
from heronpy.examples._arguments import (
    count,
    input_files,
    max_spout_pending,
    name_and_containers,
    parsed_with_input,
    settings_of,
)
from heronpy.examples.lines import END, INPUT, InputEnd, LineSpout
from heronpy.examples.results import OUTPUT, new_output, write_results

_WORD = re.compile("[a-z]+")


def words_of(line: bytes) -> list[str]:
    """The words of a line."""
    # Latin-1 keeps every byte apart, and lower() makes no ASCII letter of any of its others.
    return _WORD.findall(line.decode("latin-1").lower())


class SplitBolt(Bolt):
    """Emits the words of every line, anchored to it."""

    outputs = ["word"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        pass

    def process(self, tup: Tuple) -> None:
        anchors = [tup]
        for word in words_of(tup.values[0]):
            self.emit((word,), anchors=anchors)
        self.ack(tup)


class CountBolt(Bolt):
    """Counts words, and writes the counts when all spout tasks have said that their input is processed."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._part = context.get_this_task_index()
        self._output = Path(config[OUTPUT])
        self._counts: Counter[str] = Counter()
        self._end = InputEnd()

    def process(self, tup: Tuple) -> None:
        if tup.stream != END:
            self._counts[tup.values[0]] += 1
            self.ack(tup)
        elif self._end.reached(tup):
            self._write()
            self._end.ack_with(self)

    def _write(self) -> None:
        seconds = round(time.time() - self._end.began_s, 3)
        done = {"words": self._counts.total(), "distinct": len(self._counts), "seconds": seconds}
        write_results(self._output, self._part, sorted(self._counts.items()), done)
        self.logger.info("%(words)d words, %(distinct)d of them distinct, in %(seconds).1f s", done)


def topology(arguments: argparse.Namespace) -> TopologyBuilder:
    """The topology for parsed arguments.

    Raises:
        UsageError: the output directory is not empty.
    """
    output = new_output(arguments.output)
    builder = TopologyBuilder(arguments.name)
    lines = builder.add_spout(
        "lines", LineSpout, arguments.spouts, config={INPUT: [str(p.absolute()) for p in arguments.input]}
    )
    split = builder.add_bolt("split", SplitBolt, arguments.splits, inputs={lines: Grouping.SHUFFLE})
    builder.add_bolt(
        "count",
        CountBolt,
        arguments.counts,
        inputs={split: Grouping.fields("word"), lines[END]: Grouping.ALL},
        config={OUTPUT: str(output)},
    )
    builder.set_config(settings_of(arguments, api_constants.TopologyReliabilityMode.ATLEAST_ONCE))
    return builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="word_count", description="Word count over text files.")
    name_and_containers(parser)
    input_files(parser, "text files")
    parser.add_argument("--output", type=Path, required=True, help="directory for the counts, new or empty")
    count(parser, "--spouts", 1, "read")
    count(parser, "--splits", 1, "split")
    count(parser, "--counts", 2, "count")
    max_spout_pending(parser)
    return parsed_with_input(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        topology(arguments).build_and_submit()
    except HeronError as e:
        sys.exit(f"word_count: {e}")


if __name__ == "__main__":
    main()
