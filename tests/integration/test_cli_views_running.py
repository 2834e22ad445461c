"""`heron top`, `metrics`, `components`, `logical-plan` and `physical-plan` beside a running topology."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from heron_command import heron_command
from numbers_topology import Small

from heronpy.host import service_record
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

HERE = Path(__file__).parent
NAME = "Measured"
TUPLES = 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster({"heron.metrics.export.interval.ms": 500}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def measured(cluster: LocalCluster) -> TopologyHandle:
    """One thousand tuples, all of them acked, and the Topology Master knows."""
    measured = cluster.submit(HERE / "metrics_topology.py", NAME).wait_running()

    def counted() -> None:
        status = measured.status()
        assert sum(i.totals.get("__ack-count/default", 0) for i in status.instances) == TUPLES
        assert sum(i.totals.get("__ack-count/numbers/default", 0) for i in status.instances) == TUPLES
        assert sum(i.totals.get("seen", 0) for i in status.instances) == TUPLES

    eventually_sync(counted)
    return measured


def run(cluster: LocalCluster, *args: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*args, home=cluster.home, TERM="xterm", COLUMNS="", LINES="")


def heron(cluster: LocalCluster, *args: str) -> str:
    done = run(cluster, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment(cluster: LocalCluster) -> dict[str, str]:
    return {**os.environ, "HERON_HOME": str(cluster.home), "TERM": "xterm", "COLUMNS": "", "LINES": ""}


def values(cluster: LocalCluster, *args: str) -> dict[tuple[str, str], float]:
    """By instance (or component) and metric."""
    found = json.loads(heron(cluster, "metrics", NAME, "--json", *args))["metrics"]
    return {(m["instance"] or m["component"], m["metric"]): m["value"] for m in found}


def test_metrics_are_exact(cluster: LocalCluster, measured: TopologyHandle) -> None:
    for window in ("all", "10m", "3h"):
        assert values(cluster, "-m", "__emit-count", "-m", "__ack-count", "-m", "seen", "-w", window) == {
            ("numbers", "__emit-count/default"): TUPLES,
            ("numbers", "__ack-count/default"): TUPLES,
            ("looking", "__ack-count/numbers/default"): TUPLES,
            ("looking", "seen"): TUPLES,
        }


def test_metrics_of_instances_add_up(cluster: LocalCluster, measured: TopologyHandle) -> None:
    found = values(cluster, "-c", "looking", "-i", "-m", "seen", "-w", "all")
    assert set(found) == {("container_2_looking_2", "seen"), ("container_1_looking_3", "seen")}
    assert sum(found.values()) == TUPLES
    assert values(cluster, "--instance", "container_1_looking_3", "-m", "se*", "-w", "all") == {
        key: value for key, value in found.items() if key[0] == "container_1_looking_3"
    }


def test_metrics_are_a_table(cluster: LocalCluster, measured: TopologyHandle) -> None:
    shown = heron(cluster, "metrics", "local", NAME, "-c", "looking", "-m", "seen", "-w", "all")
    assert shown.startswith("metrics of all time\n")
    assert re.search(r"looking +seen +count +1,000", shown)
    assert "__py-physical-memory-byte" in heron(cluster, "metrics", NAME, "-c", "__stmgr__")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["metrics", NAME, "-c", "lookin"], 3, "has no component 'lookin'; did you mean 'looking'?"),
        (
            ["metrics", NAME, "--instance", "stmgr_1"],
            3,
            "has no instance or process 'stmgr_1'; did you mean 'stmgr-1'?",
        ),
        (["metrics", NAME, "-m", "__emit-coun"], 3, "has no metric '__emit-coun'; did you mean '__emit-count'?"),
        (["metrics", NAME, "-c", "numbers", "-m", "zzz*"], 3, "has no metric 'zzz*'"),
        (["metrics", NAME, "numbers", "-m", "seen"], 3, "numbers of Measured has no metric 'seen'; looking has"),
        (["metrics", NAME, "numbers", "-c", "looking"], 2, "which component: numbers, or looking of --component?"),
        (
            ["metrics", NAME, "numbers", "--instance", "container_2_looking_2"],
            3,
            "container_2_looking_2 is of looking, not of numbers",
        ),
        (["logs", NAME, "stmgr_1"], 3, "has no process 'stmgr_1'; did you mean 'stmgr-1'?"),
        (["logs", NAME, "nobody"], 3, "has no process 'nobody': see `heron status Measured`"),
        (["metrics", NAME, "-w", "4h"], 2, "--window 4h: minutes are kept for 3 hours"),
        (["metrics", "Measurd"], 3, "did you mean 'Measured'?"),
        (["top", NAME, "--sort", "capcity"], 2, "no column 'capcity'; did you mean 'capacity'?"),
        (["top", "Measurd"], 3, "did you mean 'Measured'?"),
        (["physical-plan", NAME, "--container", "7"], 3, "has no instances in container 7: they are in 1-2"),
        (["logical-plan", NAME, "--component-type", "spout"], 2, "'spout' is not one of"),
        (["components", NAME, "x", "y"], 2, "too many arguments: 'y'"),
    ],
)
def test_what_there_is_not_is_one_line(
    cluster: LocalCluster, measured: TopologyHandle, args: list[str], code: int, message: str
) -> None:
    done = run(cluster, *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_metrics_of_the_user_come_first_among_those_of_a_component(
    cluster: LocalCluster, measured: TopologyHandle
) -> None:
    found = json.loads(heron(cluster, "metrics", "local", NAME, "looking", "--json"))["metrics"]
    assert {row["component"] for row in found} == {"looking"}
    own = [row["metric"].partition("/")[0] for row in found if not row["metric"].startswith("__")]
    assert set(own) == {"lookup", "seen", "size"}
    assert [row["metric"].startswith("__") for row in found] == [False] * len(own) + [True] * (len(found) - len(own))


def test_metrics_without_more_are_the_most_important_and_all_of_them_with_all(
    cluster: LocalCluster, measured: TopologyHandle
) -> None:
    few, all_of_them = values(cluster, "-w", "all"), values(cluster, "-w", "all", "--all")
    assert {component for component, _ in few} == {"numbers", "looking"}
    assert few[("numbers", "__emit-count/default")] == TUPLES
    assert few[("looking", "seen")] == TUPLES
    assert few.keys() < all_of_them.keys()
    assert {"__stmgr__", "__tmaster__"} <= {component for component, _ in all_of_them}
    assert len(few) < 30 < len(all_of_them)
    shown = heron(cluster, "metrics", NAME)
    assert re.search(r"\d+ of [\d,]+ metrics: --all shows all", shown.splitlines()[-1])
    assert "--all" not in heron(cluster, "metrics", NAME, "--all")


def test_latencies_have_percentiles_in_metrics_and_top(cluster: LocalCluster, measured: TopologyHandle) -> None:
    found = json.loads(heron(cluster, "metrics", NAME, "-m", "__complete-latency", "-w", "all", "--json"))["metrics"]
    (latency,) = found
    assert 0 < latency["percentiles"]["p50"] <= latency["percentiles"]["p95"] <= latency["percentiles"]["p99"]
    assert re.search(r"value +per s +p50 +p95 +p99", heron(cluster, "metrics", NAME, "-m", "__complete-latency"))
    shown = json.loads(heron(cluster, "top", NAME, "--json"))["rows"]
    assert {"p50", "p95", "p99"} < shown[0].keys()


def test_every_process_has_an_id_by_which_its_log_is_found(cluster: LocalCluster, measured: TopologyHandle) -> None:
    processes = json.loads(heron(cluster, "status", NAME, "--json"))["processes"]
    assert sorted(process["id"] for process in processes) == sorted(measured.processes())
    assert "stmgr-1 started: pid " in heron(cluster, "logs", NAME, "executor-1")


def test_status_lists_the_scheduler_service(cluster: LocalCluster, measured: TopologyHandle) -> None:
    record = service_record(measured.launch)
    assert record is not None
    service = json.loads(heron(cluster, "status", NAME, "--json"))["scheduler"]
    assert (service["state"], service["pid"], service["restarts"]) == ("running", record.pid, 0)
    assert service["since_s"] > 0
    assert re.search(
        rf"scheduler service: running for .*, pid {record.pid}, 0 restarts", heron(cluster, "status", NAME)
    )


def test_components(cluster: LocalCluster, measured: TopologyHandle) -> None:
    numbers, looking = json.loads(heron(cluster, "components", NAME, "--json"))
    assert (numbers["name"], numbers["kind"], numbers["parallelism"], numbers["outputs"]) == (
        *("numbers", "spout", 1),
        ["default"],
    )
    assert (looking["inputs"], looking["containers"]) == (["numbers:default SHUFFLE"], [1, 2])
    shown = heron(cluster, "components", NAME)
    assert re.search(r"looking +bolt +metrics_topology\.Looking +numbers:default SHUFFLE +2 +1-2", shown)


def test_logical_plan(cluster: LocalCluster, measured: TopologyHandle) -> None:
    shown = heron(cluster, "logical-plan", NAME)
    assert "  default(number) ──SHUFFLE──▶ looking\n" in shown
    bolts = json.loads(heron(cluster, "logical-plan", NAME, "--component-type", "bolts", "--json"))
    assert bolts["spouts"] == {}
    assert bolts["bolts"]["looking"]["inputComponents"] == ["numbers"]


def test_physical_plan(cluster: LocalCluster, measured: TopologyHandle) -> None:
    plan = json.loads(heron(cluster, "physical-plan", NAME, "--container", "1", "--json"))
    pids = measured.processes()
    assert plan["stmgrs"]["stmgr-1"]["pid"] == pids["stmgr-1"]
    assert plan["bolts"] == {"looking": ["container_1_looking_3"]}
    assert plan["spouts"] == {"numbers": ["container_1_numbers_1"]}
    assert all(Path(i["logfile"]).is_file() for i in plan["instances"].values())
    shown = heron(cluster, "physical-plan", NAME)
    for id in plan["instances"]:
        assert re.search(rf"{id} .* attached .* {pids[id]} ", shown)


def test_top_without_a_terminal_looks_once(cluster: LocalCluster, measured: TopologyHandle) -> None:
    shown = heron(cluster, "top", NAME)
    assert "RUNNING, ready" in shown
    assert "\x1b" not in shown
    assert shown.count("looking") == 1
    instances = heron(cluster, "top", NAME, "-i", "--sort", "name")
    assert re.findall(r"container_\w+", instances) == [
        f"container_{name}" for name in ("2_looking_2", "1_looking_3", "1_numbers_1")
    ]


def test_top_as_json(cluster: LocalCluster, measured: TopologyHandle) -> None:
    found = json.loads(heron(cluster, "top", NAME, "--json"))
    assert (found["topology"], found["state"], found["ready"]) == (NAME, "RUNNING", True)
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["looking"]["tasks"], rows["looking"]["attached"]) == (2, 2)
    assert rows["numbers"]["latency"] > 0
    assert rows["numbers"]["pending"] == 0
    for row in rows.values():
        assert 0 < row["cpu"] < 5
        assert row["memory"] > 10 * 2**20


class Terminal:
    """`heron top` in a terminal of its own."""

    def __init__(self, cluster: LocalCluster, *args: str, columns: int = 100, rows: int = 30) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heronpy.cli", "top", *args],
            env={k: v for k, v in _environment(cluster).items() if k not in ("COLUMNS", "LINES")},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def wait_for(self, pattern: str, within_s: float = 120.0) -> str:
        """Read on until something matches in what came since the last call; returns that."""
        deadline = time.monotonic() + within_s
        new = ""
        while not re.search(pattern, new):
            assert time.monotonic() < deadline, f"no {pattern!r} in {new[-3000:]!r}"
            more = self._read()
            assert more is not None, f"it ended: {new[-3000:]!r}"
            new += more
        return new

    def end(self) -> tuple[int, str]:
        """Its exit code, and the rest of what it has shown."""
        rest = ""
        while (more := self._read()) is not None:
            rest += more
        return self.process.wait(timeout=300), rest

    def _read(self) -> str | None:
        if not select.select([self._master], [], [], 30.0)[0]:
            return ""
        try:
            return os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # nobody has the other end any more
            return None

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminals(cluster: LocalCluster, measured: TopologyHandle) -> Iterator[Any]:
    opened: list[Terminal] = []

    def terminal(*args: str, **size: int) -> Terminal:
        opened.append(Terminal(cluster, *args, **size))
        return opened[-1]

    yield terminal
    for one in opened:
        one.close()


def test_top_goes_on_until_ctrl_c_and_leaves_the_terminal_as_it_was(terminals: Any) -> None:
    top = terminals(NAME, "--interval", "0.3")
    first = top.wait_for("looking")
    assert "\x1b[?1049h" in first
    top.wait_for("looking")
    top.process.send_signal(signal.SIGINT)
    code, rest = top.end()
    assert code == 0
    assert "\x1b[?1049l" in rest
    assert "\x1b[?25h" in rest
    assert "Traceback" not in rest


def test_top_fits_into_a_narrow_terminal(terminals: Any) -> None:
    top = terminals(NAME, "--once", columns=44)
    code, shown = top.end()
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()
    assert max(len(line) for line in lines) <= 44
    assert any("emit/s" in line and "CPU %" in line for line in lines)


def test_top_says_that_the_topology_master_is_away_and_goes_on(measured: TopologyHandle, terminals: Any) -> None:
    top = terminals(NAME, "--interval", "0.2", columns=200)
    top.wait_for("looking")
    before = measured.processes()
    os.kill(before["executor-0"], signal.SIGSTOP)  # else another one may be there before `top` looks
    try:
        os.kill(before["tmaster"], signal.SIGKILL)
        top.wait_for(r"(?s)(is not up|does not answer).*this is of ")
    finally:
        os.kill(before["executor-0"], signal.SIGCONT)
    top.wait_for("the Topology Master was started again at")
    assert top.process.poll() is None
    top.process.send_signal(signal.SIGINT)
    assert top.end()[0] == 0


def test_top_ends_with_the_topology(cluster: LocalCluster, measured: TopologyHandle, terminals: Any) -> None:
    other = cluster.submit(Small, name="Ending").wait_running()
    top = terminals("Ending", "--interval", "0.2")
    top.wait_for("sums")
    other.kill()
    code, rest = top.end()
    assert code == 3
    assert "topology Ending was killed" in rest
