"""Files as they are found: byte order marks, other ends of lines, compressed, half written, growing, oddly named."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import CsvFile, JsonLines, Source, TextFile
from heronpy.connectors import lines as _lines
from heronpy.errors import ConfigError
from heronpy.testing.connectors_kit import DeadLetters, SourceKit, counted, drain, open_source, read_chunks

KINDS: tuple[Callable[[Any], Source], ...] = (TextFile, JsonLines, lambda path: CsvFile(path, header=False))
NAMES = ("text", "json", "csv")
every_kind = pytest.mark.parametrize("kind", KINDS, ids=NAMES)


class TestGzip(SourceKit):
    @pytest.fixture
    def values(self) -> Sequence[Any]:
        return [f"líne {n}" for n in range(200)]

    @pytest.fixture
    def source(self, tmp_path: Path, values: Sequence[Any]) -> Source:
        for number in range(3):
            text = "".join(f"{line}\n" for line in values[number::3])
            (tmp_path / f"{number}.gz").write_bytes(gzip.compress(text.encode()))
        return TextFile(tmp_path / "*.gz")


def both_faces(source: Source) -> tuple[list[Any], DeadLetters]:
    """The values of a source, and what was set aside; the same in both faces."""
    stream, batch = DeadLetters(), DeadLetters()
    values = [record.value for record in drain(open_source(source, dead=stream))]
    chunks = read_chunks(source, 7, batch)
    assert counted(values) == counted(value for chunk in chunks for value in chunk.values)
    assert counted(stream.letters) == counted(batch.letters)
    return values, stream


def read_and_ack(source: Source, directory: Path, dead: DeadLetters | None = None) -> list[tuple[str, Any]]:
    """(offset, value) of what a run reads that goes on where the last one was."""
    reader = open_source(source, directory=directory, dead=dead or DeadLetters())
    records = drain(reader)
    reader.ack(records)
    reader.close()
    return [(record.id.rpartition(":")[2], record.value) for record in records]


CONTENT: dict[str, tuple[bytes, list[Any]]] = {
    "text": (b"one\r\n\r\ntwo\n", ["one", "", "two"]),
    "json": (b'{"k": null}\r\n\r\n\n["\xc3\xbc"]\n', [{"k": None}, ["ü"]]),
    "csv": (b"a,b\r\n\r\n1,\xc3\xbc\n", [["a", "b"], ["1", "ü"]]),
}


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["bare", "bom"])
@pytest.mark.parametrize(("kind", "name"), list(zip(KINDS, NAMES, strict=True)), ids=NAMES)
def test_marks_and_ends_of_lines_are_no_part_of_the_values(
    tmp_path: Path, kind: Callable[[Any], Source], name: str, mark: bytes, compressed: bool
) -> None:
    content, expected = CONTENT[name]
    path = tmp_path / ("a.gz" if compressed else "a")
    path.write_bytes(gzip.compress(mark + content) if compressed else mark + content)
    values, dead = both_faces(kind(path))
    assert counted(values) == counted(expected)
    assert not dead.letters


@every_kind
def test_what_is_no_gzip_or_half_of_it_is_named(tmp_path: Path, kind: Callable[[Any], Source]) -> None:
    whole = gzip.compress(os.urandom(4000).hex().encode() + b"\n")
    for name, content in {"plain": b"1\n", "half": whole[:2000], "damaged": whole[:100] + b"\0" * 500}.items():
        (tmp_path / f"{name}.gz").write_bytes(content)
        values, dead = both_faces(kind(tmp_path / f"{name}.gz"))
        assert values == []
        ((where, _, reason),) = dead.letters
        assert where == str(tmp_path / f"{name}.gz")
        assert reason.startswith("cannot be read: ")


def test_a_line_that_was_half_written_is_read_again_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source, dead = JsonLines(path), DeadLetters()
    path.write_text('{"n": 1}\n{"n"')
    assert read_and_ack(source, tmp_path, dead) == [("0", {"n": 1})]
    assert [where for where, _, _ in dead.letters] == [f"{path}:9"]
    assert read_and_ack(source, tmp_path) == []  # it has not grown
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert read_and_ack(source, tmp_path) == [("9", {"n": 2})]


def test_a_line_that_gets_its_end_later_is_read_once(tmp_path: Path) -> None:
    path, source = tmp_path / "log", TextFile(tmp_path / "log")
    path.write_bytes(b"one")
    assert read_and_ack(source, tmp_path) == [("0", "one")]
    path.write_bytes(b"one\ntwo")
    assert read_and_ack(source, tmp_path) == [("4", "two")]
    path.write_bytes(b"one\ntwo\r\nthree\n")
    assert read_and_ack(source, tmp_path) == [("9", "three")]


def test_a_half_written_row_is_read_again_when_it_is_whole(tmp_path: Path) -> None:
    path, source = tmp_path / "a.csv", CsvFile(tmp_path / "a.csv")
    path.write_text("n,m\n1,2\n3,4")
    assert read_and_ack(source, tmp_path) == [("4", {"n": "1", "m": "2"}), ("8", {"n": "3", "m": "4"})]
    path.write_text("n,m\n1,2\n3,45\n")
    assert read_and_ack(source, tmp_path) == [("8", {"n": "3", "m": "45"})]


@every_kind
def test_what_is_added_while_a_file_is_read_is_for_the_next_run(tmp_path: Path, kind: Callable[[Any], Source]) -> None:
    # With the time that the file has then: a row that is read twice must not have two times.
    path, source = tmp_path / "log", kind(tmp_path / "log")
    path.write_text("1\n2\n")
    reader = open_source(source, directory=tmp_path)
    splits = source.splits(1 << 20)
    with path.open("a") as f:
        f.write("3\n")
    records = drain(reader)
    reader.ack(records)
    reader.close()
    assert [record.id for record in records] == [f"{path}:0", f"{path}:2"]
    assert splits is not None
    assert sum(len(chunk.values) for split in splits for chunk in split.read(DeadLetters())) == 2
    assert [offset for offset, _ in read_and_ack(source, tmp_path)] == ["4"]


@every_kind
@pytest.mark.parametrize("name", ["a b", "what?", "#1", "50%25", "[a]", "*", "ünï\u2028"], ids=ascii)
def test_a_file_is_read_whatever_its_name(tmp_path: Path, kind: Callable[[Any], Source], name: str) -> None:
    (tmp_path / name).write_text("1\n")
    (tmp_path / "whatX").write_text("2\n")
    values, dead = both_faces(kind(tmp_path / name))
    assert [json.loads(str(value).strip("[]'")) for value in values] == [1]
    assert not dead.letters


@every_kind
def test_a_directory_is_one_line_that_says_what_to_name(tmp_path: Path, kind: Callable[[Any], Source]) -> None:
    for read in (open_source, lambda source: source.splits(1)):
        with pytest.raises(ConfigError, match=r"is a directory: name its files, as with '/\*'"):
            read(kind(tmp_path))


def test_a_csv_line_longer_than_the_limit_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.connectors._csv.LINE_BYTES_MAX", 50)
    path = tmp_path / "long.csv"
    path.write_text("n\n1\n" + "x" * 500 + '\n2\n"3\n' + "y" * 500 + '"\n4\n' + "z" * 500)
    values, dead = both_faces(CsvFile(path))
    assert [value["n"] for value in values] == ["1", "2", "4"]
    assert [where.rpartition(":")[2] for where, _, _ in dead.letters] == ["4", "507", "510", "1014"]


def test_a_line_of_many_blocks_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 10)
    (tmp_path / "long").write_text("one\n" + "x" * 5000 + "\ntwo\n")
    assert sorted(both_faces(TextFile(tmp_path / "long"))[0], key=len) == ["one", "two", "x" * 5000]
