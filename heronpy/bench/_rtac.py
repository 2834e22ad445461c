"""RTAC of the Heron paper (section 7.4) as `heron bench` runs it: the example's bolts, fed with events from memory.

What is counted is events that `user_count` has taken, each of which has passed `distribute`. Its latency is from the
spout to there: acks come a second later at most, with the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

from heronpy.api import Grouping, TopologyBuilder, TopologyContext, Tuple, api_constants
from heronpy.bench._probe import Latencies, Probe
from heronpy.bench._topology import (
    DIRECTORY,
    STAMP,
    PacedTrackedWordSpout,
    PacedWordSpout,
    TrackedWordSpout,
    WordSpout,
    task_name,
)
from heronpy.examples.results import OUTPUT
from heronpy.examples.rtac import TICK_S, AggregatorBolt, DistributorBolt, UserCountBolt
from heronpy.examples.rtac_events import BEGIN_S, KINDS, random_events

EVENTS, USER_COUNT = "events", "user_count"
_EVENTS = 20_000
_USERS = 10_000
_SECONDS = 10
"""Seconds that the events are spread over: the tasks keep numbers of so many."""


class _Events:
    """One event, picked at random, in every next_tuple()."""

    outputs = ["line"]  # noqa: RUF012  # Heron's way to declare

    def make_values(self, keys: int) -> Sequence[bytes]:
        events = random_events(_EVENTS, users=_USERS, seconds=_SECONDS, seed=0)
        return [json.dumps(event).encode() for event in events]

    def stamp(self) -> bytes:
        return json.dumps({"user_id": f"{STAMP}{monotonic_ns()}", "event": KINDS[0], "timestamp": BEGIN_S}).encode()


class EventSpout(_Events, WordSpout):
    pass


class TrackedEventSpout(_Events, TrackedWordSpout):
    pass


class PacedEventSpout(_Events, PacedWordSpout):
    pass


class PacedTrackedEventSpout(_Events, PacedTrackedWordSpout):
    pass


class MeasuredUserCountBolt(UserCountBolt):
    """Counts its tuples. A user that is a time was made for that, and is not counted among the users."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._executed = 0
        self._latencies = Latencies()
        counters = lambda: {"count": self._executed}  # noqa: E731
        self._probe = Probe(Path(config[DIRECTORY]), task_name(context), counters, self._latencies)

    def process(self, tup: Tuple) -> None:
        self._executed += 1
        user = tup.values[0]
        if isinstance(user, str):
            self._latencies.add(monotonic_ns() - int(user[1:]))
            self.ack(tup)
        else:
            super().process(tup)


def add_rtac(
    builder: TopologyBuilder, spouts: int, bolts: int, reliability: str, paced: bool, config: dict[str, Any]
) -> None:
    """The components of RTAC: `bolts` tasks distribute, as many keep users, and one adds up."""
    acked = reliability == api_constants.TopologyReliabilityMode.ATLEAST_ONCE
    spout = {
        (False, False): EventSpout,
        (True, False): TrackedEventSpout,
        (False, True): PacedEventSpout,
        (True, True): PacedTrackedEventSpout,
    }[acked, paced]
    events = builder.add_spout(EVENTS, spout, spouts, config=config)
    distribute = builder.add_bolt("distribute", DistributorBolt, bolts, inputs={events: Grouping.SHUFFLE})
    user_count = builder.add_bolt(
        USER_COUNT,
        MeasuredUserCountBolt,
        bolts,
        inputs={distribute: Grouping.fields("user_id")},
        config={**config, api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS: TICK_S},
    )
    output = {OUTPUT: config[DIRECTORY]}  # never written: the events do not end
    builder.add_bolt("aggregate", AggregatorBolt, 1, inputs={user_count: Grouping.fields("timestamp")}, config=output)
