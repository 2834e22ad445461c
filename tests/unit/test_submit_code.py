"""New code for a running topology: what fits, what is healthy, and what a plan says of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.errors import NotFoundError, StateError, TopologyError
from heronpy.loader import Definition, define, stage, version_of
from heronpy.plan import CodeTrial, CodeVersion, LogicalPlan, PackingPlan
from heronpy.proto import plan_pb2, tmaster_pb2, topology_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import CodeUpdate, plan_code_update, prepare
from heronpy.submit.parts import CodeHealth, misfits_of

TASKS = {"words": 1, "count": 2}


class Words(Spout):
    outputs = ("word",)


class Pairs(Spout):
    outputs = ("word", "weight")


class Count(Bolt):
    pass


class CountOtherwise(Bolt):
    pass


def plan(
    *, spout: type = Words, bolt: type = Count, name: str = "count", tasks: int = 2, grouping: Any = None, **config: Any
) -> LogicalPlan:
    builder = TopologyBuilder("counting")
    words = builder.add_spout("words", spout, 1)
    builder.add_bolt(name, bolt, tasks, {words: grouping or Grouping.fields("word")})
    builder.set_config(config)
    return LogicalPlan.from_proto(Definition.of(builder.build()).proto)


@pytest.mark.parametrize(
    "new",
    [
        {"bolt": CountOtherwise},
        {"my.own.key": "other"},
        {"tasks": 2},
        {"tasks": 3},  # as many as there are by now
    ],
)
def test_other_classes_and_values_fit(new: dict[str, Any]) -> None:
    assert [*misfits_of(plan(), plan(**new), {"words": 1, "count": 3})] == []


@pytest.mark.parametrize(
    ("new", "misfits"),
    [
        ({"name": "total"}, ["component 'count' is missing", "component 'total' is new"]),
        (
            {"spout": Pairs},
            ["stream words:default is (word), and (word, weight) in the new code"],
        ),
        ({"grouping": Grouping.SHUFFLE}, ["component 'count' reads words:default by another grouping"]),
        (
            {"tasks": 3},
            [
                "component 'count' has 2 tasks, and 3 in the new code: change that by --component-parallelism count:3 "
                "before"
            ],
        ),
        (
            {"topology.reliability.mode": "EFFECTIVELY_ONCE"},
            ["topology.reliability.mode is ATMOST_ONCE, and EFFECTIVELY_ONCE in the new code"],
        ),
    ],
)
def test_what_does_not_fit_is_named(new: dict[str, Any], misfits: list[str]) -> None:
    assert [*misfits_of(plan(), plan(**new), TASKS)] == misfits


_WITH_A_SECRET = """
from heronpy.api import Spout, TopologyBuilder

class Words(Spout):
    outputs = ("word",)

