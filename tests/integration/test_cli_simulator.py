"""`heron submit --simulator`: a topology in one process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from heron_command import heron_command

TOPOLOGY = """
import os
from collections import Counter
from heronpy.api import Bolt, Grouping, ICustomGrouping, Spout, TopologyBuilder


class ToTheLast(ICustomGrouping):
    def prepare(self, context, component, stream, target_tasks):
        self.last = max(target_tasks)

    def choose_tasks(self, values):
        return [self.last]


class Numbers(Spout):
    outputs = ["number"]

    def initialize(self, config, context):
        self.next = 0
        self.acked = 0

    def next_tuple(self):
        if self.next < 1000:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, tup_id):
        self.acked += 1
        if self.acked == 1000:
            print("acked 1000 in", os.getpid() == MAIN and __file__, flush=True)


class Sum(Bolt):
    def initialize(self, config, context):
        self.total = 0

    def process(self, tup):
        self.total += tup["number"]
        self.ack(tup)

    def cleanup(self):
        print("total", self.total, flush=True)


MAIN = os.getpid()
builder = TopologyBuilder("sums")
numbers = builder.add_spout("numbers", Numbers, 1)
builder.add_bolt("sum", Sum, 2, inputs={numbers: Grouping.custom(ToTheLast())})
builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE"})
builder.build_and_submit()
"""


FAILING = """
from heronpy.api import Bolt, Spout, Topology


class Numbers(Spout):
    outputs = ["number"]

    def next_tuple(self):
        self.emit([1])


class Sum(Bolt):
    def initialize(self, config, context):
        self.log("ready to fail")

    def process(self, tup):
        raise ValueError("not this number")


class Failing(Topology):
    numbers = Numbers.spec()
    sum = Sum.spec(inputs=[numbers])
"""


def simulate(script: Path, cls: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["submit", "--simulator", "--seconds", "1", *options, "local", str(script), cls]
    return heron_command(*words, home=script.parent / "home", cwd=script.parent)


def test_a_script_runs_in_one_process_from_its_own_file(tmp_path: Path) -> None:
    script = tmp_path / "sums.py"
    script.write_text(TOPOLOGY)
    done = simulate(script, "-")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[-4:]) == sorted(["", f"acked 1000 in {script}", "total 0", "total 499500"])


def test_user_code_that_fails_ends_it_with_its_traceback_and_one_line(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = simulate(script, "Failing")
    assert done.returncode == 5
    assert done.stderr.count("Traceback") == 1
    assert 'raise ValueError("not this number")' in done.stderr
    assert done.stderr.endswith("\nheron: process() failed: ValueError: not this number\n")


def test_a_topology_that_cannot_start_shows_the_users_traceback_too(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING.replace('self.log("ready to fail")', "self.limit = config['limit']"))
    done = simulate(script, "Failing")
    assert done.returncode == 5
    assert "self.limit = config['limit']" in done.stderr
    assert done.stderr.endswith("\nheron: Failing failed: KeyError: 'limit'\n")


def test_what_user_code_logs_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    assert "ready to fail" in simulate(script, "Failing").stderr


def test_the_configuration_is_the_one_that_a_submitted_topology_would_get(tmp_path: Path) -> None:
    script = tmp_path / "sums.py"
    script.write_text(TOPOLOGY.replace("self.acked = 0", "self.acked = 0; print(config['topology.max.spout.pending'])"))
    done = simulate(script, "-", "--config-property", "topology.max.spout.pending=77")
    assert done.returncode == 0, done.stderr
    assert "77\n" in done.stdout
    wrong = simulate(script, "-", "--config-property", "topology.max.spout.pendin=77")
    assert wrong.returncode != 0
    assert "topology.max.spout.pending" in wrong.stderr
    script.write_text(TOPOLOGY.replace("ATLEAST_ONCE", "EFFECTIVELY_ONCE"))
    exactly = simulate(script, "-", "--config-property", "topology.state.allow.lossy.spouts=true")
    assert exactly.returncode == 0, exactly.stderr
