"""What user code may do wrong, or unusually, and what becomes of its tuples."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from heronpy.api import BasicBolt, Bolt, Grouping, Spout, TopologyBuilder, Tuple
from heronpy.api.exceptions import FailedException
from heronpy.api.task_hook import ITaskHook
from heronpy.config import MIB, InstanceConfig
from heronpy.errors import TupleError
from heronpy.instance.task import TaskFailed
from heronpy.proto import stmgr_pb2
from heronpy.testing import Simulator

SECOND = 1_000_000_000


class Script:
    """What the components below do in the test at hand."""

    values: ClassVar[list[Any]] = []
    """What the spout emits, one by one, each with its index as id."""
    process: ClassVar[Callable[[Any, Tuple], None]]
    tick: ClassVar[Callable[[Any, Tuple], None]]
    on: ClassVar[dict[str, Callable[..., None]]] = {}
    """More callbacks by name."""


def call(name: str, *args: Any) -> None:
    if name in Script.on:
        Script.on[name](*args)


class Source(Spout):
    outputs = ("value",)

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.next = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        call("spout_init", self)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        call("spout_initialize", self)

    def activate(self) -> None:
        call("activate", self)

    def next_tuple(self) -> None:
        call("next_tuple", self)
        if self.next < len(Script.values):
            self.next += 1
            self.emit([Script.values[self.next - 1]], tup_id=self.next - 1)

    def ack(self, tup_id: Any) -> None:
        self.acked.append(tup_id)
        call("ack", self, tup_id)

    def fail(self, tup_id: Any) -> None:
        self.failed.append(tup_id)
        call("fail", self, tup_id)


class Worker(Bolt):
    outputs = ("value",)

    def __init__(self, delegate: Any) -> None:
        super().__init__(delegate)
        self.held: list[Tuple] = []
        call("bolt_init", self)

    def process(self, tup: Tuple) -> None:
        Script.process(self, tup)

    def process_tick(self, tup: Tuple) -> None:
        Script.tick(self, tup)

    def cleanup(self) -> None:
        call("cleanup", self)


class BasicWorker(BasicBolt):
    outputs = ("value",)

    def process(self, tup: Tuple) -> None:
        Script.process(self, tup)


class Sink(Bolt):
    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, tup: Tuple) -> None:
        self.seen.append(tup["value"])
        self.ack(tup)


class BrokenHook(ITaskHook):
    def spout_ack(self, spout_ack_info: Any) -> None:
        raise RuntimeError("the hook is broken")

    def spout_fail(self, spout_fail_info: Any) -> None:
        raise RuntimeError("the hook is broken")

    def bolt_execute(self, bolt_execute_info: Any) -> None:
        raise RuntimeError("the hook is broken")


class CountingHook(ITaskHook):
    bolt_acks = 0

    def bolt_ack(self, bolt_ack_info: Any) -> None:
        CountingHook.bolt_acks += 1


@pytest.fixture(autouse=True)
def script() -> None:
    Script.values = []
    Script.on = {}
    Script.process = passed_on
    Script.tick = lambda _bolt, _tup: None


def passed_on(bolt: Any, tup: Tuple) -> None:
    bolt.emit([tup["value"]], anchors=[tup])
    bolt.ack(tup)


class World(Simulator):
    """source -> worker -> sink, at least once, with a clock that the test moves."""

    def __init__(self, values: list[Any], *, worker: Any = Worker, config: InstanceConfig | None = None, **keys: Any):
        Script.values = values
        self.now_ns = SECOND
        self.sent: list[stmgr_pb2.Batch] = []
        builder = TopologyBuilder("world")
        source = builder.add_spout("source", Source, 1)
        bolt = builder.add_bolt("worker", worker, 1, {source: Grouping.SHUFFLE})
        builder.add_bolt("sink", Sink, 1, {bolt: Grouping.SHUFFLE})
        builder.set_config(
            {
                "topology.reliability.mode": "ATLEAST_ONCE",
                "topology.message.timeout.secs": 10,
                "topology.exception.policy": "fail",
                **{key.replace("__", "."): value for key, value in keys.items()},
            }
        )
        super().__init__(
            builder,
            config=config or InstanceConfig(drain_interval_ms=0),
            clock=lambda: self.now_ns,
            lose=lambda batch: bool(self.sent.append(batch)),
        )

    def settle(self) -> None:
        for _ in range(300):
            self.now_ns += SECOND // 1000
            self.step()

    @property
    def source(self) -> Source:
        return self.component("source")[0]  # type: ignore[no-any-return]

    @property
    def worker(self) -> Any:
        return self.component("worker")[0]

    @property
    def seen(self) -> list[Any]:
        return self.component("sink")[0].seen  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter])
def test_anchors_may_be_any_collection(kind: Any) -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        bolt.emit([tup["value"]], anchors=kind([tup]))
        bolt.held.append(tup)
        if len(bolt.held) == 2:
            bolt.emit(["both"], anchors=kind(bolt.held))
            for held in bolt.held:
                bolt.ack(held)

    Script.process = process
    with World([1, 2]) as world:
        world.settle()
        assert sorted(world.seen, key=str) == [1, 2, "both"]
        assert sorted(world.source.acked) == [0, 1]


def test_an_anchor_that_is_no_tuple_is_an_error_of_the_emit_that_names_it() -> None:
    errors: list[Exception] = []

    def process(bolt: Any, tup: Tuple) -> None:
        try:
            bolt.emit([1], anchors=["a word"])
        except TupleError as error:
            errors.append(error)
        bolt.ack(tup)

    Script.process = process
    with World([1]) as world:
        world.settle()
        assert "a word" in str(errors[0])
        assert world.source.acked == [0]


@pytest.mark.parametrize("deed", ["ack", "fail", "reset_timeout"])
def test_a_tick_and_an_unpickled_tuple_can_be_acked_and_failed_without_effect(deed: str) -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        detached = pickle.loads(pickle.dumps(tup))
        getattr(bolt, deed)(detached)
        bolt.emit([tup["value"]], anchors=[detached])
        bolt.ack(tup)

    Script.process = process
    Script.tick = lambda bolt, tup: getattr(bolt, deed)(tup)
    with World([1, 2], topology__tick__tuple__freq__ms=1) as world:
        world.settle()
        assert world.source.acked == [0, 1]
        assert world.total("__exception-count") == 0


def test_a_basic_bolt_that_fails_a_tuple_itself_does_not_have_it_acked() -> None:
    Script.process = lambda bolt, tup: bolt.fail(tup)
    with World([1], worker=BasicWorker) as world:
        world.settle()
        assert (world.source.acked, world.source.failed) == ([], [0])


def test_a_tuple_that_was_acked_before_process_raised_stays_acked() -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        bolt.ack(tup)
        raise RuntimeError("afterwards")

    Script.process = process
    with World([1]) as world:
        world.settle()
        assert (world.source.acked, world.source.failed) == ([0], [])


def test_an_ack_that_comes_twice_or_after_the_timeout_changes_nothing() -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        bolt.held.append(tup)

    Script.process = process
    with World([1, 2]) as world:
        world.settle()
        world.worker.ack(world.worker.held[0])
        world.worker.ack(world.worker.held[0])
        world.settle()
        assert world.source.acked == [0]
        world.now_ns += 20 * SECOND
        world.settle()
        assert world.source.failed == [1]
        for _ in range(2):
            for tup in world.worker.held:
                world.worker.ack(tup)
            world.settle()
        assert (world.source.acked, world.source.failed) == ([0], [1])


def test_a_spout_may_replay_inside_fail_and_emit_inside_ack() -> None:
    tries: dict[Any, int] = {}

    def process(bolt: Any, tup: Tuple) -> None:
        tries[tup["value"]] = tries.get(tup["value"], 0) + 1
        if tries[tup["value"]] < 3:
            bolt.fail(tup)
        else:
            bolt.ack(tup)

    Script.process = process
    Script.on["fail"] = lambda spout, tup_id: spout.emit([tup_id], tup_id=tup_id)
    Script.on["ack"] = lambda spout, tup_id: tup_id < 1000 and spout.emit([tup_id + 1000], tup_id=tup_id + 1000)
    with World(list(range(600)), config=InstanceConfig(batch_tuples=7)) as world:
        world.settle()
        world.settle()
        assert sorted(world.source.acked) == [*range(600), *range(1000, 1600)]
        assert set(tries.values()) == {3}


@pytest.mark.parametrize("where", ["spout_init", "spout_initialize"])
def test_a_spout_may_emit_as_much_as_it_likes_before_it_runs(where: str) -> None:
    Script.on[where] = lambda spout: [spout.emit([n], tup_id=n) for n in range(1000)]
    with World([]) as world:
        world.settle()
        assert sorted(world.source.acked) == list(range(1000))


def test_a_bolt_may_emit_as_much_as_it_likes_before_it_runs() -> None:
    Script.on["bolt_init"] = lambda bolt: [bolt.emit([n]) for n in range(1000)]
    with World([]) as world:
        world.settle()
        assert world.seen == list(range(1000))


@pytest.mark.parametrize("emitter", ["spout", "bolt"])
def test_a_value_that_cannot_be_pickled_fails_alone_and_its_field_is_named(
    emitter: str, caplog: pytest.LogCaptureFixture
) -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        bolt.emit([threading.Lock() if emitter == "bolt" and tup["value"] == 3 else tup["value"]], anchors=[tup])
        bolt.ack(tup)

    Script.process = process
    values: list[Any] = list(range(20))
    if emitter == "spout":
        values[3] = threading.Lock()
    with World(values, config=InstanceConfig()) as world:
        world.settle()
        assert world.source.failed == [3]
        assert sorted(world.source.acked) == [n for n in range(20) if n != 3]
        assert "whose field 'value' cannot be serialized: lock" in caplog.text


def test_a_lambda_is_a_value() -> None:
    with World([lambda: 42]) as world:
        world.settle()
        assert world.seen[0]() == 42
        assert world.source.acked == [0]


def test_a_large_tuple_passes_and_a_too_large_one_is_an_error_that_says_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World([b"x" * (2 * MIB), b"y" * (40 * MIB), b"z" * (2 * MIB)], config=InstanceConfig()) as world:
        world.settle()
        assert sorted(world.source.acked) == [0, 2]
        assert world.source.failed == [1]
        assert max(len(batch.body) for batch in world.sent) < 3 * MIB
        for words in ("source emitted a tuple of 419430", "'default'", "'value'", "maximum.packetsize.bytes"):
            assert words in caplog.text


class Unreadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise RuntimeError("not on this machine")


def test_a_value_that_cannot_be_unpickled_is_an_error_of_user_code_and_its_batch_is_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World([1, Unreadable(), 3], topology__max__spout__pending=1) as world:
        world.settle()
        assert world.source.failed == [1]
        assert sorted(world.source.acked) == [0, 2]
        assert "cannot be deserialized" in caplog.text
        assert "not on this machine" in caplog.text


def test_a_tuple_may_have_more_anchors_than_16_bits_count() -> None:
    count = 70_000

    def process(bolt: Any, tup: Tuple) -> None:
        bolt.held.append(tup)
        if len(bolt.held) == count:
            bolt.emit(["all"], anchors=bolt.held)
            for held in bolt.held:
                bolt.ack(held)

    Script.process = process
    with World(list(range(count)), config=InstanceConfig(), topology__max__spout__pending=count) as world:
        for _ in range(20):
            world.settle()
            if len(world.source.acked) == count:
                break
        assert len(world.source.acked) == count
        assert world.source.failed == []


def test_what_is_sent_stays_small_whatever_is_acked_and_anchored_at_once() -> None:
    config = InstanceConfig()
    count = 100_000

    def process(bolt: Any, tup: Tuple) -> None:
        bolt.held.append(tup)
        if len(bolt.held) == count:
            for number in range(100):
                bolt.emit([number], anchors=bolt.held[: count // 2])
            for held in bolt.held:
                bolt.ack(held)

    Script.process = process
    with World(list(range(count)), config=config, topology__max__spout__pending=count) as world:
        for _ in range(20):
            world.settle()
        assert len(world.source.acked) == count
        assert max(len(batch.body) for batch in world.sent) < 2 * config.frame_bytes


@pytest.mark.parametrize("where", ["next_tuple", "ack", "fail", "activate", "process", "process_tick"])
def test_under_the_policy_fail_an_exception_is_reported_and_the_task_goes_on(where: str) -> None:
    raised: list[str] = []

    def once(*_args: Any) -> None:
        if not raised:
            raised.append(where)
            raise RuntimeError(f"in {where}")

    def process(bolt: Any, tup: Tuple) -> None:
        if where == "process" and tup["value"] == 2:
            once()
        if where == "fail" and tup["value"] == 2:
            bolt.fail(tup)
            return
        passed_on(bolt, tup)

    Script.process = process
    Script.tick = once if where == "process_tick" else Script.tick
    Script.on[where] = once
    with World([1, 2, 3], topology__tick__tuple__freq__ms=1) as world:
        world.settle()
        assert raised == [where]
        assert world.total("__exception-count") == 1
        ended = [*world.source.acked, *world.source.failed]
        assert sorted(ended) == [0, 1, 2]
        assert (1 in world.source.failed) == (where in ("process", "fail"))


@pytest.mark.parametrize("where", ["next_tuple", "ack", "fail", "process", "process_tick"])
def test_under_the_policy_restart_an_exception_ends_the_task(where: str) -> None:
    def always(*_args: Any) -> None:
        raise RuntimeError(f"in {where}")

    def process(bolt: Any, tup: Tuple) -> None:
        if where == "process":
            always()
        if where == "fail":
            bolt.fail(tup)
            return
        passed_on(bolt, tup)

    Script.process = process
    Script.tick = always if where == "process_tick" else Script.tick
    Script.on[where] = always
    keys = {"topology__exception__policy": "restart", "topology__tick__tuple__freq__ms": 1}
    with World([1, 2, 3], **keys) as world:
        with pytest.raises(TaskFailed, match=where):
            world.settle()
        assert world.total("__exception-count") == 1
        if where == "process":  # told at once, not after the timeout
            fails = [batch for batch in world.sent if batch.kind == stmgr_pb2.Batch.FAIL]
            assert len(fails) == 1


def test_exceptions_in_task_hooks_are_exceptions_of_user_code() -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        if tup["value"] == 2:
            bolt.fail(tup)
        else:
            passed_on(bolt, tup)

    Script.process = process
    with World([1, 2], topology__auto__task__hooks=[f"{__name__}.{BrokenHook.__name__}"]) as world:
        world.settle()
        assert (world.source.acked, world.source.failed) == ([0], [1])
        # worker 2, sink 1, and one for each of ack and fail
        assert world.total("__exception-count") == 5


def test_what_was_acked_leaves_even_if_cleanup_raises() -> None:
    def broken(_bolt: Any) -> None:
        raise RuntimeError("in cleanup")

    Script.on["cleanup"] = broken
    with World([1], config=InstanceConfig(drain_interval_ms=1000)) as world:
        world.step()
        world.step()
        for task in world.tasks.values():
            if task.user_object is world.worker:
                world.sent.clear()
                with pytest.raises(RuntimeError, match="in cleanup"):
                    task.close()
        assert {batch.kind for batch in world.sent} == {stmgr_pb2.Batch.DATA, stmgr_pb2.Batch.ACK}
        Script.on.clear()


def test_failed_exception_fails_the_tuple_without_being_reported() -> None:
    def process(_bolt: Any, _tup: Tuple) -> None:
        raise FailedException("not today")

    Script.process = process
    with World([1], worker=BasicWorker) as world:
        world.settle()
        assert world.source.failed == [0]
        assert world.total("__exception-count") == 0


def test_one_pending_tuple_at_a_time_is_enough() -> None:
    with World(list(range(50)), topology__max__spout__pending=1) as world:
        for _ in range(3):
            world.settle()
        assert world.source.acked == list(range(50))


def test_a_deactivated_spout_gets_its_acks_and_is_asked_for_nothing() -> None:
    Script.process = lambda bolt, tup: bolt.held.append(tup)
    with World(list(range(1000)), topology__max__spout__pending=10) as world:
        world.settle()
        world.deactivate()
        asked = world.source.next
        for tup in list(world.worker.held):
            world.worker.ack(tup)
        world.settle()
        assert sorted(world.source.acked) == list(range(10))
        assert world.source.next == asked
        world.activate()
        world.settle()
        assert world.source.next == asked + 10


def test_a_timeout_is_reset_while_process_still_works() -> None:
    sent: list[int] = []

    def process(bolt: Any, tup: Tuple) -> None:
        bolt.reset_timeout(tup)
        sent.extend(batch.kind for batch in world.sent)

    Script.process = process
    with World([1]) as world:
        world.settle()
        assert stmgr_pb2.Batch.RESET_TIMEOUT in sent


def test_hooks_hear_of_acks_that_the_engine_does() -> None:
    with World([1], worker=BasicWorker, topology__auto__task__hooks=[f"{__name__}.{CountingHook.__name__}"]) as world:
        Script.process = lambda bolt, tup: bolt.emit([tup["value"]])
        CountingHook.bolt_acks = 0
        world.settle()
        assert world.source.acked == [0]
        assert CountingHook.bolt_acks == 2


def test_ticks_come_on_time_when_idle_and_under_load() -> None:
    ticks: list[int] = []
    Script.tick = lambda bolt, _tup: (ticks.append(world.now_ns), bolt.emit(["tick"]))[0]
    with World(list(range(100)), topology__tick__tuple__freq__ms=100) as world:
        for _ in range(10):
            world.settle()
        assert len(ticks) in (29, 30)
        assert world.seen.count("tick") == len(ticks)
        gaps = [b - a for a, b in itertools.pairwise(ticks)]
        assert max(gaps) <= 0.102 * SECOND


def test_reset_timeout_gives_a_tuple_its_full_time_again() -> None:
    Script.process = lambda bolt, tup: bolt.held.append(tup)
    with World([1, 2]) as world:
        world.settle()
        for _ in range(5):
            world.now_ns += 5 * SECOND
            world.worker.reset_timeout(world.worker.held[0])
            world.settle()
        assert world.source.failed == [1]
        world.worker.ack(world.worker.held[0])
        world.settle()
        assert world.source.acked == [0]


def test_values_travel_as_messagepack_if_the_topology_says_so() -> None:
    key = {"topology__serializer__classname": "heronpy.api.serializer.MsgpackSerializer"}
    with World([{"a": [1, 2.5, None, "ü", b"x"]}, object()], **key) as world:
        world.settle()
        assert world.seen == [{"a": [1, 2.5, None, "ü", b"x"]}]
        assert (world.source.acked, world.source.failed) == ([0], [1])


def test_a_process_that_swallows_every_exception_cannot_swallow_the_end_of_its_task() -> None:
    def process(bolt: Any, tup: Tuple) -> None:
        try:
            for _ in range(20):
                bolt.emit([threading.Lock()], anchors=[tup])
        except Exception:
            bolt.ack(tup)

    Script.process = process
    config = InstanceConfig(batch_tuples=5)
    with World([1, 2], config=config, topology__exception__policy="restart") as world:
        with pytest.raises(TaskFailed):
            world.settle()
        assert world.source.acked == []
