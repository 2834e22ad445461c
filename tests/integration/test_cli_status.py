"""What `heron status` says of a topology whose Topology Master is not up: one that was just submitted, and others."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from heron_command import heron_command
from topology_on_disk import execution_of, launch_in, submit

from heronpy.health import START_S
from heronpy.host import EXECUTOR, HostProcess, PidFiles
from heronpy.proto import state_pb2
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr


def health_of_one_submitted(home: Path, ago_s: float, *, has_been_up: bool = False) -> dict[str, Any]:
    launch = launch_in(
        home / "topologies" / "local" / "tests" / "default",
        statemgr=StatemgrSpec(type="file", root=str(home / "state" / "local")),
        topology_id="words-4",  # not that of tests beside these
    )
    gone = state_pb2.TmasterLocation(
        topology=launch.topology, topology_id=launch.topology_id, host="127.0.0.1", port=1, pid=1
    )
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1, topology_id=launch.topology_id)
        state.set(Kind.EXECUTIONSTATE, launch.topology, execution_of(launch, submitted_s=int(time.time() - ago_s)))
        if has_been_up:
            state.set(Kind.TMASTERS, launch.topology, gone.SerializeToString())
    try:
        done = heron_command("status", "local/tests", launch.topology, "--json", home=home)
    finally:
        shutil.rmtree(launch.socket_root(), ignore_errors=True)
    health: dict[str, Any] = json.loads(done.stdout)["health"]
    return health


def test_how_a_container_ended_before_its_topology_master_was_up_is_said(tmp_path: Path) -> None:
    launch = launch_in(
        tmp_path / "topologies" / "local" / "tests" / "default",
        statemgr=StatemgrSpec(type="file", root=str(tmp_path / "state" / "local")),
        topology_id="words-5",
    )
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1, topology_id=launch.topology_id)
        state.set(Kind.EXECUTIONSTATE, launch.topology, execution_of(launch, submitted_s=int(time.time())))
    launch.container_dir(0).mkdir()
    PidFiles(launch.container_dir(0)).ended(EXECUTOR, HostProcess(1 << 22, 1), "exit code 1: no space left on device")
    try:
        done = heron_command("status", "local/tests", launch.topology, home=tmp_path)
    finally:
        shutil.rmtree(launch.socket_root(), ignore_errors=True)
    assert "container 0 is pending: exit code 1: no space left on device" in done.stdout
    assert "container 1" not in done.stdout


def test_a_directory_of_an_earlier_submission_is_not_taken_for_the_one_that_runs(tmp_path: Path) -> None:
    launch = launch_in(
        tmp_path / "topologies" / "local" / "tests" / "default",
        statemgr=StatemgrSpec(type="file", root=str(tmp_path / "state" / "local")),
        topology_id="words-6",
    )
    later = state_pb2.TmasterLocation(topology="words", topology_id="words-7", host="127.0.0.1", port=1)
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1, topology_id="words-7")
        state.set(Kind.EXECUTIONSTATE, "words", execution_of(replace(launch, topology_id="words-7")))
        state.set(Kind.TMASTERS, "words", later.SerializeToString())
        for command in ("status", "activate"):
            done = heron_command(command, "local/tests", "words", home=tmp_path)
            assert "has another submission of words than" in done.stderr
        heron_command("kill", "local/tests", "words", home=tmp_path)
        assert not launch.dir.exists()
        assert state.get(Kind.TMASTERS, "words") == later.SerializeToString()


def test_a_topology_that_was_just_submitted_is_starting(tmp_path: Path) -> None:
    health = health_of_one_submitted(tmp_path, 2)
    assert health["state"] == "starting"
    assert "after the submit" in health["reasons"][0]["text"]


@pytest.mark.parametrize(("ago_s", "has_been_up"), [(START_S + 5, False), (2, True)], ids=["late", "gone again"])
def test_one_that_is_late_or_whose_topology_master_is_gone_is_unhealthy(
    tmp_path: Path, ago_s: float, has_been_up: bool
) -> None:
    health = health_of_one_submitted(tmp_path, ago_s, has_been_up=has_been_up)
    assert health["state"] == "unhealthy"
    assert "does not answer" in health["reasons"][0]["text"]
