"""Which edges of a topology lead back."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import Bolt, GlobalStreamId, Grouping, Spout, TopologyBuilder
from heronpy.plan import LogicalPlan, feedback_edges


class Source(Spout):
    outputs = ("x",)


class Step(Bolt):
    outputs = ("x",)


def plan(edges: set[tuple[str, str]]) -> LogicalPlan:
    """A spout `s` and bolts with these edges; bolts without one read the spout."""
    builder = TopologyBuilder("edges")
    builder.add_spout("s", Source, 1)
    for bolt in sorted({name for edge in edges for name in edge} - {"s"}):
        sources = sorted(source for source, consumer in edges if consumer == bolt) or ["s"]
        inputs = {GlobalStreamId(source, "default"): Grouping.SHUFFLE for source in sources}
        builder.add_bolt(bolt, Step, 1, inputs)
    return LogicalPlan.from_proto(builder.build().protobuf_topology)


@pytest.mark.parametrize(
    ("edges", "back"),
    [
        ({("s", "a"), ("a", "b")}, set()),
        ({("s", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("a", "b")}, set()),
        ({("s", "a"), ("a", "a")}, {("a", "a")}),
        ({("s", "a"), ("a", "b"), ("b", "a")}, {("b", "a")}),
        ({("s", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")}, {("c", "a"), ("c", "b")}),
        ({("s", "z"), ("a", "b"), ("b", "a")}, {("b", "a")}),
    ],
    ids=["a chain", "a diamond", "itself", "two", "two back edges", "fed by nobody"],
)
def test_an_edge_that_closes_a_cycle_leads_back(edges: set[tuple[str, str]], back: set[tuple[str, str]]) -> None:
    assert feedback_edges(plan(edges)) == back


bolts = st.sampled_from("abcdef")


@given(st.sets(st.tuples(bolts, bolts), max_size=20))
def test_without_its_feedback_edges_a_topology_has_no_cycle(edges: set[tuple[str, str]]) -> None:
    back = feedback_edges(plan({("s", "a"), *edges}))
    assert back <= edges
    assert not _has_cycle(edges - back)
    assert bool(back) == _has_cycle(edges)


def _has_cycle(edges: set[tuple[str, str]]) -> bool:
    graph: dict[str, set[str]] = {}
    for source, consumer in edges:
        graph.setdefault(consumer, set()).add(source)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False
