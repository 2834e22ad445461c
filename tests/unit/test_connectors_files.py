"""Files as sources: both faces, restarts, what is malformed."""

from __future__ import annotations

import contextlib
import csv
import datetime
import errno
import glob
import gzip
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shortages import no_descriptors

from heronpy.connectors import CsvFile, JsonLines, ListSource, ParquetFile, Source, TextFile
from heronpy.connectors import lines as _lines
from heronpy.errors import ConfigError, HeronError, NotFoundError, UnavailableError
from heronpy.testing.connectors_kit import Damaged, DeadLetters, SourceKit, drain, open_source, read_chunks
from heronpy.testing.positions_kit import RewindableSourceKit

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def _many(tmp_path: Path, lines: Sequence[str], suffix: str, files: int = 3, header: str = "") -> str:
    for number in range(files):
        with (tmp_path / f"f{number}{suffix}").open("w", newline="") as f:
            f.write(header)
            f.writelines(line + "\n" for line in lines[number::files])
    return str(tmp_path / f"*{suffix}")


class TestTextFile(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [f"líne {n}" for n in range(200)]

    @pytest.fixture
    def source(self, tmp_path: Path, values: Sequence[Any]) -> Source:
        return TextFile(_many(tmp_path, values, ".txt"))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Damaged:
        (tmp_path / "bad").write_bytes(b"one\ntw\xff\nthree\n\xe4")
        return Damaged(TextFile(tmp_path / "bad"), ["one", "three"], ["bad:4", "bad:14"])


class TestJsonLines(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": n, "text": "ü" * (n % 5)} for n in range(200)]

    @pytest.fixture
    def source(self, tmp_path: Path, values: Sequence[Any]) -> Source:
        return JsonLines(_many(tmp_path, [json.dumps(value) for value in values], ".json"))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Damaged:
        (tmp_path / "bad").write_bytes(b'{"a":1}\n{"a":\n\n2}\n[1,2]\r\n"\xff"\n{"a":1} 3')
        return Damaged(JsonLines(tmp_path / "bad"), [{"a": 1}, [1, 2]], ["bad:8", "bad:15", "bad:25", "bad:29"])


class TestCsvFile(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": str(n), "text": 'two\nlines, "quoted"' if n % 3 == 0 else f"é{n}"} for n in range(200)]

    @pytest.fixture
    def source(self, tmp_path: Path, values: Sequence[Any]) -> Source:
        for number in range(2):
            with (tmp_path / f"{number}.csv").open("w", newline="") as f:
                writer = csv.DictWriter(f, ["n", "text"])
                writer.writeheader()
                writer.writerows(values[number::2])
        return CsvFile(tmp_path / "*.csv")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Damaged:
        (tmp_path / "bad.csv").write_bytes(b'a,b\n1,2\n3\n\n4,5,6\n7,"8\n9,\xff\n10,"11"x\n12,13\n')
        return Damaged(
            CsvFile(tmp_path / "bad.csv"),
            [{"a": "1", "b": "2"}, {"a": "12", "b": "13"}],
            ["bad.csv:8", "bad.csv:11", "bad.csv:17", "bad.csv:22", "bad.csv:26"],
        )


class TestParquetFile(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [{"n": n, "tags": ["x"] * (n % 3), "text": None if n % 7 == 0 else f"é{n}"} for n in range(200)]

    @pytest.fixture
    def source(self, tmp_path: Path, values: Sequence[Any]) -> Source:
        for number in range(2):
            pq.write_table(pa.Table.from_pylist(values[number::2]), tmp_path / f"{number}.parquet", row_group_size=30)
        return ParquetFile(tmp_path / "*.parquet")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Damaged:
        path = tmp_path / "bad.parquet"
        rows = [{"n": n} for n in range(90)]
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=30, use_dictionary=False, compression="none")
        column = pq.read_metadata(path).row_group(1).column(0)
        raw = bytearray(path.read_bytes())
        raw[column.data_page_offset : column.data_page_offset + 20] = b"\xff" * 20
        path.write_bytes(raw)
        (tmp_path / "none.parquet").write_bytes(b"no parquet at all")
        return Damaged(
            ParquetFile(tmp_path / "*.parquet"), rows[:30] + rows[60:], ["bad.parquet: row group 1", "none.parquet"]
        )


class TestListSource(SourceKit, RewindableSourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [("key", n) for n in range(300)]

    @pytest.fixture
    def source(self, values: Sequence[Any]) -> Source:
        return ListSource(values)


_SMALL = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_CONTENT = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\xc3\xa4", b"\xff", b"x" * 40]), max_size=60).map(
    b"".join
)


def _lines_of(content: bytes) -> dict[int, str]:
    """The lines by their offsets, worked out slowly."""
    found, start = {}, 0
    for line in content.splitlines(keepends=True) if b"\r" not in content else _cut(content):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        found[start] = text.decode(errors="replace")
        start += len(line)
    return found


def _cut(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@_SMALL
@given(content=_CONTENT, part_bytes=st.integers(1, 80), block_bytes=st.integers(1, 50), tasks=st.integers(1, 5))
def test_any_division_of_any_file_gives_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, part_bytes: int, block_bytes: int, tasks: int
) -> None:
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(_lines, "STREAM_PART_BYTES", part_bytes)
    path = tmp_path / "any"
    path.write_bytes(content)
    expected = _lines_of(content)
    source = TextFile(path, errors="replace")
    batch = [value for chunk in read_chunks(source, part_bytes, DeadLetters()) for value in chunk.values]
    assert batch == list(expected.values())
    records = [record for task in range(tasks) for record in drain(open_source(source, task=task, of=tasks), limit=3)]
    assert sorted((int(record.id.rpartition(":")[2]), record.value) for record in records) == sorted(expected.items())


@_SMALL
@given(
    content=_CONTENT, part_bytes=st.integers(1, 80), stops=st.lists(st.integers(0, 9), max_size=4), seed=st.integers()
)
def test_no_restart_loses_a_line_wherever_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, part_bytes: int, stops: list[int], seed: int
) -> None:
    monkeypatch.setattr(_lines, "STREAM_PART_BYTES", part_bytes)
    shutil.rmtree(tmp_path / "positions", ignore_errors=True)
    path = tmp_path / "any"
    path.write_bytes(content)
    source = TextFile(path, errors="replace")
    chance = random.Random(seed)
    acked: dict[int, str] = {}
    for stop in [*stops, 1000]:
        tasks = chance.randint(1, 3)
        for task in range(tasks):
            reader = open_source(source, task=task, of=tasks, directory=tmp_path)
            records = []
            while not reader.ended and len(records) < stop:
                records += reader.read(3)
            done = records if stop == 1000 else chance.sample(records, min(len(records), stop // 2))
            reader.ack(done)
            acked |= {int(record.id.rpartition(":")[2]): record.value for record in done}
            reader.close()
    assert acked == _lines_of(content)


def test_a_line_longer_than_the_limit_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 10)
    monkeypatch.setattr(_lines, "LINE_BYTES_MAX", 50)
    path = tmp_path / "long"
    path.write_text("one\n" + "x" * 500 + "\ntwo\n" + "y" * 500)
    dead = DeadLetters()
    assert [record.value for record in drain(open_source(TextFile(path), dead=dead))] == ["one", "two"]
    assert [where for where, _, _ in dead.letters] == [f"{path}:4", f"{path}:509"]


def test_after_a_restart_a_longer_file_goes_on_and_a_shorter_one_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source = TextFile(path)

    def read_and_ack() -> list[str]:
        reader = open_source(source, directory=tmp_path)
        records = drain(reader)
        reader.ack(records)
        reader.close()
        return [record.value for record in records]

    path.write_text("one\ntwo\n")
    assert read_and_ack() == ["one", "two"]
    path.write_text("one\ntwo\nthree\n")
    assert read_and_ack() == ["three"]
    path.write_text("four\n")
    assert read_and_ack() == ["four"]
    path.write_text("four\nfive\nsix\nseven\neight\n")
    assert read_and_ack() == ["five", "six", "seven", "eight"]


def test_lines_that_replace_others_in_a_file_have_other_ids(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def ids(text: str) -> list[str]:
        path.write_text(text)
        reader = open_source(TextFile(path), directory=tmp_path)
        records = drain(reader)
        reader.ack(records)
        reader.close()
        return [record.id for record in records]

    # A batch job takes elements of one id for one element: without this it would drop "four" for having seen "one".
    assert ids("one\ntwo\n") == [f"{path}:0", f"{path}:4"]
    assert ids("four\n") == [f"{path}:1~0"]
    assert ids("four\nfive\n") == [f"{path}:1~5"]
    assert ids("six\n") == [f"{path}:2~0"]


def test_a_line_keeps_its_time_while_its_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with_header = CsvFile(tmp_path / "log", fields=["n"], header=False)
    for source in (TextFile(path), with_header):
        directory = tmp_path / type(source).__name__
        path.write_text("one\ntwo\n")
        os.utime(path, (100, 100))
        drain(open_source(source, directory=directory))  # nothing is acked, nothing closed: as by a kill
        path.write_text("one\ntwo\nthree\n")
        os.utime(path, (200, 200))
        reader = open_source(source, directory=directory)
        records = drain(reader)
        assert [(record.time_ms, record.id) for record in records] == [
            (100_000, f"{path}:0"),
            (100_000, f"{path}:4"),
            (200_000, f"{path}:8"),
        ]
        os.utime(path, (300, 300))
        assert [r.time_ms for r in drain(open_source(source, directory=directory))] == [100_000, 100_000, 200_000]
        path.write_text("new\n")
        os.utime(path, (400, 400))
        assert [r.time_ms for r in drain(open_source(source, directory=directory))] == [400_000]


def test_a_positions_file_that_cannot_be_read_costs_duplicates_and_no_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    source = TextFile(tmp_path / "log")
    reader = open_source(source, directory=tmp_path)
    reader.ack(drain(reader))
    reader.close()
    saved = tmp_path / "positions" / "stage" / "0.json"
    saved.write_text("{")
    assert [record.value for record in drain(open_source(source, directory=tmp_path))] == ["one", "two"]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "c").mkdir()
    paths = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for source in (TextFile(paths), JsonLines(paths), CsvFile(paths, header=False), ParquetFile(paths)):
        stream, batch = DeadLetters(), DeadLetters()
        drain(open_source(source, dead=stream))
        read_chunks(source, 10, batch)
        for dead in (stream, batch):
            named = {where for where, _, reason in dead.letters if "cannot be read" in reason}
            assert {str(tmp_path / "b"), str(tmp_path / "c")} <= named, source


def _read_and_ack(source: Source, directory: Path, task_index: int = 0, num_tasks: int = 1) -> list[Any]:
    reader = open_source(source, task=task_index, of=num_tasks, directory=directory, dead=DeadLetters())
    records = drain(reader)
    reader.ack(records)
    reader.close()
    return [record.value for record in records]


def test_a_file_that_is_away_for_one_start_goes_on_where_it_was(tmp_path: Path) -> None:
    one, two, away = (tmp_path / name for name in ("one", "two", "away"))
    one.write_text("1\n2\n")
    two.write_text("3\n")
    source = TextFile([one, two])
    assert _read_and_ack(source, tmp_path) == ["1", "2", "3"]
    one.rename(away)
    assert _read_and_ack(source, tmp_path) == []
    away.rename(one)
    with one.open("a") as f:
        f.write("4\n")
    assert _read_and_ack(source, tmp_path) == ["4"]


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_a_task_that_starts_first_takes_no_positions_from_those_that_start_later(tmp_path: Path, tasks: int) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(12)]
    for path in files:
        path.write_text("old\n")
    source = TextFile(tmp_path / "*.txt")
    assert sum(len(_read_and_ack(source, tmp_path, task, 2)) for task in range(2)) == 12
    for path in files:
        with path.open("a") as f:
            f.write("new\n")
    read = [value for task in range(tasks) for value in _read_and_ack(source, tmp_path, task, tasks)]
    assert read == ["new"] * 12


def test_what_is_no_file_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(tmp_path):
        listening.bind("socket")
        for source in (TextFile("*"), ParquetFile(["pipe", "socket"])):
            dead = DeadLetters()
            assert [record.value for record in drain(open_source(source, dead=dead))] in (["1"], [])
            assert [(where, reason) for where, _, reason in dead.letters] == [
                (str(tmp_path / name), f"cannot be read: it is a {name}") for name in ("pipe", "socket")
            ]


def test_a_file_is_not_passed_over_for_want_of_file_descriptors(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('"n"\n1\n')
    shutil.copy(tmp_path / "a", tmp_path / "a.gz")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "p")
    plain = [tmp_path / "a"]
    for source in (TextFile(plain), TextFile([tmp_path / "a.gz"]), CsvFile(plain), ParquetFile([tmp_path / "p"])):
        dead = DeadLetters()
        (part,) = source.splits(1000)
        with no_descriptors(), pytest.raises(UnavailableError, match="Too many open files"):
            list(part.read(dead))
        assert dead.letters == []


def test_a_folder_is_not_taken_for_empty_for_want_of_file_descriptors(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    for source in (TextFile(tmp_path / "*"), ParquetFile(tmp_path / "**" / "*.parquet")):
        with no_descriptors(), pytest.raises(UnavailableError, match=f"{tmp_path} cannot be read now: Too many open"):
            source.splits(1000)


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.lists(st.sampled_from(["a", "b1", "b2", ".c", "[d]"]), min_size=1, max_size=3).map("/".join), max_size=6
    ),
    pattern=st.lists(st.sampled_from(["a", "b?", "*", "**", ".*", "[ab]*", "[d]"]), min_size=1, max_size=3).map(
        "/".join
    ),
)
def test_a_pattern_matches_what_glob_finds(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], pattern: str
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    for name in names:
        path = folder / name
        if not path.exists() and not any(parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    if (folder / "a").exists():
        (folder / "link").symlink_to(folder / "a")
    full = f"{folder}/{pattern}"
    try:
        found = [value for chunk in read_chunks(TextFile(full), 1000, DeadLetters()) for value in chunk.values]
    except (NotFoundError, ConfigError):  # a directory, too, is nothing to read
        found = []
    # A file of just that name is what is meant, whatever its brackets would match.
    expected = {full} if Path(full).is_file() else {p for p in glob.glob(full, recursive=True) if os.path.isfile(p)}
    assert sorted(found) == sorted(Path(path).read_text() for path in expected)
    shutil.rmtree(folder)


def test_a_folder_that_may_not_be_listed_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("1\n")
    scandir = os.scandir

    def closed(folder: str) -> Any:  # root, which tests may be run by, may list all
        if folder.endswith("/closed"):
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", closed)
    source = TextFile(tmp_path / "*" / "*")
    for _ in range(2):
        assert [record.value for record in drain(open_source(source))] == ["1"]
    assert caplog.messages == [f"{tmp_path}/closed cannot be listed, so nothing in it is read: Permission denied"]


def test_positions_that_cannot_be_read_are_not_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    reader = open_source(TextFile(tmp_path / "a"), directory=tmp_path / "stage")
    reader.ack(drain(reader))
    reader.close()
    (saved,) = tmp_path.rglob("0.json")
    saved.rename(saved.with_suffix(".moved"))
    saved.symlink_to(saved)  # ELOOP, as an error that is not about what was saved
    with pytest.raises(UnavailableError, match="symbolic links"):
        open_source(TextFile(tmp_path / "a"), directory=tmp_path / "stage")


def test_nothing_that_matches_is_one_line(tmp_path: Path) -> None:
    for source in (TextFile(tmp_path / "*.log"), CsvFile([tmp_path / "x"]), ParquetFile(tmp_path / "**" / "x")):
        with pytest.raises(NotFoundError, match="no file matches") as error:
            source.splits(1)
        assert "\n" not in str(error.value)
        with pytest.raises(NotFoundError):
            open_source(source)


def test_relative_patterns_begin_where_the_source_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    source = TextFile("a")
    monkeypatch.chdir("/")
    assert [record.id for record in drain(open_source(source))] == [f"{tmp_path}/a:0"]


def test_times_are_when_the_file_was_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    os.utime(tmp_path / "a", (1000.5, 1000.5))
    assert [record.time_ms for record in drain(open_source(TextFile(tmp_path / "a")))] == [1_000_500]


def test_encodings_and_byte_order_marks(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe4\n\xfc\r\n")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    latin = drain(open_source(TextFile(tmp_path / "latin", encoding="latin-1")))
    assert [record.value for record in latin] == ["ä", "ü"]
    bom = drain(open_source(TextFile(tmp_path / "bom", encoding="utf-8-sig")))
    assert [record.value for record in bom] == ["a,b", "1,2"]
    assert [record.value for record in drain(open_source(CsvFile(tmp_path / "bom")))] == [{"a": "1", "b": "2"}]
    with pytest.raises(ConfigError, match="convert them to UTF-8"):
        TextFile("x", encoding="utf-16")
    with pytest.raises(ConfigError, match="unknown encoding"):
        TextFile("x", encoding="nonsense")


def test_csv_without_a_header_gives_lists_and_fields_name_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n3;4\n")
    rows = drain(open_source(CsvFile(tmp_path / "a.csv", header=False, delimiter=";")))
    assert [row.value for row in rows] == [["1", "2"], ["3", "4"]]
    rows = drain(open_source(CsvFile(tmp_path / "a.csv", header=False, delimiter=";", fields=["x", "y"])))
    assert [row.value for row in rows] == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]
    with pytest.raises(ConfigError):
        CsvFile(tmp_path / "a.csv", delimiter="--")


def test_parquet_reads_chosen_columns_and_names_one_that_is_missing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), tmp_path / "t.parquet")
    source = ParquetFile(tmp_path / "t.parquet", columns=["b"])
    assert [(r.id.rpartition("/")[2], r.value) for r in drain(open_source(source))] == [
        ("t.parquet:0:0", {"b": 3}),
        ("t.parquet:0:1", {"b": 4}),
    ]
    dead = DeadLetters()
    assert drain(open_source(ParquetFile(tmp_path / "t.parquet", columns=["c"]), dead=dead)) == []
    assert dead.letters == [(str(tmp_path / "t.parquet"), None, "there is no column 'c'")]


