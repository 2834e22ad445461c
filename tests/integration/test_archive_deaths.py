"""Writers are killed at any moment: every committed row is there once, and no file is there by half."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.files import locked, this_process
from heronpy.errors import UnavailableError

SCRIPT = Path(__file__).with_name("archive_writing.py")


@contextlib.contextmanager
def writing(directory: Path, task: str, first: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), str(directory), task, str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(300)
        assert process.stdout is not None
        process.stdout.close()


def committed(process: subprocess.Popen[str]) -> int:
    """The last id that a killed writer has said to be committed."""
    assert process.stdout is not None
    lines = process.stdout.read().splitlines(keepends=True)
    return max((int(line) for line in lines if line.endswith("\n")), default=0)


def rows(directory: Path) -> dict[str, Any]:
    """All rows by id; every file is whole, none is set aside. A row that is there twice is the same twice."""

    def refuse(where: str, _row: Any, reason: str) -> None:
        raise AssertionError(f"{where}: {reason}")

    archive = Archive(directory)
    found: dict[str, Any] = {}
    for files in archive.batches().values():
        assert archive.check(files) == (files, {})
        for split in archive.splits(files, 1 << 20):
            for chunk in split.read(refuse):
                for id_, time_ms, value in zip(map(str, chunk.ids or ()), chunk.times_ms, chunk.values, strict=True):
                    assert time_ms == value["n"] * 20
                    assert found.setdefault(id_, value) == value
    return found


def test_a_writer_killed_at_any_moment_leaves_whole_files_and_all_that_it_committed(tmp_path: Path) -> None:
    rng = random.Random(20240506)
    upto = 0
    for _ in range(6):
        with writing(tmp_path, "t-0", upto) as process:
            assert process.stdout is not None
            first = process.stdout.readline()  # at least one commit
            time.sleep(rng.random() * 0.15)  # the moment of death is what varies here, nothing is waited for
            process.kill()
            upto = max(int(first), committed(process))
        found = rows(tmp_path)
        assert {f"t-0-{index}" for index in range(upto)} <= found.keys()
        complete = Archive(tmp_path).complete_before_ms()
        assert complete is not None
        assert {f"t-0-{index}" for index in range(complete // 20)} <= found.keys()


def test_several_writers_change_the_schema_at_once_and_lose_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(writing(tmp_path, f"t-{index}")) for index in range(3)]
        said = []
        for process in processes:
            assert process.stdout is not None
            said.append([int(process.stdout.readline()) for _ in range(8)][-1])
        for process in processes:
            process.kill()
        upto = [max(last, committed(process)) for last, process in zip(said, processes, strict=True)]
    found = rows(tmp_path)
    for task, count in enumerate(upto):
        assert {f"t-{task}-{index}" for index in range(count)} <= found.keys()
    assert {f"f{index}" for index in range(8)} <= Archive(tmp_path).schema.element["dict"].keys()


def test_a_new_writer_removes_what_dead_ones_left_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait(300)
    host = this_process().partition("@")[0]
    (tmp_path / "_tmp").mkdir()
    left = tmp_path / "_tmp" / f"{host}@{dead.pid}@0123"
    alive = tmp_path / "_tmp" / f"{host}@{os.getpid()}@0123"
    elsewhere = tmp_path / "_tmp" / "another-host@1@0123"
    long_ago = tmp_path / "_tmp" / "another-host@2@0123"
    for path in (left, alive, elsewhere, long_ago):
        path.write_bytes(b"")
    os.utime(long_ago, (time.time() - 4000,) * 2)
    ArchiveWriter(tmp_path, task="t", batch_length_ms=1, codec="pickle", dead_letter=lambda *_: None)
    assert set((tmp_path / "_tmp").iterdir()) == {alive, elsewhere}


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    script = "import sys, time\nfrom pathlib import Path\nfrom heronpy.archive.files import locked\n"
    script += "with locked(Path(sys.argv[1]), 'x'):\n    print('held', flush=True)\n    time.sleep(600)"
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UnavailableError, match="is locked by another process"), locked(path, "y", wait_s=0):
            pass
    finally:
        holder.kill()
        holder.wait(300)
        assert holder.stdout is not None
        holder.stdout.close()
    with locked(path, "y", wait_s=0):
        pass
