"""How components declare their states, and what they may declare. Without checkpoints: states are in memory."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from heronpy.api import (
    Bolt,
    Grouping,
    HashMapState,
    IStatefulComponent,
    ITwoPhaseStatefulComponent,
    Spout,
    StatefulComponent,
    Stream,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from heronpy.errors import ConfigError, TopologyError, UsageError
from heronpy.state import ComponentState, KeyedState
from heronpy.testing import Simulator

WORDS = ["heron", "crane", "heron", "stork", "heron", "crane"]
MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")


class Words(Spout):
    outputs = ("word", "length", Stream(["word", "length"], name="side"))

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.positions = context.split_state("positions", index=int)
        self.split = context.get_this_task_index()
        self.left = context.task_state("left", default=len(WORDS))

    def next_tuple(self) -> None:
        if self.left.value:
            self.left.value -= 1
            position = self.positions.get(self.split, 0)
            self.emit([WORDS[position], len(WORDS[position])], tup_id=position)
            self.positions[self.split] = position + 1


class Count(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.counts = context.keyed_state("counts", default=0)

    def process(self, tup: Tuple) -> None:
        self.counts[tup["word"]] += 1
        self.ack(tup)


class Remember(Bolt):
    """Storm's and Heron's way."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen = context.broadcast_state("seen")

    def process(self, tup: Tuple) -> None:
        self.seen.put(tup["word"], self.seen.get(tup["word"], 0) + 1)
        if tup["word"] == "stork":
            assert self.seen.delete("stork") == 1
            assert self.seen.delete("stork") is None
        self.ack(tup)


def topology(bolt: type[Bolt], grouping: Any, *, mode: str = "ATMOST_ONCE", side: Any = None) -> TopologyBuilder:
    builder = TopologyBuilder("state")
    spout = builder.add_spout("words", Words, 2)
    inputs = {spout: grouping} | ({spout["side"]: side} if side is not None else {})
    builder.add_bolt("bolt", bolt, 3, inputs=inputs)
    builder.set_config({"topology.reliability.mode": mode})
    return builder


@pytest.mark.parametrize("mode", MODES)
def test_states_are_dicts_in_every_mode(mode: str) -> None:
    with Simulator(topology(Count, Grouping.fields("word"), mode=mode)) as simulator:
        simulator.drain()
        simulator.activate()
        for _ in range(100):
            simulator.step()
        counts = [dict(bolt.counts) for bolt in simulator.component("bolt")]
    assert sum(len(each) for each in counts) == 3
    assert {word: n for each in counts for word, n in each.items()} == {"heron": 6, "crane": 4, "stork": 2}
    assert [dict(spout.positions) for spout in simulator.component("words")] == [{0: 6}, {1: 6}]


def test_state_that_all_tasks_have_alike_has_storms_names() -> None:
    with Simulator(topology(Remember, Grouping.ALL)) as simulator:
        for _ in range(100):
            simulator.step()
        for bolt in simulator.component("bolt"):
            assert sorted(bolt.seen.enumerate()) == [("crane", 4), ("heron", 6)]


@pytest.mark.parametrize(
    ("grouping", "name"),
    [(Grouping.SHUFFLE, "SHUFFLE"), (Grouping.ALL, "ALL"), (Grouping.partial_key("word"), "PARTIAL_KEY")],
)
def test_state_by_key_is_refused_where_an_input_is_not_grouped_by_fields(grouping: Any, name: str) -> None:
    builder = topology(Count, Grouping.fields("word"), side=grouping)
    with pytest.raises(TopologyError, match=rf"bolt 'bolt', state 'counts': .* words:side is grouped {name}"):
        Simulator(builder).__enter__()


@pytest.mark.parametrize("grouping", [Grouping.SHUFFLE, Grouping.fields("word")])
def test_state_that_all_tasks_have_alike_is_refused_where_they_do_not_see_the_same(grouping: Any) -> None:
    with pytest.raises(TopologyError, match=r"bolt 'bolt', state 'seen': .* needs an input that is grouped ALL"):
        Simulator(topology(Remember, grouping)).__enter__()
    with Simulator(topology(Remember, grouping, side=Grouping.ALL)):
        pass  # the other input may read it