def test_a_list_has_the_times_and_ids_that_it_is_given() -> None:
    source = ListSource(["a", "b"], times=[1.5, 2], ids=["x", "y"])
    assert source.timed
    assert [record[:3] for record in drain(open_source(source))] == [("a", 1500, "x"), ("b", 2000, "y")]
    with pytest.raises(HeronError, match="1 times for 2 items"):
        ListSource(["a", "b"], times=[1])


def test_elements_of_two_lists_have_different_ids_and_those_of_one_always_the_same() -> None:
    first, again, other = (drain(open_source(ListSource(items))) for items in ("ab", "ab", "ac"))
    assert [record.id for record in first] == [record.id for record in again]
    assert not {record.id for record in first} & {record.id for record in other}


def test_a_list_that_repeats_has_no_end_and_no_batch_face() -> None:
    source = ListSource("abc", repeat=True)
    reader = open_source(source)
    records = [record for _ in range(20) for record in reader.read(2)]
    assert [record.value for record in records[:6]] == list("abcabc")
    assert len({record.id for record in records}) == len(records)
    assert not reader.ended
    assert source.splits(1) is None


def test_another_list_begins_at_its_beginning(tmp_path: Path) -> None:
    reader = open_source(ListSource(["a", "b"]), directory=tmp_path)
    reader.ack(drain(reader))
    reader.close()
    assert drain(open_source(ListSource(["a", "b"]), directory=tmp_path)) == []
    assert [record.value for record in drain(open_source(ListSource(["c", "d"]), directory=tmp_path))] == ["c", "d"]


