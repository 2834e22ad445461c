"""ack() and fail() of one tuple: the first call wins, and the other is counted."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.api.tuple import Tuple
from heronpy.testing import Simulator

TUPLES = 20


class Source(Spout):
    outputs = ["n"]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.next = 0
        self.acked: list[int] = []
        self.failed: list[int] = []

    def next_tuple(self) -> None:
        if self.next < TUPLES:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id: int) -> None:
        self.acked.append(tup_id)

    def fail(self, tup_id: int) -> None:
        self.failed.append(tup_id)


class FailThenAck(Bolt):
    """What `except: fail … finally: ack` does."""

    def process(self, tup: Tuple) -> None:
        self.fail(tup)
        self.ack(tup)


class AckThenFail(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)
        self.fail(tup)


class FailThenAckLater(Bolt):
    def initialize(self, config: Any, context: Any) -> None:
        self.last: list[Tuple] = []

    def process(self, tup: Tuple) -> None:
        self.fail(tup)
        self.last.append(tup)

    def process_tick(self, tup: Tuple) -> None:
        for last in self.last:
            self.ack(last)
        self.last.clear()


@pytest.mark.parametrize(
    ("bolt", "wins"), [(FailThenAck, "failed"), (AckThenFail, "acked"), (FailThenAckLater, "failed")]
)
def test_the_first_of_ack_and_fail_wins_and_the_other_is_counted(bolt: type[Bolt], wins: str) -> None:
    builder = TopologyBuilder("settling")
    source = builder.add_spout("source", Source, 1)
    builder.add_bolt("bolt", bolt, 1, {source["default"]: Grouping.SHUFFLE}, {"topology.tick.tuple.freq.ms": 20})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.message.timeout.secs": 300})
    with Simulator(builder) as simulator:
        (spout,) = simulator.component("source")

        def done() -> bool:
            twice = simulator.total("__settled-twice-count/source/default")
            return len(spout.acked) + len(spout.failed) == twice == TUPLES

        simulator.run(until=done, seconds=300)
        assert done()
    assert sorted(getattr(spout, wins)) == list(range(TUPLES))
