"""From a Kafka topic to a Kafka topic, a PostgreSQL table and a Redis stream: numbers, and how often each key came.

`numbers` → `count` → `topic`, `table` and `stream`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.api import Bolt, Grouping, TopologyBuilder, TopologyContext, Tuple
from heronpy.connectors import KafkaSink, KafkaTopic, RedisStreamSink, SinkBolt, SourceSpout, SqlSink

GROUP = "served"


@dataclass(frozen=True)
class Places:
    """Where it reads and writes."""

    kafka: str
    """The brokers."""
    numbers: str
    """The topic that is read."""
    topic: str
    postgres: str
    table: str
    redis: str
    stream: str


class Number(Bolt):
    """Messages `key number` as rows, each with the number of its key."""

    outputs = ("key", "n", "number")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        key, number = tup["key"], tup["number"]
        self.counts[key] += 1
        self.emit((key, self.counts[key], number), anchors=[tup])
        self.ack(tup)


class Split(Bolt):
    """Messages as keys and numbers."""

    outputs = ("key", "number")

    def process(self, tup: Tuple) -> None:
        key, number = tup["value"].split()
        self.emit((key, int(number)), anchors=[tup])
        self.ack(tup)


def served(places: Places, mode: str, *, par: int, containers: int) -> type[Any]:
    """Make the topology.

    Args:
        places: where it reads and writes.
        mode: of reliability.
        par: tasks of each component.
        containers: beside that of the Topology Master.
    """
    builder = TopologyBuilder("served")
    source = KafkaTopic(places.kafka, places.numbers, group=GROUP, value="text", discover_every_s=1)
    numbers = builder.add_spout("numbers", SourceSpout(source), par)
    split = builder.add_bolt("split", Split, par, {numbers: Grouping.SHUFFLE})
    rows = {builder.add_bolt("count", Number, par, {split: Grouping.fields("key")}): Grouping.SHUFFLE}
    builder.add_bolt("topic", SinkBolt(KafkaSink(places.kafka, places.topic, key="key")), par, rows)
    builder.add_bolt("table", SinkBolt(SqlSink(places.postgres, places.table)), par, rows)
    builder.add_bolt("stream", SinkBolt(RedisStreamSink(places.redis, places.stream)), par, rows)
    builder.set_config(
        {
            "topology.reliability.mode": mode,
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.message.timeout.secs": 10,
            "topology.stmgrs": containers,
        }
    )
    return builder.build()
