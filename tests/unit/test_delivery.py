"""Delivery: random graphs, behaviour and loss; every tracked root ends in exactly one of ack, fail, timeout."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.config import InstanceConfig
from heronpy.proto import stmgr_pb2
from heronpy.testing import Simulator

SECOND = 1_000_000_000
TIMEOUT_S = 30
GROUPINGS = {
    "shuffle": Grouping.SHUFFLE,
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "none": Grouping.NONE,
    "local": Grouping.LOCAL_OR_SHUFFLE,
    "fields": Grouping.fields("messages"),
    "partial": Grouping.partial_key("messages"),
}


def stream_of(message: tuple[int, int]) -> str:
    """The stream on which the source emits a message."""
    return "side" if message[1] % 5 == 0 else "default"


class Source(Spout):
    """Emits `test.count` tuples, of which every seventh has no message id."""

    outputs = ["messages", Stream(["messages"], name="side")]  # noqa: RUF012  # Heron's way to declare

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.left = int(config["test.count"])
        self.task = context.get_task_id()
        self.acked: Counter[Any] = Counter()
        self.failed: Counter[Any] = Counter()
        self.emitted: set[Any] = set()

    def next_tuple(self) -> None:
        if not self.left:
            return
        self.left -= 1
        message = (self.task, self.left)
        if self.left % 7 == 0:
            self.emit([()])
            return
        self.emitted.add(message)
        self.emit([(message,)], tup_id=message, stream=stream_of(message))

    def ack(self, tup_id: Any) -> None:
        self.acked[tup_id] += 1

    def fail(self, tup_id: Any) -> None:
        self.failed[tup_id] += 1


class Node(Bolt):
    """A bolt that does, tuple by tuple, one of the things that bolts do, chosen by a seeded generator."""

    outputs = ["messages"]  # noqa: RUF012

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.random = random.Random(f"{config['test.seed']}/{context.get_task_id()}")
        self.behaviours = config["test.behaviours"].split(",")
        self.held: list[Any] = []
        self.spoiled: set[Any] = set()
        """Messages of tuples that this bolt failed, forgot or still holds: their roots must not be acked."""

    def process(self, tup: Any) -> None:
        behaviour = self.random.choice(self.behaviours)
        messages = tup["messages"]
        if behaviour == "pass":
            for _ in range(self.random.randrange(3)):
                self.emit([messages], anchors=[tup])
            self.ack(tup)
        elif behaviour == "unanchored":
            self.emit([()])
            self.ack(tup)
        elif behaviour == "join":
            self.held.append(tup)
            if len(self.held) == 3:
                together = tuple(sorted({m for t in self.held for m in t["messages"]}))
                for _ in range(self.random.randrange(1, 3)):
                    self.emit([together], anchors=self.held)
                for held in self.held:
                    self.ack(held)
                self.held.clear()
        elif behaviour == "fail":
            self.spoiled.update(messages)
            self.fail(tup)
        elif behaviour == "twice":
            self.emit([messages], anchors=[tup])
            self.ack(tup)
            self.ack(tup)
        else:
            assert behaviour == "forget"
            self.spoiled.update(messages)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    layers = draw(st.integers(1, 3))
    bolts: list[dict[str, Any]] = []
    for number in range(layers):
        earlier = ["source", *(b["name"] for b in bolts)]
        sources = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=2, unique=True))
        bolts.append(
            {
                "name": f"bolt{number}",
                "inputs": {s: draw(st.sampled_from(sorted(GROUPINGS))) for s in sources},
                "side": draw(st.booleans()),
                "par": draw(st.integers(1, 3)),
                "behaviours": draw(
                    st.lists(
                        st.sampled_from(["pass", "pass", "pass", "join", "fail", "forget", "unanchored", "twice"]),
                        min_size=1,
                        max_size=4,
                    )
                ),
            }
        )
    pending = draw(st.sampled_from([None, 1, 20]))
    return {
        "bolts": bolts,
        "spouts": draw(st.integers(1, 2)),
        "count": draw(st.integers(1, 150 if pending is None else 20)),
        "loss": draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
        "batch": draw(st.sampled_from([1, 8, 8192])),
        "pending": pending,
        "seed": draw(st.integers(0, 999)),
    }


def build(graph: dict[str, Any]) -> TopologyBuilder:
    builder = TopologyBuilder("random")
    specs = {"source": builder.add_spout("source", Source, graph["spouts"], config={"test.count": graph["count"]})}
    for bolt in graph["bolts"]:
        inputs: dict[Any, Any] = {specs[name]: GROUPINGS[g] for name, g in bolt["inputs"].items()}
        if bolt["side"]:
            inputs[specs["source"]["side"]] = Grouping.SHUFFLE
        config = {"test.behaviours": ",".join(bolt["behaviours"]), "test.seed": graph["seed"]}
        specs[bolt["name"]] = builder.add_bolt(bolt["name"], Node, bolt["par"], inputs, config=config)
    settings: dict[str, Any] = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": TIMEOUT_S,
    }
    if graph["pending"]:
        settings["topology.max.spout.pending"] = graph["pending"]
    builder.set_config(settings)
    return builder


@given(graphs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_root_ends_in_exactly_one_of_ack_fail_and_timeout(graph: dict[str, Any]) -> None:
    dice = random.Random(graph["seed"])
    lost: set[Any] = set()
    acks_lost = False
    now_ns = SECOND

    def lose(batch: stmgr_pb2.Batch) -> bool:
        nonlocal acks_lost
        if dice.random() >= graph["loss"]:
            return False
        if batch.kind == stmgr_pb2.Batch.DATA:
            body = stmgr_pb2.TupleBatch.FromString(batch.body)
            lost.update(m for values in pickle.loads(body.values) for m in values[0])
        else:
            acks_lost = True
        return True

    config = InstanceConfig(batch_tuples=graph["batch"])
    with Simulator(build(graph), config=config, clock=lambda: now_ns, lose=lose) as simulator:
        spouts = simulator.component("source")

        def settled() -> bool:
            return all(not s.left for s in spouts) and all(
                not task.pending for task in simulator.tasks.values() if hasattr(task, "pending")
            )

        # At worst each root waits for its timeout alone.
        for _ in range(100 + (TIMEOUT_S + 2) * (graph["count"] if graph["pending"] else 1)):
            for _ in range(60):
                if not simulator.step():
                    break
            if settled():
                break
            now_ns += SECOND
        assert settled()

        nodes = [node for bolt in graph["bolts"] for node in simulator.component(bolt["name"])]
        spoiled = lost.union(*(node.spoiled for node in nodes))
        spoiled.update(m for node in nodes for held in node.held for m in held["messages"])
        for spout in spouts:
            ended = spout.acked + spout.failed
            assert set(ended) == spout.emitted, "a root never ended"
            assert set(ended.values()) <= {1}, "a root ended twice"
            assert not spoiled & set(spout.acked), "a root was acked although a tuple of its tree was not"
            joins = any("join" in bolt["behaviours"] for bolt in graph["bolts"])
            if not acks_lost and not lost and not joins:  # a join may wait past the timeout, and be acked after it
                assert set(spout.failed) <= spoiled, "a root failed although all of its tree was acked"
            simulator.tasks[spout.task].check_invariants()
        total = simulator.total
        acked, failed = (
            Counter(stream_of(m) for s in spouts for m in getattr(s, what)) for what in ("acked", "failed")
        )
        for stream in ("default", "side"):
            assert total(f"__ack-count/{stream}") == acked[stream]
            assert total(f"__fail-count/{stream}") == failed[stream]
            assert total(f"__timeout-count/{stream}") <= failed[stream]


def test_untracked_tuples_with_ids_count_as_acked_on_their_streams() -> None:
    graph = {"bolts": [], "spouts": 1, "count": 100, "batch": 8, "pending": None, "seed": 0}
    builder = build(graph)
    builder.set_config({"topology.reliability.mode": "ATMOST_ONCE"})
    with Simulator(builder) as simulator:
        simulator.run(until=lambda: not simulator.component("source")[0].left, seconds=300)
        (spout,) = simulator.component("source")
        acked = Counter(stream_of(m) for m in spout.acked)
        assert acked["side"]
        assert acked["default"]
        for stream, count in acked.items():
            assert simulator.total(f"__ack-count/{stream}") == count
        assert simulator.total("__next-tuple-count") >= 100
