"""Four small topologies in one, in the spirit of Heron's examples, with sources that end: every number is known.

words → counts       word count, grouped by field
events → watchers    two streams into one bolt, all grouping
numbers → chosen     a custom grouping
messages → halves    every second tuple is failed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from heronpy.api import Bolt, Grouping, ICustomGrouping, Spout, Stream, Topology, TopologyContext, Tuple, global_metrics
from heronpy.api.metrics import CountMetric, MultiCountMetric

WORDS = ("heron", "stork", "egret", "ibis", "crane", "bittern", "spoonbill")
ROUNDS = 1000
"""How often each of the word spouts emits every word."""
EVENTS = 4000
ALARM_EVERY = 100
NUMBERS = 3000
MESSAGES = 2000
"""Of each of the message spouts."""


class Finite(Spout):
    """Emits `count` tuples with message ids, and notes how each ends."""

    count = 0

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0
        self.ends: Counter[Any] = Counter()
        self.twice = CountMetric()
        self.unknown = CountMetric()
        context.register_metric("ended-twice", self.twice, 1)
        context.register_metric("never-emitted", self.unknown, 1)

    def next_tuple(self) -> None:
        if self.number < self.count:
            self.one(self.number)
            self.number += 1

    def one(self, number: int) -> None:
        self.emit([number], tup_id=number)

    def ack(self, tup_id: Any) -> None:
        self.ends[tup_id] += 1
        if self.ends[tup_id] > 1:
            self.twice.incr()
        if not 0 <= tup_id < self.number:
            self.unknown.incr()

    def fail(self, tup_id: Any) -> None:
        self.ack(tup_id)


class Words(Finite):
    outputs = ("word",)
    count = ROUNDS * len(WORDS)

    def one(self, number: int) -> None:
        self.emit([WORDS[number % len(WORDS)]], tup_id=number)


class Counts(Bolt):
    """Counts by word, in a metric; and all of them, in a global one."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.words = MultiCountMetric()
        context.register_metric("word", self.words, 1)

    def process(self, tup: Tuple) -> None:
        self.words.incr(tup["word"])
        global_metrics.incr("words")
        self.ack(tup)


class Events(Finite):
    outputs = ("event", Stream(["alarm"], name="alarms"))
    count = EVENTS

    def one(self, number: int) -> None:
        self.emit([number], tup_id=number)
        if number % ALARM_EVERY == 0:
            self.emit([f"alarm {number}"], stream="alarms")


class Watchers(Bolt):
    """Notes what came on which stream."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.sums = MultiCountMetric()
        context.register_metric("sum", self.sums, 1)

    def process(self, tup: Tuple) -> None:
        self.sums.incr(tup.stream, tup["event"] if tup.stream == "default" else int(tup["alarm"].split()[1]))
        self.ack(tup)


class Numbers(Finite):
    outputs = ("number",)
    count = NUMBERS


class ByRemainder(ICustomGrouping):
    """By the remainder of a division by three; every tenth number goes to the first two tasks, whatever it is."""

    def prepare(self, context: TopologyContext, component: str, stream: str, target_tasks: list[int]) -> None:
        assert (component, stream) == ("numbers", "default")
        self.tasks = target_tasks

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        number = values[0]
        return self.tasks[:2] if number % 10 == 0 else [self.tasks[number % 3]]


class Chosen(Bolt):
    """Counts by remainder."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.index = context.get_this_task_index()
        self.found = MultiCountMetric()
        context.register_metric("found", self.found, 1)

    def process(self, tup: Tuple) -> None:
        number = tup["number"]
        tenth = number % 10 == 0
        self.found.incr("tenth" if tenth else "mine" if number % 3 == self.index else "strange")
        self.ack(tup)


class Messages(Finite):
    outputs = ("message",)
    count = MESSAGES


class Halves(Bolt):
    """Acks a tuple, fails the next."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0

    def process(self, tup: Tuple) -> None:
        self.number += 1
        (self.ack if self.number % 2 else self.fail)(tup)


class FiniteSources(Topology):
    config = {  # noqa: RUF012  # Heron's way to declare
        "topology.stmgrs": 2,
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 600,  # what fails is counted, and none is to fail for being late
    }
    words = Words.spec(par=2)
    counts = Counts.spec(par=2, inputs={words: Grouping.fields("word")})
    events = Events.spec()
    watchers = Watchers.spec(par=2, inputs={events: Grouping.ALL, events["alarms"]: Grouping.ALL})
    numbers = Numbers.spec()
    chosen = Chosen.spec(par=3, inputs={numbers: Grouping.custom(ByRemainder())})
    messages = Messages.spec(par=2)
    halves = Halves.spec(par=2, inputs={messages: Grouping.SHUFFLE})
