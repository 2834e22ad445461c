"""Stages inside of components of the user's, as builders for tests put them: spouts and bolts take a `delegate`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from streamlet_kit import WRITTEN, ListSink, ListSource, config

from heronpy.api import Bolt, Spout, TopologyBuilder, TopologyContext, Tuple
from heronpy.errors import ConfigError
from heronpy.streamlet import Builder, Config
from heronpy.testing import Simulator


def inner(settings: dict[str, Any]) -> Any:
    module, _, name = settings["inner"].rpartition(".")
    return getattr(import_module(module), name)


class OuterSpout(Spout):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.inner = inner(config)(delegate=self)
        self.inner.initialize(config, context)

    def next_tuple(self) -> None:
        self.inner.next_tuple()

    def ack(self, tup_id: Any) -> None:
        self.inner.ack(tup_id)


class OuterBolt(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.inner = inner(config)(delegate=self)
        self.inner.initialize(config, context)

    def process(self, tup: Tuple) -> None:
        self.inner.process(tup)

    def process_tick(self, tup: Tuple) -> None:
        self.inner.process_tick(tup)


class Delegating(TopologyBuilder):
    def add_spout(self, name: str, spout_cls: Any, par: int, config: Any = None, optional_outputs: Any = None) -> Any:
        own = {**config, "inner": f"{spout_cls.__module__}.{spout_cls.__name__}"}
        return super().add_spout(name, OuterSpout, par, own, optional_outputs)

    def add_bolt(
        self, name: str, bolt_cls: Any, par: int, inputs: Any, config: Any = None, optional_outputs: Any = None
    ) -> Any:
        own = {**config, "inner": f"{bolt_cls.__module__}.{bolt_cls.__name__}"}
        return super().add_bolt(name, OuterBolt, par, inputs, own, optional_outputs)


def program(settings: Config) -> TopologyBuilder:
    builder = Builder()
    lines = builder.new_source(ListSource("lines", ["to be or", "not to be"]))
    more = builder.new_source(ListSource("more", ["that is"]))
    words = [each.flat_map(str.split) for each in (lines, more)]
    words[0].union(words[1]).set_name("both").to_sink(ListSink())
    made = Delegating("program")
    builder.build(made, settings)
    made.set_config(settings.api_config)
    return made


def test_stages_work_inside_of_components_that_delegate_to_them() -> None:
    with Simulator(program(config())) as simulator:
        simulator.run(until=lambda: len(WRITTEN["out"]) >= 8, seconds=120)
    assert sorted(WRITTEN["out"]) == sorted(["to", "be", "or", "not", "to", "be", "that", "is"])


def test_checkpoints_are_not_taken_without_their_state() -> None:
    settings = config(topology_stateful_checkpoint_interval_seconds=1)
    with pytest.raises(ConfigError, match=r"init_state\(\) was not called"), Simulator(program(settings)) as simulator:
        simulator.run(seconds=20)
