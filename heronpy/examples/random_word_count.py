"""The word count of the Heron paper (section 7.3): it measures the engine, because it does almost nothing itself.

    heron submit local heronpy.examples.random_word_count - RandomWordCount --spouts 2 --bolts 2

Every spout task makes 175,000 random words when it is initialized and emits one of them, picked at random, in every
next_tuple(). A fields grouping sends equal words to the same counting task. `heron bench` measures a topology of this
shape.
"""

from __future__ import annotations

import argparse
import random
import string
import sys
from collections.abc import Sequence
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.errors import HeronError
from heronpy.examples._arguments import count_of, max_spout_pending, name_and_containers, settings_of

WORDS = 175_000
"""How many words a spout task makes, as in the paper."""


def random_words(count: int, seed: int) -> list[str]:
    """`count` words of 3 to 12 letters; the same for the same seed."""
    source = random.Random(seed)
    return ["".join(source.choices(string.ascii_lowercase, k=source.randint(3, 12))) for _ in range(count)]


class RandomWordSpout(Spout):
    """One word, picked at random, in every next_tuple()."""

    outputs = ["word"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._words = random_words(WORDS, seed=0)
        self._random = random.random
        self._emitted = 0

    def next_tuple(self) -> None:
        self._emitted += 1
        # Twice as fast as random.choice(), and what is to be measured is not the picking.
        self.emit((self._words[int(self._random() * WORDS)],), tup_id=self._emitted)


class CountBolt(Bolt):
    """A map from word to count."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._counts: dict[str, int] = {}

    def process(self, tup: Tuple) -> None:
        word = tup.values[0]
        self._counts[word] = self._counts.get(word, 0) + 1
        self.ack(tup)


def topology(arguments: argparse.Namespace) -> TopologyBuilder:
    """The topology for parsed arguments."""
    builder = TopologyBuilder(arguments.name)
    words = builder.add_spout("word", RandomWordSpout, arguments.spouts)
    builder.add_bolt("count", CountBolt, arguments.bolts, inputs={words: Grouping.fields("word")})
    mode = api_constants.TopologyReliabilityMode
    modes = {"at-most-once": mode.ATMOST_ONCE, "at-least-once": mode.ATLEAST_ONCE}
    builder.set_config(settings_of(arguments, modes[arguments.reliability]))
    return builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="random_word_count", description="The Heron paper's word count.")
    name_and_containers(parser)
    parser.add_argument("--spouts", type=count_of("task"), default=1, help="spout tasks (default 1)")
    parser.add_argument("--bolts", type=count_of("task"), default=1, help="counting tasks (default 1)")
    parser.add_argument("--reliability", choices=["at-most-once", "at-least-once"], default="at-least-once")
    max_spout_pending(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        topology(arguments).build_and_submit()
    except HeronError as e:
        sys.exit(f"random_word_count: {e}")


if __name__ == "__main__":
    main()
