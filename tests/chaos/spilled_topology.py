"""Numbers that are counted by key in values so large that most of them are in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counting_topology import Count, Source

from heronpy.api import Grouping, TopologyBuilder, TopologyContext, Tuple

VALUE_CHARACTERS = 20_000


class LargeCount(Count):
    """Counts numbers by key, in 20 KB each."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self.large = context.keyed_state("large", default=(0, ""))

    def process(self, tup: Tuple) -> None:
        key = tup.values[0]
        count = self.large[key][0] + 1
        self.large[key] = (count, key[-1] * VALUE_CHARACTERS)
        self.ack(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        self.prepared[checkpoint_id] = {key: value[0] for key, value in self.large.items()}


def counting_in_large_values(name: str, directory: Path, *, par: int) -> type[Any]:
    """`source` → `count` (fields), `par` tasks each: a MB of state each, and room for half of it."""
    builder = TopologyBuilder(name)
    source = builder.add_spout("source", Source, par)
    builder.add_bolt("count", LargeCount, par, {source: Grouping.fields("key")})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 0.5,
            "topology.state.memory.mb": 1,
            "chaos.dir": str(directory),
        }
    )
    return builder.build()
