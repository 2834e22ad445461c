"""What runs in a simulated cluster: numbered tuples, replayed by number until they are acked, and a ledger of them all.

The ledger stands for the world outside of the cluster: it outlives every process. What is promised is checked in it as
it happens: a number is acked only when everything made of it has arrived, and order is kept from task to task.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api import Bolt, GlobalStreamId, Grouping, Spout, Stream, TopologyBuilder, Tuple
from heronpy.proto import topology_pb2

LINE, JOIN, CYCLE = "line", "join", "cycle"
KINDS = (LINE, JOIN, CYCLE)
MESSAGE_TIMEOUT_S = 5
CHECKPOINT_INTERVAL_S = 1
CHECKPOINT_TIMEOUT_S = 10
_MARK_EVERY = 3
_FIELDS = ["number", "branch", "sender", "incarnation", "sequence", "epoch"]

Number = tuple[int, int]
"""Task of the source, and a count."""


class Broken(AssertionError):
    """A promise was not kept."""


class Ledger:
    """What was emitted, what arrived and what was acked, over all incarnations."""

    def __init__(self, kind: str, *, rate: float, fail_share: float, burst_s: float = 0.0) -> None:
        """Make an empty ledger.

        Args:
            kind: of the topology.
            rate: new numbers a second, of each source.
            fail_share: how many tuples bolts fail.
            burst_s: how often sources emit what is due by then; 0: all the time.
        """
        self.kind, self.rate, self.fail_share, self.burst_s = kind, rate, fail_share, burst_s
        self.now_s = 0.0
        self.emitting_since_s: float | None = None
        self.closed = False
        """No new numbers: what is left is replayed."""
        self.emitted: dict[int, int] = {}
        """How many numbers each source has begun."""
        self.acked: set[Number] = set()
        self.arrived: dict[str, set[Number]] = {}
        self.last_ack_s: dict[int, float] = {}
        """By source."""
        self.replays = 0
        self._due = 0

    @property
    def open(self) -> list[Number]:
        """Numbers that are not acked."""
        every = [(task, count) for task, counts in self.emitted.items() for count in range(counts)]
        return [number for number in every if number not in self.acked]

    def branches(self, number: Number) -> Sequence[str]:
        """Where a number must have arrived before it may be acked."""
        if number[1] % _MARK_EVERY == 0:
            return ("mark",)
        extra = {LINE: (), JOIN: ("joined",), CYCLE: ("again",)}[self.kind]
        return ("copy", "relay 0", "relay 1", *extra)

    def next_number(self, task: int) -> Number | None:
        """A new number, if it is time for one."""
        begun = self.emitted.get(task, 0)
        if self.closed or self.emitting_since_s is None:
            return None
        since_s = self.now_s - self.emitting_since_s
        if self.burst_s:
            since_s -= since_s % self.burst_s
        if begun >= since_s * self.rate:
            return None
        self.emitted[task] = begun + 1
        return task, begun

    def due_numbers(self) -> int:
        """With checkpoints: how many numbers a source is to have emitted by now."""
        if not self.closed and self.emitting_since_s is not None:
            since_s = self.now_s - self.emitting_since_s
            if self.burst_s:
                since_s -= since_s % self.burst_s
            self._due = max(self._due, int(since_s * self.rate))
        return self._due

    def arrive(self, branch: str, number: Number) -> None:
        self.arrived.setdefault(branch, set()).add(number)

    def ack(self, number: Number) -> None:
        for branch in self.branches(number):
            if number not in self.arrived.get(branch, ()):
                raise Broken(f"{number} was acked, but has not arrived at {branch!r}")
        self.acked.add(number)
        self.last_ack_s[number[0]] = self.now_s


class _Program:
    """What sources and bolts share: numbered sending, and a check of what comes."""

    ledger: Ledger
    incarnation: int
    rng: random.Random
    cost_s = 0.0
    """How long a tuple takes."""
    worked_s = 0.0
    task = 0
    sequence = 0
    sends_in: Callable[[], int]
    """The restore epoch that the task sends in."""
    takes_in: Callable[[], int]
    """The restore epoch that the instance is in: nothing of an earlier one may be executed from there on."""

    def learn(self, ledger: Ledger, task: int, incarnation: int, rng: random.Random, cost_s: float) -> None:
        self.ledger, self.task, self.incarnation, self.rng, self.cost_s = ledger, task, incarnation, rng, cost_s
        self.last: dict[tuple[int, int], int] = {}

    def tagged(self, number: Number, branch: str) -> list[Any]:
        """The values of a tuple."""
        self.sequence += 1
        return [number, branch, self.task, self.incarnation, self.sequence, self.sends_in()]

    def taken(self, tup: Tuple) -> tuple[Number, str]:
        """The number and branch of a tuple; its place in the order is checked."""
        number, branch, sender, incarnation, sequence, epoch = tup.values
        if epoch != self.takes_in():
            raise Broken(f"task {self.task} in epoch {self.takes_in()} got a tuple of epoch {epoch} of task {sender}")
        before = self.last.get((sender, incarnation), 0)
        if sequence <= before:
            raise Broken(f"task {self.task} got number {sequence} of task {sender} after its number {before}")
        self.last[sender, incarnation] = sequence
        self.worked_s += self.cost_s
        return tuple(number), branch


class Source(_Program, Spout):
    """Emits numbers. Those that were not acked are emitted again, also by the next incarnation."""

    outputs = [Stream(_FIELDS), Stream(_FIELDS, name="mark")]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.again = deque(number for number in self.ledger.open if number[0] == self.task)
        self.pending: set[Number] = set()

    def next_tuple(self) -> None:
        number = self.again.popleft() if self.again else self.ledger.next_number(self.task)
        if number is None:
            return
        self.worked_s += self.cost_s
        self.pending.add(number)
        stream = "mark" if number[1] % _MARK_EVERY == 0 else "default"
        branch = "mark" if stream == "mark" else "copy"
        self.emit(self.tagged(number, branch), tup_id=number, stream=stream)

    def ack(self, tup_id: Any) -> None:
        self._ended(tup_id)
        self.ledger.ack(tup_id)

    def fail(self, tup_id: Any) -> None:
        self._ended(tup_id)
        self.ledger.replays += 1
        self.again.append(tup_id)

    def _ended(self, number: Number) -> None:
        if number not in self.pending:
            raise Broken(f"{number} was acked or failed twice")
        self.pending.discard(number)


class _Relay(_Program, Bolt):
    outputs = [Stream(_FIELDS), Stream(_FIELDS, name="pairs"), Stream(_FIELDS, name="again")]  # noqa: RUF012

    def process(self, tup: Tuple) -> None:
        number, branch = self.taken(tup)
        if branch == "again":
            self.emit(self.tagged(number, "again"), anchors=[tup])
        elif self.rng.random() < self.ledger.fail_share:
            self.fail(tup)
            return
        else:
            for part in range(2):
                self.emit(self.tagged(number, f"relay {part}"), anchors=[tup])
            if self.ledger.kind == JOIN:
                self.emit(self.tagged(number, "pairs"), stream="pairs", anchors=[tup])
            if self.ledger.kind == CYCLE:
                self.emit(self.tagged(number, "again"), stream="again", anchors=[tup])
        self.ack(tup)


class Relay(_Relay):
    """Makes two tuples of each, and more in some topologies. Fails some."""


class Join(_Program, Bolt):
    """Holds a tuple until the next one comes, and makes two tuples of the pair, anchored to both."""

    outputs = [Stream(_FIELDS)]  # noqa: RUF012

    def initialize(self, config: Any, context: Any) -> None:
        self.held: tuple[Tuple, Number] | None = None

    def process(self, tup: Tuple) -> None:
        number, _ = self.taken(tup)
        if self.held is None:
            self.held = tup, number
            return
        first, first_number = self.held
        self.held = None
        for each in (first_number, number):
            self.emit(self.tagged(each, "joined"), anchors=[first, tup])
        self.ack(first)
        self.ack(tup)


class Sink(_Program, Bolt):
    """Where everything has to arrive."""

    def process(self, tup: Tuple) -> None:
        number, branch = self.taken(tup)
        self.ledger.arrive(branch, number)
        self.ack(tup)


def topology(
    kind: str, *, containers: int, max_pending: int | None, checkpoints: bool = False, at_least_once: bool = False
) -> topology_pb2.Topology:
    """The topology of a kind; with checkpoints in mode effectively once, unless it is to be at least once."""
    builder = TopologyBuilder("simulated")
    source = builder.add_spout("source", Source, 2)
    relay_inputs: Any = {source: Grouping.SHUFFLE}
    if kind == CYCLE:
        relay_inputs = {source: Grouping.SHUFFLE, GlobalStreamId("relay", "again"): Grouping.SHUFFLE}
    relay = builder.add_bolt("relay", Relay, 2, relay_inputs)
    sink_inputs: Any = {
        source: Grouping.SHUFFLE,
        source["mark"]: Grouping.SHUFFLE,
        relay: Grouping.fields("number"),
    }
    if kind == JOIN:
        join = builder.add_bolt("join", Join, 1, {relay["pairs"]: Grouping.SHUFFLE})
        sink_inputs[join] = Grouping.SHUFFLE
    builder.add_bolt("sink", Sink, 2, sink_inputs)
    config: dict[str, Any] = {
        "topology.stmgrs": containers,
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": MESSAGE_TIMEOUT_S,
    }
    if checkpoints:
        config["topology.reliability.mode"] = "ATLEAST_ONCE" if at_least_once else "EFFECTIVELY_ONCE"
        config["topology.stateful.checkpoint.interval.seconds"] = CHECKPOINT_INTERVAL_S
        config["topology.stateful.checkpoint.timeout.seconds"] = CHECKPOINT_TIMEOUT_S
    if max_pending is not None:
        config["topology.max.spout.pending"] = max_pending
    builder.set_config(config)
    proto: topology_pb2.Topology = builder.build().protobuf_topology
    proto.state = topology_pb2.RUNNING
    return proto
