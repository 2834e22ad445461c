"""What user code may do wrong, or unusually, and what becomes of its tuples."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any

import pytest
import user_code_world
from user_code_world import SECOND, BasicWorker, CountingHook, Script, World

from heronpy.api import Tuple
from heronpy.config import MIB, InstanceConfig
from heronpy.errors import TupleError
from heronpy.instance.task import TaskFailed
from heronpy.proto import stmgr_pb2

script = user_code_world.script


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


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("it cannot be said")


class Refuses:
    """Raises what it is told when it is pickled."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, KeyboardInterrupt, StopIteration, Unspeakable])
@pytest.mark.parametrize("size", [1, 600], ids=["sent", "staged"])
def test_whatever_a_value_raises_when_it_is_pickled_it_fails_alone(error: type[BaseException], size: int) -> None:
    values: list[Any] = [*range(size), Refuses(error), *range(size)]

    def emit_all(spout: Any) -> None:
        for number in range(spout.next, len(values)):
            spout.emit([values[number]], tup_id=number)
        spout.next = len(values)

    Script.on["next_tuple"] = emit_all
    with World(values) as world:
        world.settle()
        assert world.source.failed == [size]
        assert len(world.source.acked) == 2 * size
        assert world.seen == [*range(size), *range(size)]
        assert world.total("__exception-count") == 1


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
