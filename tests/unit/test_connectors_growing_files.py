"""Files that are read while somebody writes them: a row counts when it is whole, and once."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.checkpoints import NOTHING_SAVED
from heronpy.connectors import CsvFile, JsonLines, ListSource, ParquetFile, Source, SourceSpout, TextFile
from heronpy.connectors.split_set import SplitSet
from heronpy.errors import ConfigError
from heronpy.state import Place, TaskStates
from heronpy.streamlet import Builder
from heronpy.testing.connectors_kit import DeadLetters, drain, open_source
from heronpy.testing.positions_kit import split_context

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


class Reader:
    """A task that looks for more before each read, and remembers the values and the ids that it has read."""

    def __init__(
        self,
        source: Source,
        discover_every_s: float | None = 1.0,
        forget_after_s: float | None = None,
        dead: DeadLetters | None = None,
    ) -> None:
        """Without `dead` a dead letter fails the test."""
        self.now_s = 0.0
        self.positions = TaskStates(Place("t", "lines"), NOTHING_SAVED).split_state("positions")
        self._splits = SplitSet(
            source,
            self.positions,
            split_context(dead),
            discover_every_s=discover_every_s,
            idle_after_s=60,
            forget_after_s=forget_after_s,
            clock=lambda: self.now_s,
        )
        self.values: list[Any] = []
        self.ids: list[str] = []
        self.times_ms: list[int] = []

    def look(self) -> None:
        """Read what there is."""
        self.now_s += 1.0
        while True:
            name, records, position = self._splits.read(10)
            if name is None:
                return
            self.positions[name] = position
            self.values += [record.value for record in records]
            self.ids += [record.id for record in records]
            self.times_ms += [record.time_ms for record in records]

    def close(self) -> None:
        self._splits.close()


ROWS = [{"n": "1", "m": 'of "two"\nlines, €'}, {"n": "22", "m": "ü"}, {"n": "333", "m": ""}]
KINDS: dict[str, tuple[Callable[[Any], Source], bytes, list[Any]]] = {
    "text": (TextFile, "16412\n\nüber\r\n4\n".encode(), ["16412", "", "über", "4"]),
    "json": (JsonLines, b"".join(json.dumps(row).encode() + b"\n" for row in ROWS) + b"7\n12\n", [*ROWS, 7, 12]),
    "csv": (CsvFile, 'n,m\n1,"of ""two""\nlines, €"\r\n22,ü\n333,\n'.encode(), ROWS),
}


@pytest.mark.parametrize(("kind", "content", "expected"), list(KINDS.values()), ids=list(KINDS))
def test_no_row_is_read_before_it_is_whole_wherever_its_writer_pauses(
    tmp_path: Path, kind: Callable[[Any], Source], content: bytes, expected: list[Any]
) -> None:
    path = tmp_path / "log"
    path.touch()
    reader = Reader(kind(path))
    for byte in content:
        with path.open("ab") as f:
            f.write(bytes([byte]))
        reader.look()
        assert reader.values == expected[: len(reader.values)]
    assert reader.values == expected
    assert len(set(reader.ids)) == len(expected)
    reader.close()


@pytest.mark.parametrize("kind", ["text", "json", "csv"])
def test_a_last_row_without_an_end_is_read_when_its_file_has_rested(tmp_path: Path, kind: str) -> None:
    make, content, expected = KINDS[kind]
    path = tmp_path / "log"
    path.write_bytes(content[:-1])
    reader = Reader(make(path))
    reader.look()
    assert reader.values == expected[:-1]
    past_s = time.time() - 61
    os.utime(path, (past_s, past_s))
    reader.look()
    reader.look()
    assert reader.values == expected
    reader.close()


def test_a_row_that_cannot_be_parsed_is_set_aside_when_its_file_has_rested(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('n,m\n1,2\n3,"4\n5,6\n')
    source, dead = CsvFile(path), DeadLetters()
    reader = Reader(source)
    reader.look()
    assert reader.values == [{"n": "1", "m": "2"}], "the quote may still be closed"
    reader.close()
    past_s = time.time() - 61
    os.utime(path, (past_s, past_s))
    assert [record.value["n"] for record in drain(open_source(source, dead=dead))] == ["1", "5"]
    assert [where for where, _, _ in dead.letters] == [f"{path}:8"]


@pytest.mark.parametrize("kind", ["gz", "parquet"])
def test_a_file_that_is_being_copied_is_no_damage(tmp_path: Path, kind: str) -> None:
    whole = tmp_path / "whole.gz"
    if kind == "parquet":
        pq.write_table(pa.table({"n": range(5000)}), whole, row_group_size=1000)
    else:
        whole.write_bytes(gzip.compress("".join(f"{n}\n" for n in range(5000)).encode()))
    content, path = whole.read_bytes(), tmp_path / f"a.{kind}"
    path.touch()
    reader = Reader(ParquetFile(path) if kind == "parquet" else TextFile(path))
    for end in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:end])
        reader.look()
    path.write_bytes(content)
    reader.look()
    assert reader.values == [{"n": n} if kind == "parquet" else str(n) for n in range(5000)]
    reader.close()
    path.write_bytes(content[: len(content) // 2])
    past_s = time.time() - 61
    os.utime(path, (past_s, past_s))
    with pytest.raises(AssertionError, match=r"set aside: .*: cannot be read"):
        Reader(ParquetFile(path) if kind == "parquet" else TextFile(path)).look()


def test_what_is_looked_at_once_has_its_last_row_whenever_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2")
    reader = Reader(TextFile(path), discover_every_s=None)
    reader.look()
    assert reader.values == ["1", "2"]
    reader.close()


@pytest.mark.parametrize(
    ("name", "source", "content"),
    [
        ("a.txt.gz", TextFile, gzip.compress(os.urandom(100_000).hex().encode())[:-9]),
        ("a.csv", CsvFile, b"a,\xff\n1,2\n"),
        ("a.csv", CsvFile, b"a,a\n1,2\n"),
        ("a.parquet", ParquetFile, b"PAR1 and then nothing"),
    ],
    ids=["gz", "header", "names", "parquet"],
)
def test_what_cannot_be_read_is_set_aside_once_however_often_it_is_looked_at(
    tmp_path: Path, name: str, source: Callable[[Any], Source], content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    os.utime(path, (1, 1))  # nobody is writing it
    dead = DeadLetters()
    reader = Reader(source(path), dead=dead)
    for _ in range(3):
        reader.look()
    assert len(dead.letters) == 1
    again = Reader(source(path), dead=dead)
    again.positions.update(reader.positions)  # as a checkpoint has them
    again.look()
    assert len(dead.letters) == 1
    reader.close()
    again.close()


def test_a_file_that_goes_on_and_is_damaged_again_is_set_aside_again(tmp_path: Path) -> None:
    path, lines = tmp_path / "a.gz", b"".join(b"%d\n" % n for n in range(100_000))
    whole, dead = gzip.compress(lines), DeadLetters()
    reader = Reader(TextFile(path), dead=dead)
    for part, letters in ((whole[: len(whole) // 2], 1), (whole[:-9], 2), (whole, 2)):
        path.write_bytes(part)
        os.utime(path, (1, 1))
        for _ in range(3):
            reader.look()
        assert len(dead.letters) == letters
    assert reader.values == [f"{n}" for n in range(100_000)]
    reader.close()


def test_rows_keep_the_time_they_were_first_read_with_and_the_position_does_not_grow_with_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    reader, positions = Reader(TextFile(path)), []
    for n in range(1, 100):
        with path.open("a") as f:
            f.write(f"{n}\n" * (n % 3))  # sometimes nothing new
        os.utime(path, (1000 + n, 1000 + n))
        reader.look()
        positions.append((len(reader.values), pickle.dumps(dict(reader.positions))))
    assert reader.times_ms == [1000 * (1000 + n) for n in range(1, 100) for _ in range(n % 3)]
    assert max(len(position) for _, position in positions) < min(len(position) for _, position in positions[1:]) + 50
    for read, position in positions[5::10]:
        again = Reader(TextFile(path))
        again.positions.update(pickle.loads(position))
        again.look()
        assert (again.ids, again.values) == (reader.ids[read:], reader.values[read:])
    reader.close()


def files_in(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).write_text(name + "\n")


def test_the_position_of_a_file_that_has_been_gone_for_long_is_forgotten(tmp_path: Path) -> None:
    files_in(tmp_path, "a", "b")
    reader = Reader(TextFile(f"{tmp_path}/*"), forget_after_s=10)
    reader.look()
    (tmp_path / "a").unlink()
    for _ in range(10):
        reader.look()
        assert len(reader.positions) == 2
    reader.look()
    assert list(reader.positions) == [f"{tmp_path}/b:0"]
    files_in(tmp_path, "a", "c")
    reader.look()
    assert reader.values == ["a", "b", "a", "c"]
    reader.close()


def test_a_file_that_comes_back_in_time_is_not_read_twice(tmp_path: Path) -> None:
    files_in(tmp_path, "a", "b")
    reader = Reader(TextFile(f"{tmp_path}/*"), forget_after_s=10)
    for _ in range(4):
        reader.look()
        (tmp_path / "a").rename(tmp_path / ".a")
        for _ in range(8):
            reader.look()
        (tmp_path / ".a").rename(tmp_path / "a")
    assert reader.values == ["a", "b"]
    reader.close()


def test_no_position_is_forgotten_while_a_listing_fails_or_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "other").mkdir()
    files_in(tmp_path / "in", "a", "b")
    files_in(tmp_path / "other", "c")
    reader = Reader(TextFile(f"{tmp_path}/*/*"), forget_after_s=10)
    reader.look()
    listed = os.scandir

    def denied(folder: str) -> Any:
        if str(folder).endswith("in"):
            raise PermissionError(13, "Permission denied", folder)
        return listed(folder)

    with monkeypatch.context() as patched:  # root may list what it likes
        patched.setattr(os, "scandir", denied)
        for _ in range(40):
            reader.look()
    assert len(reader.positions) == 3
    for path in ("in", "other"):  # all gone at once: perhaps not mounted
        (tmp_path / path).rename(tmp_path / f".{path}")
    for _ in range(40):
        reader.look()
    assert len(reader.positions) == 3
    for path in ("in", "other"):
        (tmp_path / f".{path}").rename(tmp_path / path)
    reader.look()
    assert reader.values == ["a", "b", "c"]
    reader.close()


def test_files_that_are_followed_may_come_later_and_may_all_be_gone_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(TextFile(f"{tmp_path}/*"))
    reader.look()
    reader.look()
    assert len(caplog.messages) == 1, "not each time that there is none"
    files_in(tmp_path, "a")
    reader.look()
    (tmp_path / "a").unlink()
    reader.look()
    assert len(caplog.messages) == 2
    files_in(tmp_path, "b")
    reader.look()
    assert reader.values == ["a", "b"]
    reader.close()


def test_what_cannot_forget_positions_says_so() -> None:
    for source, options in (
        (ListSource([1]), {"discover_every_s": 1, "forget_after_s": 1}),
        (TextFile("/a"), {"forget_after_s": 1}),
        (TextFile("/a"), {"discover_every_s": 1, "forget_after_s": 0}),
    ):
        for describe in (SourceSpout, Builder().new_source):
            with pytest.raises(ConfigError, match="forget_after_s"):
                describe(source, **options)
