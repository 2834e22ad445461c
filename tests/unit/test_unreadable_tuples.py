"""Tuples that cannot be deserialized where they are received: each is found among the others of its batch."""

from __future__ import annotations

import datetime
import itertools
import pickle
import random
import zlib
from typing import Any

import cloudpickle
import pytest

from heronpy.api.serializer import PythonSerializer
from heronpy.checkpoints import NOTHING_SAVED
from heronpy.instance.task import FailedTuple, SetAside, Taken, Unreadable, make_task
from heronpy.instance.unreadable import read_each
from heronpy.proto import checkpoint_pb2
from heronpy.wire import DATA, decode_tuples, tuple_batch
from tests.unit.checkpointed_kit import INCARNATION, ByHand
from tests.unit.snapshot_kit import Stored, numbers, plan_of

COUNT = 2


class Bad:
    """Raises when it is unpickled, unless a test says otherwise."""

    error: BaseException | None = ValueError("not on this machine")

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __getstate__(self) -> Any:
        return self.name

    def __setstate__(self, name: str) -> None:
        if Bad.error is not None:
            raise Bad.error
        self.name = name


class Good:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Good) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Missing:
    """Pickled, and not there any more."""


class Reduced:
    def __reduce__(self) -> Any:
        return int, ("none",)


class NoKey:
    def __hash__(self) -> int:
        raise TypeError("no key here")


def unhashable() -> Any:
    """A dictionary that can be pickled, and not made again."""
    hashing = NoKey.__hash__
    NoKey.__hash__ = lambda self: 1  # type: ignore[method-assign]
    try:
        return {NoKey(): 1}
    finally:
        NoKey.__hash__ = hashing  # type: ignore[method-assign]


def missing() -> bytes:
    return pickle.dumps([[1], [Missing()], [2]], 5).replace(b"Missing", b"Absent_")


def readable(found: list[Any]) -> list[Any]:
    return [None if isinstance(each, Unreadable) else each for each in found]


