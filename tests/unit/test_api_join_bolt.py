"""Storm's JoinBolt: what it joins, in every mode, after a restore, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Count, Grouping, JoinBolt, Stream, TopologyBuilder, Tuple
from heronpy.api.bolt.join_bolt import Join
from heronpy.api.tuple import Detached
from heronpy.connectors import ListSource, SourceSpout
from heronpy.errors import ConfigError
from heronpy.testing import Simulator

CLICKS = [(1, "ann", 10), (2, "bob", 20), (3, "ann", 30), (4, None, 40)]
VIEWS = [(1, "ann", "home"), (2, "cid", "shop"), (3, "ann", "cart"), (4, None, "help")]
ORDERS = [(1, "home", {"total": 5}), (3, "cart", {"total": 7}), (4, "home", {})]
ROWS = {"clicks": CLICKS, "views": VIEWS, "orders": ORDERS}
MODES = ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"]

TWO = JoinBolt.of("clicks", "user").join("views", "user", "clicks").select("user, clicks:at, page")
THREE = JoinBolt.of("clicks", "user").left_join("views", "user", "clicks")
THREE = THREE.left_join("orders", "page", "views", prior_field="page")
THREE = THREE.select("clicks:user, x, views:page, order.total")


class Reader(Bolt):
    """The values of an element, the first of them its time."""

    def process(self, tup: Tuple) -> None:
        at, *values = tup["value"]
        self.emit([at * 1000, *values], anchors=[tup])
        self.ack(tup)


class Clicks(Reader):
    outputs: ClassVar = ["at", "user", "x"]


class Views(Reader):
    outputs: ClassVar = ["at", "user", "page"]


class Orders(Reader):
    outputs: ClassVar = ["at", "page", "order"]


class Both(Bolt):
    outputs: ClassVar = [Stream(["user", "x"], "left"), Stream(["user", "y"], "right")]

    def process(self, tup: Tuple) -> None:
        user, x = tup["value"]
        self.emit([user, x], stream="left", anchors=[tup])
        self.emit([user, -x], stream="right", anchors=[tup])
        self.ack(tup)


class Results(Bolt):
    seen: ClassVar[list[Any]] = []
    fields: ClassVar[list[str]] = []

    def process(self, tup: Tuple) -> None:
        Results.seen.append(tuple(tup.values))
        Results.fields[:] = tup.fields
        self.ack(tup)


def joining(
    join: Any,
    rows: dict[str, list[Any]],
    mode: str = "ATMOST_ONCE",
    *,
    par: int = 1,
    stream: str = Stream.DEFAULT_STREAM_ID,
) -> Simulator:
    Results.seen.clear()
    builder = TopologyBuilder("joining")
    inputs = {}
    for cls in (Clicks, Views, Orders):
        name = cls.__name__.lower()
        if name in rows:
            spout = builder.add_spout(f"{name}-source", SourceSpout(ListSource(rows[name])), 1)
            reader = builder.add_bolt(name, cls, 1, {spout: Grouping.SHUFFLE})
            inputs[reader] = Grouping.fields("page" if name == "orders" else "user")
    joined = builder.add_bolt("joined", join, par, inputs)
    builder.add_bolt("results", Results, 1, {joined[stream]: Grouping.SHUFFLE})
    builder.set_config(
        {"topology.reliability.mode": mode, "topology.stateful.checkpoint.interval.seconds": 3600}
        if mode == "EFFECTIVELY_ONCE"
        else {"topology.reliability.mode": mode}
    )
    return Simulator(builder)


def only(*names: str) -> dict[str, list[Any]]:
    return {name: ROWS[name] for name in names}


@pytest.mark.parametrize("mode", MODES)
def test_tuples_with_one_key_in_one_window_are_joined(mode: str) -> None:
    with joining(TWO.with_tumbling_window(Count(8)), only("clicks", "views"), mode) as simulator:
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 4)
        simulator.drain()
    assert sorted(Results.seen) == [
        ("ann", 1000, "cart"),
        ("ann", 1000, "home"),
        ("ann", 3000, "cart"),
        ("ann", 3000, "home"),
    ]
    assert Results.fields == ["user", "clicks:at", "page"]


def test_a_left_join_keeps_what_has_no_partner_and_joins_may_follow_one_another() -> None:
    with joining(THREE.with_tumbling_window(Count(11)), ROWS) as simulator:
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 8)
        simulator.drain()
    pages = [("home", 5), ("home", None), ("cart", 7)]
    expected = [("ann", x, page, total) for x in (10, 30) for page, total in pages]
    assert Counter(Results.seen) == Counter([*expected, ("bob", 20, None, None), (None, 40, None, None)])


def test_results_may_have_a_stream_of_their_own() -> None:
    join = TWO.with_output_stream("pairs").with_tumbling_window(Count(8))
    with joining(join, only("clicks", "views"), stream="pairs") as simulator:
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 4)


def test_inputs_may_be_named_by_their_streams() -> None:
    Results.seen.clear()
    builder = TopologyBuilder("streams")
    source = builder.add_spout("source", SourceSpout(ListSource([(1, 5), (2, 6)])), 1)
    both = builder.add_bolt("both", Both, 1, {source: Grouping.SHUFFLE})
    join = JoinBolt.of("left", "user", by_stream=True).join("right", "user", "left").select("user, x, y")
    by_user = Grouping.fields("user")
    joined = builder.add_bolt(
        "joined", join.with_tumbling_window(Count(4)), 1, {both["left"]: by_user, both["right"]: by_user}
    )
    builder.add_bolt("results", Results, 1, {joined: Grouping.SHUFFLE})
    with Simulator(builder) as simulator:
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 2)
    assert sorted(Results.seen) == [(1, 5, -5), (2, 6, -6)]


def test_windows_of_event_time_are_joined() -> None:
    """Each second by itself: a click meets the view of its own window only."""
    join = TWO.with_tumbling_window(timedelta(seconds=1)).with_timestamp_field("at")
    rows = {name: [*ROWS[name], (9, f"{name} end", 0), (9, f"{name} end", 0)] for name in ("clicks", "views")}
    with joining(join.with_watermark_interval(timedelta(milliseconds=1)), rows) as simulator:
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 2)
        simulator.drain()
    assert Results.seen == [("ann", 1000, "home"), ("ann", 3000, "cart")]


def test_what_waits_to_be_joined_is_in_checkpoints() -> None:
    with joining(TWO.with_tumbling_window(Count(9)), only("clicks", "views"), "EFFECTIVELY_ONCE") as simulator:

        def waiting() -> int:
            (bolt,) = simulator.component("joined")
            return len(bolt._windows.own)

        simulator.run(seconds=10, until=lambda: waiting() == 8)
        simulator.checkpoint()
        simulator.restore(kill=True)
        assert waiting() == 8
        (bolt,) = simulator.component("joined")
        bolt.process(Tuple([5000, "ann", "more"], Detached("views", "default", 0, ("at", "user", "page")), 0))
        simulator.run(seconds=10, until=lambda: len(Results.seen) == 6)
    assert Counter(Results.seen) == Counter(
        [("ann", at, page) for at in (1000, 3000) for page in ("home", "cart", "more")]
    )


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from(["p", "q"])), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["p", "r"]), st.integers(0, 2)), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_joins_are_those_of_nested_loops(
    clicks: list[Any], views: list[Any], orders: list[Any], first_outer: bool, second_outer: bool
) -> None:
    join = JoinBolt.of("clicks", "user")
    join = (join.left_join if first_outer else join.join)("views", "user", "clicks")
    join = (join.left_join if second_outer else join.join)("orders", "page", "views", prior_field="page")
    join = join.select("clicks:user, clicks:x, views:page, order")
    expected: Counter[Any] = Counter()
    for _, user, x in clicks:
        pages = [page for _, viewer, page in views if viewer == user]
        for page in pages or ([None] if first_outer else []):
            found = [order for _, ordered, order in orders if ordered == page]
            expected.update((user, x, page, order) for order in found or ([None] if second_outer else []))
    total = len(clicks) + len(views) + len(orders)
    rows = {"clicks": clicks, "views": views, "orders": orders}
    with joining(join.with_tumbling_window(Count(total)), rows) as simulator:
        (bolt,) = simulator.component("joined")
        simulator.run(seconds=10, until=lambda: bolt._windows.own._settled == total or bool(Results.seen))
        simulator.drain()
    assert Counter(Results.seen) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JoinBolt.of("a", "x").join("b", "x", "c"), "'c' is not joined"),
        (lambda: JoinBolt.of("a", "x").join("a", "x", "a"), "'a' is joined already"),
        (lambda: JoinBolt.of("a", "x").select("b:x"), "'b' is not joined"),
        (lambda: JoinBolt.of("a", "x").select("x,,y"), "names of fields"),
        (lambda: JoinBolt.of("a", "x").with_window(Count(2)), r"call select\(\)"),
        (lambda: JoinBolt.spec("join"), r"begin with JoinBolt.of\(\)"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (JoinBolt.of("clicks", "user").join("likes", "user", "clicks").select("user"), "'likes', which is none of its"),
        (JoinBolt.of("clicks", "name").select("user"), r"'clicks' by 'name', but it has \['at', 'user', 'x'\]"),
        (JoinBolt.of("clicks", "user").select("page"), "takes 'page', which no joined input has"),
    ],
)
def test_a_join_of_what_the_inputs_have_not_is_refused_when_the_bolt_begins(join: Join, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        joining(join.with_tumbling_window(Count(2)), only("clicks", "views")).__enter__()
