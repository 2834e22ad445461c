"""The queries, each as a topology that reads files of events and writes its rows as files of JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heronpy.api import Bolt, Grouping, TopologyBuilder, api_constants
from heronpy.bench.nexmark._bolts import (
    AverageByCategory,
    AverageOfLast,
    FindNearby,
    FindSales,
    HighestBids,
    Suggest,
)
from heronpy.connectors import JsonLines, JsonLinesSink, SinkBolt, SourceSpout
from heronpy.streamlet import Builder, Config, KeyedWindow, Streamlet, Window, WindowConfig

WINDOW_S: Final = 10
SLIDE_S: Final = 2
IDLE_S: Final = 3600.0
"""The files end, and nothing else: a task that gets no CPU for a while must not let windows end."""
Value = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a query is run."""

    sources: int = 1
    """Tasks that read."""
    tasks: int = 2
    """Tasks of every other component."""
    reliability: str = api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE
    """A value of `TopologyReliabilityMode`."""
    checkpoint_interval_s: float = 10.0
    """Effectively once."""


def topology(query: str, events: Path, output: Path, options: Options) -> TopologyBuilder:
    """A query over the files of a directory; its rows come in files in another."""
    source, sink = JsonLines(f"{events}/*.jsonl"), JsonLinesSink(output)
    config: dict[str, Any] = {api_constants.TOPOLOGY_RELIABILITY_MODE: options.reliability}
    if options.reliability == api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE:
        config[api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS] = options.checkpoint_interval_s
    topology = TopologyBuilder(f"nexmark-{query}")
    made = QUERIES[query]
    if not isinstance(made, Bolts):
        builder, program = Builder(), Config(config)
        program.set_max_lateness(0)
        program.set_idle_timeout(IDLE_S)
        rows = made(builder.new_source(source).set_num_partitions(options.sources), options.tasks)
        rows.to_sink(sink)
        builder.build(topology, program)
        return topology
    read = topology.add_spout("events", SourceSpout(source), options.sources)
    last = topology.add_bolt("find", made.find, options.sources, {read: Grouping.SHUFFLE})
    for bolt, key in made.steps:
        last = topology.add_bolt(bolt.__name__, bolt, options.tasks, {last: Grouping.fields(key)})
    topology.add_bolt("rows", SinkBolt(sink), options.tasks, {last: Grouping.SHUFFLE})
    topology.set_config(config)
    return topology


@dataclass(frozen=True, slots=True)
class Bolts:
    """A query by bolts with state."""

    find: type[Bolt]
    """Takes from events what is needed."""
    steps: tuple[tuple[type[Bolt], str], ...]
    """Bolts, one after the other, with the field that their input is grouped by; the last emits rows."""


def _is(kind: str) -> Callable[[Value], bool]:
    return lambda event: bool(event["kind"] == kind)


def _bids(events: Streamlet) -> Streamlet:
    return events.filter(_is("bid"))


def _time_s(event: Value) -> float:
    return float(event["time"] / 1000)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _pass_through(events: Streamlet, tasks: int) -> Streamlet:
    return _bids(events).map(lambda b: (b["auction"], b["bidder"], b["price"], b["time"], b["extra"]))


def _to_euros(events: Streamlet, tasks: int) -> Streamlet:
    return _bids(events).map(lambda b: (b["auction"], b["bidder"], b["price"] * 908 // 1000, b["time"], b["extra"]))


def _selection(events: Streamlet, tasks: int) -> Streamlet:
    return _bids(events).filter(lambda b: b["auction"] % 123 == 0).map(lambda b: (b["auction"], b["price"]))


def _timed_bids(events: Streamlet) -> Streamlet:
    return _bids(events.event_time(_time_s))


def _best(a: list[Any], b: list[Any]) -> list[Any]:
    """The one whose first element is greater, or both."""
    return a if a[0] > b[0] else b if b[0] > a[0] else [a[0], *a[1:], *b[1:]]


def _hot_items(events: Streamlet, tasks: int) -> Streamlet:
    sliding = WindowConfig.create_sliding_window(WINDOW_S, SLIDE_S)
    counts = _timed_bids(events).count_by_key_and_window(sliding, lambda b: b["auction"]).set_num_partitions(tasks)

    def by_window(counted: tuple[KeyedWindow, int]) -> tuple[int, list[int]]:
        (auction, window), bids = counted
        return _ms(window.start), [bids, auction]

    def rows(found: tuple[KeyedWindow, list[int]]) -> list[tuple[int, ...]]:
        (start_ms, _), (bids, *auctions) = found
        return [(start_ms, auction, bids) for auction in auctions]

    # A result has the last time of its window, so one slide has the results of one window.
    results = WindowConfig.create_tumbling_window(SLIDE_S)
    hottest = counts.map(by_window).reduce_by_key_and_window(results, _best).set_num_partitions(tasks)
    return hottest.flat_map(rows)


def _highest_bid(events: Streamlet, tasks: int) -> Streamlet:
    tumbling = WindowConfig.create_tumbling_window(WINDOW_S)
    bids = _timed_bids(events).map(lambda b: (b["bidder"] % tasks, [b["price"], (b["auction"], b["bidder"])]))
    highest = bids.reduce_by_key_and_window(tumbling, _best).set_num_partitions(tasks)

    def rows(found: tuple[Window, list[Any]]) -> list[tuple[int, ...]]:
        window, (price, *bids) = found
        return [(_ms(window.start), price, auction, bidder) for auction, bidder in bids]

    return highest.map(lambda found: found[1]).reduce_by_window(tumbling, _best).set_num_partitions(1).flat_map(rows)


def _new_sellers(events: Streamlet, tasks: int) -> Streamlet:
    timed = events.event_time(_time_s)
    people = timed.filter(_is("person")).map(lambda p: (p["id"], p["name"]))
    auctions = timed.filter(_is("auction")).map(lambda a: (a["seller"], a["id"]))
    tumbling = WindowConfig.create_tumbling_window(WINDOW_S)
    joined = people.join(auctions, tumbling, lambda name, auction: (name, auction)).set_num_partitions(tasks)
    return joined.map(lambda found: (found[0].key, _ms(found[0].window.start), *found[1]))


def _user_sessions(events: Streamlet, tasks: int) -> Streamlet:
    sessions = WindowConfig.create_session_window(WINDOW_S)
    counts = _timed_bids(events).count_by_key_and_window(sessions, lambda b: b["bidder"]).set_num_partitions(tasks)
    return counts.map(lambda found: (found[0].key, _ms(found[0].window.start), _ms(found[0].window.end), found[1]))


QUERIES: Final[dict[str, Callable[[Streamlet, int], Streamlet] | Bolts]] = {
    "q0": _pass_through,
    "q1": _to_euros,
    "q2": _selection,
    "q3": Bolts(FindNearby, ((Suggest, "person"),)),
    "q4": Bolts(FindSales, ((HighestBids, "auction"), (AverageByCategory, "category"))),
    "q5": _hot_items,
    "q6": Bolts(FindSales, ((HighestBids, "auction"), (AverageOfLast, "seller"))),
    "q7": _highest_bid,
    "q8": _new_sellers,
    "q11": _user_sessions,
}
"""0 passes bids through; 1 converts their currency; 2 selects some; 3 joins people with their auctions; 4 averages the
prices of what is sold by category, and 6 of the last ten by seller; 5 finds the hottest items of sliding windows and 7
the highest bids of tumbling ones; 8 joins in windows who is new and sells; 11 counts bids in sessions."""
