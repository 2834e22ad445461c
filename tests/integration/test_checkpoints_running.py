"""Effectively once in all processes: what user code does wrong is undone by a restore in place. Deaths: see chaos."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from heron_tracker import local_state
from keyed_count_topology import KEYS, counts_in, keyed_count_topology
from test_tracker_state_managers import tracking

from heronpy.testing import LocalCluster, TopologyHandle, eventually, eventually_sync

FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
RATE = 1000


def check_exact(directory: Path, numbers: int, **less: int) -> None:
    counts = counts_in(directory)
    counts |= {key: counts.get(key, 0) + missing for key, missing in less.items()}
    assert sum(counts.values()) >= numbers, f"{sum(counts.values())} of {numbers}"
    assert set(counts.values()) == {numbers // KEYS}
    assert len(counts) == KEYS


async def check_what_operators_see(cluster: LocalCluster, topology: TopologyHandle) -> None:
    launch = topology.launch
    place = {"cluster": launch.cluster, "environ": launch.environ, "topology": launch.topology}
    async with tracking(local_state(cluster.home)) as tracker:

        async def seen() -> None:
            answer = await tracker.get("/topologies/checkpoints", params=place)
            assert answer.is_success, answer.text
            found = answer.json()
            assert (found["tmaster"], found["storage"], found["location"]) == ("ok", "ok", launch.checkpoints)
            committed = [one for one in found["checkpoints"] if one["state"] == "committed" and one["components"]]
            assert committed, found["checkpoints"]
            newest = committed[0]
            assert {name: one["tasks"] for name, one in newest["components"].items()} == {"numbers": 1, "count": 2}
            assert newest["size"] == sum(one["size"] for one in newest["components"].values()) > 0
            assert all(sum(one["by_task"]) == one["size"] for one in newest["components"].values())
            assert newest["duration_ms"] > 0
            assert len(found["rollbacks"]) == 1
            assert "an error of user code" in found["rollbacks"][0]["reason"]
            assert (found["restores"], found["interval_ms"]) == (1, 1000)

        await eventually(seen)


@pytest.mark.parametrize("how", ["raise", pytest.param("fail", marks=pytest.mark.long)])
def test_an_error_of_user_code_is_undone_by_a_restore_in_place(tmp_path: Path, how: str) -> None:
    numbers = 4 * RATE
    config = {"test.error.at": str(2 * RATE), "test.error": how}
    program = keyed_count_topology(tmp_path, numbers=numbers, rate=RATE, **config)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(program).wait_running()
        processes = topology.processes()
        eventually_sync(lambda: check_exact(tmp_path, numbers))
        assert (tmp_path / "failed").exists()
        assert topology.processes() == processes, "no process is replaced"
        log = topology.logs("tmaster")
        if how == "raise":
            asyncio.run(check_what_operators_see(cluster, topology))
    assert "is committed after" in log
    assert ("was failed" if how == "fail" else "an error of user code") in log


def test_checkpoints_that_are_lost_while_all_run_are_made_anew_and_all_is_exact(tmp_path: Path) -> None:
    numbers = 12 * RATE
    program = keyed_count_topology(tmp_path, numbers=numbers, rate=RATE)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(program).wait_running()
        eventually_sync(lambda: committed(topology))
        shutil.rmtree(cluster.home / "checkpoints")
        made_anew(topology)
        kill_a_counting_task(topology)
        eventually_sync(lambda: check_exact(tmp_path, numbers))


@pytest.mark.long
def test_a_lost_object_is_noticed_although_nothing_changes_any_more(tmp_path: Path) -> None:
    program = keyed_count_topology(tmp_path, numbers=RATE, rate=RATE)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(program).wait_running()
        eventually_sync(lambda: check_exact(tmp_path, RATE))
        before = topology.status().checkpoints.committed
        eventually_sync(lambda: committed(topology, before + 2))  # the second has begun when all was counted
        bases = (cluster.home / "checkpoints").rglob("objects/*count*/*.base")
        max(bases, key=lambda path: path.name).unlink()  # of the newest checkpoint that has one, so all later need it
        made_anew(topology)
        for results in tmp_path.glob("counts-*.json"):
            results.unlink()
        kill_a_counting_task(topology)
        eventually_sync(lambda: check_exact(tmp_path, RATE))


def made_anew(topology: TopologyHandle) -> None:
    """The loss is noticed, and there are checkpoints again; nothing was rolled back."""

    def said() -> None:
        assert "is lost, so the next has the whole state" in topology.logs("tmaster")

    eventually_sync(said)
    before = topology.status().checkpoints
    eventually_sync(lambda: committed(topology, before.committed + 2))
    found = topology.status().checkpoints
    assert (found.restores, found.problem) == (0, "")
    assert "has the whole state, because the one before was lost" in found.fallback


def kill_a_counting_task(topology: TopologyHandle) -> None:
    os.kill(next(pid for name, pid in topology.processes().items() if "_count_" in name), signal.SIGKILL)

    def restored() -> None:
        assert topology.status().checkpoints.restores == 1

    eventually_sync(restored)


def committed(topology: TopologyHandle, least: int = 1) -> None:
    assert topology.status().checkpoints.committed >= least


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("always", "component 'count', a tuple of pass:default with key ('key 0',)"),
        ("unreadable", "component 'count', a tuple of pass:default, from task "),
        ("compressed", "cannot be deserialized by keyed_count_topology.Compressing: ValueError"),
        ("unsendable", "component 'numbers'"),
    ],
)
def test_a_tuple_that_always_fails_is_set_aside_and_all_others_count_once(tmp_path: Path, how: str, named: str) -> None:
    numbers = 6 * RATE
    config = {"topology.stmgrs": 1, "test.error.at": str(3 * RATE), "test.error": how}
    program = keyed_count_topology(tmp_path, numbers=numbers, rate=RATE, **config)
    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(program).wait_running()
        eventually_sync(lambda: check_exact(tmp_path, numbers, **{"key 0": 1}))
        log = topology.logs("tmaster")
    assert "a tuple is set aside after 3 rollbacks" in log
    assert named in log
