"""What `heron status` says of a topology whose Topology Master is not up: one that was just submitted, and others."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from heron_command import heron_command
from topology_on_disk import execution_of, launch_in, submit

from heronpy.health import START_S
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
        submit(state, 1)
        state.set(Kind.EXECUTIONSTATE, launch.topology, execution_of(launch, submitted_s=int(time.time() - ago_s)))
        if has_been_up:
            state.set(Kind.TMASTERS, launch.topology, gone.SerializeToString())
    try:
        done = heron_command("status", "local/tests", launch.topology, "--json", home=home)
    finally:
        shutil.rmtree(launch.socket_root(), ignore_errors=True)
    health: dict[str, Any] = json.loads(done.stdout)["health"]
    return health


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
