"""A topology whose bolt cannot work: every tuple ends its process."""

from __future__ import annotations

import time

from heronpy.api import Bolt, Spout, Topology, TumblingWindowBolt, Tuple


class Numbers(Spout):
    outputs = ("number",)

    def next_tuple(self) -> None:
        time.sleep(0.02)
        self.emit([1], tup_id=1)


class Broken(Bolt):
    def process(self, tup: Tuple) -> None:
        raise ValueError("nothing can be done with this")


class CrashLoop(Topology):
    config = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.exception.policy": "restart"}  # noqa: RUF012
    numbers = Numbers.spec()
    broken = Broken.spec(inputs=[numbers])


class Hour(TumblingWindowBolt):
    def processWindow(self, window_info: object, tuples: list[Tuple]) -> None:  # Heron's name
        raise AssertionError("an hour is too long for a test")


class Waiting(Topology):
    """Its windows hold more than its spout may have on the way."""

    config = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 10}  # noqa: RUF012
    numbers = Numbers.spec()
    hour = Hour.spec(inputs=[numbers], config={Hour.WINDOW_DURATION_SECS: 3600})


class Idle(Bolt):
    def process(self, tup: Tuple) -> None:
        self.ack(tup)


class Sound(Topology):
    config = {"topology.reliability.mode": "ATLEAST_ONCE"}  # noqa: RUF012  # Heron's way to declare
    numbers = Numbers.spec()
    idle = Idle.spec(inputs=[numbers])
