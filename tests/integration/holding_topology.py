"""A bolt that acks nothing of what it gets."""

from __future__ import annotations

from typing import Any

from heronpy.api import Bolt, Grouping, Spout, StatefulComponent, Topology, TopologyBuilder, TopologyContext, Tuple


class Five(Spout, StatefulComponent):
    outputs = ("number",)

    def init_state(self, state: Any) -> None:
        self.state = state

    def pre_save(self, checkpoint_id: str) -> None:
        pass

    def next_tuple(self) -> None:
        if (number := self.state.get("next", 0)) < 5:
            self.state["next"] = number + 1
            self.emit([number])


class Holding(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.held: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) > 5:
            self.ack(self.held.pop(0))


def holding() -> type[Topology]:
    builder = TopologyBuilder("holding")
    source = builder.add_spout("source", Five, 1)
    builder.add_bolt("holding", Holding, 1, {source: Grouping.SHUFFLE})
    builder.set_config(
        {
            "topology.reliability.mode": "EFFECTIVELY_ONCE",
            "topology.stateful.checkpoint.interval.seconds": 1,
            "topology.stmgrs": 1,
        }
    )
    return builder.build()
