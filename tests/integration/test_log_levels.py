"""`heron log-level`: changed while everything runs, kept over kills, taken back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from heron_command import heron_command

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

INTERVAL_S = 0.2
SPOUT = "container_1_ticking_1"
BOLT = "container_1_blocking_2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster({"heron.metrics.export.interval.ms": INTERVAL_S * 1000}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def levels(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Path(__file__).parent / "logging_topology.py", "Levels").wait_running()


@pytest.fixture(autouse=True)
def nothing_changed(cluster: LocalCluster, levels: TopologyHandle) -> Iterator[None]:
    yield
    levels.wait_running()
    for level in json.loads(heron(cluster, "log-level", "Levels", "--json").stdout)["levels"]:
        assert heron(cluster, "log-level", "Levels", level["target"], "configured").returncode == 0


def heron(cluster: LocalCluster, *args: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*args, home=cluster.home)


def set_level(cluster: LocalCluster, *words: str) -> None:
    done = heron(cluster, "log-level", "Levels", *words)
    assert done.returncode == 0, done.stderr


def logs_from_now(topology: TopologyHandle, process: str) -> Callable[[], str]:
    """What a process logs from now on."""
    before = len(topology.logs(process))
    return lambda: topology.logs(process)[before:]


def logs(new: Callable[[], str], text: str) -> Callable[[], None]:
    def check() -> None:
        assert text in new()

    return check


def falls_silent(topology: TopologyHandle, process: str, text: str, witness: str) -> Callable[[], None]:
    """A check that holds once the process has logged `witness` for a while without `text`."""
    seen = [len(topology.logs(process))]

    def check() -> None:
        everything = topology.logs(process)
        new, seen[0] = everything[seen[0] :], len(everything)
        assert witness in new
        assert text not in new

    return check


def another_logs_debug(topology: TopologyHandle, pid: int) -> Callable[[], None]:
    """A check that holds once another process than this one is the spout, and logs what only DEBUG shows."""

    def check() -> None:
        now = topology.processes().get(SPOUT, pid)
        assert now != pid
        assert any(f" {now} " in line and "own debug" in line for line in topology.logs(SPOUT).splitlines())

    return check


def test_a_component_logs_more_and_then_less_while_it_runs(cluster: LocalCluster, levels: TopologyHandle) -> None:
    new = logs_from_now(levels, SPOUT)
    set_level(cluster, "ticking", "DEBUG")
    eventually_sync(logs(new, "own debug"))
    eventually_sync(logs(new, "user debug"))
    assert "log level INFO -> DEBUG" in new()
    assert "quiet info" not in new()
    set_level(cluster, "ticking", "error")
    eventually_sync(logs(new, "log level DEBUG -> ERROR"))
    set_level(cluster, "ticking", "configured")
    eventually_sync(logs(new, "log level ERROR -> INFO"))
    _, _, below = new().partition("log level DEBUG -> ERROR\n")
    assert "own" not in below.partition("log level ERROR -> INFO\n")[0]
    eventually_sync(falls_silent(levels, SPOUT, "own debug", "own info"))


def test_user_code_that_blocks_does_not_hold_a_level_up(cluster: LocalCluster, levels: TopologyHandle) -> None:
    eventually_sync(logs(lambda: levels.logs(BOLT), "blocks"))
    new = logs_from_now(levels, BOLT)
    set_level(cluster, BOLT, "DEBUG")
    eventually_sync(logs(new, "user debug beside the block"))


def test_the_other_components_stay_as_they_are(cluster: LocalCluster, levels: TopologyHandle) -> None:
    new, other = logs_from_now(levels, SPOUT), logs_from_now(levels, BOLT)
    set_level(cluster, "ticking", "DEBUG")
    eventually_sync(logs(new, "own debug"))
    assert "-> DEBUG" not in other()


@pytest.mark.long  # as below, where the Topology Master is killed with it
def test_an_instance_that_was_killed_comes_back_with_the_level(cluster: LocalCluster, levels: TopologyHandle) -> None:
    set_level(cluster, "ticking", "DEBUG")
    eventually_sync(logs(logs_from_now(levels, SPOUT), "own debug"))
    pid = levels.processes()[SPOUT]
    os.kill(pid, signal.SIGKILL)
    eventually_sync(another_logs_debug(levels, pid))


def test_levels_outlive_the_topology_master(cluster: LocalCluster, levels: TopologyHandle) -> None:
    set_level(cluster, "ticking", "DEBUG", "--for", "1h")
    master, instance = (levels.processes()[name] for name in ("tmaster", SPOUT))
    os.kill(master, signal.SIGKILL)
    os.kill(instance, signal.SIGKILL)
    eventually_sync(another_logs_debug(levels, instance))  # not the one before, which may have got as far, too

    def told() -> None:
        done = heron(cluster, "log-level", "Levels", "--json")
        assert done.returncode == 0, done.stderr
        levels = json.loads(done.stdout)["levels"]
        assert [(level["target"], level["level"]) for level in levels] == [("ticking", "DEBUG")]

    eventually_sync(told)


def test_a_level_for_a_time_goes_back_by_itself_and_all_of_it_is_in_the_log(
    cluster: LocalCluster, levels: TopologyHandle
) -> None:
    for for_s in (1, 10, 60):  # until the process asks in time: on a busy machine it may come after it is over
        audit, new = logs_from_now(levels, "tmaster"), logs_from_now(levels, SPOUT)
        set_level(cluster, "ticking", "DEBUG", "--for", f"{for_s}s")
        eventually_sync(logs(audit, "DEBUG is over"))
        if "log level INFO -> DEBUG" in new():
            break
    eventually_sync(logs(new, "log level DEBUG -> INFO"))
    assert f"the log level of ticking is DEBUG for {for_s} s: set by " in audit()
    eventually_sync(logs(audit, "the log level of ticking is the configured one again: DEBUG is over"))


def test_the_engine_obeys_too(cluster: LocalCluster, levels: TopologyHandle) -> None:
    engine = ["tmaster", "stmgr-1", "metricsmgr-0", "metricsmgr-1", "executor-0", "executor-1"]
    new = {name: logs_from_now(levels, name) for name in engine}
    other = logs_from_now(levels, SPOUT)
    set_level(cluster, "__engine__", "DEBUG")
    for name in engine:
        eventually_sync(logs(new[name], "log level INFO -> DEBUG"))
    assert "-> DEBUG" not in other()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["tickin", "DEBUG"], 3, "Levels: no component or process 'tickin'; did you mean 'ticking'?"),
        (["ticking", "DEBGU"], 2, "no log level 'DEBGU'; did you mean 'DEBUG'?"),
        (["DEBUG"], 2, "DEBUG of what?"),
        (["ticking", "DEBUG", "--for", "soon"], 2, "--for 'soon' must be"),
        (["ticking", "configured", "--for", "1m"], 2, "--for needs"),
    ],
)
def test_what_cannot_be_is_one_line(
    cluster: LocalCluster, levels: TopologyHandle, words: list[str], code: int, message: str
) -> None:
    done = heron(cluster, "log-level", "Levels", *words)
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_what_is_changed_is_shown(cluster: LocalCluster, levels: TopologyHandle) -> None:
    assert "everything logs at the configured level, INFO" in heron(cluster, "log-level", "Levels").stdout
    set_level(cluster, "ticking", "WARNING", "--for", "10m")
    shown = heron(cluster, "log-level", "Levels").stdout
    assert "ticking" in shown
    assert "WARNING" in shown
    assert "9 min " in shown
