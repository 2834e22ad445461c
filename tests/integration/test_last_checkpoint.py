"""The last checkpoint, before a kill or an update. With real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from heron_command import heron_command

from heronpy import submit
from heronpy.api import Grouping, Spout, StatefulComponent, TopologyBuilder
from heronpy.connectors import JsonLinesSink, SinkBolt, SourceSpout, TextFile
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

LINES = 500
FAST = {"heron.metrics.export.interval.ms": 500, "heron.executor.stop.timeout.ms": 2000}
ONCE = {
    "topology.reliability.mode": "EFFECTIVELY_ONCE",
    "topology.stateful.checkpoint.interval.seconds": 1000,
    "topology.state.allow.lossy.spouts": True,
    "topology.stmgrs": 1,
}


class Unsaved(Spout, StatefulComponent):  # type: ignore[misc]
    """Has a state that cannot be saved any more as soon as a file is there."""

    outputs = ("word",)

    def initialize(self, config: Any, context: Any) -> None:
        self.flag = Path(config["test.flag"])

    def init_state(self, state: Any) -> None:
        self.state = state

    def pre_save(self, checkpoint_id: str) -> None:
        if self.flag.exists():
            self.state["lock"] = threading.Lock()

    def next_tuple(self) -> None:
        self.state["n"] = 1


class Hanging(Unsaved):
    """Takes for ever to save its state as soon as a file is there."""

    def pre_save(self, checkpoint_id: str) -> None:
        while self.flag.exists():
            time.sleep(0.05)


class Refusing(Unsaved):
    """Fails to prepare its state as soon as a file is there."""

    def pre_save(self, checkpoint_id: str) -> None:
        if self.flag.exists():
            raise RuntimeError("no such account")


INTERRUPTS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def submitted(cluster: LocalCluster, spout: type[Unsaved], flag: Path, tasks: int = 1) -> TopologyHandle:
    builder = TopologyBuilder("saving")
    builder.add_spout("words", spout, tasks)
    builder.set_config({**ONCE, "test.flag": str(flag)})
    topology = cluster.submit(builder).wait_running()
    assert submit.take_checkpoint(topology.launch) == 1
    flag.touch()
    return topology


@pytest.mark.parametrize(
    ("spout", "why"), [(Unsaved, "cannot pickle '_thread.lock' object"), (Refusing, "RuntimeError: no such account")]
)
def test_what_cannot_be_saved_ends_the_wait_of_a_kill_which_says_what_is_kept(
    tmp_path: Path, spout: type[Unsaved], why: str
) -> None:
    with LocalCluster(FAST) as cluster:
        topology = submitted(cluster, spout, tmp_path / "flag")
        killed = heron_command("kill", topology.name, home=cluster.home, timeout_s=50)
        assert killed.returncode == 6, killed
        said = killed.stderr.splitlines()[-1]
        assert said.startswith("heron: saving is not killed, but paused: "), said
        assert why in said
        kept, _, way_out = said.rpartition("; --force ends it, ")
        assert kept.endswith("; checkpoint 1 is kept"), said
        assert way_out == "and what it has done since then is lost; heron activate saving has it go on"
        assert topology.status().state == "PAUSED"
        killed = heron_command("kill", topology.name, "--force", home=cluster.home)
        assert (killed.returncode, killed.stdout) == (0, "killed saving\n"), killed


@pytest.mark.parametrize(("by", "code"), INTERRUPTS)
def test_an_interrupted_kill_says_what_it_leaves_and_no_more_checkpoints_are_tried(
    tmp_path: Path, by: signal.Signals, code: int
) -> None:
    with LocalCluster(FAST) as cluster:
        topology = submitted(cluster, Hanging, tmp_path / "flag")
        command = [sys.executable, "-m", "heronpy.cli", "kill", "saving"]
        environment = {**os.environ, "HERON_HOME": str(cluster.home)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as kill:
            assert kill.stderr is not None
            waits = kill.stderr.readline()
            assert "of 60 s: checkpoint 2 waits for the snapshots of tasks 1 (words)" in waits, waits
            kill.send_signal(by)
            said = kill.stderr.read()
        assert kill.returncode == code
        assert "saving is not killed, but paused" in said
        assert said.endswith("heron: interrupted\n") == (by is signal.SIGINT)
        (tmp_path / "flag").unlink()
        submit.activate(topology.launch)
        assert submit.take_checkpoint(topology.launch) > 1


def test_what_cannot_be_saved_ends_the_wait_of_an_update_and_nothing_is_changed(tmp_path: Path) -> None:
    with LocalCluster(FAST) as cluster:
        topology = submitted(cluster, Unsaved, tmp_path / "flag", tasks=2)
        before, pids = submit.plans(topology.launch)[1], topology.processes()
        updated = heron_command("update", "saving", "--containers", "2", home=cluster.home, timeout_s=100)
        assert updated.returncode == 6, updated
        said = updated.stderr.splitlines()[-1]
        assert said.startswith("heron: saving: nothing was changed: checkpoint "), said
        assert "cannot pickle '_thread.lock' object" in said
        assert submit.plans(topology.launch)[1] == before

        def as_before() -> None:  # what was started for it ends again
            assert topology.processes() == pids

        eventually_sync(as_before)
        assert topology.status().state == "RUNNING"


@pytest.mark.parametrize(("by", "code"), INTERRUPTS)
def test_an_interrupted_update_says_that_nothing_is_changed_and_no_more_checkpoints_are_tried(
    tmp_path: Path, by: signal.Signals, code: int
) -> None:
    with LocalCluster(FAST) as cluster:
        topology = submitted(cluster, Hanging, tmp_path / "flag", tasks=2)
        before = submit.plans(topology.launch)[1]
        command = [sys.executable, "-m", "heronpy.cli", "update", "saving", "--containers", "2"]
        environment = {**os.environ, "HERON_HOME": str(cluster.home)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as update:
            assert update.stderr is not None
            for line in update.stderr:
                if "of 120 s: checkpoint " in line and "waits for the snapshots of tasks " in line:
                    break
            update.send_signal(by)
            said = update.stderr.read()
        assert update.returncode == code, said
        assert "the plan of saving is not changed" in said
        assert said.endswith("heron: interrupted\n") == (by is signal.SIGINT)
        (tmp_path / "flag").unlink()
        assert submit.take_checkpoint(topology.launch) > 1
        assert submit.plans(topology.launch)[1] == before


@pytest.mark.long
def test_a_kill_commits_all_that_was_emitted_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"line {n}\n" for n in range(LINES)))
    builder = TopologyBuilder("copying")
    lines = builder.add_spout("lines", SourceSpout(TextFile(tmp_path / "in.txt")), 1)
    sink = SinkBolt(JsonLinesSink(tmp_path / "out"), field="value")
    builder.add_bolt("copies", sink, 2, {lines: Grouping.SHUFFLE})
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    builder.set_config({**mode, "topology.stateful.checkpoint.interval.seconds": 1000, "topology.stmgrs": 1})

    def out() -> Counter[str]:
        files = (tmp_path / "out").glob("part-*.jsonl")
        return Counter(json.loads(line) for file in files for line in file.read_text().splitlines())

    with LocalCluster(FAST) as cluster:
        topology = cluster.submit(builder).wait_running()

        def executed() -> None:
            instances = topology.status().instances
            assert sum(i.totals["__execute-count/lines/default"] for i in instances if i.component == "copies") >= LINES

        eventually_sync(executed)
        assert not out(), "nothing is committed before a checkpoint"
        submit.kill(topology.launch, final_s=60.0)
        assert out() == Counter(f"line {n}" for n in range(LINES))
