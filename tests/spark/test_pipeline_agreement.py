"""The topology and the Spark job compute the same: every operator of the streamlet API, on random input.

One program has every operator, each with a sink of its own, so that an example costs one topology and one Spark job.
The topology runs in this process (`Simulator`).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from heronpy.api import TopologyBuilder
from heronpy.connectors import JsonLinesSink, ListSource, Record, SourceContext, SourceReader
from heronpy.pipeline import Job, Manifest, MergedStore, ViewReader, run
from heronpy.stores import StoreContext
from heronpy.streamlet import (
    Builder,
    Config,
    HyperLogLog,
    Max,
    Mean,
    Min,
    SetUnion,
    Streamlet,
    Sum,
    TopK,
    TransformOperator,
    WindowConfig,
)
from heronpy.streamlet import Count as CountOf
from heronpy.streamlet.graph import SinkNode
from heronpy.streamlet.parts import add_stages
from heronpy.streamlet.runner import Program
from heronpy.testing import Simulator

pytestmark = [pytest.mark.spark]

BEGIN_S = 1_700_000_000
BATCH_S = 20
EXAMPLES = 40 if os.environ.get("HERON_LONG") else 2
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes seconds: it is not made smaller
RUNNING = ("reduce_by_key", "count_by_key")

Element = tuple[str, int, int]
elements = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(-3, 9), st.integers(0, 65)),
    min_size=1,
    max_size=40,
)


class Twice(TransformOperator):
    """Emits every second element twice, and none of the others."""

    def setup(self, context: Any) -> None:
        self._context = context

    def transform(self, tup: Any) -> None:
        element = tup.values[0]
        if element[1] % 2:
            self._context.emit([element])
            self._context.emit([element])


def branches(events: Streamlet) -> dict[str, Streamlet]:
    """Every operator that gives the same elements in both worlds, by name."""
    pairs = events.map(lambda e: (e[0], e[1])).set_name("pairs")
    odd = events.filter(lambda e: e[1] % 2).map(lambda e: (e[0], e[1])).set_name("odd")
    tumbling = WindowConfig.create_tumbling_window(10)
    sliding = WindowConfig.create_sliding_window(15, 5)
    sessions = WindowConfig.create_session_window(4)
    parts = events.split({"low": lambda e: e[1] < 3, "high": lambda e: e[1] > 1})
    return {
        "map": events.map(lambda e: e[1] * 2),
        "flat_map": events.flat_map(lambda e: [e[0]] * max(e[1], 0)),
        "filter": events.filter(lambda e: e[0] > "b"),
        "transform": events.transform(Twice()),
        "key_by": events.key_by(lambda e: e[0]),
        "key_by_value": events.key_by(lambda e: e[0], lambda e: e[1]),
        "split_low": parts["low"],
        "split_high": parts.with_stream("high"),
        "repartition": events.repartition(3),
        "repartition_to": events.repartition(2, lambda e: e[1] % 2),
        "repartition_to_many": events.repartition(2, lambda e: [0, 1] if e[1] % 2 else [1]),
        "clone": events.clone(2)[1],
        "union": pairs.union(odd),
        "union_with_itself": pairs.union(pairs),
        "reduce_by_window": pairs.map(lambda p: p[1]).reduce_by_window(tumbling, lambda a, b: a + b),
        "reduce_by_sliding_window": pairs.map(lambda p: p[1]).reduce_by_window(sliding, max),
        "reduce_by_key_and_window": pairs.reduce_by_key_and_window(tumbling, lambda a, b: a + b),
        "reduce_by_key_and_sliding_window": pairs.reduce_by_key_and_window(sliding, min),
        "reduce_by_key_and_window_of_less_than_a_second": pairs.reduce_by_key_and_window(
            WindowConfig(timedelta(milliseconds=750), 0.25), lambda a, b: a + b
        ),
        "count_by_key_and_window": events.count_by_key_and_window(tumbling, lambda e: e[0]),
        "windows_of_windows": pairs.reduce_by_key_and_window(tumbling, max)
        .map(lambda kw: (kw[0].key, kw[1]))
        .reduce_by_key_and_window(WindowConfig.create_tumbling_window(30), lambda a, b: a + b),
        "join": pairs.join(odd, tumbling, lambda a, b: [a, b]),
        "join_sliding": pairs.join(odd, sliding, lambda a, b: [a, b]),
        "join_with_itself": pairs.join(pairs, tumbling, lambda a, b: [a, b]),
        "reduce_by_session": pairs.map(lambda p: p[1]).reduce_by_window(sessions, lambda a, b: a + b),
        "reduce_by_key_and_session": pairs.reduce_by_key_and_window(sessions, lambda a, b: a + b),
        "windows_of_sessions": pairs.reduce_by_key_and_window(sessions, max)
        .map(lambda kw: (kw[0].key, kw[1]))
        .reduce_by_key_and_window(tumbling, lambda a, b: a + b),
        "join_sessions": pairs.join(odd, sessions, lambda a, b: [a, b]),
        "outer_join_sessions": pairs.outer_join(odd, sessions, lambda a, b: [a, b]),
        "outer_left_join": pairs.outer_left_join(odd, tumbling, lambda a, b: [a, b]),
        "outer_right_join": odd.outer_right_join(pairs, tumbling, lambda a, b: [a, b]),
        "outer_join": odd.map(lambda p: (p[0] + "x" if p[1] > 4 else p[0], p[1])).outer_join(
            pairs, tumbling, lambda a, b: [a, b]
        ),
    }


MONOIDS = {
    "sum": Sum(),
    "count": CountOf(),
    "min": Min(),
    "max": Max(),
    "mean": Mean(),
    "set": SetUnion(),
    "top": TopK(3),
    "distinct": HyperLogLog(),
}


class Watched(ListSource):
    """Knows which of its records are acked, in this process."""

    acked: ClassVar[set[str]] = set()

    def open(self, context: SourceContext) -> SourceReader:
        reader = super().open(context)
        tell = reader.ack

        def ack(records: Sequence[Record]) -> None:
            Watched.acked.update(record.id for record in records)
            tell(records)

        reader.ack = ack  # type: ignore[method-assign]  # the reader of a list has no __slots__
        return reader


def program(items: list[Element], directory: Path, *, fusion: bool, partitions: int) -> Program:
    builder = Builder()
    source = builder.new_source(Watched(items)).set_num_partitions(partitions)
    events = source.event_time(lambda e: BEGIN_S + e[2]).archive(codec="pickle")

    def written(streamlet: Streamlet, name: str) -> None:
        streamlet.to_sink(JsonLinesSink(directory / "live-sinks" / name), name=f"to-{name}")

    for name, streamlet in branches(events).items():
        written(streamlet, name)
    pairs = events.map(lambda e: (e[0], e[1]))
    written(pairs.reduce_by_key(lambda a, b: a + b), "reduce_by_key")
    written(events.count_by_key(lambda e: e[0]), "count_by_key")
    for name, monoid in MONOIDS.items():
        pairs.to_store(name, monoid)
    config = Config()
    config.set_pipeline(directory, batch_length=BATCH_S, keep_live_batches=10_000)
    config.set_max_lateness(1000)  # nothing is late: a late pane would be a second result for its window
    config.set_fusion(fusion)
    return Program("Agreement", config, builder.graph)


def run_topology(program: Program, records: int) -> None:
    """Run it until every record of its source is acked, with everything that came of it."""
    topology = TopologyBuilder(program.name)
    add_stages(topology, program.graph, program.config)
    Watched.acked.clear()
    give_up_s = time.monotonic() + 300
    with Simulator(topology) as simulator:
        simulator.run(until=lambda: len(Watched.acked) == records or time.monotonic() > give_up_s)
    assert len(Watched.acked) == records


def lines(paths: Iterable[Path]) -> Counter[str]:
    """The lines of files, each as many times as it is there."""
    return Counter(line for path in paths for line in path.read_text().splitlines())


def test_every_operator_gives_the_same_in_the_stream_and_in_batch(spark: Any, tmp_path_factory: Any) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
    @given(items=elements, fusion=st.booleans(), partitions=st.integers(1, 2))
    def agree(items: list[Element], fusion: bool, partitions: int) -> None:
        directory = tmp_path_factory.mktemp("agreement")
        made = program(items, directory, fusion=fusion, partitions=partitions)
        run_topology(made, len(items))
        job = Job.of(made)
        run(job, until_ms=(BEGIN_S + 1000) * 1000)
        compare_sinks(job, directory)
        compare_running(directory, items)
        compare_views(job)

    agree()


ODD_KEYS: list[Any] = [
    None,
    "",
    "ü",
    "u\u0308",
    "a\nb",
    "\x00",
    "1",
    1,
    1.0,
    True,
    -0.0,
    1.5,
    2**70,
    1e300,
    [1, None],
    [[], "x"],
    {},
]
ODD_VALUES: list[Any] = [1, 2.5, True, None, "1", [], 10**30]
ODD_TIMES = [None, "soon", True, math.nan, -math.inf, 1e18, BEGIN_S * 1000, -5, datetime(1, 1, 1)]


@pytest.mark.usefixtures("spark")
def test_what_is_odd_counts_or_is_set_aside_alike(tmp_path: Path) -> None:
    usual = [("a", 1, BEGIN_S)] * 5000  # a batch job refuses a program that fails on many elements
    odd: list[Any] = [(key, value, BEGIN_S + 9 * value) for key in ODD_KEYS for value in range(5)]
    odd += [(f"of {value!r}", value, BEGIN_S) for value in ODD_VALUES for _ in range(3)]
    odd += [(f"at {time!r}", 1, time) for time in ODD_TIMES]
    items = [*usual, *odd, None, 5, ("pair", 1), "abc"]
    builder = Builder()
    source = builder.new_source(Watched(items)).set_num_partitions(2)
    pairs = source.event_time(lambda e: e[2]).archive(codec="pickle").map(lambda e: (e[0], e[1]))
    for name, monoid in MONOIDS.items():
        pairs.to_store(name, monoid)
    config = Config()
    config.set_pipeline(tmp_path, batch_length=BATCH_S, keep_live_batches=1 << 60)
    made = Program("Odd", config, builder.graph)
    run_topology(made, len(items))
    job = Job.of(made)
    run(job, until_ms=(BEGIN_S + 1000) * 1000)
    compare_views(job)
    with MergedStore(job, "count") as store:
        assert store.get("a") == 5000
        assert store.get(1) == 15
        assert store.get((1, None)) == store.get(None) == 5
        assert store.get("at -5") == 1
        assert store.get("at 1e+18") is None


def compare_sinks(job: Job, directory: Path) -> None:
    names = [node.stage.removeprefix("to-") for node in job.graph.nodes() if isinstance(node, SinkNode)]
    assert len(names) > 25
    for name in names:
        if name not in RUNNING:
            assert batch_lines(directory, name) == live_lines(directory, name), name


def batch_lines(directory: Path, name: str) -> Counter[str]:
    return lines((directory / "sinks" / f"to-{name}").rglob("*.jsonl"))


def live_lines(directory: Path, name: str) -> Counter[str]:
    return lines((directory / "live-sinks" / name).glob("*.jsonl"))


def compare_running(directory: Path, items: list[Element]) -> None:
    """Of running values a batch job has those at the end of each batch, the topology all."""
    sums: dict[tuple[str, int], int] = {}
    counts: dict[tuple[str, int], int] = {}
    for key, value, second in items:
        batch = (BEGIN_S + second) // BATCH_S
        sums[key, batch] = sums.get((key, batch), 0) + value
        counts[key, batch] = counts.get((key, batch), 0) + 1
    for name, expected in (("reduce_by_key", running(sums)), ("count_by_key", running(counts))):
        assert batch_lines(directory, name) == expected, name
        live = live_lines(directory, name)
        assert sum(live.values()) == len(items)
        final = {json.loads(line)[0]: json.loads(line)[1] for line in live}
        assert final.keys() == {key for key, _, _ in items}
        for key in final:
            total = sum(value if name == "reduce_by_key" else 1 for k, value, _ in items if k == key)
            assert json.dumps([key, total], separators=(",", ":")) in live, (name, key)


def running(by_batch: dict[tuple[str, int], int]) -> Counter[str]:
    """(key, value so far) for every key and batch that has it, as lines of JSON."""
    result: Counter[str] = Counter()
    for key, batch in by_batch:
        value = sum(v for (k, b), v in by_batch.items() if k == key and b <= batch)
        result[json.dumps([key, value], separators=(",", ":"))] += 1
    return result


def compare_views(job: Job) -> None:
    for name in MONOIDS:
        with MergedStore(job, name) as store:
            for key, result in store.items():
                explained = store.explain(key)
                assert explained.batch is not None
                assert store.get(key) == result
        node = job.stores()[name]
        reader = node.store.reader(StoreContext(view=name, monoid=node.monoid, directory=job.directory))
        view = ViewReader(job.directory, name, node.monoid, Manifest.load(job.directory))
        for batch in {*reader.batches(), *view.batches()}:
            live = {key: node.monoid.result(acc) for key, acc in reader.items(batch)}
            assert live == {key: node.monoid.result(acc) for key, acc in view.items(batch)}, name
        reader.close()