@pytest.mark.parametrize("bad", [Bad(), [Bad()], {"a": (Bad(), Bad())}, Reduced(), unhashable()])
@pytest.mark.parametrize("count", [1, 3, 1001])  # pickle appends a thousand at a time, and a single one otherwise
def test_each_tuple_that_cannot_be_read_is_found(bad: Any, count: int) -> None:
    rows: list[Any] = [[n, f"text {n}", {"n": n}, (n, n, n, n)] for n in range(count)]
    for at in {0, count // 2, count - 1}:
        rows[at] = [at, bad]
    expected = [row if len(row) == 4 else None for row in rows]
    assert readable(read_each(pickle.dumps(rows, 5))) == expected


def test_what_cloudpickle_has_pickled_is_read() -> None:
    good, bad, last = read_each(cloudpickle.dumps([[lambda: 7], [Bad()], [1]], 5))
    assert good[0]() == 7
    assert isinstance(bad, Unreadable)
    assert last == [1]


def test_a_class_that_is_missing_is_named() -> None:
    first, second, third = read_each(missing())
    assert (first, third) == ([1], [2])
    assert "Absent_" in str(second.error)


def test_what_tuples_share_with_one_that_cannot_be_read_is_read() -> None:
    at, names = datetime.datetime(2024, 2, 29, 12), ["shared"]
    names.append(names[0] * 2)
    whole = Good([names, at])
    rows = [[Bad(), names, at, whole], [at, names], (names, whole), [Good(at)], (at,), [names, Bad()], (Good(names), 1)]
    expected = [None if any(isinstance(value, Bad) for value in row) else row for row in rows]
    assert readable(read_each(pickle.dumps(rows, 5))) == expected


def test_cycles_are_read() -> None:
    rows: list[Any] = [[Bad()], []]
    rows[1] += [rows[1], 1]
    _, found = read_each(pickle.dumps(rows, 5))
    assert found[0] is found
    assert found[1] == 1


def test_any_values_are_read_as_without_the_one_that_cannot_be() -> None:
    rng = random.Random(7)
    shared: list[Any] = [datetime.date(2024, 1, n + 1) for n in range(5)]

    def value(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(
                [None, True, 1, 1 << 40, 1.5, "text", b"bytes", b"", rng.choice(shared), rng.choice(shared)]
            )
        inner = [value(depth - 1) for _ in range(rng.randrange(6))]
        kinds: list[Any] = [list, tuple, Good, lambda some: {str(n): each for n, each in enumerate(some)}]
        made = rng.choice(kinds)(inner)
        shared.append(made)
        return made

    for _ in range(12):
        rows: list[Any] = [rng.choice([list, tuple])(value(2) for _ in range(3)) for _ in range(rng.randrange(1, 60))]
        at = rng.randrange(len(rows) + 1)
        bad = [*rows[:at], [value(2), Bad(), value(2)], *rows[at:]]
        assert readable(read_each(pickle.dumps(bad, 5))) == [*rows[:at], None, *rows[at:]]


def test_a_tuple_that_cannot_be_read_is_the_same_in_any_batch() -> None:
    def found(rows: list[Any]) -> bytes:
        (unreadable,) = (each for each in read_each(pickle.dumps(rows, 5)) if isinstance(each, Unreadable))
        return unreadable.serialized

    bad = ["key", Bad("one"), "key"]
    alone = found([bad])
    assert found([["key", 1, "x"], bad, ["z"]]) == alone
    assert found([[Good("key")]] * 1200 + [bad]) == alone
    assert found([["key", Bad("another"), "key"]]) != alone


@pytest.mark.parametrize(
    "data", [b"", b"no pickle", pickle.dumps({"a": 1}), pickle.dumps([1, 2])[:-3], pickle.dumps(7)]
)
def test_what_is_no_pickled_list_is_said_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_each(data)


# Effectively once

ERRORS = [ValueError("not on this machine"), SystemExit(3), RuntimeError()]


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BaseException:
    monkeypatch.setattr(Bad, "error", request.param)
    return request.param  # type: ignore[no-any-return]


def test_a_tuple_that_cannot_be_read_is_named_and_set_aside_as_one_that_always_fails(error: BaseException) -> None:
    hand = ByHand(plan := plan_of(), COUNT, Stored(plan))
    hand.start()
    hand.received([numbers([1, Bad(), 2])], number=1)
    hand.settle()
    (rollback, *_) = hand.said("rollback")
    assert rollback.tuple
    for part in ("component 'count'", "a tuple of numbers:default", "from task 1", type(error).__name__):
        assert part in rollback.reason
    letters = [checkpoint_pb2.SetAside(tuple=rollback.tuple, reason=rollback.reason)]
    hand.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT], set_aside=letters))
    hand.settle()
    hand.order(resume=checkpoint_pb2.ResumeTasks(epoch=2, incarnations={COUNT: INCARNATION}))
    hand.received([numbers([3, Bad(), 4, 1])], epoch=2, number=1)  # among others this time
    hand.settle()
    assert not hand.said("rollback")
    assert dict(hand.user.counts) == {1: 1, 3: 1, 4: 1}
    hand.now_s += 1
    hand.settle()
    (where, row, reason), _ = (row for row in sent(hand) if len(row) == 3)  # each of the two sinks has it
    assert "from task 1" in where
    assert reason == rollback.reason
    Bad.error = None
    assert pickle.loads(row)[0][0].name == "", "what it was can be read where that is possible"


def test_an_outage_while_a_tuple_is_read_is_no_fault_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bad, "error", ConnectionRefusedError("the database is away"))
    hand = ByHand(plan := plan_of(), COUNT, Stored(plan))
    hand.start()
    hand.received([numbers([Bad()])], number=1)
    hand.settle()
    (rollback, *_) = hand.said("rollback")
    assert not rollback.tuple


class Sealed(PythonSerializer):
    """As one of the user's: the engine cannot take apart what it has written, and it is never the same."""

    sealed = itertools.count()

    def serialize(self, obj: Any) -> bytes:
        return zlib.compress(super().serialize((next(self.sealed), obj)))

    def deserialize(self, input_str: bytes) -> Any:
        return super().deserialize(zlib.decompress(input_str))[1]


SEALED = {"topology.serializer.classname": f"{__name__}.{Sealed.__name__}"}


