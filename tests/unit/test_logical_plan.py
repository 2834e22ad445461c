"""The logical plan refuses what cannot run, and says why in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heronpy.errors import TopologyError
from heronpy.plan import GroupingKind, LogicalPlan
from heronpy.proto import topology_pb2

Change = Callable[[topology_pb2.Topology], object]


def topology() -> topology_pb2.Topology:
    """words (spout) → counts (bolt, by `word`), as text so that each test changes one thing."""
    proto = topology_pb2.Topology(id="Words1", name="Words", state="RUNNING")
    spout = proto.spouts.add()
    spout.comp.name, spout.comp.class_name = "words", "m.Words"
    spout.comp.config.kvs.add(key="topology.component.parallelism", value="2")
    _stream(spout.outputs.add(), "words", "default", "word", "length")
    bolt = proto.bolts.add()
    bolt.comp.name, bolt.comp.class_name = "counts", "m.Counts"
    bolt.comp.config.SetInParent()
    _stream(bolt.outputs.add(), "counts", "default", "count")
    read = bolt.inputs.add(gtype="FIELDS")
    read.stream.component_name, read.stream.id = "words", "default"
    read.grouping_fields.keys.add(key="word", type="OBJECT")
    return proto


def _stream(out: topology_pb2.OutputStream, component: str, stream: str, *fields: str) -> None:
    out.stream.component_name, out.stream.id = component, stream
    out.schema.SetInParent()
    for field in fields:
        out.schema.keys.add(key=field, type="OBJECT")


def test_a_valid_topology_is_read() -> None:
    plan = LogicalPlan.from_proto(topology())
    assert [c.name for c in plan.spouts] == ["words"]
    assert [c.name for c in plan.bolts] == ["counts"]
    assert plan.components["words"].parallelism == 2
    assert plan.components["counts"].parallelism == 1
    assert plan.components["words"].outputs["default"].fields == ("word", "length")
    ((bolt, decl),) = plan.consumers("words", "default")
    assert (bolt.name, decl.grouping, decl.fields) == ("counts", GroupingKind.FIELDS, ("word",))
    assert plan.consumers("counts", "default") == []


def test_a_components_configuration_overrides_the_topologys() -> None:
    proto = topology()
    proto.topology_config.kvs.add(key="topology.component.parallelism", value="1")
    proto.topology_config.kvs.add(key="mine", value="wide")
    config = LogicalPlan.from_proto(proto).config_of("words")
    assert config == {"topology.component.parallelism": "2", "mine": "wide"}


def test_a_bolt_may_read_what_it_emits() -> None:
    proto = topology()
    loop = proto.bolts[0].inputs.add(gtype="SHUFFLE")
    loop.stream.component_name, loop.stream.id = "counts", "default"
    assert LogicalPlan.from_proto(proto).consumers("counts", "default")


def _direct(proto: topology_pb2.Topology) -> None:
    proto.spouts[0].outputs[0].direct = True


def _twice(proto: topology_pb2.Topology) -> None:
    proto.bolts[0].inputs.add().CopyFrom(proto.bolts[0].inputs[0])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p.ClearField("spouts"), "has no spout"),
        (lambda p: p.bolts[0].ClearField("inputs"), "bolt 'counts' has no input"),
        (lambda p: setattr(p.bolts[0].comp, "name", "words"), "two components are named 'words'"),
        (lambda p: setattr(p.bolts[0].inputs[0].stream, "component_name", "wrds"), "did you mean 'words'"),
        (lambda p: setattr(p.bolts[0].inputs[0].stream, "id", "defalt"), "did you mean 'default'"),
        (lambda p: setattr(p.bolts[0].inputs[0].grouping_fields.keys[0], "key", "wrd"), "did you mean 'word'"),
        (lambda p: p.bolts[0].inputs[0].ClearField("grouping_fields"), "by no field"),
        (lambda p: setattr(p.bolts[0].inputs[0], "gtype", topology_pb2.CUSTOM), "custom grouping .* is empty"),
        (lambda p: setattr(p.spouts[0].comp.config.kvs[0], "value", "0"), "parallelism must be at least 1"),
        (lambda p: setattr(p.spouts[0].comp.config.kvs[0], "value", "two"), "parallelism must be a number"),
        (lambda p: setattr(p.spouts[0].comp.config.kvs[0], "value", "9" * 30), r"1(,000){10} tasks: it must not"),
        (lambda p: setattr(p.spouts[0].outputs[0].schema.keys[1], "key", "word"), "declares field 'word' twice"),
        (lambda p: _stream(p.spouts[0].outputs.add(), "words", "default", "x"), "stream 'default' is declared twice"),
        (lambda p: p.spouts[0].comp.config.kvs[0].ClearField("key"), r"damaged: it has no spouts\[0\].*key"),
        (_direct, r"must read the direct stream words:default with Grouping\.DIRECT"),
        (_twice, "reads words:default twice"),
        (lambda p: setattr(p.bolts[0].inputs[0], "gtype", topology_pb2.DIRECT), "but the stream is not direct"),
    ],
)
def test_what_cannot_run_is_refused(change: Change, expected: str) -> None:
    proto = topology()
    change(proto)
    with pytest.raises(TopologyError, match=expected):
        LogicalPlan.from_proto(proto)


@pytest.mark.parametrize("gtype", [topology_pb2.SHUFFLE, topology_pb2.ALL, topology_pb2.LOCAL_OR_SHUFFLE])
def test_groupings_without_fields_need_none(gtype: topology_pb2.Grouping) -> None:
    proto = topology()
    proto.bolts[0].inputs[0].ClearField("grouping_fields")
    proto.bolts[0].inputs[0].gtype = gtype
    assert LogicalPlan.from_proto(proto).components["counts"].inputs[0].grouping == gtype