builder = TopologyBuilder("counting")
builder.add_spout("words", Words, 1)
builder.set_config({config})
builder.build_and_submit()
"""


@pytest.mark.parametrize(
    ("declared", "misfit"),
    [
        ({}, ""),  # `heron submit --secret` has
        ({"db": "file:/elsewhere"}, ""),  # which comes from where it was said to be at submit
        ({"db": "file:/db", "other": "file:/other"}, "topology.secrets is {'db': 'env:DB'}, and {"),
    ],
)
def test_new_code_has_the_secrets_that_the_topology_was_submitted_with(
    tmp_path: Path, declared: dict[str, str], misfit: str
) -> None:
    program = tmp_path / "counting.py"
    program.write_text(_WITH_A_SECRET.format(config={"my.url": "${secret:db}"}))
    submitted = prepare(define(str(program), "-", []), home=tmp_path, properties={"topology.secrets": {"db": "env:DB"}})
    with open_statemgr(submitted.launch.statemgr) as state:
        state.set(Kind.TOPOLOGIES, "counting", submitted.logical.proto.SerializeToString())
        state.set(Kind.PACKINGPLANS, "counting", submitted.packing.to_proto().SerializeToString())
    config = {"my.url": "x://${secret:db}", **({"topology.secrets": declared} if declared else {})}
    program.write_text(_WITH_A_SECRET.format(config=config))
    with pytest.raises(TopologyError, match=misfit) if misfit else nullcontext():
        planned = plan_code_update(submitted.launch, define(str(program), "-", []), home=tmp_path)
        assert planned.logical.config["topology.secrets"] == {"db": "env:DB"}


@pytest.mark.parametrize(
    ("again", "pending", "changed"),
    [
        ({}, "7", []),
        ({"topology.max.spout.pending": 9}, "9", ["topology.max.spout.pending: 7 → 9"]),
        ({"topology.my.password": "b"}, "7", []),  # it is another one, and is not shown
    ],
)
def test_what_the_command_line_of_the_submission_has_set_stays_and_changes_are_said(
    tmp_path: Path, again: dict[str, Any], pending: str, changed: list[str]
) -> None:
    program = tmp_path / "counting.py"
    program.write_text(_WITH_A_SECRET.format(config={}))
    given = {
        "topology.reliability.mode": "EFFECTIVELY_ONCE",
        "topology.max.spout.pending": 7,
        "topology.my.password": "a",
        "heron.statefulstorage.url": str(tmp_path / "checkpoints"),
    }
    submitted = prepare(define(str(program), "-", []), home=tmp_path, properties=given)
    with open_statemgr(submitted.launch.statemgr) as state:
        state.set(Kind.TOPOLOGIES, "counting", submitted.logical.proto.SerializeToString())
        state.set(Kind.PACKINGPLANS, "counting", submitted.packing.to_proto().SerializeToString())
    program.write_text(_WITH_A_SECRET.format(config={"my.own.key": "new"}))
    planned = plan_code_update(submitted.launch, define(str(program), "-", []), home=tmp_path, properties=again)
    assert planned.changes[2:] == changed
    config = planned.logical.config
    assert (config["topology.reliability.mode"], config["my.own.key"]) == ("EFFECTIVELY_ONCE", "new")
    assert config["topology.max.spout.pending"] == pending


@pytest.fixture
def packing(tmp_path: Path) -> PackingPlan:
    builder = TopologyBuilder("counting")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("count", Count, 2, {words: Grouping.fields("word")})
    return prepare(Definition.of(builder.build()), home=tmp_path, properties={"topology.stmgrs": 2}).packing


def test_a_plan_on_trial_has_both_codes_and_falls_back_or_is_accepted(packing: PackingPlan) -> None:
    first = CodeVersion("0" * 12, ("package",), plan().proto.SerializeToString())
    second = CodeVersion("1" * 12, ("package", "requirements"), plan(bolt=CountOtherwise).proto.SerializeToString())
    running = packing.on_trial(first, (1, 2), CodeTrial("", 30.0)).accepted()
    assert (running.versions, running.codes) == ({first.version}, (first,))
    half = running.on_trial(second, (1,), CodeTrial(first.version, 30.0))
    assert PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(half.to_proto().SerializeToString())) == half
    assert (half.code_of(1), half.code_of(2), half.codes) == (second, first, (first, second))
    whole = half.on_trial(second, (2,), CodeTrial(first.version, 30.0))
    assert (whole.accepted().codes, whole.accepted().versions) == ((second,), {second.version})
    assert whole.rolled_back() == half.rolled_back() == running
    assert (whole.runs_like(whole.accepted()), whole.runs_like(running)) == (True, False)


def test_a_container_sees_the_topology_as_its_own_code_defines_it(packing: PackingPlan) -> None:
    submitted = plan().proto
    submitted.id = "counting-1"
    code = CodeVersion("1" * 12, ("package",), plan(bolt=CountOtherwise).proto.SerializeToString())
    half = packing.on_trial(code, (1,), CodeTrial("", 30.0))
    seen = [LogicalPlan.from_proto(half.definition(submitted, container)) for container in (1, 2)]
    assert [one.components["count"].class_name.rpartition(".")[2] for one in seen] == ["CountOtherwise", "Count"]
    assert [one.id for one in seen] == ["counting-1", "counting-1"]


def test_a_version_is_the_name_of_a_directory_and_nothing_else() -> None:
    with pytest.raises(TopologyError, match="is not a version"):
        CodeVersion("../../etc/pass", (), b"")


def test_the_same_files_make_the_same_version(tmp_path: Path) -> None:
    versions = []
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name / "package" / "sub").mkdir(parents=True)
        (tmp_path / name / "package" / "sub" / "module.py").write_text(text)
        (tmp_path / name / "package" / "__pycache__").mkdir()
        (tmp_path / name / "package" / "__pycache__" / name).touch()
        versions.append(version_of(tmp_path / name))
    assert versions[0] == versions[1] != versions[2]
    assert len(versions[0]) == 12


def test_what_cannot_be_copied_into_a_package_is_named(tmp_path: Path) -> None:
    package = tmp_path / "words"
    package.mkdir()
    for name in ("a.csv", "b.csv"):
        (package / name).symlink_to("/nowhere")
    definition = Definition(topology_pb2.Topology(), None, {"words": package}, (".",), None)
    with pytest.raises(StateError, match=r"words/[ab]\.csv cannot be copied into the package, nor 1 others: .*No such"):
        stage(definition, tmp_path / "topology")


def test_other_requirements_are_other_code(tmp_path: Path) -> None:
    builder = TopologyBuilder("counting")
    builder.add_spout("words", Words, 1)
    definition = Definition.of(builder.build())
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("numpy==1.26\n")
    properties = {"heron.package.requirements": str(requirements)}
    submission = prepare(definition, home=tmp_path, properties=properties)
    stage(definition, tmp_path / "staged")
    launch = replace(submission.launch, code=version_of(tmp_path / "staged", str(requirements)))
    with open_statemgr(launch.statemgr) as state:
        state.set(Kind.TOPOLOGIES, "counting", submission.logical.proto.SerializeToString())
        state.set(Kind.PACKINGPLANS, "counting", submission.packing.to_proto().SerializeToString())
    assert plan_code_update(launch, definition, home=tmp_path).changes == []
    requirements.write_text("numpy==2.0\n")
    assert plan_code_update(launch, definition, home=tmp_path).changes != []
    requirements.unlink()
    with pytest.raises(NotFoundError, match=r"requirements file .*requirements.txt cannot be read: No such file"):
        plan_code_update(launch, definition, home=tmp_path)


def test_the_same_package_with_another_configuration_is_other_code(tmp_path: Path) -> None:
    program = tmp_path / "counting.py"
    program.write_text(_WITH_A_SECRET.format(config={}))
    definition = define(str(program), "-", [])
    given = {"topology.stmgrs": 1, "topology.my.list": [1, {"a": 2}], "topology.debug": True}
    submission = prepare(definition, home=tmp_path, properties=given)
    stage(definition, tmp_path / "staged")
    first = version_of(tmp_path / "staged")
    launch = replace(submission.launch, code=first)

    def write(packing: PackingPlan) -> None:
        with open_statemgr(launch.statemgr) as state:
            state.set(Kind.TOPOLOGIES, "counting", submission.logical.proto.SerializeToString())
            state.set(Kind.PACKINGPLANS, "counting", packing.to_proto().SerializeToString())

    def planned(**properties: Any) -> CodeUpdate:
        return plan_code_update(launch, definition, home=tmp_path, properties=properties)

    write(submission.packing)
    definition = define(str(program), "-", [])
    assert planned().changes == []
    other = {"topology.max.spout.pending": 9}
    second = planned(**other)
    assert (second.before, second.after) == (first, f"{first}-2")
    assert second.changes[0] == f"code: {first} → {first}-2"
    assert second.changes[-1] == "topology.max.spout.pending: (unset) → 9"
    code = CodeVersion(second.after, ("package",), second.logical.proto.SerializeToString())
    on_trial = submission.packing.on_trial(code, (1,), CodeTrial("", 30.0))
    write(on_trial)
    assert planned(**other).after == second.after, "it is not accepted yet, and rolled back before"
    write(on_trial.accepted())
    assert planned(**other).changes == []
    assert planned().after == f"{first}-3"
    program.write_text(_WITH_A_SECRET.format(config={"my.own.key": 1}))
    definition = define(str(program), "-", [])
    assert len(planned(**other).after) == len(first)


@pytest.fixture
def health() -> Callable[..., CodeHealth]:
    return lambda **given: CodeHealth(
        **{"components": frozenset(["count"]), "containers": frozenset([1]), "began_ms": 1000, **given}
    )


def status(*, ready: bool = True, phase: str = "running", **exception: Any) -> tmaster_pb2.StatusReply:
    reply = tmaster_pb2.StatusReply(ready=ready)
    reply.checkpoints.phase = phase
    reply.instances.add(id="container_1_count_2", attached=ready)
    if exception:
        values = {"source": "container_1_count_2", "component": "count", "last_time_ms": 2000} | exception
        named = reply.exceptions.add(source=values["source"], component=values["component"])
        named.report.stacktrace, named.report.last_time_ms = "Traceback\nValueError: no\n", values["last_time_ms"]
    return reply


def test_code_is_healthy_when_everything_has_run_for_some_time_without_a_break(health: Any) -> None:
    code = health()
    assert [code.observed(status(), at_s) for at_s in (0.0, 4.9)] == [False, False]
    assert not code.observed(status(ready=False), 5.0)
    assert code.problem == "it waits for container_1_count_2"
    assert [code.observed(status(), at_s) for at_s in (5.1, 10.0, 10.2)] == [False, False, True]
    assert not code.observed(status(phase="restoring"), 11.0)


def test_an_exception_of_the_new_code_ends_the_trial(health: Any) -> None:
    code = health()
    assert not code.observed(status(last_time_ms=2000), 100.0)
    assert code.failure == "container_1_count_2: ValueError: no"


@pytest.mark.parametrize(
    "exception",
    [
        {"last_time_ms": 999},  # of the old code
        {"source": "container_2_count_3"},  # of a container that has the old code
        {"source": "stmgr-1", "component": "__stmgr__"},
        {"component": "words"},  # whose exceptions only fail tuples
    ],
)
def test_other_exceptions_do_not(health: Any, exception: dict[str, Any]) -> None:
    code = health(stable_s=0.0)
    assert code.observed(status(**exception), 0.0)
    assert code.failure == ""
