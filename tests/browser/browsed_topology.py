"""A topology for the tests of the web UI: known counts, exceptions that try to be HTML, and something that goes on."""

from __future__ import annotations

import time
from typing import Any

from heronpy.api import Bolt, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.metrics import AssignableMetrics, CountMetric, MultiCountMetric, TimerMetric
from heronpy.plan import BATCH_SIDE_KEY, BatchSide
from heronpy.streamlet import Builder

ORDERS = 300
"""How many orders each of the two `orders` spouts emits."""
BAD = 77
"""The order on which `payments` fails, once for each spout."""
ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""What the exception and the log lines carry."""
SIDE = BatchSide(batch_length_ms=60_000, archives={"events": "check"}, views=("counts",))
"""As if it were a streamlet program: its page *Pipeline* shows what tests report of it."""
SHELVES = 30
"""How many keys `totals` counts by."""


class Orders(Spout):
    outputs = ("number", "customer")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.next = 0
        self.logger.info("it begins: %s", ATTACK)

    def next_tuple(self) -> None:
        if self.next < ORDERS:
            self.next += 1
            self.emit([self.next, f"customer {self.next % 10}"], tup_id=self.next)


class Clock(Spout):
    """Goes on for ever, slowly: pages have something to follow."""

    outputs = ("tick",)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.tick = 0

    def next_tuple(self) -> None:
        time.sleep(0.2)
        self.tick += 1
        self.emit([self.tick], tup_id=self.tick)
        if self.tick % 20 == 0:
            self.logger.info("tick %d", self.tick)


class Check(Bolt):
    outputs = ("number", "customer")

    def process(self, tup: Tuple) -> None:
        self.emit([tup["number"], tup["customer"]], anchors=[tup])
        self.ack(tup)


class Payments(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.paid = CountMetric()
        context.register_metric("paid", self.paid, 1)

    def process(self, tup: Tuple) -> None:
        if tup["number"] == BAD:
            raise ValueError(f"{BAD} cannot be paid {ATTACK}")
        self.paid.incr()
        self.ack(tup)


class Totals(Bolt):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.seen, self.work, self.balance = CountMetric(), TimerMetric(), AssignableMetrics(-7)
        self.shelves = MultiCountMetric()
        for shelf in range(SHELVES):
            self.shelves.add_key(f"{shelf:02}")
        for name in ("seen", "work", "balance", "shelves"):
            context.register_metric(name, getattr(self, name), 1)

    def process(self, tup: Tuple) -> None:
        with self.work.time():
            time.sleep(0.001)
        self.seen.incr()
        self.shelves.incr(f"{self.seen.value % SHELVES:02}")
        self.ack(tup)


class Browsed(Topology):
    config = {  # noqa: RUF012  # Heron's way to declare
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.exception.policy": "fail",
        "topology.message.timeout.secs": 600,  # on a busy machine a tuple may take longer than the 30 s of the default
        "topology.stmgrs": 2,
        "app.database.password": "swordfish",
        "app.greeting": "hello",
        BATCH_SIDE_KEY: SIDE.to_value(),
    }
    orders = Orders.spec(par=2)
    clock = Clock.spec()
    check = Check.spec(par=3, inputs={orders: Grouping.SHUFFLE})
    payments = Payments.spec(par=2, inputs={check: Grouping.fields("customer")})
    totals = Totals.spec(par=2, inputs=[check, clock])


class Ticking(Topology):
    """A small one, to be killed."""

    clock = Clock.spec()
    totals = Totals.spec(inputs=[clock])


def sentence() -> str:
    time.sleep(0.1)
    return "to be or not to be"


def words_of(line: str) -> list[str]:
    return line.split()


def program() -> TopologyBuilder:
    """A streamlet program whose first operators are one component."""
    builder, topology = Builder(), TopologyBuilder("program")
    words = builder.new_source(sentence).set_name("sentences").flat_map(words_of).map(str.upper).set_name("loud")
    words.count_by_key(len).set_name("lengths").log()
    builder.build(topology)
    return topology
