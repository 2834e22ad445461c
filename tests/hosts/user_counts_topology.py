"""The topology of the Storm paper's experiment (Toshniwal et al., SIGMOD 2014, §3.4): unique users by event and second.

`events` are client events, shuffled to `distributor`, which partitions them by user; `user_count` counts the different
users of each event every second, and sends the counts, partitioned by the second, to `aggregator`. At least once, and
as fast as it goes. Each spout task writes down, once a second, what was acked and how long that took.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

DIRECTORY, RATE = "users.directory", "users.events.per.second"
EVENTS = ("follow", "unfollow", "view", "favorite", "reply")
USERS = 10_000


class Events(Spout):
    outputs = ("user_id", "event")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        path = Path(config[DIRECTORY]) / f"acked-{context.get_task_id()}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pause_s = 1 / float(config[RATE])
        self._dice = random.Random(context.get_task_id())
        self._emit_at = 0.0
        self._number = self._acked = self._failed = 0
        self._latency_s = 0.0
        self._write_at = time.time() + 1
        self._begun: dict[int, float] = {}

    def next_tuple(self) -> None:
        now = time.monotonic()
        if now >= self._emit_at:
            self._emit_at = max(self._emit_at + self._pause_s, now - 0.05)
            self._number += 1
            self._begun[self._number] = now
            user, event = self._dice.randrange(USERS), self._dice.choice(EVENTS)
            self.emit([user, event], tup_id=self._number)
        if time.time() >= self._write_at:
            self._write()

    def ack(self, tup_id: Any) -> None:
        self._acked += 1
        self._latency_s += time.monotonic() - self._begun.pop(tup_id)

    def fail(self, tup_id: Any) -> None:
        self._failed += 1
        self._begun.pop(tup_id, None)

    def _write(self) -> None:
        line = f"{time.time():.3f} {self._acked} {self._latency_s:.3f} {self._failed}\n"
        os.write(self._fd, line.encode())
        self._acked = self._failed = 0
        self._latency_s = 0.0
        self._write_at = time.time() + 1


class Distributor(Bolt):
    outputs = ("user_id", "event")

    def process(self, tup: Tuple) -> None:
        self.emit(list(tup.values), anchors=[tup])
        self.ack(tup)


class UserCount(Bolt):
    outputs = ("second", "event", "users")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._seen: dict[str, set[int]] = {event: set() for event in EVENTS}
        self._second = int(time.time())

    def process(self, tup: Tuple) -> None:
        user, event = tup.values
        self._seen[event].add(user)
        if (second := int(time.time())) != self._second:
            for name, users in self._seen.items():
                self.emit([self._second, name, len(users)])
                users.clear()
            self._second = second
        self.ack(tup)


class Aggregator(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._users: Counter[str] = Counter()

    def process(self, tup: Tuple) -> None:
        _, event, users = tup.values
        self._users[event] += users
        self.ack(tup)


def user_counts(name: str, directory: Path, *, containers: int, events_per_s: float) -> TopologyBuilder:
    """The topology: in each container a spout, a distributor and a counting task, and two aggregators in all."""
    builder = TopologyBuilder(name)
    events = builder.add_spout("events", Events, containers)
    distributor = builder.add_bolt("distributor", Distributor, containers, {events: Grouping.SHUFFLE})
    counts = builder.add_bolt("user_count", UserCount, containers, {distributor: Grouping.fields("user_id")})
    builder.add_bolt("aggregator", Aggregator, 2, {counts: Grouping.fields("second")})
    builder.set_config(
        {
            "topology.reliability.mode": "ATLEAST_ONCE",
            "topology.message.timeout.secs": 10,
            "topology.stmgrs": containers,
            DIRECTORY: str(directory),
            RATE: str(events_per_s / containers),
        }
    )
    return builder
