"""Word count from a Kafka topic to another, and to a SQL table, effectively once.

    heron submit local heronpy.examples.exactly_once_kafka - KafkaWords --servers HOST:PORT --from-topic lines \\
        --to-topic counts --to-sql sqlite:////tmp/counts.db --table counts

Messages are lines of text. For the n-th time that a word came, {"word": word, "n": n} is written to the topic, with the
word as key, and a row with these two columns is inserted into the table: each of them once, whatever dies. They appear
with the checkpoint that is taken every second. Read the topic with `isolation.level=read_committed`; the largest n of a
word is its count. Topics and table exist before. The topology does not end by itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.connectors import KafkaSink, KafkaTopic, SinkBolt, SourceSpout, SqlSink
from heronpy.errors import HeronError
from heronpy.examples._arguments import count, name_and_containers, settings_of
from heronpy.examples.exactly_once_word_count import SplitBolt


class NumberBolt(Bolt):
    """Emits every word with how often it has come."""

    outputs = ["word", "n"]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        word = tup["word"]
        self._counts[word] += 1
        self.emit((word, self._counts[word]))


def topology(arguments: argparse.Namespace) -> TopologyBuilder:
    """The topology for parsed arguments."""
    builder = TopologyBuilder(arguments.name)
    topic = KafkaTopic(arguments.servers, arguments.from_topic, group=arguments.group or arguments.name, value="text")
    lines = builder.add_spout("lines", SourceSpout(topic), arguments.spouts)
    words = builder.add_bolt("split", SplitBolt, arguments.splits, inputs={lines: Grouping.SHUFFLE})
    numbers = builder.add_bolt("number", NumberBolt, arguments.counts, inputs={words: Grouping.fields("word")})
    if arguments.to_topic:
        sink = KafkaSink(arguments.servers, arguments.to_topic, key="word")
        builder.add_bolt("topic", SinkBolt(sink), 1, inputs={numbers: Grouping.SHUFFLE})
    if arguments.to_sql:
        table = SqlSink(arguments.to_sql, arguments.table)
        builder.add_bolt("table", SinkBolt(table), 1, inputs={numbers: Grouping.SHUFFLE})
    mode = api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE
    interval = {api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS: arguments.checkpoint_interval}
    builder.set_config({**settings_of(arguments, mode), **interval})
    return builder


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = argparse.ArgumentParser(prog="exactly_once_kafka", description="Word count, each word once.")
    name_and_containers(parser)
    parser.add_argument("--servers", required=True, help="brokers, HOST:PORT,…")
    parser.add_argument("--from-topic", required=True, help="topic of lines")
    parser.add_argument("--group", help="consumer group (default: the topology's name)")
    parser.add_argument("--to-topic", help="topic for the counts")
    parser.add_argument("--to-sql", metavar="URL", help="database for the counts, as SQLAlchemy has it")
    parser.add_argument("--table", default="counts", help="table with the columns word and n (default counts)")
    count(parser, "--spouts", 1, "read")
    count(parser, "--splits", 1, "split")
    count(parser, "--counts", 2, "count")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default 1)")
    parser.set_defaults(max_spout_pending=None)
    arguments = parser.parse_args(argv)
    if not (arguments.to_topic or arguments.to_sql):
        parser.error("one of --to-topic and --to-sql says where the counts go")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(sys.argv[1:] if argv is None else argv)
    try:
        topology(arguments).build_and_submit()
    except HeronError as e:
        sys.exit(f"exactly_once_kafka: {e}")


if __name__ == "__main__":
    main()
