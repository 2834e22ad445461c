"""What a dry run prints of a plan, and of the difference between two."""

from __future__ import annotations

import json

import pytest

from heronpy.cli.parts import DryRunFormat, show_plan
from heronpy.packing import RoundRobinPacking
from heronpy.plan import Component, LogicalPlan, PackingPlan
from heronpy.proto import topology_pb2

COMPONENTS = {
    "words": Component("words", True, "m.C", 2, {}, (), {}),
    "count": Component("count", False, "m.C", 3, {}, (), {}),
}
LOGICAL = LogicalPlan("words-1", "words", COMPONENTS, {"topology.stmgrs": 2}, topology_pb2.Topology())
BEFORE = RoundRobinPacking(LOGICAL).pack()
"""Tasks 1 to 5: 1, 3 and 5 in container 1, 2 and 4 in container 2."""
AFTER = RoundRobinPacking(LOGICAL).repack(BEFORE, {"count": -1, "words": 2}, containers=3)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> str:
    show_plan(LOGICAL, AFTER, DryRunFormat.RAW, before=BEFORE)
    return capsys.readouterr().out


def test_a_plan_is_printed_with_instances_resources_and_container_0(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(LOGICAL, BEFORE, DryRunFormat.RAW)
    assert capsys.readouterr().out.splitlines() == [
        "topology words",
        "containers 2",
        "instances 5",
        "total 8 cpu, 4608 MB ram, 5632 MB disk",
        "container 0, the Topology Master's: 1 cpu, 1024 MB ram, 1024 MB disk",
        "container 1: 4 cpu, 2048 MB ram, 2560 MB disk",
        "  words task 1: 1 cpu, 512 MB ram, 512 MB disk",
        "  count task 3: 1 cpu, 512 MB ram, 512 MB disk",
        "  count task 5: 1 cpu, 512 MB ram, 512 MB disk",
        "container 2: 3 cpu, 1536 MB ram, 2048 MB disk",
        "  words task 2: 1 cpu, 512 MB ram, 512 MB disk",
        "  count task 4: 1 cpu, 512 MB ram, 512 MB disk",
    ]


def test_an_update_names_what_is_added_and_removed(printed: str) -> None:
    assert "- count task 5: 1 cpu, 512 MB ram, 512 MB disk: removed" in printed
    assert "container 3 added: 3 cpu" in printed
    assert "+ words task 6: 1 cpu, 512 MB ram, 512 MB disk: added" in printed
    assert "+ words task 7: 1 cpu, 512 MB ram, 512 MB disk: added" in printed
    assert "unchanged containers 1" in printed
    assert "container 2" not in printed


def test_an_instance_that_moves_is_named_where_it_leaves_and_where_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = RoundRobinPacking(LOGICAL).repack(BEFORE, {}, containers=1)
    show_plan(LOGICAL, one, DryRunFormat.RAW, before=BEFORE)
    printed = capsys.readouterr().out
    assert "container 2 removed: " in printed
    assert "> count task 4: 1 cpu, 512 MB ram, 512 MB disk: moved from container 2" in printed
    assert "> count task 4: 1 cpu, 512 MB ram, 512 MB disk: moved to container 1" in printed


@pytest.mark.parametrize("format", [DryRunFormat.TABLE, DryRunFormat.COLORED_TABLE])
def test_tables_have_a_column_for_the_change(format: DryRunFormat, capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(LOGICAL, AFTER, format, before=BEFORE)
    printed = capsys.readouterr().out
    assert "change" in printed
    assert "removed" in printed
    assert ("\x1b[" in printed) == (format is DryRunFormat.COLORED_TABLE)


def changes(before: PackingPlan, after: PackingPlan, capsys: pytest.CaptureFixture[str]) -> list[tuple[object, ...]]:
    show_plan(LOGICAL, after, DryRunFormat.JSON, before=before)
    found = json.loads(capsys.readouterr().out)["changes"]
    return sorted((one["task_id"], one["change"], one["from"], one["to"]) for one in found)


def test_json_has_every_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert changes(BEFORE, AFTER, capsys) == [(5, "removed", 1, None), (6, "added", None, 3), (7, "added", None, 3)]
    one = RoundRobinPacking(LOGICAL).repack(BEFORE, {}, containers=1)
    assert changes(BEFORE, one, capsys) == [(2, "moved", 2, 1), (4, "moved", 2, 1)]
    assert changes(BEFORE, BEFORE, capsys) == []
