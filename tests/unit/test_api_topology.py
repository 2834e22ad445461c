"""Declaring topologies: what is written, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId, HeronComponentSpec
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.exceptions import InvalidTopologyError
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import Topology, TopologyBuilder, TopologyType
from heronpy.errors import ConfigError, TopologyError
from heronpy.plan import GroupingKind, LogicalPlan
from heronpy.proto import topology_pb2


class NumberSpout(Spout):
    outputs = ["number", Stream(fields=["reason"], name="error"), Stream(fields=["to"], name="one", direct=True)]  # noqa: RUF012


class SumBolt(Bolt):
    outputs = ("sum",)


class Outer:
    class InnerBolt(Bolt):
        pass


class FirstTask(ICustomGrouping):
    def choose_tasks(self, values: object) -> list[int]:
        return [1]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERON_OPTIONS", raising=False)
    monkeypatch.delenv("HERON_INSTANCE", raising=False)


def builder_with_spout(name: str = "Numbers") -> tuple[TopologyBuilder, HeronComponentSpec]:
    builder = TopologyBuilder(name)
    return builder, builder.add_spout("numbers", NumberSpout, 2)


class TestDefinition:
    def test_a_class_becomes_herons_message(self) -> None:
        class Numbers(Topology):
            config = {"topology.message.timeout.secs": 7, "mine.flag": True, "mine.list": [1, 2]}  # noqa: RUF012
            numbers = NumberSpout.spec(par=3, config={"mine.ratio": -12.4})
            sums = SumBolt.spec(par=4, inputs={numbers: Grouping.fields("number"), numbers["error"]: Grouping.ALL})

        proto = Numbers.protobuf_topology
        assert (proto.name, Numbers.topology_name) == ("Numbers", "Numbers")
        assert proto.id.startswith("Numbers")
        config = {kv.key: kv for kv in proto.topology_config.kvs}
        assert config["topology.message.timeout.secs"].value == "7"
        assert config["mine.flag"].value == "true"
        assert config["mine.list"].type == topology_pb2.JSON_VALUE
        assert config["mine.list"].value == "[1, 2]"
        (spout,) = proto.spouts
        assert spout.comp.class_name == f"{__name__}.NumberSpout"
        assert spout.comp.spec == topology_pb2.PYTHON_CLASS_NAME
        assert {kv.key: kv.value for kv in spout.comp.config.kvs} == {
            "topology.component.parallelism": "3",
            "mine.ratio": "-12.4",
        }
        assert [(o.stream.id, [k.key for k in o.schema.keys], o.direct) for o in spout.outputs] == [
            ("default", ["number"], False),
            ("error", ["reason"], False),
            ("one", ["to"], True),
        ]
        (bolt,) = proto.bolts
        assert [(i.stream.component_name, i.stream.id, i.gtype) for i in bolt.inputs] == [
            ("numbers", "default", topology_pb2.FIELDS),
            ("numbers", "error", topology_pb2.ALL),
        ]
        assert [k.key for k in bolt.inputs[0].grouping_fields.keys] == ["number"]

    def test_a_builder_and_a_class_make_the_same_message(self) -> None:
        class Numbers(Topology):
            numbers = NumberSpout.spec(par=2)
            sums = SumBolt.spec(inputs=[numbers])

        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs=[numbers])
        built = builder.build().protobuf_topology
        built.id = Numbers.protobuf_topology.id
        assert built == Numbers.protobuf_topology

    def test_the_defaults_are_herons_but_pending_tuples_are_left_to_the_engine(self) -> None:
        builder, _ = builder_with_spout()
        config = LogicalPlan.from_proto(builder.build().protobuf_topology).config
        assert config == {
            "topology.debug": "false",
            "topology.stmgrs": "1",
            "topology.message.timeout.secs": "30",
            "topology.component.parallelism": "1",
            "topology.reliability.mode": "ATMOST_ONCE",
            "topology.enable.message.timeouts": "true",
        }
        assert TOPOLOGY_MAX_SPOUT_PENDING not in config

    def test_a_list_of_inputs_is_shuffled(self) -> None:
        builder, numbers = builder_with_spout()
        spec = builder.add_bolt("sums", SumBolt, 1, inputs=[numbers, numbers["error"]])
        assert [i.gtype for i in spec.get_protobuf().inputs] == [Grouping.SHUFFLE, Grouping.SHUFFLE]

    @pytest.mark.parametrize(
        ("grouping", "kind"),
        [
            (Grouping.SHUFFLE, GroupingKind.SHUFFLE),
            (Grouping.ALL, GroupingKind.ALL),
            (Grouping.LOWEST, GroupingKind.LOWEST),
            (Grouping.GLOBAL, GroupingKind.LOWEST),
            (Grouping.NONE, GroupingKind.NONE),
            (Grouping.LOCAL_OR_SHUFFLE, GroupingKind.LOCAL_OR_SHUFFLE),
            (Grouping.fields("number"), GroupingKind.FIELDS),
            (Grouping.fields(["number"]), GroupingKind.FIELDS),
            (Grouping.partial_key("number"), GroupingKind.PARTIAL_KEY),
            (Grouping.custom(FirstTask()), GroupingKind.CUSTOM),
            (Grouping.custom("module.FirstTask"), GroupingKind.CUSTOM),
        ],
    )
    def test_every_grouping_arrives_in_the_plan(self, grouping: object, kind: GroupingKind) -> None:
        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs={numbers: grouping})
        plan = LogicalPlan.from_proto(builder.build().protobuf_topology)
        (decl,) = plan.components["sums"].inputs
        assert decl.grouping is kind

    def test_a_direct_stream_is_read_directly(self) -> None:
        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs={numbers["one"]: Grouping.DIRECT})
        plan = LogicalPlan.from_proto(builder.build().protobuf_topology)
        assert plan.components["numbers"].outputs["one"].direct
        assert plan.components["sums"].inputs[0].grouping is GroupingKind.DIRECT

    def test_a_custom_grouping_travels_as_object_or_path(self) -> None:
        assert isinstance(pickle.loads(Grouping.custom(FirstTask()).python_serialized), FirstTask)
        assert pickle.loads(Grouping.custom("a.b.C").python_serialized) == "a.b.C"
        assert Grouping.custom("a.b.C").class_path == "a.b.C"

    def test_declaring_twice_leaves_the_classes_streams_alone(self) -> None:
        declared = Stream(fields=["b"])

        class Fields(Spout):
            outputs = ["a", declared]  # noqa: RUF012

        for _ in range(2):
            spec = Fields.spec(name="s", optional_outputs=["c"])
            assert [k.key for k in spec.get_protobuf().outputs[0].schema.keys] == ["a", "b", "c"]
        assert declared.fields == ["b"]

    def test_a_nested_class_is_named_by_its_whole_path(self) -> None:
        assert Outer.InnerBolt.spec().python_class_path == f"{__name__}.Outer.InnerBolt"

    def test_stream_ids_with_equal_names_are_equal(self) -> None:
        spec = NumberSpout.spec(name="numbers")
        assert spec["error"] == GlobalStreamId("numbers", "error")
        assert len({spec["error"], GlobalStreamId("numbers", "error")}) == 1
        assert str(spec["error"]) == "numbers:error"
        assert NumberSpout.spec()["error"] != NumberSpout.spec()["error"]


class TestRefusals:
    def test_a_topology_needs_a_spout(self) -> None:
        with pytest.raises(ValueError, match="A Topology requires at least one Spout"):
            type("Empty", (Topology,), {})

    def test_an_invalid_topology_is_a_topology_error_too(self) -> None:
        assert issubclass(InvalidTopologyError, TopologyError)

    def test_a_spout_needs_an_output_and_a_bolt_an_input(self) -> None:
        class Silent(Spout):
            pass

        with pytest.raises(ValueError, match="at least one output"):
            TopologyType.add_spout_specs(Silent.spec(name="s"), {})
        with pytest.raises(ValueError, match="at least one input"):
            TopologyType.add_bolt_specs(SumBolt.spec(name="b"), {})

    def test_two_components_cannot_share_a_name(self) -> None:
        builder, _ = builder_with_spout()
        with pytest.raises(ValueError, match="two components are named 'numbers'"):
            builder.add_spout("numbers", NumberSpout, 1)
        specs = {"a": NumberSpout.spec(name="same"), "b": SumBolt.spec(name="same")}
        with pytest.raises(ValueError, match="two components are named 'same'"):
            TopologyType.class_dict_to_specs(specs)

    @pytest.mark.parametrize("name", ["config", "a/b", "../x", "", "-dash", "x" * 129])
    def test_names_that_cannot_be_part_of_a_path_are_refused(self, name: str) -> None:
        spec = NumberSpout.spec(name=name)
        with pytest.raises((ConfigError, TopologyError)):
            _built(spec)

    def test_an_unknown_stream_names_the_nearest(self) -> None:
        with pytest.raises(ValueError, match=r"no stream 'eror'; did you mean 'error'\?"):
            NumberSpout.spec(name="numbers")["eror"]

    def test_an_unknown_field_names_the_nearest(self) -> None:
        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs={numbers: Grouping.fields("nmber")})
        with pytest.raises(ValueError, match=r"did you mean 'number'\?"):
            builder.build()

    def test_a_class_made_inside_a_function_is_refused(self) -> None:
        class Local(Spout):
            outputs = ("a",)

        builder = TopologyBuilder("Numbers")
        builder.add_spout("local", Local, 1)
        with pytest.raises(ValueError, match="inside a function"):
            builder.build()

    @pytest.mark.parametrize("grouping", [99, True, None, "shuffle", Grouping.FIELDS(2, [])])
    def test_what_is_no_grouping_is_refused(self, grouping: object) -> None:
        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs={numbers: grouping})
        with pytest.raises(ValueError, match="is not a grouping"):
            builder.build()

    def test_a_stream_is_read_once(self) -> None:
        builder, numbers = builder_with_spout()
        builder.add_bolt("sums", SumBolt, 1, inputs=[numbers, numbers["default"]])
        with pytest.raises(ValueError, match="twice"):
            builder.build()

    @pytest.mark.parametrize("par", [0, -1])
    def test_parallelism_is_at_least_one(self, par: int) -> None:
        with pytest.raises(ValueError, match="par must be at least 1"):
            NumberSpout.spec(par=par)

    def test_streams_and_groupings_check_their_arguments(self) -> None:
        for wrong in ({"fields": "word"}, {"fields": [1]}, {"name": None}, {"direct": 1}):
            with pytest.raises(TypeError):
                Stream(**wrong)  # type: ignore[arg-type]  # that is the point
        for call in (Grouping.fields, Grouping.partial_key):
            with pytest.raises(ValueError, match="at least one field"):
                call()
            with pytest.raises(TypeError):
                call(1)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(TypeError):
            Grouping.custom(object())  # type: ignore[arg-type]  # that is the point
        with pytest.raises(NotImplementedError):
            Grouping.custom_serialized(b"java")


class TestWriting:
    def options(self, monkeypatch: pytest.MonkeyPatch, directory: Path, *more: str) -> None:
        written = str(directory).replace(" ", "%%%%")
        monkeypatch.setenv("HERON_OPTIONS", ",".join([f"cmdline.topologydefn.tmpdirectory={written}", *more]))

    def test_the_definition_is_written_where_the_submitter_asks_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = tmp_path / "with space"
        directory.mkdir()
        more = ("cmdline.topology.initial.state=PAUSED", "cmdline.topology.name=Renamed")
        self.options(monkeypatch, directory, *more)
        builder, _ = builder_with_spout()
        builder.build_and_submit()
        proto = topology_pb2.Topology.FromString((directory / "Renamed.defn").read_bytes())
        assert proto.name == "Renamed"
        assert proto.state == topology_pb2.PAUSED

    def test_without_a_submitter_a_topology_can_be_declared_but_not_written(self) -> None:
        builder, _ = builder_with_spout()
        built = builder.build()
        with pytest.raises(TopologyError, match="heron submit"):
            built.write()

    def test_inside_an_instance_nothing_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options(monkeypatch, tmp_path)
        monkeypatch.setenv("HERON_INSTANCE", "1")
        builder, _ = builder_with_spout()
        builder.build_and_submit()
        assert not list(tmp_path.iterdir())

    def test_options_are_read_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(RuntimeError):
            TopologyType.get_heron_options_from_env()
        monkeypatch.setenv("HERON_OPTIONS", "cmdline.key.1=/tmp/d,cmdline.with.space=hello%%%%world")
        assert TopologyType.get_heron_options_from_env() == {
            "cmdline.key.1": "/tmp/d",
            "cmdline.with.space": "hello world",
        }
        monkeypatch.setenv("HERON_OPTIONS", "nonsense")
        with pytest.raises(ValueError, match="nonsense"):
            TopologyType.get_heron_options_from_env()


class TestSubclassesOfTheBuilder:
    def test_a_builder_of_the_users_makes_its_own_class_of_what_was_added(self) -> None:
        class Auditing(TopologyBuilder):
            def create_topology(self) -> TopologyType:
                self.add_bolt("audit", SumBolt, 1, inputs=list(self._specs.values()))
                return TopologyType(self.topology_name, (Topology,), self._construct_topo_class_dict())

        builder = Auditing("Numbers")
        builder.add_spout("numbers", NumberSpout, 2)
        builder.set_config({"topology.debug": True})
        built = builder.create_topology()
        assert [bolt.comp.name for bolt in built.protobuf_topology.bolts] == ["audit"]  # type: ignore[attr-defined]
        assert {kv.key: kv.value for kv in built.protobuf_topology.topology_config.kvs}["topology.debug"] == "true"  # type: ignore[attr-defined]


def _built(*specs: HeronComponentSpec) -> type[Topology]:
    builder = TopologyBuilder("Numbers")
    builder.add_spec(*specs)
    return builder.build()
