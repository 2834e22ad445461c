"""The bolts of the queries that keep state by key without windows."""

from __future__ import annotations

from typing import Any, Final

from heronpy.api import Bolt, TopologyContext, Tuple

NEARBY: Final = frozenset({"OR", "ID", "CA"})
CATEGORY: Final = 10
LAST_SOLD: Final = 10


class FindNearby(Bolt):
    """People of some states by id, and auctions of a category by seller."""

    outputs = ["person", "value"]  # noqa: RUF012  # Heron's way to declare

    def process(self, tup: Tuple) -> None:
        event = tup.values[0]
        if event["kind"] == "person" and event["state"] in NEARBY:
            self.emit([event["id"], (event["name"], event["city"], event["state"])])
        elif event["kind"] == "auction" and event["category"] == CATEGORY:
            self.emit([event["seller"], event["id"]])
        self.ack(tup)


class Suggest(Bolt):
    """Joins people with their auctions, whichever comes first."""

    outputs = ["row"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._people = context.keyed_state("people")
        self._waiting = context.keyed_state("waiting", default=())

    def process(self, tup: Tuple) -> None:
        id, value = tup.values
        if isinstance(value, tuple):
            self._people[id] = value
            for auction in self._waiting.pop(id, ()):
                self.emit([(*value, auction)])
        elif (person := self._people.get(id)) is not None:
            self.emit([(*person, value)])
        else:
            self._waiting[id] = (*self._waiting[id], value)
        self.ack(tup)


class FindSales(Bolt):
    """Bids, and what is needed of auctions, by auction."""

    outputs = ["auction", "value"]  # noqa: RUF012

    def process(self, tup: Tuple) -> None:
        event = tup.values[0]
        if event["kind"] == "bid":
            self.emit([event["auction"], (event["time"], event["price"])])
        elif event["kind"] == "auction":
            self.emit([event["id"], (event["time"], event["expires"], event["category"], event["seller"])])
        self.ack(tup)


class HighestBids(Bolt):
    """The highest bid of each auction while it was open, each time that there is a higher one.

    Bids may come before their auction.
    """

    outputs = ["category", "seller", "auction", "expires", "before", "price"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._auctions = context.keyed_state("auctions")
        self._highest = context.keyed_state("highest", default=0)
        self._early = context.keyed_state("early", default=())

    def process(self, tup: Tuple) -> None:
        id, value = tup.values
        if len(value) > 2:
            self._auctions[id] = value
            for bid in self._early.pop(id, ()):
                self._bid(id, value, bid)
        elif (auction := self._auctions.get(id)) is not None:
            self._bid(id, auction, value)
        else:
            self._early[id] = (*self._early[id], value)
        self.ack(tup)

    def _bid(self, id: int, auction: tuple[int, ...], bid: tuple[int, int]) -> None:
        begin_ms, expires_ms, category, seller = auction
        at_ms, price = bid
        before = self._highest[id]
        if begin_ms <= at_ms <= expires_ms and price > before:
            self._highest[id] = price
            self.emit([category, seller, id, expires_ms, before, price])


class AverageByCategory(Bolt):
    """The average of the highest bids, each time that one changes."""

    outputs = ["row"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._sums = context.keyed_state("sums", default=(0, 0, 0))

    def process(self, tup: Tuple) -> None:
        category, _, _, _, before, price = tup.values
        number, auctions, total = self._sums[category]
        number, auctions, total = number + 1, auctions + (before == 0), total + price - before
        self._sums[category] = number, auctions, total
        self.emit([(category, number, total // auctions)])
        self.ack(tup)


class AverageOfLast(Bolt):
    """The average of a seller's last auctions by the time when they expire, each time that a highest bid changes."""

    outputs = ["row"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self._last = context.keyed_state("last", default=(0, ()))

    def process(self, tup: Tuple) -> None:
        _, seller, auction, expires_ms, _, price = tup.values
        number, sold = self._last[seller]
        # One that is no longer among the last never is again: others only become more, and their times do not change.
        others = (sale for sale in sold if sale[1] != auction)
        sold = tuple(sorted((*others, (expires_ms, auction, price)))[-LAST_SOLD:])
        self._last[seller] = number + 1, sold
        self.emit([(seller, number + 1, sum(sale[2] for sale in sold) // len(sold))])
        self.ack(tup)