def test_elements_with_equal_ids_have_equal_hashes_in_the_batch_face() -> None:
    (chunk,) = read_chunks(ListSource("abc", ids=["x", "y", "x"]), 1000, DeadLetters())
    assert chunk.ids == ["x", "y", "x"]
    assert chunk.id_hashes[0] == chunk.id_hashes[2] != chunk.id_hashes[1]


def test_many_small_files_are_read_together(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("a line\n")
    reader = open_source(TextFile(tmp_path / "*.txt"))
    reads = 0
    while not reader.ended:
        reader.read(1000)
        reads += 1
    assert reads < 20


def test_a_csv_file_whose_header_is_malformed_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,\xff\n1,2\n3,4\n")
    dead = DeadLetters()
    assert drain(open_source(CsvFile(tmp_path / "a.csv"), dead=dead)) == []
    reason = "its header cannot be read: not utf-8: invalid start byte at byte 2"
    assert dead.letters == [(str(tmp_path / "a.csv"), None, reason)]


def test_names_that_are_there_twice_lose_no_value_silently(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,b\n1,2,3\n")
    pq.write_table(pa.Table.from_arrays([pa.array([n]) for n in (1, 2, 3)], names=["a", "a", "b"]), tmp_path / "a")
    for source, reason in (
        (CsvFile(tmp_path / "a.csv"), "its header has several fields 'a': name them by `fields`"),
        (ParquetFile(tmp_path / "a"), "there are several columns 'a'"),
    ):
        dead = DeadLetters()
        assert drain(open_source(source, dead=dead)) == []
        assert [letter[2] for letter in dead.letters] == [reason]
    named = CsvFile(tmp_path / "a.csv", fields=["a", "b", "c"])
    assert [record.value for record in drain(open_source(named))] == [{"a": "1", "b": "2", "c": "3"}]
    others = ParquetFile(tmp_path / "a", columns=["b"])
    assert [record.value for record in drain(open_source(others))] == [{"b": 3}]
    with pytest.raises(ConfigError, match="there are several fields 'a'"):
        CsvFile(tmp_path / "a.csv", fields=["a", "b", "a"])


_NO_TEXT = pa.Array.from_buffers(
    pa.string(),
    3,
    [None, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])), pa.py_buffer(b"x\xffz")],
)


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (_NO_TEXT, ["x", "z"]),
        (pa.array([0, 10**7, 1], pa.date32()), [datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)]),
        (
            pa.array([0, 10**18, 1], pa.timestamp("us")),
            [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, microsecond=1)],
        ),
    ],
    ids=["text", "date", "time"],
)
def test_a_row_with_a_value_that_python_does_not_have_is_set_aside(
    tmp_path: Path, column: Any, read: list[Any]
) -> None:
    pq.write_table(pa.table({"a": column}), tmp_path / "a")
    stream, batch = DeadLetters(), DeadLetters()
    records = drain(open_source(ParquetFile(tmp_path / "a"), dead=stream))
    assert [record.value["a"] for record in records] == read
    assert [record.id for record in records] == [f"{tmp_path}/a:0:0", f"{tmp_path}/a:0:2"]
    read_chunks(ParquetFile(tmp_path / "a"), 10, batch)
    for dead in (stream, batch):
        assert [where for where, _, _ in dead.letters] == [f"{tmp_path}/a:0:1"]


