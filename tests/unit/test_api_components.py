"""What components, contexts, metrics, serializers and state do for the user."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import (
    AssignableMetrics,
    BasicBolt,
    Bolt,
    CountMetric,
    Grouping,
    HashMapState,
    ITaskHook,
    MeanReducedMetric,
    MsgpackSerializer,
    MultiAssignableMetrics,
    MultiCountMetric,
    MultiMeanReducedMetric,
    PythonSerializer,
    Spout,
    Stream,
    TopologyBuilder,
    TopologyContext,
    global_metrics,
)
from heronpy.api.task_hook import BoltExecuteInfo, EmitInfo, SpoutAckInfo
from heronpy.api.topology_context import StreamId
from heronpy.api.tuple import Detached, Tuple, TupleHelper
from heronpy.plan import ContainerPacking, InstancePacking, LogicalPlan, PackingPlan, PhysicalPlan, Resources


class Delegate:
    """The engine's side: remembers calls and answers with task ids."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("component")
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., list[int]]:
        def call(*args: Any) -> list[int]:
            self.calls.append((name, *args))
            return [3, 4]

        return call


class WordSpout(Spout):
    outputs = ["word", Stream(fields=["text"], name="more")]  # noqa: RUF012


class CountBolt(Bolt):
    pass


TUPLE = Tuple(["a"], Detached("words", "default", 1, ("word",)), 0)


def plan() -> PhysicalPlan:
    builder = TopologyBuilder("Words")
    words = builder.add_spout("words", WordSpout, 1)
    builder.add_bolt(
        "counts", CountBolt, 2, inputs={words: Grouping.fields("word"), words["more"]: Grouping.ALL}, config={"n": 7}
    )
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    share = Resources(1, 1, 1)
    packed = (("words", 1, 0), ("counts", 2, 0), ("counts", 3, 1))
    instances = tuple(InstancePacking(name, task, index, share) for name, task, index in packed)
    return PhysicalPlan(1, logical, PackingPlan("plan", (ContainerPacking(1, instances, share),)), ())


