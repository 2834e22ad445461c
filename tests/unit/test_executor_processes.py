"""Which processes a container has."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.config import EngineConfig, ShellConfig
from heronpy.executor import Command, process_table
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec

NEEDED = Resources(1.0, 1 << 20, 0)
PLAN = PackingPlan("packing", (ContainerPacking(1, (InstancePacking("word", 1, 0, NEEDED),), NEEDED),))


def commands(tmp_path: Path, container: int, checkpoints: str, *, shell: bool = False) -> tuple[Command, ...]:
    launch = Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="tests",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path)),
        dir=tmp_path,
        checkpoints=checkpoints,
        config=EngineConfig(shell=ShellConfig(enabled=shell)),
    )
    return process_table(launch, container, PLAN)


def stages(tmp_path: Path, container: int, checkpoints: str) -> dict[str, int]:
    return {command.id: command.stage for command in commands(tmp_path, container, checkpoints)}


@pytest.mark.parametrize("container", [0, 1])
def test_a_topology_without_checkpoints_has_no_checkpoint_manager(tmp_path: Path, container: int) -> None:
    processes = stages(tmp_path, container, "")
    assert processes.keys() == {
        f"metricsmgr-{container}",
        *(["tmaster"] if container == 0 else ["stmgr-1", "container_1_word_1"]),
    }


def test_every_container_of_one_with_checkpoints_has_a_checkpoint_manager(tmp_path: Path) -> None:
    assert set(stages(tmp_path, 0, "/c")) - set(stages(tmp_path, 0, "")) == {"ckptmgr-0"}
    processes = stages(tmp_path, 1, "/c")
    assert set(processes) - set(stages(tmp_path, 1, "")) == {"ckptmgr-1"}
    by_end = sorted(processes, key=lambda id: processes[id])
    assert by_end == ["container_1_word_1", "ckptmgr-1", "stmgr-1", "metricsmgr-1"]
    assert stages(tmp_path, 2, "/c") == {}


@pytest.mark.parametrize("container", [0, 1])
def test_a_heron_shell_ends_after_all_others_of_its_container(tmp_path: Path, container: int) -> None:
    processes = {command.id: command.stage for command in commands(tmp_path, container, "/c", shell=True)}
    assert set(processes) - set(stages(tmp_path, container, "/c")) == {f"heron-shell-{container}"}
    last = processes.pop(f"heron-shell-{container}")
    assert all(stage < last for stage in processes.values())


@pytest.mark.parametrize(
    ("present", "added"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.arena_max=1", "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", None),
    ],
)
def test_instances_with_checkpoints_have_large_tables_in_huge_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: str | None, added: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if present is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", present)
    for checkpoints, expected in (("", None), ("/c", added)):
        found = {command.id: command.env.get("GLIBC_TUNABLES") for command in commands(tmp_path, 1, checkpoints)}
        assert found.pop("container_1_word_1") == expected
        assert set(found.values()) == {None}
