"""What a task emits: task ids, counts, and batches that fit into frames."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import Bolt, Grouping, Spout, Stream, TopologyBuilder
from heronpy.config import InstanceConfig
from heronpy.errors import TupleError
from heronpy.hashing import KEY_GROUPS
from heronpy.instance.task import Outputs, Rejected, Taken, as_values, pickled, serialized
from heronpy.packing import RoundRobinPacking
from heronpy.plan import Component, LogicalPlan, PhysicalPlan, StreamDecl


class Source(Spout):
    outputs = ["word", "n", Stream(["code"], name="errors"), Stream(["x"], name="told", direct=True)]  # noqa: RUF012


class Sink(Bolt):
    pass


def plan_of(**inputs: dict[str, Any]) -> PhysicalPlan:
    """A spout, task 1, and bolts with three tasks each; `inputs` are groupings by stream."""
    builder = TopologyBuilder("outputs")
    source = builder.add_spout("source", Source, 1)
    for name, streams in inputs.items():
        builder.add_bolt(name, Sink, 3, {source[stream]: grouping for stream, grouping in streams.items()})
    builder.set_config({"topology.stmgrs": 2})
    logical = LogicalPlan.from_proto(builder.build().protobuf_topology)
    return PhysicalPlan(1, logical, RoundRobinPacking(logical).pack(), ())


class Last:
    """A custom grouping that chooses the last task."""

    def __init__(self, targets: list[int]) -> None:
        self.targets = targets

    def choose_tasks(self, values: list[Any]) -> Sequence[int]:
        return self.targets[-1:]


def outputs_of(plan: PhysicalPlan) -> Outputs:
    return Outputs(plan, 1, lambda _decl, targets: Last(targets), key_groups=KEY_GROUPS, lasting=True)


def emit(outputs: Outputs, values: list[Any], stream: str = "default") -> list[int]:
    target = outputs.choosers[stream](values)
    target.put(values)
    return list(target.ids)


def test_every_grouping_tells_the_task_ids() -> None:
    plan = plan_of(
        a={"default": Grouping.ALL},
        b={"default": Grouping.fields("word")},
        c={"errors": Grouping.LOWEST},
        d={"errors": Grouping.custom("some.Grouping")},
    )
    a, b, c, d = (plan.component_tasks[name] for name in "abcd")
    outputs = outputs_of(plan)
    ids = emit(outputs, ["word", 1])
    assert ids[:3] == a
    assert len(ids) == 4
    assert ids[3] in b
    assert emit(outputs, ["word", 2]) == ids
    assert emit(outputs, ["E1"], "errors") == [c[0], d[2]]
    assert emit(outputs, ["nobody reads"], "told") == []


def test_the_key_is_found_by_the_name_of_its_field() -> None:
    outputs = outputs_of(plan_of(a={"default": Grouping.fields("n")}))
    assert all(emit(outputs, [str(i), 7]) == emit(outputs, ["other", 7]) for i in range(20))


def test_local_or_shuffle_knows_its_container() -> None:
    plan = plan_of(a={"default": Grouping.LOCAL_OR_SHUFFLE})
    local = [t for t in plan.component_tasks["a"] if plan.container_of(t) == plan.container_of(1)]
    outputs = outputs_of(plan)
    assert 0 < len(local) < 3
    assert {task for _ in range(9) for task in emit(outputs, ["w", 1])} == set(local)


def test_a_direct_emit_reaches_only_the_named_task() -> None:
    plan = plan_of(a={"told": Grouping.DIRECT}, b={"default": Grouping.SHUFFLE})
    outputs, tasks = outputs_of(plan), plan.component_tasks["a"]
    assert outputs.direct("told", tasks[1]).ids == [tasks[1]]
    with pytest.raises(TupleError, match=r"to task 99 on stream 'told', which is none of the tasks .*: \[\d, \d, \d\]"):
        outputs.direct("told", 99)
    with pytest.raises(TupleError, match="did you mean 'told'"):
        outputs.direct("tolt", tasks[1])
    with pytest.raises(TupleError, match=r"none of the tasks that read it with a direct grouping: \[\]"):
        outputs.direct("default", plan.component_tasks["b"][0])


def test_an_undeclared_stream_is_told_with_the_nearest() -> None:
    with pytest.raises(TupleError, match=r"source emits to stream 'error', .* did you mean 'errors'"):
        outputs_of(plan_of(a={"default": Grouping.ALL})).choosers["error"]


@given(st.lists(st.sampled_from(["default", "errors", "told"]), max_size=60), st.integers(0, 3))
def test_every_tuple_is_counted_once_whatever_the_number_of_its_copies(streams: list[str], layout: int) -> None:
    plan = plan_of(
        **[
            {"a": {"default": Grouping.SHUFFLE, "errors": Grouping.ALL}},
            {"a": {"default": Grouping.ALL}, "b": {"default": Grouping.fields("word")}},
            {"a": {"default": Grouping.custom("some.Grouping")}, "b": {"errors": Grouping.LOWEST}},
            {"a": {"told": Grouping.DIRECT, "default": Grouping.ALL}},
        ][layout]
    )
    outputs = outputs_of(plan)
    for number, stream in enumerate(streams):
        if stream == "told" and layout == 3:
            outputs.direct("told", plan.component_tasks["a"][number % 3]).put([number])
        else:
            emit(outputs, [str(number), number], stream)
    assert outputs.emitted(outputs.take()) == {stream: streams.count(stream) for stream in set(streams)}
    assert outputs.emitted(outputs.take()) == {}


@given(st.lists(st.sampled_from(["default", "errors"]), max_size=60))
def test_tuples_for_one_task_keep_the_order_of_emit_across_streams(streams: list[str]) -> None:
    plan = plan_of(a={"errors": Grouping.LOWEST, "default": Grouping.LOWEST})
    outputs = outputs_of(plan)
    for number, stream in enumerate(streams):
        emit(outputs, [number], stream)
    if not streams:
        assert outputs.take() == []
        return
    (taken,) = outputs.take()
    assert taken.values == [[number] for number in range(len(streams))]
    assert [taken.stream_of(number) for number in range(len(streams))] == streams
    assert dict(taken.counts(0, len(streams))) == {stream: streams.count(stream) for stream in set(streams)}


def test_only_lists_and_tuples_are_tuples() -> None:
    assert as_values(("a", 1)) == ["a", 1]

    class Values(list):  # type: ignore[type-arg]  # a user's subclass
        pass

    assert type(as_values(Values(["a"]))) is list
    for wrong in ("word", 5, None, {"a": 1}, (n for n in range(3))):
        with pytest.raises(TupleError, match=r"emit\(\) takes a list or tuple of values"):
            as_values(wrong)


COMPONENT = Component("source", True, "m.Source", 1, {"default": StreamDecl("default", ("word", "n"))}, (), {})


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("it holds a lock")


def config(frame_bytes: int = 1000, tuple_bytes_max: int = 2000) -> InstanceConfig:
    return InstanceConfig(frame_bytes=frame_bytes, tuple_bytes_max=tuple_bytes_max, in_queue_bytes_expected=1000)


def taken_of(tuples: list[list[Any]]) -> Taken:
    return Taken(5, ["default"], None, list(tuples), [])


kinds = st.lists(st.sampled_from(["small", "medium", "large", "huge", "unpicklable"]), max_size=40)


@given(kinds, st.integers(100, 3000))
def test_batches_fit_into_frames_in_order_and_only_the_guilty_are_rejected(found: list[str], frame_bytes: int) -> None:
    sizes = {"small": 1, "medium": 90, "large": 1500, "huge": 4000}
    tuples = [[n, Unpicklable() if kind == "unpicklable" else b"x" * sizes[kind]] for n, kind in enumerate(found)]
    sent: list[int] = []
    rejected: list[int] = []
    position = 0
    for part in serialized(COMPONENT, taken_of(tuples), pickled, config(frame_bytes)):
        if isinstance(part, Rejected):
            assert part.index == position
            rejected.append(part.index)
            position += 1
            continue
        start, stop, data = part
        assert start == position
        position = stop
        assert len(data) <= frame_bytes or stop - start == 1
        assert len(data) <= max(2000, frame_bytes)
        sent += [n for n, _ in pickle.loads(data)]
    assert position == len(tuples)
    too_large = 4000 if frame_bytes < 4000 else 10**9
    guilty = [
        n for n, kind in enumerate(found) if kind == "unpicklable" or (kind == "huge" and sizes[kind] >= too_large)
    ]
    assert rejected == guilty
    assert sent == [n for n in range(len(tuples)) if n not in guilty]


def test_a_small_batch_is_serialized_once() -> None:
    calls: list[int] = []

    def counting(values: list[list[Any]]) -> bytes:
        calls.append(len(values))
        return pickled(values)

    assert len(list(serialized(COMPONENT, taken_of([["w", n] for n in range(100)]), counting, config()))) == 1
    assert calls == [100]


def test_what_cannot_be_serialized_is_named_with_component_stream_and_field() -> None:
    tuples = [["fine", 1], ["bad", Unpicklable()], ["fine", 3]]
    parts = list(serialized(COMPONENT, taken_of(tuples), pickled, config()))
    (rejected,) = [part for part in parts if isinstance(part, Rejected)]
    assert rejected.index == 1
    assert str(rejected.error) == (
        "source emitted a tuple on stream 'default' whose field 'n' cannot be serialized: Unpicklable: it holds a lock"
    )


def test_a_tuple_that_is_too_large_is_named_with_its_largest_field() -> None:
    (rejected,) = serialized(COMPONENT, taken_of([["w" * 3000, 1, b"more"]]), pickled, config())
    assert isinstance(rejected, Rejected)
    assert "a tuple of 3" in str(rejected.error)
    assert "maximum.packetsize.bytes = 2000; its largest field is 'word'" in str(rejected.error)
    (rejected,) = serialized(COMPONENT, taken_of([["w", 1, b"x" * 3000]]), pickled, config())
    assert isinstance(rejected, Rejected)
    assert "its largest field is number 2" in str(rejected.error)


def test_functions_travel_too() -> None:
    assert pickle.loads(pickled([[lambda x: x + 1]]))[0][0](1) == 2
