"""Word count over text files, effectively once.

    heron submit local heronpy.examples.exactly_once_word_count - ExactWordCount --input FILE … --output DIRECTORY

A word is a run of ASCII letters, in lower case, as in `heronpy.examples.word_count`. The position in each file and all
counts are state. Every second a checkpoint is taken of all of them together; when a process dies, everything goes back
to the last one, and on from there. So each word is counted once, whatever dies.

With each checkpoint that is committed, every counting task writes what it had counted then to `part-<n>.tsv` (word,
tab, count) and `part-<n>.done`. The topology does not end by itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.api.state import ITwoPhaseStatefulComponent
from heronpy.connectors import SourceSpout, TextFile
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, input_files, name_and_containers, parsed_with_input, settings_of
from heronpy.examples.results import OUTPUT, new_output, write_results

_WORD = re.compile("[a-z]+")


class SplitBolt(Bolt):
    """Emits the words of every line."""

    outputs = ["word"]  # noqa: RUF012  # Heron's way to declare

    def process(self, tup: Tuple) -> None:
        for word in _WORD.findall(tup["value"].lower()):
            self.emit((word,))


class CountBolt(Bolt, ITwoPhaseStatefulComponent):
    """Counts words, and writes the counts of each checkpoint when it is committed."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._part = context.get_this_task_index()
        self._output = Path(config[OUTPUT])
        self._counts = context.keyed_state("counts", default=0)
        self._saved: dict[int, dict[str, int]] = {}

    def process(self, tup: Tuple) -> None:
        self._counts[tup.values[0]] += 1

    def pre_save(self, checkpoint_id: str) -> None:
        self._saved[int(checkpoint_id)] = dict(self._counts)

    def post_save(self, checkpoint_id: str) -> None:
        committed = int(checkpoint_id)
        if (counts := self._saved.get(committed)) is not None:
            done = {"checkpoint": committed, "words": sum(counts.values())}
            write_results(self._output, self._part, sorted(counts.items()), done)
        self._saved = {id: counts for id, counts in self._saved.items() if id > committed}


def topology(arguments: argparse.Namespace) -> TopologyBuilder:
    """The topology for parsed arguments.

    Raises:
        UsageError: the output directory is not empty.
    """
    output = new_output(arguments.output)
    builder = TopologyBuilder(arguments.name)
    # Latin-1 keeps every byte apart, and lower() makes no ASCII letter of any of its others.
    files = TextFile([path.absolute() for path in arguments.input], encoding="latin-1")
    lines = builder.add_spout("lines", SourceSpout(files), arguments.spouts)
    split = builder.add_bolt("split", SplitBolt, arguments.splits, inputs={lines: Grouping.SHUFFLE})
    builder.add_bolt(
        "count", CountBolt, arguments.counts, inputs={split: Grouping.fields("word")}, config={OUTPUT: str(output)}
    )
    mode = api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE
    interval = {api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS: arguments.checkpoint_interval}
    builder.set_config({**settings_of(arguments, mode), **interval})
    return builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="exactly_once_word_count", description="Word count, each word once.")
    name_and_containers(parser)
    input_files(parser, "text files")
    parser.add_argument("--output", type=Path, required=True, help="directory for the counts, new or empty")
    count(parser, "--spouts", 1, "read")
    count(parser, "--splits", 1, "split")
    count(parser, "--counts", 2, "count")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default 1)")
    parser.set_defaults(max_spout_pending=None)
    return parsed_with_input(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        topology(arguments).build_and_submit()
    except HeronError as e:
        sys.exit(f"exactly_once_word_count: {e}")


if __name__ == "__main__":
    main()
