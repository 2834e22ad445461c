"""`heron stacks`, `memory` and `files`, of a container of this host; `test_containers_shell` has those of others."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from heron_command import heron_command
from numbers_topology import Numbers

from heronpy.testing import LocalCluster

SPOUT = "container_1_numbers_1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        cluster.submit(Numbers, name="words").wait_running()
        yield cluster


def heron(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*words, home=cluster.home)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("stacks", "words", SPOUT), "MainThread"),
        (("stacks", "words", "stmgr-1"), "MainThread"),
        (("memory", "words", SPOUT), "VmRSS"),
        (("memory", "words", "tmaster", "--objects"), "builtins"),
        (("memory", "words", SPOUT, "--mappings"), "[heap]"),
        (("files", "words", "--container", "1"), f"{SPOUT}.log"),
        (("files", "words", f"{SPOUT}.log", "--container", "1"), "INFO"),
    ],
)
def test_a_process_and_its_files_are_seen_from_inside(cluster: LocalCluster, words: tuple[str, ...], seen: str) -> None:
    done = heron(cluster, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert seen in done.stdout


def test_a_file_is_printed_as_it_is(cluster: LocalCluster) -> None:
    (directory,) = cluster.home.glob("topologies/*/*/*/words/container_1/log-files")
    (directory / "sub").mkdir()
    (directory / "sub/large").write_text("0123456789abcdef" * 200_000)
    done = heron(cluster, "files", "words", "sub/large", "--container", "1")
    assert done.stdout == "0123456789abcdef" * 200_000
    assert "large" in heron(cluster, "files", "words", "log-files/sub/", "--container", "1").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stacks", "words"), 2, "of which process of words?"),
        (("stacks", "words", "container_1_numbers_9"), 3, f"did you mean '{SPOUT}'?"),
        (("stacks", "words", "nothing"), 3, "no process 'nothing'"),
        (("memory", "words", "stmgr-7"), 3, "no container 7"),
        (("memory", "words", SPOUT, "--objects", "--mappings"), 2, "not both"),
        (("files", "words", "stmgr-1.lug", "--container", "1"), 3, "did you mean 'stmgr-1.log'?"),
        (("files", "words", "/etc/passwd", "--container", "1"), 2, "absolute"),
        (("files", "words", "../../etc", "--container", "1"), 3, "not below log-files"),
        (("files", "words"), 2, "--container"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(
    cluster: LocalCluster, words: tuple[str, ...], code: int, said: str
) -> None:
    done = heron(cluster, *words)
    assert (done.returncode, said in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert "Traceback" not in done.stderr
