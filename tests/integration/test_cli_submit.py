"""The command line against real processes: what is submitted runs, and what fails leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import heron_scheduler
import pytest
from heron_command import heron_command

from heronpy.host import TOPOLOGY_ENV, find_by_environment
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import running
from heronpy.testing import eventually_sync
from heronpy.testing.servers import free_port

TOPOLOGY = """
import time
from heronpy.api import Bolt, Grouping, Spout, Topology

class Words(Spout):
    outputs = ["word"]
    def initialize(self, config, context):
        pass
    def next_tuple(self):
        self.emit(["a"])
        time.sleep(0.05)

class Count(Bolt):
    outputs = []
    def initialize(self, config, context):
        print("counting starts", flush=True)
    def process(self, tup):
        pass

class WordCount(Topology):
    words = Words.spec(par=2)
    counts = Count.spec(par=1, inputs={words: Grouping.fields("word")})
"""


QUICK_METRICS = ("--config-property", "heron.metrics.export.interval.ms=300")


class Heron:
    """The command `heron` with a home of its own."""

    def __init__(self, home: Path, work: Path) -> None:
        self.home = home
        self.file = work / "wordcount.py"
        self.file.write_text(TOPOLOGY)
        self.said = self.shown = ""
        """By the command that has submitted it, and by `heron status --json` right afterwards."""

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from heronpy.cli import main; main()", *args],
            env={**os.environ, "HERON_HOME": str(self.home), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return heron_command(*args, home=self.home, timeout_s=timeout_s, COLUMNS="200")

    def ok(self, *args: str) -> str:
        done = self(*args)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def submit(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self("submit", "local", str(self.file), "WordCount", *args)

    def submit_with(self, property: str) -> subprocess.CompletedProcess[str]:
        return self("submit", "--config-property", property, "local", str(self.file), "WordCount")

    def check_nothing_is_left(self) -> None:
        """No directory, no node and no process of a topology."""
        assert [str(p) for p in self.home.glob("topologies/*/*/*/*")] == []
        state = self.home / "state" / "local"
        if state.exists():
            with contextlib.closing(open_statemgr(StatemgrSpec(type="file", root=str(state)))) as manager:
                assert {kind: names for kind in Kind if (names := manager.list(kind))} == {}
        for process, env in find_by_environment({"HERON_HOME": str(self.home)}):
            assert TOPOLOGY_ENV not in env, f"process {process.pid} is left"


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[Heron]:
    work = tmp_path / "work"
    work.mkdir()
    command = Heron(tmp_path / "home", work)
    yield command
    for launch in running(command.home):
        heron_scheduler.kill(launch)
    for launch_file in command.home.glob("topologies/*/*/*/*/launch.json"):
        raise AssertionError(f"{launch_file} is left")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heron]:
    command = Heron(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("work"))
    yield command
    for launch in running(command.home):
        heron_scheduler.kill(launch)


@pytest.fixture
def flowing(place: Heron) -> Heron:
    """One in whose home WordCount runs; the one that the test before has left, if it has left one."""
    if not running(place.home):
        done = place("submit", "--wait", "--timeout", "240", *QUICK_METRICS, "local", str(place.file), "WordCount")
        assert done.returncode == 0, done.stderr
        place.said, place.shown = done.stdout, place.ok("status", "WordCount", "--json")
    return place


def one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """It failed with this exit code and a single line on stderr that has these words in it."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("heron: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_a_topology_is_submitted_listed_shown_and_killed(heron: Heron) -> None:
    assert "submitted WordCount to local/" in heron.submit().stdout
    assert heron.ok("topologies").startswith("WordCount  local/")
    assert heron.ok("topologies", "local").startswith("WordCount  local/")
    assert "no topology runs" in heron.ok("topologies", "local//prod")

    def processes_run() -> None:
        done = heron("status", "local", "WordCount", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        states = {p["id"]: p["state"] for p in found["processes"]}
        assert states.get("tmaster") == "running"
        assert {p["container"] for p in found["processes"]} == {0, 1}
        assert [c["name"] for c in found["components"]] == ["words", "counts"]
        assert found["state"] == "RUNNING"

    eventually_sync(processes_run)
    shown = heron.ok("status", "WordCount")
    assert "WordCount  local/" in shown
    assert "words:default FIELDS" in shown
    assert heron.ok("deactivate", "WordCount") == "deactivated WordCount\n"
    assert "PAUSED" in heron.ok("status", "WordCount")
    assert heron.ok("activate", "local", "WordCount") == "activated WordCount\n"
    assert heron.ok("kill", "WordCount") == "killed WordCount\n"
    heron.check_nothing_is_left()
    one_line(heron("status", "WordCount"), 3, "no topology 'WordCount' runs")


def test_of_two_submits_of_one_name_at_the_same_time_exactly_one_succeeds(heron: Heron) -> None:
    processes = [heron.start("submit", "local", str(heron.file), "WordCount") for _ in range(3)]
    results = [p.communicate(timeout=300) for p in processes]
    codes = sorted(p.returncode for p in processes)
    assert codes[0] == 0, results
    assert set(codes[1:]) <= {4, 7}, results  # the name is taken, or the lock was held for too long
    assert len(running(heron.home)) == 1
    heron.ok("kill", "WordCount")
    heron.check_nothing_is_left()


@pytest.mark.parametrize("format", ["raw", "table", "colored_table", "json"])
def test_a_dry_run_prints_the_plan_and_starts_nothing(heron: Heron, format: str) -> None:
    done = heron("submit", "--dry-run", "--dry-run-format", format, "local", str(heron.file), "WordCount")
    assert done.returncode == 0, done.stderr
    assert "words" in done.stdout
    assert "counts" in done.stdout
    assert ("\x1b[" in done.stdout) == (format == "colored_table")
    if format == "json":
        (container,) = json.loads(done.stdout)["container_plans"]
        assert [i["task_id"] for i in container["instances"]] == [1, 2, 3]
        assert container["required_resources"]["cpu"] > 0
    assert not heron.home.exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["local", "nowhere.py", "WordCount"], 3, ["nowhere.py"]),
        (["local", "{file}", "WordCoun"], 3, ["WordCoun", "did you mean 'WordCount'"]),
        (["locl", "{file}", "WordCount"], 2, ["unknown cluster 'locl'", "did you mean 'local'"]),
        (["local/../../x", "{file}", "WordCount"], 2, ["CLUSTER[/ROLE[/ENV]]"]),
        (["local/..", "{file}", "WordCount"], 2, ["'..' is no role"]),
        (["local", "{file}"], 2, ["Missing argument", "CLASS"]),
        (["--config-property", "heron.logging.leve=DEBUG", "local", "{file}", "WordCount"], 2, ["heron.logging.level"]),
        (["--config-property", "heron.logging.level", "local", "{file}", "WordCount"], 2, ["KEY=VALUE"]),
        (["--config-property", "topology.stmgr=2", "local", "{file}", "WordCount"], 2, ["topology.stmgrs"]),
        (["--config-property", "topology.stmgrs=many", "local", "{file}", "WordCount"], 2, ["topology.stmgrs", "many"]),
        (["--config-property", "heron.class.scheduler=lcal", "local", "{file}", "WordCount"], 3, ["'local'"]),
        (
            ["--config-property", "heron.class.packing.algorithm=RoundRobinPackin", "local", "{file}", "WordCount"],
            2,
            ["'RoundRobinPacking'"],
        ),
        (["--config-path", "", "local", "{file}", "WordCount"], 2, ["empty"]),
        (["--requirements", "", "local", "{file}", "WordCount"], 2, ["empty"]),
        (["--config-path", "nowhere", "local", "{file}", "WordCount"], 2, ["nowhere is not a directory"]),
        (["--dry-run-format", "xml", "local", "{file}", "WordCount"], 2, ["xml"]),
        (["--wat", "local", "{file}", "WordCount"], 2, ["--wat"]),
        (["local", "--config-property"], 2, ["--config-property", "heron submit --help"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(heron: Heron, args: list[str], code: int, words: list[str]) -> None:
    one_line(heron("submit", *(arg.format(file=heron.file) for arg in args)), code, *words)
    heron.check_nothing_is_left()


def test_an_invalid_topology_is_one_line_and_leaves_nothing(heron: Heron) -> None:
    heron.file.write_text(TOPOLOGY.replace('Grouping.fields("word")', 'Grouping.fields("wurd")'))
    done = heron.submit()
    assert done.returncode in (2, 5)
    assert "wurd" in done.stderr.splitlines()[-1]
    heron.check_nothing_is_left()


def test_an_error_of_the_users_code_shows_the_users_traceback_and_then_one_line(heron: Heron) -> None:
    heron.file.write_text("import nothing_of_this_name\n")
    done = heron.submit()
    assert done.returncode == 5
    assert "wordcount.py" in done.stderr
    assert "import nothing_of_this_name" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("heron: ")
    heron.check_nothing_is_left()


def test_an_unreadable_state_root_is_one_line_and_leaves_nothing(heron: Heron, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("not a directory")
    done = heron.submit_with(f"heron.statemgr.root.path={blocked}/state")
    one_line(done, 6, str(blocked))
    heron.check_nothing_is_left()


def test_a_zookeeper_that_does_not_answer_is_one_line_and_leaves_nothing(heron: Heron) -> None:
    servers = f"heron.statemgr.connection.string=127.0.0.1:{free_port()}"
    done = heron("submit", "--config-property", servers, "localzk", str(heron.file), "WordCount")
    one_line(done, 6, "127.0.0.1")
    heron.check_nothing_is_left()


def test_a_taken_port_is_one_line_and_leaves_nothing(heron: Heron) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = heron.submit_with(f"heron.metricsmgr.prometheus.port={port}")
    one_line(done, 7, f"port {port}", "heron.metricsmgr.prometheus.port")
    heron.check_nothing_is_left()


def test_a_home_that_is_no_directory_is_one_line(heron: Heron) -> None:
    heron.home.write_text("a file")
    done = heron.submit()
    heron.home.unlink()
    one_line(done, 2, str(heron.home))


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_interrupting_a_submission_at_any_moment_leaves_nothing(heron: Heron, signum: signal.Signals) -> None:
    moments: list[Callable[[], bool]] = [
        lambda: any(heron.home.glob("topologies/*/*/*/WordCount/submitting")),
        lambda: any(heron.home.glob("topologies/*/*/*/WordCount/launch.json")),
        lambda: any(heron.home.glob("topologies/*/*/*/WordCount/scheduler.lock")),
    ]
    for moment in moments:
        process = heron.start("submit", "local", str(heron.file), "WordCount")
        while not moment() and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signum)
        _, err = process.communicate(timeout=300)
        if process.returncode == 0:  # it was quicker
            heron.ok("kill", "WordCount")
        else:
            assert process.returncode == 128 + signum, err
            assert "Traceback" not in err
        heron.check_nothing_is_left()


@pytest.mark.long
def test_what_a_killed_submitter_left_is_completed_or_cleared_and_the_name_is_free_again(heron: Heron) -> None:
    process = heron.start("submit", "local", str(heron.file), "WordCount")
    while not any(heron.home.glob("topologies/*/*/*/WordCount/scheduler.lock")) and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.communicate()

    # What got as far as its scheduler service is completed by that, and runs; what did not is cleared by the next one.
    def submitted() -> None:
        done = heron.submit()
        if done.returncode:
            heron("kill", "WordCount")
        assert "submitted WordCount" in done.stdout, done.stderr

    eventually_sync(submitted)
    heron.ok("kill", "WordCount")
    heron.check_nothing_is_left()


def test_a_reader_that_goes_away_is_no_error(heron: Heron) -> None:
    process = heron.start("help")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.wait(timeout=300)


def test_wait_returns_when_tuples_flow_and_says_how_far_it_is(flowing: Heron) -> None:
    heron = flowing
    assert "containers 1/1, instances 3/3, tuples flow" in heron.said
    assert "submitted WordCount" in heron.said.splitlines()[-1]
    totals = {c["name"]: c["totals"] for c in json.loads(heron.shown)["components"]}
    assert totals["words"]["emit"] > 0
    assert totals["counts"]["execute"] > 0
    assert "counting starts" in heron.ok("logs", "WordCount", "container_1_counts_3")


def test_a_taken_name_and_a_container_that_does_not_exist_are_refused_and_nothing_is_touched(flowing: Heron) -> None:
    heron = flowing
    (before,) = running(heron.home)
    one_line(heron.submit(), 4, "already running", "heron kill local/")
    one_line(heron("submit", "local/other", str(heron.file), "WordCount"), 4, "already running")
    one_line(heron("restart", "WordCount", "7"), 3, "no container 7")
    one_line(heron("restart", "WordCount", "x"), 2, "must be a number")
    (after,) = running(heron.home)
    assert after == before
    assert heron.ok("restart", "WordCount", "0") == "restarted container 0 of WordCount\n"


def test_logs_are_shown_and_followed_and_lead_nowhere_else(flowing: Heron, tmp_path: Path) -> None:
    heron = flowing
    (launch,) = running(heron.home)

    def the_master_logs() -> None:
        assert "this Topology Master is the active one" in heron("logs", "WordCount", "tmaster").stdout

    eventually_sync(the_master_logs)
    one_line(heron("logs", "WordCount", "tmastr"), 3, "no process 'tmastr'", "'tmaster'")
    one_line(heron("logs", "WordCount", "../../token"), 3, "no process '../../token'")
    secret = tmp_path / "secret.log"
    secret.write_text("secret\n")
    (launch.log_dir(0) / "link.log").symlink_to(secret)
    one_line(heron("logs", "WordCount", "link"), 3, "no process 'link'")

    mine = launch.log_dir(1) / "mine.log"
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("one\ntwo\nthree\n")
    assert heron.ok("logs", "local", "WordCount", "mine", "-n", "2") == "two\nthree\n"
    follower = heron.start("logs", "WordCount", "mine", "-n", "1", "-f")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "three\n"
    with mine.open("a") as f:
        f.write("four\n")
    assert follower.stdout.readline() == "four\n"
    mine.rename(mine.with_name("mine.log.1"))
    mine.write_text("five\n")
    assert follower.stdout.readline() == "five\n"
    heron.ok("kill", "WordCount")
    assert follower.wait(timeout=300) == 0


@pytest.mark.long
def test_wait_for_a_paused_topology_returns_when_it_is_ready(heron: Heron) -> None:
    done = heron("submit", "--wait", "--timeout", "240", "--deploy-deactivated", "local", str(heron.file), "WordCount")
    assert done.returncode == 0, done.stderr
    assert json.loads(heron.ok("status", "WordCount", "--json"))["state"] == "PAUSED"


def test_wait_gives_up_after_its_timeout_and_leaves_the_topology_for_a_look(heron: Heron) -> None:
    heron.file.write_text(TOPOLOGY.replace('self.emit(["a"])', "pass"))
    done = heron("submit", "--wait", "--timeout", "2", "local", str(heron.file), "WordCount")
    one_line(done, 7, "after 2 s", "heron logs WordCount")
    assert heron.ok("topologies").startswith("WordCount")


def test_interrupting_the_wait_undoes_the_submission(heron: Heron) -> None:
    heron.file.write_text(TOPOLOGY.replace('self.emit(["a"])', "pass"))
    process = heron.start("submit", "--wait", "local", str(heron.file), "WordCount")
    assert process.stdout is not None
    assert process.stdout.readline() == "WordCount: waiting for the Topology Master\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "heron: interrupted\n")
    heron.check_nothing_is_left()


def test_a_topology_gets_its_arguments_and_another_name(heron: Heron) -> None:
    heron.file.write_text(TOPOLOGY + "\nimport sys\nprint(sys.argv[1:], flush=True)\n")
    done = heron(
        "submit",
        "local//prod",
        str(heron.file),
        "--dry-run",
        "--name",
        "Other",
        "WordCount",
        "--words",
        "-x",
        "--",
        "y",
    )
    assert done.returncode == 0, done.stderr
    assert "['--words', '-x', '--', 'y']" in done.stdout
    assert "topology Other" in done.stdout