def test_a_spout_has_no_state_by_key() -> None:
    class Keyed(Words):
        def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
            context.keyed_state("counts")

    task = first_task(Keyed)
    with pytest.raises(TopologyError, match="spout 'words', state 'counts'"):
        task.core.initialize(task.user_object)


def first_task(spout: type[Spout]) -> Any:
    """The task of a spout of a class that cannot be imported."""
    simulator = Simulator(topology(Count, Grouping.fields("word")))
    task = simulator.tasks[simulator.plan.component_tasks["words"][0]]
    task.user_object = spout(task.user_object.delegate)
    return task


def test_a_key_of_another_task_is_refused() -> None:
    with Simulator(topology(Count, Grouping.fields("word"))) as simulator:
        for _ in range(100):
            simulator.step()
        states: list[KeyedState] = [bolt.counts for bolt in simulator.component("bolt")]
        (owner,) = (state for state in states if "heron" in list(state))
        for state in states:
            if state is not owner:
                with pytest.raises(UsageError, match="key 'heron' belongs to task"):
                    state["heron"] = 1


def test_a_key_of_several_fields_is_their_tuple() -> None:
    class Pairs(Count):
        def process(self, tup: Tuple) -> None:
            self.counts[tup["word"], tup["length"]] += 1

    with Simulator(topology(Count, Grouping.fields("word", "length"))) as simulator:
        for bolt in simulator.component("bolt"):
            bolt.process = Pairs.process.__get__(bolt)
        for _ in range(100):
            simulator.step()
        counts = {k: n for bolt in simulator.component("bolt") for k, n in bolt.counts.items()}
    assert counts == {("heron", 5): 6, ("crane", 5): 4, ("stork", 5): 2}


def test_a_name_is_declared_once() -> None:
    class Twice(Words):
        def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
            context.task_state("left")
            context.split_state("left")

    task = first_task(Twice)
    with pytest.raises(ConfigError, match="declares two states 'left'"):
        task.core.initialize(task.user_object)


def test_states_are_declared_in_initialize() -> None:
    with Simulator(topology(Count, Grouping.fields("word"))) as simulator:
        task = simulator.tasks[simulator.plan.component_tasks["bolt"][0]]
        with pytest.raises(UsageError, match="state 'late' too late"):
            task.core.context.keyed_state("late")


def test_one_warning_says_that_state_is_in_memory_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Simulator(topology(Count, Grouping.fields("word"))):
        pass
    warned = [record.getMessage() for record in caplog.records if "in memory only" in record.getMessage()]
    assert sorted(message.split()[1] for message in warned) == ["bolt", "words"]


class Stateful(Spout, ITwoPhaseStatefulComponent):
    outputs = ("word",)

    def init_state(self, state: Any) -> None:
        self.calls = ["init_state"]
        self.state = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.calls.append("initialize")
        self.state.put("position", 7)

    def next_tuple(self) -> None:
        pass


@pytest.mark.parametrize("mode", MODES)
def test_init_state_comes_before_initialize(mode: str) -> None:
    builder = TopologyBuilder("stateful")
    builder.add_spout("words", Stateful, 1)
    builder.set_config({"topology.reliability.mode": mode})
    with Simulator(builder) as simulator:
        (spout,) = simulator.component("words")
    assert spout.calls == ["init_state", "initialize"]
    assert isinstance(spout.state, ComponentState if mode == "EFFECTIVELY_ONCE" else HashMapState)
    assert (spout.state.get("position"), spout.state.delete("position"), len(spout.state)) == (7, 7, 0)


def test_the_names_of_java_are_there() -> None:
    assert IStatefulComponent is StatefulComponent
    assert issubclass(ITwoPhaseStatefulComponent, StatefulComponent)
