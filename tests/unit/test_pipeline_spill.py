"""What batch jobs and reads write to disk when memory is full."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.errors import is_shortage
from heronpy.pipeline.blocks import BLOCK_BYTES, BLOCK_ROWS, Packer, unpacked
from heronpy.pipeline.memory import LIMIT_BYTES, Memory
from heronpy.pipeline.spill import Overflow, Spill, local_directory


class Full(Memory):
    """The process uses more than it may, whatever leaves."""

    def is_full(self) -> bool:
        return True


class Totals:
    """Adds up numbers by key; the head of rows counts as well."""

    def __init__(self) -> None:
        self.totals: dict[Any, int] = {}

    def add(self, head: int, rows: list[tuple[Any, int]]) -> None:
        for key, number in rows:
            self.totals[key] = self.totals.get(key, 0) + head * number

    def dump(self) -> Iterator[tuple[int, Iterable[tuple[Any, int]]]]:
        yield 1, self.totals.items()

    def results(self) -> Iterator[tuple[Any, int]]:
        return iter(self.totals.items())


def open_files(directory: Path) -> list[str]:
    """Files of this process in a directory, also those without a name."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(f"{directory}/")]


sizes = st.lists(st.sampled_from([0, 1, 50, 3_000, 70_000, 300_000]), max_size=30)


@given(sizes, st.lists(st.integers(1, 30), max_size=5))
def test_blocks_have_all_rows_in_order_and_few_bytes(lengths: list[int], cuts: list[int]) -> None:
    rows = [(i, b"x" * length) for i, length in enumerate(lengths)]
    packer = Packer()
    pieces = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)] if cuts == sorted(cuts) else [rows]
    blocks = [block for piece in pieces for block in packer.pack("head", piece)]
    assert [row for block in blocks for row in unpacked(block)[1]] == rows
    assert {unpacked(block)[0] for block in blocks} <= {"head"}
    assert all(len(block) <= BLOCK_BYTES or len(unpacked(block)[1]) == 1 for block in blocks)


def test_one_large_row_makes_no_small_blocks_of_those_after_it() -> None:
    packer = Packer()
    rows = [(0, b"x" * 10_000_000), *((i, b"") for i in range(1, 20 * BLOCK_ROWS))]
    blocks = [unpacked(block)[1] for block in packer.pack(None, rows)]
    assert [row for block in blocks for row in block] == rows
    assert max(map(len, blocks)) == BLOCK_ROWS
    assert len(blocks) < 300


def test_the_first_rows_are_not_pickled_all_together() -> None:
    size = 100_000
    rows = [(i, bytes([i % 256]) * size) for i in range(500)]
    tracemalloc.start()
    try:
        packed = sum(len(unpacked(block)[1]) for block in Packer().pack(None, rows))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert packed == len(rows)
    assert peak < 100 * size, "memory is full when this happens"


def test_a_row_that_cannot_be_pickled_is_named_once() -> None:
    refused: list[Any] = []
    packer = Packer()
    lock = (1, (i for i in range(3)))  # a generator cannot be
    rows = [*((i, os.urandom(1000)) for i in range(500)), lock]
    blocks = packer.pack(None, rows, lambda row, error: refused.append(row))
    assert [row for block in blocks for row in unpacked(block)[1]] == rows[:-1]
    assert refused == [lock]


def test_runs_are_read_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    with Spill[str](str(tmp_path)) as spill:
        assert not spill.runs
        for i in range(5):
            spill.write("a", i, [(i, n) for n in range(3_000)])
            spill.write("b", None, [(i, "x" * 200_000)])
        spill.write_block("c", b"as it is")
        assert [*spill.runs] == ["a", "b", "c"]
        assert [*spill.rows("a")] == [(i, n) for i in range(5) for n in range(3_000)]
        assert sorted({unpacked(block)[0] for block in spill.blocks("a")}) == [0, 1, 2, 3, 4]
        assert [*spill.rows("b")] == [(i, "x" * 200_000) for i in range(5)]
        assert [*spill.blocks("c")] == [b"as it is"]
        assert [*spill.rows("d")] == []


def test_the_file_has_no_name_and_goes_with_its_spill(tmp_path: Path) -> None:
    with Spill[int](str(tmp_path)) as spill:
        assert open_files(tmp_path) == []
        spill.write(0, None, [1])
        assert len(open_files(tmp_path)) == 1
        assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path) == []


def test_nothing_is_left_of_results_that_nobody_reads_to_their_end(tmp_path: Path) -> None:
    with Overflow(Totals, Full(LIMIT_BYTES), str(tmp_path)) as totals:
        totals.add(1, [(n, n) for n in range(10_000)])
        assert next(totals.results())
        assert open_files(tmp_path)
    assert open_files(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_a_shortage_and_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with Overflow(Totals, Full(LIMIT_BYTES), str(tmp_path)) as totals:
        with pytest.raises(OSError, match="No space left") as raised:
            totals.add(1, [("a", 1)])
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path))
        assert is_shortage(raised.value)


def test_what_was_written_before_a_disk_was_full_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, room = os.pwrite, [150]

    def limited(fd: int, data: Any, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = pwrite(fd, data[: room[0]], offset)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", limited)
    with Spill[str](str(tmp_path)) as spill:
        spill.write_block("a", b"x" * 100)
        with pytest.raises(OSError, match="No space left"):
            spill.write_block("a", b"y" * 100)
        room[0] = 1000
        spill.write_block("a", b"z" * 100)
        assert [*spill.blocks("a")] == [b"x" * 100, b"z" * 100]


def test_a_block_that_is_gone_from_the_disk_is_an_error(tmp_path: Path) -> None:
    with Spill[int](str(tmp_path)) as spill:
        spill.write(0, None, [1, 2, 3])
        os.truncate(spill._fileno(), 5)
        with pytest.raises(OSError, match="not on the disk") as raised:
            [*spill.rows(0)]
        assert is_shortage(raised.value)


def test_tasks_take_turns_with_the_disks_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/a,{tmp_path}/gone,{tmp_path}/b")
    assert [local_directory(task) for task in range(3)] == [f"{tmp_path}/{name}" for name in "aba"]
    for nothing in ("", f"{tmp_path}/gone"):
        monkeypatch.setenv("SPARK_LOCAL_DIRS", nothing)
        assert local_directory(1) is None


keys = st.one_of(st.integers(-50, 50), st.text(max_size=2), st.binary(max_size=2), st.tuples(st.integers(0, 9)))


@settings(max_examples=8)  # of some hundred files each
@given(st.lists(st.tuples(keys, st.integers(-9, 9)), max_size=60), st.integers(5, 40))
def test_what_is_divided_on_disk_is_reduced_as_in_memory(rows: list[tuple[Any, int]], size: int) -> None:
    with Overflow(Totals, Memory(2**60), None) as small, Overflow(Totals, Full(LIMIT_BYTES), None) as large:
        for i in range(0, len(rows), size):
            small.add(2, rows[i : i + size])
            large.add(2, rows[i : i + size])
        expected = dict(small.results())
        found = [*large.results()]
    assert len(found) == len(expected)
    assert dict(found) == expected
