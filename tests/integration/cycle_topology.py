"""Crawlers: every page has so many links, which are visited in turn. Every instance imports this module."""

from __future__ import annotations

import random
from typing import Any

from heronpy.api import Bolt, GlobalStreamId, Grouping, Spout, Topology, TopologyBuilder, TopologyContext, Tuple
from heronpy.api.metrics import CountMetric


class Seeds(Spout):
    """Emits the first pages, once."""

    outputs = ("task", "number", "depth", "payload")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.left = int(config["test.seeds"])
        self.number = 0
        self.task = context.get_task_id()

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.task, self.number, 0, b""], tup_id=self.left)
            self.number += 1


class Crawler(Bolt):
    """Emits a tuple for each link of a page; counts what arrives out of its sender's order.

    The payload does not compress, and belongs to one tuple only.
    """

    outputs = ("task", "number", "depth", "payload")

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.depth, self.links = int(config["test.depth"]), int(config["test.links"])
        self.size = int(config["test.payload.bytes"])
        self.task, self.number = context.get_task_id(), 0
        self.next: dict[tuple[int, str], int] = {}
        self.visited, self.overtaken = CountMetric(), CountMetric()
        context.register_metric("visited", self.visited, 1)
        context.register_metric("overtaken", self.overtaken, 1)

    def process(self, tup: Tuple) -> None:
        task, number, depth, _ = tup.values
        sender = (task, tup.component)
        if number < self.next.get(sender, 0):
            self.overtaken.incr()
        self.next[sender] = number + 1
        self.visited.incr()
        if depth < self.depth:
            for _ in range(self.links):
                self.emit([self.task, self.number, depth + 1, random.randbytes(self.size)], anchors=[tup])
                self.number += 1
        self.ack(tup)


class Fetcher(Crawler):
    """Passes a page on as it is: the second half of a longer cycle."""

    def process(self, tup: Tuple) -> None:
        self.visited.incr()
        self.emit([self.task, self.number, *tup.values[2:]], anchors=[tup])
        self.number += 1
        self.ack(tup)


def crawl(*, parallelism: int = 1, containers: int = 1, through: bool = False, **config: Any) -> type[Topology]:
    """`seeds` → `crawler` → itself, or, `through` a second bolt, `crawler` → `fetcher` → `crawler`."""
    builder = TopologyBuilder("crawl")
    seeds = builder.add_spout("seeds", Seeds, 1)
    back = GlobalStreamId("fetcher" if through else "crawler", "default")
    crawler = builder.add_bolt("crawler", Crawler, parallelism, {seeds: Grouping.SHUFFLE, back: Grouping.SHUFFLE})
    if through:
        builder.add_bolt("fetcher", Fetcher, parallelism, {crawler: Grouping.SHUFFLE})
    builder.set_config({"topology.stmgrs": containers, **config})
    return builder.build()
