"""Stages and watermarks: pure decisions, for any program and any order of elements."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from streamlet_kit import ListSink, ListSource

from heronpy.api import TopologyBuilder
from heronpy.loader import Definition
from heronpy.plan import BatchSide, LogicalPlan, batch_side_of
from heronpy.streamlet import Builder, Config, Streamlet, Sum, WindowConfig
from heronpy.streamlet.graph import ELEMENTWISE, ArchiveNode, StoreNode
from heronpy.streamlet.parts import Stage, plan_stages
from heronpy.windows import END, NEVER, WATERMARK_REPEAT_MS, Clock, Sent, Upstream

OPERATIONS: dict[str, Any] = {
    "map": lambda s: s.map(str),
    "filter": lambda s: s.filter(bool),
    "wider": lambda s: s.map(str).set_num_partitions(s.get_num_partitions() % 3 + 1),
    "event_time": lambda s: s.event_time(float),
    "repartition": lambda s: s.repartition(2),
    "count": lambda s: s.count_by_key(str),
    "window": lambda s: s.count_by_key_and_window(WindowConfig(2, 1), str),
    "all": lambda s: s.reduce_by_window(WindowConfig(2, 2), max),
    "self_join": lambda s: s.join(s, WindowConfig(2, 2), max),
}


@st.composite
def programs(draw: st.DrawFn) -> Builder:
    builder = Builder()
    timed = draw(st.booleans())
    streamlets: list[Streamlet] = [
        builder.new_source(ListSource(f"s{n}", [], [0] if timed else None)) for n in range(draw(st.integers(1, 2)))
    ]
    for _ in range(draw(st.integers(0, 12))):
        one = draw(st.sampled_from(streamlets))
        operation = draw(st.sampled_from([*OPERATIONS, "union", "sink"]))
        if operation == "union":
            streamlets.append(one.union(draw(st.sampled_from(streamlets))))
        elif operation == "sink":
            one.to_sink(ListSink())
        else:
            streamlets.append(OPERATIONS[operation](one))
    return builder


def nodes_of(stages: list[Stage]) -> list[str]:
    return [step.name for stage in stages for step in stage.head.steps()]


@given(programs(), st.booleans())
def test_every_node_is_in_one_stage_and_every_edge_is_kept(builder: Builder, fusion: bool) -> None:
    graph = builder.graph.named()
    stages = plan_stages(graph, fusion=fusion)
    nodes = {node.stage: node for node in graph.nodes()}
    assert Counter(nodes_of(stages)) == Counter(list(nodes))
    by_stream = {exit.stream: step.name for stage in stages for step in stage.head.steps() for exit in step.exits}
    found: Counter[tuple[str, str]] = Counter()
    for stage in stages:
        found.update((by_stream[entrance.stream], stage.name) for entrance in stage.entrances)
        found.update((step.name, then.name) for step in stage.head.steps() for then in step.then)
        assert len({(e.component, e.stream) for e in stage.entrances}) == len(stage.entrances), "a stream read twice"
    assert found == Counter((parent.stage, node.stage) for node in nodes.values() for parent in node.parents)


@given(programs())
def test_only_neighbours_of_the_same_width_are_fused(builder: Builder) -> None:
    graph = builder.graph.named()
    nodes = {node.stage: node for node in graph.nodes()}
    for stage in plan_stages(graph):
        for step in list(stage.head.steps())[1:]:
            assert isinstance(step.node, ELEMENTWISE)
            assert step.node.partitions == stage.partitions
    assert all(len(list(stage.head.steps())) == 1 for stage in plan_stages(graph, fusion=False))
    assert len(plan_stages(graph, fusion=False)) == len(nodes)


@given(programs(), st.booleans())
def test_whoever_reads_times_or_watermarks_gets_them(builder: Builder, fusion: bool) -> None:
    stages = plan_stages(builder.graph.named(), fusion=fusion)
    exits = {exit.stream: exit for stage in stages for exit in stage.exits}
    by_name = {stage.name: stage for stage in stages}
    for stage in stages:
        if stage.timed or isinstance(stage.head.node, (StoreNode, ArchiveNode)):
            assert stage.times_in
        for entrance in stage.entrances:
            assert exits[entrance.stream].timed or not stage.times_in
            assert by_name[entrance.component].watermarks_out or not stage.watermarks_in
        if stage.timed:
            assert stage.watermarks_in
        assert not stage.watermarks_out or stage.clocks


def test_a_topology_says_what_its_batch_side_is(tmp_path: Path) -> None:
    config, builder, topology = Config(), Builder(), TopologyBuilder("words")
    pairs = builder.new_source(ListSource("a", [])).archive(name="lines").set_name("kept").map(lambda word: (word, 1))
    pairs.to_store("counts", Sum())
    config.set_pipeline(tmp_path, batch_length=60)
    builder.build(topology, config)
    plan = LogicalPlan.from_proto(Definition.of(topology).proto)
    side = batch_side_of(plan.config)
    assert side == BatchSide(batch_length_ms=60_000, archives={"lines": "kept"}, views=("counts",))
    assert set(side.archives.values()) <= set(plan.components), "its writers are components"


def test_a_plan_does_not_carry_the_rest_of_the_program() -> None:
    builder = Builder()
    source = builder.new_source(ListSource("in", ["x" * 1_000_000]))
    source.repartition(2).set_name("after")
    after = next(stage for stage in plan_stages(builder.graph.named()) if stage.name == "after")
    assert len(pickle.dumps(after)) < 10_000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=30), st.integers(0, 20))
def test_a_clock_never_promises_more_than_it_has_seen(seen: list[tuple[int, int]], lateness: int) -> None:
    clock, now, latest = Clock(lateness, 40, 0), 0, NEVER
    quiet_since = 0
    for wait, time_ms in seen:
        now += wait
        before = clock.watermark(now)
        expected = END if now - quiet_since >= 40 else NEVER if latest == NEVER else latest - lateness
        assert before == expected
        latest = max(latest, time_ms)
        clock.latest_ms, clock.fresh = latest, True
        quiet_since = now
        assert clock.watermark(now) == latest - lateness
    assert clock.watermark(now, ended=True) == END


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=30))
def test_a_stage_waits_for_the_slowest(marks: list[tuple[int, int]]) -> None:
    upstream = Upstream(range(4))
    known: dict[int, int] = {}
    for task, watermark in marks:
        upstream.mark(task, watermark)
        known[task] = watermark
        assert upstream.low == (min(known.values()) if len(known) == 4 else NEVER)


def test_a_sink_leaves_the_stage_of_a_source_that_can_be_held_up_by_others() -> None:
    builder = Builder()
    alone = builder.new_source(ListSource("a", [])).set_name("a").map(str).set_name("a-map")
    alone.to_sink(ListSink())
    both = builder.new_source(ListSource("b", [])).set_name("b").map(str).set_name("b-map")
    both.to_sink(ListSink())
    both.repartition(2).set_name("elsewhere").to_sink(ListSink())
    members = {stage.name: [step.name for step in stage.head.steps()] for stage in plan_stages(builder.graph.named())}
    assert members == {
        "a": ["a", "a-map", "sink-1"],
        "b": ["b", "b-map"],
        "sink-2": ["sink-2"],
        "elsewhere": ["elsewhere", "sink-3"],
    }


def test_watermarks_are_sent_when_they_change_and_not_too_often() -> None:
    sent = Sent(200)
    assert sent.due(NEVER, 0), "the first takes back what an earlier life of the task has said"
    assert not sent.due(5, 100)
    assert sent.due(5, 100, hurry=True)
    assert not sent.due(5, 1000)
    assert sent.due(3, 1000)


def test_a_watermark_that_stays_is_sent_again_for_tasks_that_have_not_heard_it() -> None:
    sent = Sent(200)
    assert sent.due(END, 0)
    assert not sent.due(END, WATERMARK_REPEAT_MS - 1)
    assert sent.due(END, WATERMARK_REPEAT_MS)
    assert not sent.due(END, WATERMARK_REPEAT_MS + 1)
