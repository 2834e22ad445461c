"""Where cgroups are made and what is written to them. Version 2 only in directories that look like it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from heronpy.config import EngineConfig, ExecutorConfig
from heronpy.errors import ConfigError, UnavailableError
from heronpy.health import HealthState, Observed, RestartLog, assess
from heronpy.limits import Cgroups, Limiter, Limits, Overrun, hierarchies, remove_cgroups
from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.runtime import Launch, StatemgrSpec

MIB = 1024**2
V1_MOUNTS = """\
29 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 29 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 29 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 29 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1_OWN = "5:memory:/user/me\n3:cpu,cpuacct:/\n0::/user/me\n"


def test_version_1_has_a_tree_for_each_controller_and_groups_are_made_below_the_own_one() -> None:
    found = {tuple(tree.controllers): (tree.version, str(tree.root)) for tree in hierarchies(V1_MOUNTS, V1_OWN)}
    assert found == {
        ("cpu",): (1, "/sys/fs/cgroup/cpu,cpuacct"),
        ("memory",): (1, "/sys/fs/cgroup/memory/user/me"),
    }


def test_another_parent_is_below_the_root_of_each_tree() -> None:
    roots = {str(tree.root) for tree in hierarchies(V1_MOUNTS, V1_OWN, "/heron/jobs")}
    assert roots == {"/sys/fs/cgroup/cpu,cpuacct/heron/jobs", "/sys/fs/cgroup/memory/heron/jobs"}


def test_in_a_container_that_has_only_a_part_of_the_tree_mounted_paths_are_from_there() -> None:
    mounts = "33 29 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    (tree,) = hierarchies(mounts, "5:memory:/docker/abc/job\n")
    assert str(tree.root) == "/sys/fs/cgroup/memory/job"


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A directory with the files that a delegated cgroup of version 2 has."""
    mount = tmp_path / "cgroup"
    mount.mkdir()
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (mount / "cgroup.subtree_control").write_text("")
    (mount / "cgroup.procs").write_text("")
    return mount


def test_version_2_gets_memory_and_cpu_in_one_tree(unified: Path, tmp_path: Path) -> None:
    trees = hierarchies(f"39 29 0:36 / {unified} rw - cgroup2 cgroup2 rw\n", "0::/\n", "/heron")
    (tree,) = trees
    assert (tree.version, tree.controllers, tree.root) == (2, {"memory", "cpu"}, unified / "heron")
    groups = Cgroups(trees, "heron-0-1", tmp_path / "record")
    groups.make("container_1_count_3", Limits(512 * MIB, 0.5))
    groups.add("container_1_count_3", 4711)
    for above in (unified, unified / "heron", unified / "heron/heron-0-1"):
        assert (above / "cgroup.subtree_control").read_text() == "+cpu +memory"
    group = unified / "heron/heron-0-1/container_1_count_3"
    assert {path.name: path.read_text() for path in group.iterdir()} == {
        "memory.max": str(512 * MIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "50000 100000",
        "cgroup.procs": "4711",
    }
    assert (tmp_path / "record").read_text() == f"{unified}/heron/heron-0-1\n"
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n")
    (group / "memory.peak").write_text(f"{512 * MIB}\n")
    assert groups.oom_kills("container_1_count_3") == 1
    assert groups.peak_bytes("container_1_count_3") == 512 * MIB


def test_without_the_controller_of_memory_there_are_no_cgroups(unified: Path, tmp_path: Path) -> None:
    (unified / "cgroup.controllers").write_text("hugetlb\n")
    trees = hierarchies(f"39 29 0:36 / {unified} rw - cgroup2 cgroup2 rw\n", "0::/\n")
    with pytest.raises(UnavailableError, match="no cgroup hierarchy has the memory controller"):
        Cgroups(trees, "heron-0-1", tmp_path / "record")


def test_a_tree_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    mounts = f"33 29 0:30 / {tmp_path}/file rw - cgroup cgroup rw,memory\n"
    with pytest.raises(UnavailableError, match=r"no cgroup can be made in .*/file"):
        Cgroups(hierarchies(mounts, "5:memory:/\n"), "heron-0-1", tmp_path / "record")


def limited(limits: str, *, ram_given: bool, cpu_given: bool = False) -> dict[str, Limits]:
    config = EngineConfig(executor=ExecutorConfig(limits=limits))
    spec = StatemgrSpec(root="/nowhere")
    launch = Launch(
        topology="t",
        topology_id="t-1",
        cluster="c",
        role="r",
        environ="e",
        statemgr=spec,
        dir=Path("/t"),
        config=config,
    )
    resources = Resources(0.5, 512 * MIB, 0)
    instance = InstancePacking("count", 1, 0, resources, ram_given, cpu_given)
    limiter = Limiter(launch, 1)
    limiter.follow(PackingPlan("t", (ContainerPacking(1, (instance,), resources),)))
    return dict(limiter.limits)


def test_by_default_only_what_the_user_gave_ram_is_limited() -> None:
    id = "container_1_count_1"
    assert limited("auto", ram_given=False, cpu_given=True) == {}
    assert limited("auto", ram_given=True) == {id: Limits(512 * MIB, 0.0)}
    assert limited("auto", ram_given=True, cpu_given=True) == {id: Limits(512 * MIB, 0.5)}
    assert limited("off", ram_given=True) == {}
    assert limited("cgroup", ram_given=False) == limited("rlimit", ram_given=False) == {id: Limits(512 * MIB, 0.5)}


@pytest.mark.parametrize(
    "spoilt", [b"/heron-\xff\n", b"/heron-" + b"x" * 5000, b"/heron-\0\n", b"/heron-1\n" * 9000, None]
)
def test_a_record_that_user_code_has_spoilt_names_nothing(spoilt: bytes | None, tmp_path: Path) -> None:
    if spoilt is None:
        os.mkfifo(tmp_path / "cgroups")
    else:
        (tmp_path / "cgroups").write_bytes(spoilt)
    remove_cgroups(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("heron.executor.limits", "yes", "must be auto, cgroup, rlimit or off, not 'yes'"),
        ("heron.executor.cgroup.parent", "/a/../b", r"must not contain '\.\.'"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineConfig.from_keys({key: value})


def test_the_health_names_an_instance_that_was_over_its_ram() -> None:
    log = RestartLog()
    log.observe("__recent-restarts/container_1_count_3", 1, 10)
    log.observe("__over-ram/container_1_count_3", 512 * MIB, 10)
    assert log.over_ram(11) == {"container_1_count_3": 512 * MIB}
    over_ram = {"container_1_count_3": str(Overrun(512 * MIB, 512 * MIB))}
    observed = Observed(restarts=log.recent(11), over_ram=over_ram)
    (reason,) = assess(observed).reasons
    assert (reason.state, reason.text) == (
        HealthState.DEGRADED,
        "restarted in the last 10 min: container_1_count_3 (killed: used 512 MB of its 512 MB)",
    )
    looping = msgspec.structs.replace(observed, restarts={"container_1_count_3": 4})
    (reason,) = assess(looping).reasons
    assert reason.text == (
        "crash loop in the last 10 min: container_1_count_3 (4 restarts; killed: used 512 MB of its 512 MB)"
    )
    log.observe("__over-ram/container_1_count_3", 0, 12)
    assert log.over_ram(13) == {}, "it has died of something else since"
