"""Operators that are fused into one component keep their names, in the component's configuration."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from streamlet_kit import ListSink, ListSource

from heronpy.api import TopologyBuilder
from heronpy.plan import OPERATORS_KEY, LogicalPlan, Operator, chain, operators_of, write_operators
from heronpy.streamlet import Builder


def words_of(line: str) -> list[str]:
    return line.split()


def times(factor: int, number: int) -> int:
    return factor * number


def planned(builder: Builder) -> dict[str, str]:
    """The chain of each component's operators."""
    topology = TopologyBuilder("program")
    builder.build(topology)
    plan = LogicalPlan.from_proto(topology.build().protobuf_topology)
    return {name: chain(operators_of(component.config)) for name, component in plan.components.items()}


def test_fused_operators_are_shown_with_their_functions_and_the_names_that_users_gave() -> None:
    builder = Builder()
    lines = builder.new_source(ListSource("lines", [])).set_name("lines")
    counts = lines.flat_map(words_of).map(str.lower).set_name("small").filter(lambda word: word).count_by_key(len)
    counts.to_sink(ListSink())
    counts.to_sink(ListSink(), name="counts")
    assert planned(builder) == {
        "lines": "lines (ListSource) → flatmap-1 (words_of) → small (lower) → filter-1 → map-1",
        "count_by_key-1": "count_by_key-1 → [sink-1 (ListSink); counts (ListSink)]",
    }


def test_branches_of_one_component_are_shown_beside_each_other() -> None:
    builder = Builder()
    numbers = builder.new_source(ListSource("numbers", [])).set_name("numbers")
    numbers.map(functools.partial(times, 2)).set_name("twice").log()
    numbers.map(abs)
    assert planned(builder) == {"numbers": "numbers (ListSource) → [twice (times) → log-1; map-1 (abs)]"}


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        "map",
        ["map"],
        [{"name": "map"}],
        [{"name": 1, "operation": "map", "function": "", "follows": ""}],
        [{"name": "x" * 1000, "operation": "map", "function": "", "follows": ""}],
        [{"name": "a", "operation": "map", "function": "", "follows": "a"}],
        write_operators([Operator("a", "map"), Operator("b", "map")]),
        write_operators([Operator("a", "map"), Operator("a", "map", follows="a")]),
        write_operators([Operator("a", "map"), Operator("b", "map", follows="c"), Operator("c", "map", follows="b")]),
    ],
)
def test_damaged_operators_are_none(damaged: Any) -> None:
    assert operators_of({OPERATORS_KEY: damaged}) == ()
    assert chain(()) == ""


def test_a_long_chain_is_cut_and_needs_no_deep_stack() -> None:
    operators = [Operator("o0", "map"), *(Operator(f"o{n}", "map", follows=f"o{n - 1}") for n in range(1, 5000))]
    found = operators_of({OPERATORS_KEY: write_operators(operators)})
    assert chain(found).split(" → ") == [f"o{n}" for n in range(len(found))]
    assert 100 < len(found) < 1000
