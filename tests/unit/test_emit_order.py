"""Tuples of one task reach another in the order of emit, whatever their streams, and without making small batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.proto import stmgr_pb2
from heronpy.testing import Simulator

SCRIPT: list[str] = []
"""The streams that the source emits to, one after the other."""


class Source(Spout):
    outputs = [Stream(["n"], name="end"), Stream(["n"], name="data")]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.left = list(enumerate(SCRIPT))
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.left:
            number, stream = self.left.pop(0)
            self.emit([number], tup_id=number, stream=stream)

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: int) -> None:
        self.failed.append(tup_id)


class Relay(Bolt):
    outputs = [Stream(["n"], name="end"), Stream(["n"], name="data")]  # noqa: RUF012

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values, stream=tup.stream, anchors=[tup])
        self.ack(tup)


class Sink(Bolt):
    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[tuple[int, str, str]] = []
        self.watermarks: list[tuple[int, int]] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append((tup["n"], tup.stream, tup.component))
        self.ack(tup)

    def receive_watermark(self, task: int, watermark: int) -> None:
        self.watermarks.append((len(self.seen), watermark))


def topology(mode: str, middle: type[Bolt] = Relay) -> TopologyBuilder:
    builder = TopologyBuilder("order")
    source = builder.add_spout("source", Source, 1)
    relay = builder.add_bolt("relay", middle, 1, {source[s]: Grouping.fields("n") for s in ("data", "end")})
    builder.add_bolt("sink", Sink, 1, {relay["end"]: Grouping.ALL, relay["data"]: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode})
    return builder


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
@given(streams=st.lists(st.sampled_from(["data", "end"]), max_size=50))
@settings(max_examples=25, deadline=None)
def test_tuples_arrive_in_the_order_of_emit_across_streams(mode: str, streams: list[str]) -> None:
    SCRIPT[:] = streams
    with Simulator(topology(mode)) as simulator:
        (source,), (sink,) = simulator.component("source"), simulator.component("sink")
        simulator.run(until=lambda: len(sink.seen) == len(streams) == len(source.acked), seconds=300)
    assert sink.seen == [(number, stream, "relay") for number, stream in enumerate(streams)]
    assert sorted(source.acked) == list(range(len(streams)))
    assert source.failed == []


def test_alternating_streams_make_no_small_batches() -> None:
    SCRIPT[:] = ["data", "end"] * 1000
    batches: list[int] = []

    def count(batch: stmgr_pb2.Batch) -> bool:
        if batch.kind == stmgr_pb2.Batch.DATA:
            batches.append(batch.count)
        return False

    with Simulator(topology("ATLEAST_ONCE"), lose=count) as simulator:
        (sink,) = simulator.component("sink")
        simulator.run(until=lambda: len(sink.seen) == 2000, seconds=300)
    assert sum(batches) == 4000
    assert len(batches) <= 80


def test_counts_are_by_stream_when_a_batch_has_several() -> None:
    SCRIPT[:] = ["data", "data", "end"] * 100
    with Simulator(topology("ATLEAST_ONCE")) as simulator:
        (source,) = simulator.component("source")
        simulator.run(until=lambda: len(source.acked) == 300, seconds=300)
        for name in ("__emit-count", "__ack-count"):
            assert simulator.tasks[1].core.metrics.total(f"{name}/data") == 200
            assert simulator.tasks[1].core.metrics.total(f"{name}/end") == 100
        for name in ("__execute-count", "__ack-count"):
            assert simulator.total(f"{name}/relay/data") == 200
            assert simulator.total(f"{name}/relay/end") == 100


class Marking(Relay):
    """Sends a watermark after every tenth tuple."""

    def process(self, tup: Tuple) -> None:
        super().process(tup)
        if tup["n"] % 10 == 9:
            self.delegate.send_watermark(tup["n"])


def test_a_watermark_arrives_after_everything_that_was_emitted_before_on_any_stream() -> None:
    SCRIPT[:] = ["end", "data", "data"] * 100
    with Simulator(topology("ATLEAST_ONCE", Marking)) as simulator:
        (sink,) = simulator.component("sink")
        simulator.run(until=lambda: len(sink.watermarks) == 30, seconds=300)
    assert sink.watermarks == [(n, n - 1) for n in range(10, 301, 10)]


class Unruly(Relay):
    """Cannot send every seventh tuple, which is acked all the same."""

    def process(self, tup: Tuple) -> None:
        number = tup["n"]
        self.emit([number if number % 7 else (n for n in ())], stream=tup.stream, anchors=[tup])
        self.ack(tup)


def test_a_tuple_that_cannot_be_sent_fails_alone_among_tuples_of_several_streams() -> None:
    SCRIPT[:] = ["end", "data", "data"] * 20
    builder = topology("ATLEAST_ONCE", Unruly)
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.exception.policy": "fail"})
    with Simulator(builder) as simulator:
        (source,), (sink,) = simulator.component("source"), simulator.component("sink")
        simulator.run(until=lambda: len(source.acked) + len(source.failed) == 60, seconds=300)
    assert sorted(source.failed) == list(range(0, 60, 7))
    assert [n for n, _, _ in sink.seen] == [n for n in range(60) if n % 7]


class Director(Relay):
    """Sends "data" to all sinks, and "end" to one of them, which it names."""

    outputs = [Stream(["n"], name="end", direct=True), Stream(["n"], name="data")]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.sinks = context.get_component_tasks("sink")

    def process(self, tup: Tuple) -> None:
        direct = self.sinks[tup["n"] % 2] if tup.stream == "end" else None
        self.emit(tup.values, stream=tup.stream, anchors=[tup], direct_task=direct)
        self.ack(tup)


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
@given(streams=st.lists(st.sampled_from(["data", "end"]), max_size=50))
@settings(max_examples=25, deadline=None)
def test_what_is_sent_directly_keeps_its_place_among_what_is_grouped(mode: str, streams: list[str]) -> None:
    SCRIPT[:] = streams
    builder = TopologyBuilder("order")
    source = builder.add_spout("source", Source, 1)
    director = builder.add_bolt("director", Director, 1, {source[s]: Grouping.SHUFFLE for s in ("data", "end")})
    builder.add_bolt("sink", Sink, 2, {director["end"]: Grouping.DIRECT, director["data"]: Grouping.ALL})
    builder.set_config({"topology.reliability.mode": mode})
    expected = [
        [(number, stream, "director") for number, stream in enumerate(streams) if stream == "data" or number % 2 == n]
        for n in range(2)
    ]
    with Simulator(builder) as simulator:
        (source,), sinks = simulator.component("source"), simulator.component("sink")

        def all_there() -> bool:
            return len(source.acked) == len(streams) and [len(s.seen) for s in sinks] == [len(e) for e in expected]

        simulator.run(until=all_there, seconds=300)
    assert [sink.seen for sink in sinks] == expected