def sealed(*parts: list[Any]) -> Any:
    """A batch, of several parts or of one."""
    values = [Sealed().serialize([[value] for value in part]) for part in parts]
    sizes = [*map(len, values)] if len(values) > 1 else ()
    count = sum(map(len, parts))
    return tuple_batch(
        src_task=1, dest_task=COUNT, streams=["default"], count=count, values=b"".join(values), part_sizes=sizes
    )


@pytest.mark.parametrize("mode", ["EFFECTIVELY_ONCE", "ATLEAST_ONCE"])
def test_what_an_own_serializer_cannot_read_is_set_aside_once_each_tuple_comes_alone(
    error: BaseException, mode: str
) -> None:
    hand = ByHand(plan := plan_of(mode=mode, **SEALED), COUNT, Stored(plan))
    hand.start()
    hand.received([sealed([1, Bad(), 2])], number=1)
    hand.settle()
    (rollback, *_) = hand.said("rollback")
    assert rollback.tuple
    for part in ("'count'", "3 tuples of numbers:default", "Sealed", type(error).__name__):
        assert part in rollback.reason
    letters = [checkpoint_pb2.SetAside(tuple=rollback.tuple, reason=rollback.reason)]
    hand.order(restore=checkpoint_pb2.RestoreTasks(epoch=2, tasks=[COUNT], set_aside=letters))
    hand.settle()
    hand.order(resume=checkpoint_pb2.ResumeTasks(epoch=2, incarnations={COUNT: INCARNATION}))
    hand.received([sealed([3], [Bad()], [4], [1])], epoch=2, number=1)
    hand.received([sealed([Bad()])], epoch=2, number=2)
    hand.settle()
    assert not hand.said("rollback")
    assert dict(hand.user.counts) == {1: 1, 3: 1, 4: 1}
    assert hand.cores[-1].metrics.total("__dead-letter-count/numbers/default") == 2
    hand.received([sealed([5, Bad()])], epoch=2, number=3)  # as in a checkpoint's log
    hand.settle()
    assert [report.tuple for report in hand.said("rollback")][:1] == [rollback.tuple]


def test_a_sender_of_what_cannot_be_read_sends_each_tuple_alone_until_the_second_commit() -> None:
    plan = plan_of(**SEALED)
    core = ByHand(plan, 1, Stored(plan)).make_core(plan, NOTHING_SAVED)
    spout = make_task(core)
    receiver = ByHand(plan, COUNT, Stored(plan)).make_core(plan, NOTHING_SAVED)

    def parts() -> list[int]:
        taken = Taken(COUNT, ["default"], None, [[1], [2], [3]], [])
        return [stop - start for start, stop, _ in core.serialized(taken)]

    assert parts() == [3]
    spout.set_aside = SetAside(core, {FailedTuple.unreadable(receiver, "count").digest: "of another sender"})
    assert parts() == [3]
    spout.set_aside = SetAside(core, {FailedTuple.unreadable(receiver, "numbers").digest: "unreadable"})
    assert parts() == [1, 1, 1]
    spout.committed(1)
    assert parts() == [1, 1, 1]
    spout.committed(2)
    assert parts() == [3]


def sent(hand: ByHand) -> list[Any]:
    batches = [batch for _, batch in hand.queues.sent if batch.kind == DATA]
    return [row for batch in batches for row in decode_tuples(batch.body).deserialized(pickle.loads)]


def test_a_batch_of_several_parts_is_read_but_for_the_tuple_to_blame() -> None:
    hand = ByHand(plan := plan_of(), COUNT, Stored(plan))
    hand.start()
    parts = [pickle.dumps(part) for part in ([[1], [2]], [[3], [Bad()]], [[4]])]
    batch = tuple_batch(
        src_task=1, dest_task=COUNT, streams=["default"], count=5, values=b"".join(parts), part_sizes=[*map(len, parts)]
    )
    hand.received([batch], number=1)
    hand.settle()
    assert [report.tuple != b"" for report in hand.said("rollback")][:1] == [True]
    assert dict(hand.user.counts) == {1: 1, 2: 1, 3: 1}
