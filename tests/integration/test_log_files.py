"""Log and output files of running processes: bounded, rotated under load, JSON that is valid, read by `heron logs`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from heron_command import heron_command

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

FILE_BYTES = 50_000
FILES = 4
LINES = 20_000
SPOUT = "container_1_chatting_1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    properties = {
        "heron.logging.maximum.size.mb": FILE_BYTES / 2**20,
        "heron.logging.maximum.files": FILES,
        "heron.logging.format": "json",
    }
    with LocalCluster(properties) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def chat(cluster: LocalCluster) -> TopologyHandle:
    """A topology that has logged and printed many times more than all of its files hold."""
    chat = cluster.submit(Path(__file__).parent / "logging_topology.py", "Chat").wait_running()

    def finished() -> None:
        """All is written, and no file is about to be rotated."""
        text = chat.logs(SPOUT)
        assert f"ValueError: number {LINES}" in text
        assert f"printed {LINES}\n" in text
        sizes = {path.name: path.stat().st_size for path in chat.launch.log_dir(1).glob(f"{SPOUT}.out")}
        assert all(size < FILE_BYTES for size in sizes.values())
        assert sizes, "it is being rotated"

    eventually_sync(finished)
    return chat


def heron(cluster: LocalCluster, *args: str) -> str:
    done = heron_command(*args, home=cluster.home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(chat: TopologyHandle, suffix: str) -> list[Path]:
    """The newest first."""
    newest = chat.launch.log_dir(1) / f"{SPOUT}{suffix}"
    return [newest, *(path for n in range(1, 100) if (path := Path(f"{newest}.{n}")).exists())]


def test_log_files_are_bounded_in_size_and_number(chat: TopologyHandle) -> None:
    found = files(chat, ".log")
    assert len(found) == FILES + 1
    assert all(path.stat().st_size <= FILE_BYTES for path in found)


def test_every_line_of_every_process_is_json(chat: TopologyHandle) -> None:
    seen = set()
    for path in chat.launch.dir.glob("container_*/log-files/*.log*"):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            assert record["topology"] == "Chat"
            assert {"ts", "level", "logger", "message"} <= record.keys()
            seen.add(record["process"])
    assert {SPOUT, "tmaster", "stmgr-1", "metricsmgr-0", "metricsmgr-1", "executor"} <= seen


def test_no_line_is_lost_by_rotation(chat: TopologyHandle) -> None:
    text = b"".join(path.read_bytes() for path in reversed(files(chat, ".log")))
    messages = [json.loads(line)["message"] for line in text.splitlines()]
    numbers = [int(m.split()[1]) for m in messages if m.startswith("line ")]
    assert numbers == list(range(numbers[0], LINES + 1))
    assert f"line {LINES} says \u201chello\u201d\nand more" in messages


def test_tracebacks_are_a_field(chat: TopologyHandle) -> None:
    records = [json.loads(line) for line in files(chat, ".log")[0].read_bytes().splitlines()]
    failed = [r for r in records if r["message"] == "failed with \udc80"]
    assert failed
    assert all(r["level"] == "ERROR" and "ValueError: number" in r["exc"] for r in failed)


def test_what_is_printed_is_bounded_too_while_the_process_runs(chat: TopologyHandle) -> None:
    found = files(chat, ".out")
    assert 2 <= len(found) <= FILES + 1
    assert found[0].stat().st_size < FILE_BYTES
    text = b"".join(path.read_bytes() for path in reversed(found)).decode()
    numbers = [int(n) for n in re.findall(r"^printed (\d+)$", text, re.MULTILINE)]
    assert numbers == list(range(numbers[0], LINES + 1))


def test_heron_logs_shows_json_as_text_and_goes_back_into_rotated_files(
    cluster: LocalCluster, chat: TopologyHandle
) -> None:
    shown = heron(cluster, "logs", "Chat", SPOUT, "-n", "1000")
    log, _, _ = shown.partition("==> ")
    assert len(re.findall(r" INFO \d+ chatting\.1: line \d+ says", log)) > 900
    assert f": line {LINES} says \u201chello\u201d\nand more\n" in log
    assert "Traceback (most recent call last):" in log
    assert '"message"' not in log


def test_heron_logs_raw_leaves_them_as_they_are(cluster: LocalCluster, chat: TopologyHandle) -> None:
    log, _, _ = heron(cluster, "logs", "Chat", SPOUT, "-n", "500", "--raw").partition("==> ")
    lines = log.splitlines()
    assert len(lines) == 500
    assert all(json.loads(line)["process"] == SPOUT for line in lines)