@pytest.mark.parametrize("damage", ["cut off", "garbage behind"])
@pytest.mark.parametrize("kind", [TextFile, CsvFile])
def test_all_whole_rows_before_a_damage_of_a_compressed_file_are_read(
    tmp_path: Path, kind: type[TextFile | CsvFile], damage: str
) -> None:
    text = b"n\n" + b"".join(b"%d\n" % n for n in range(200_000))
    raw = gzip.compress(text)
    raw = raw[: len(raw) // 2] if damage == "cut off" else raw + b"garbage"
    (tmp_path / "a.gz").write_bytes(raw)
    there = zlib.decompressobj(31).decompress(raw).split(b"\n")[:-1]
    dead = DeadLetters()
    records = drain(open_source(kind(tmp_path / "a.gz"), dead=dead))
    read = [record.value if isinstance(record.value, str) else record.value["n"] for record in records]
    assert read == [line.decode() for line in there][kind is CsvFile :]
    ((where, _, reason),) = dead.letters
    assert where == str(tmp_path / "a.gz")
    assert reason.startswith("cannot be read: ")


def test_a_missing_library_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"ParquetFile needs pyarrow: pip install 'heron-engine\[spark\]'"):
        open_source(ParquetFile(tmp_path / "a.parquet"))


def test_optional_libraries_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, heronpy.streamlet, heronpy.connectors as c; c.ParquetFile('x'); c.ParquetSink('x');"
        "c.RedisStream('redis://x', 's', group='g');"
        "print([name for name in ('pyarrow', 'pyspark', 'redis', 'datasketches') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
