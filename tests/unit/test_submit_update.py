"""What an update changes, and what is refused before anything is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import Bolt, Grouping, Spout, StatefulComponent, TopologyBuilder
from heronpy.cli.parts import parallelism_of
from heronpy.errors import TopologyError, UnavailableError, UsageError
from heronpy.loader import Definition
from heronpy.proto import tmaster_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import Update, plan_update, plans, prepare, update


class Words(Spout, StatefulComponent):
    outputs = ("word",)


class Count(Bolt):
    pass


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., Update]:
    """Plans an update of a topology of a spout and two counting tasks, of which only the plans exist."""
    builder = TopologyBuilder("counting")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("count", Count, 2, {words: Grouping.fields("word")})
    keys = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.key.groups": 8}
    submission = prepare(Definition.of(builder.build()), home=tmp_path, role="me", properties=keys)
    launch = submission.launch
    with open_statemgr(launch.statemgr) as state:
        state.set(Kind.TOPOLOGIES, launch.topology, submission.logical.proto.SerializeToString())
        state.set(Kind.PACKINGPLANS, launch.topology, submission.packing.to_proto().SerializeToString())

    def plan(tasks: dict[str, int], containers: int | None = None, *, write: bool = False, **more: Any) -> Update:
        update = plan_update(launch, tasks, containers, home=tmp_path, **more)
        if write:
            with open_statemgr(launch.statemgr) as state:
                state.set(Kind.PACKINGPLANS, launch.topology, update.after.to_proto().SerializeToString())
            assert plans(launch)[0].components["count"].parallelism == update.after.parallelism["count"]
        return update

    return plan


def test_what_changes_is_said_and_the_plans_of_a_topology_have_the_numbers_that_it_has_now(planned: Any) -> None:
    assert planned({"count": 5}, 2, write=True).changes == ["count: 2 → 5 tasks", "containers: 1 → 2"]
    assert planned({"count": 3}, write=True).changes == ["count: 5 → 3 tasks"]
    tasks = {i.task_id for c in planned({"count": 4}).after.containers for i in c.instances if i.component == "count"}
    assert tasks == {2, 3, 4, 7}, "5 and 6 were used before"


def test_updates_may_be_planned_by_another_algorithm(planned: Any) -> None:
    by_default = planned({"count": 5}).after
    assert [len(c.instances) for c in by_default.containers] == [3, 3]
    keys = {"heron.class.repacking.algorithm": "org.apache.heron.packing.binpacking.FirstFitDecreasingPacking"}
    assert [len(c.instances) for c in planned({"count": 5}, properties=keys).after.containers] == [4, 2]


def test_the_numbers_that_there_are_already_change_nothing(planned: Any) -> None:
    update = planned({"count": 2}, 1)
    assert (update.changes, update.after) == ([], update.before)


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ({"count": 9}, "bolt 'count' has 9 tasks, and keys are divided into 8 groups"),
        ({"words": 9}, "'words' cannot have 9 tasks: its state is divided into 8 key groups"),
        ({"counts": 3}, "unknown component 'counts'.*count"),
        ({"count": 0}, "count: parallelism must be at least 1"),
    ],
)
def test_a_number_that_a_component_cannot_have_is_refused_by_name(
    planned: Any, tasks: dict[str, int], said: str
) -> None:
    with pytest.raises(TopologyError, match=said):
        planned(tasks)


def test_the_command_line_names_components_and_numbers() -> None:
    assert parallelism_of(["count:8", "a:b:1"]) == {"count": 8, "a:b": 1}
    for wrong in (["count"], ["count:"], [":1"], ["count:x"], ["count:0"], ["count:-1"], ["count:1", "count:2"]):
        with pytest.raises(UsageError, match="--component-parallelism"):
            parallelism_of(wrong)


def test_what_an_update_waits_for_has_no_exception_from_before_it(
    planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(_launch: Any) -> tmaster_pb2.StatusReply:
        reply = tmaster_pb2.StatusReply(ready=False)
        reply.instances.add(id="container_2_count_9")
        for source, error, at_ms in exceptions:
            report = reply.exceptions.add(source=source).report
            report.stacktrace, report.last_time_ms = f"Traceback\n{error}\n", at_ms
        return reply

    exceptions = [("container_1_count_2", "ValueError: long ago", int(time.time() * 1000) - 60_000)]
    monkeypatch.setattr("heronpy.submit._update.status", status)
    monkeypatch.setattr("heronpy.submit._update.change_plan", lambda *_, **__: None)
    with pytest.raises(UnavailableError, match="it waits for container_2_count_9; see"):
        update(planned({"count": 3}), timeout_s=0)
    exceptions.append(("container_2_count_9", "OSError: just now", int(time.time() * 1000) + 60_000))
    with pytest.raises(UnavailableError, match=r"container_2_count_9 \(container_2_count_9: OSError: just now\); see"):
        update(planned({"count": 3}), timeout_s=0)