class TestComponents:
    def test_emit_reaches_the_engine_with_all_parameters_and_returns_task_ids(self) -> None:
        delegate = Delegate()
        assert CountBolt(delegate=delegate).emit(["a"], stream="more", anchors=[TUPLE]) == [3, 4]
        assert WordSpout(delegate=delegate).emit(["a"], tup_id="id", direct_task=3) == [3, 4]
        assert delegate.calls == [
            ("emit", ["a"], "more", [TUPLE], None, False),
            ("emit", ["a"], "id", "default", 3, False),
        ]

    def test_ack_fail_and_reset_timeout_reach_the_engine(self) -> None:
        delegate = Delegate()
        bolt = CountBolt(delegate)
        bolt.ack(TUPLE)
        bolt.fail(TUPLE)
        bolt.reset_timeout(TUPLE)
        assert delegate.calls == [("ack", TUPLE), ("fail", TUPLE), ("reset_timeout", TUPLE)]

    def test_ticks_are_told_from_tuples(self) -> None:
        assert Bolt.is_tick(TupleHelper.make_tick_tuple())
        assert not Bolt.is_tick(TUPLE)

    def test_herons_bolt_acks_itself_and_storms_basic_bolt_is_acked(self) -> None:
        assert (Bolt.auto_ack, Bolt.auto_anchor, Bolt.auto_fail) == (False, False, False)
        assert (BasicBolt.auto_ack, BasicBolt.auto_anchor, BasicBolt.auto_fail) == (True, True, True)

    @pytest.mark.parametrize(
        ("level", "logged"),
        [
            (None, "INFO"),
            ("trace", "DEBUG"),
            ("debug", "DEBUG"),
            ("info", "INFO"),
            ("warn", "WARNING"),
            ("error", "ERROR"),
        ],
    )
    def test_log_levels_are_herons(self, level: str | None, logged: str, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("DEBUG"):
            CountBolt(Delegate()).log("100 %", level)
        assert [(r.levelname, r.message) for r in caplog.records] == [(logged, "100 %")]

    def test_an_unknown_log_level_is_refused(self) -> None:
        with pytest.raises(ValueError, match="fatal"):
            CountBolt(Delegate()).log("message", "fatal")

    @pytest.mark.parametrize("call", [lambda: Bolt(Delegate()).process(TUPLE), lambda: Spout(Delegate()).next_tuple()])
    def test_what_must_be_implemented_says_so(self, call: Callable[[], None]) -> None:
        with pytest.raises(NotImplementedError):
            call()


class TestContext:
    def test_it_knows_the_task_and_its_neighbours(self) -> None:
        context = TopologyContext(plan(), 3, {})
        assert (context.get_task_id(), context.get_component_id(), context.get_this_task_index()) == (3, "counts", 1)
        assert context.get_topology_name() == "Words"
        assert context.get_component_tasks("counts") == [2, 3]
        assert context.get_component_tasks("nobody") is None
        assert context.get_task_to_component() == {1: "words", 2: "counts", 3: "counts"}
        assert context.get_component_ids() == ["words", "counts"]

    def test_it_knows_inputs_and_streams(self) -> None:
        context = TopologyContext(plan(), 2, {})
        sources = context.get_this_sources()
        assert sources == {
            StreamId(id="default", component_name="words"): Grouping.fields("word").gtype,
            StreamId(id="more", component_name="words"): Grouping.ALL,
        }
        assert all(type(gtype) is int for gtype in sources.values())
        assert context.get_sources("words") == {}
        assert context.get_sources("nobody") is None
        assert context.get_component_streams("words") == ["default", "more"]
        assert context.get_this_streams() == []
        assert context.get_component_output_fields("words", "more") == ("text",)
        assert context.get_component_output_fields("words", "nothing") is None

    def test_it_types_the_configuration_that_the_engine_shares_with_the_user(self) -> None:
        whole = plan()
        config = whole.logical.config_of("counts")
        assert config["n"] == "7"
        context = TopologyContext(whole, 2, config)
        assert context.get_cluster_config() is config
        assert config["n"] == 7
        assert config["topology.debug"] is False

    def test_it_knows_where_the_topologys_modules_are(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        context = TopologyContext(plan(), 2, {})
        monkeypatch.setenv("HERON_PACKAGE", str(tmp_path / "package"))
        assert context.get_topology_pex_path() == str(tmp_path / "package")
        monkeypatch.delenv("HERON_PACKAGE")
        monkeypatch.syspath_prepend(tmp_path)
        assert context.get_topology_pex_path() == str(tmp_path)

    def test_metrics_are_registered_once_each(self) -> None:
        registered: list[tuple[str, Any, int]] = []

        class Registry:
            def register(self, name: str, metric: Any, time_bucket_in_sec: int) -> None:
                registered.append((name, metric, time_bucket_in_sec))

        context = TopologyContext(plan(), 2, {}, metrics=Registry())
        metric = CountMetric()
        assert context.register_metric("mine", metric, 10) is metric
        assert registered == [("mine", metric, 10)]
        with pytest.raises(TypeError):
            context.register_metric("mine", object(), 10)  # type: ignore[arg-type]  # that is the point

    def test_hooks_are_kept_in_order_and_others_refused(self) -> None:
        context = TopologyContext(plan(), 2, {})
        hooks = [ITaskHook(), ITaskHook()]
        for hook in hooks:
            context.add_task_hook(hook)
        assert context.task_hooks == hooks
        with pytest.raises(TypeError):
            context.add_task_hook(object())  # type: ignore[arg-type]  # that is the point

    def test_hook_infos_have_herons_fields(self) -> None:
        assert EmitInfo._fields == ("values", "stream_id", "task_id", "out_tasks")
        assert SpoutAckInfo._fields == ("message_id", "spout_task_id", "complete_latency_ms")
        assert BoltExecuteInfo._fields == ("heron_tuple", "executing_task_id", "execute_latency_ms")


class TestMetrics:
    def test_counters_are_reset_by_reading(self) -> None:
        count, counts = CountMetric(), MultiCountMetric()
        count.incr()
        count.incr(4)
        counts.add_key("a")
        counts.incr("b", 2)
        assert (count.get_value_and_reset(), count.get_value_and_reset()) == (5, 0)
        assert (counts.get_value_and_reset(), counts.get_value_and_reset()) == ({"a": 0, "b": 2}, {"a": 0, "b": 0})

    def test_means_are_of_their_time_bucket(self) -> None:
        mean, means = MeanReducedMetric(), MultiMeanReducedMetric()
        for value in (1, 2):
            mean.update(value)
            means.update("a", value)
        assert (mean.get_value_and_reset(), mean.get_value_and_reset()) == (1.5, None)
        assert (means.get_value_and_reset(), means.get_value_and_reset()) == ({"a": 1.5}, {"a": None})

    def test_assigned_values_stay(self) -> None:
        value, values = AssignableMetrics(1), MultiAssignableMetrics()
        value.update(2)
        values.update("a", 1)
        values.update("a", 3)
        assert [value.get_value_and_reset() for _ in range(2)] == [2, 2]
        assert [values.get_value_and_reset() for _ in range(2)] == [{"a": 3}, {"a": 3}]

    def test_global_counts_from_many_threads_are_neither_lost_nor_doubled(self) -> None:
        global_metrics.metricsContainer.get_value_and_reset()
        done = threading.Event()
        read: list[float] = []

        def collect() -> None:
            while not done.is_set():
                read.append(global_metrics.metricsContainer.get_value_and_reset().get("count", 0))

        def count() -> None:
            for _ in range(5000):
                global_metrics.safe_incr("count")
                global_metrics.incr("count")

        collector = threading.Thread(target=collect)
        counters = [threading.Thread(target=count) for _ in range(4)]
        for thread in (collector, *counters):
            thread.start()
        for thread in counters:
            thread.join()
        done.set()
        collector.join()
        read.append(global_metrics.metricsContainer.get_value_and_reset().get("count", 0))
        assert sum(read) == 40_000

    def test_global_metrics_are_registered_once_under_their_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(global_metrics, "registered", False)
        registered: list[tuple[str, int]] = []

        class Collector:
            def register_metric(self, name: str, metric: Any, time_bucket_in_sec: int) -> None:
                registered.append((name, time_bucket_in_sec))

        global_metrics.init(Collector(), 60)
        global_metrics.init(Collector(), 60)
        assert registered == [("__auto__", 60)]


class TestSerializers:
    @pytest.mark.parametrize("serializer", [PythonSerializer(), MsgpackSerializer()])
    def test_batches_of_plain_values_round_trip(self, serializer: PythonSerializer | MsgpackSerializer) -> None:
        serializer.initialize({})
        batch = [["word", 1, 2.5, None, True, b"bytes", {"k": [1]}], []]
        assert serializer.deserialize(serializer.serialize(batch)) == batch

    def test_what_pickle_refuses_is_pickled_by_value(self) -> None:
        serializer = PythonSerializer()
        n = 5
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pickle.dumps(lambda: n)
        assert serializer.deserialize(serializer.serialize([lambda: n]))[0]() == 5


class TestState:
    def test_it_is_used_like_herons_and_like_a_dict(self) -> None:
        state = HashMapState()
        state.put("a", 1)
        state["b"] = 2
        assert (state.get("a"), state["b"], state.get("c"), "c" in state, len(state)) == (1, 2, None, False, 2)
        assert list(state.enumerate()) == [("a", 1), ("b", 2)]
        assert pickle.loads(pickle.dumps(state)) == state
        del state["a"]
        state.clear()
        assert dict(state) == {}
