"""Sinks that write files exactly once, driven by hand: commits, fences, and a process that is killed at every step."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import CsvSink, JsonLinesSink, ParquetSink, Sink, SinkContext, SinkWriter, TextSink
from heronpy.errors import CheckpointError, UnavailableError
from heronpy.testing.transactions_kit import AtLeastOnceSinkKit, TransactionalSinkKit, open_transactional, prepared
from tests.unit.shortages import no_descriptors

pq = pytest.importorskip("pyarrow.parquet")


KILLED = ("test_the_output_is_exact_wherever_the_process_is_killed",)
"""For sinks that write lines as the one of JSON does, and so have all but the format from it."""


class FileKit(TransactionalSinkKit):
    @pytest.fixture(autouse=True)
    def path(self, tmp_path: Path) -> Path:
        self._path = tmp_path / "out"
        return self._path

    def visible(self) -> list[Any]:
        return [element for file in sorted(self._path.glob("[!.]*")) for element in self.read_back(file)]

    def leftovers(self) -> list[Path]:
        return [path for path in self._path.glob(".heron/*/*/*") if not path.name.startswith("3-")]

    def read_back(self, path: Path) -> Sequence[Any]:
        raise NotImplementedError


class TestJsonLinesSink(FileKit):
    kills_max = 12

    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return JsonLinesSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": n, "text": "é\n"} for n in range(11)]

    @pytest.fixture
    def unfit(self) -> Any:
        return object()

    def read_back(self, path: Path) -> Sequence[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()]


class TestTextSink(FileKit):
    long = KILLED
    kills_max = 12

    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return TextSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [f"line {n}" for n in range(10)]

    @pytest.fixture
    def unfit(self) -> Any:
        return "two\nlines"

    def read_back(self, path: Path) -> Sequence[Any]:
        return path.read_text().splitlines()


class TestCsvSink(FileKit):
    long = KILLED
    kills_max = 12

    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return CsvSink(path, ["n", "text"])

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": str(n), "text": "a, b"} for n in range(10)]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": 1}

    def read_back(self, path: Path) -> Sequence[Any]:
        with path.open(newline="") as f:
            return list(csv.DictReader(f))


class TestParquetSink(FileKit):
    kills_max = 12

    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return ParquetSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": n, "text": f"é{n}"} for n in range(10)]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": object()}

    def read_back(self, path: Path) -> Sequence[Any]:
        rows: list[Any] = pq.read_table(path).to_pylist()
        return rows


class Printing(Sink):
    def open(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError


class TestAtLeastOnce(AtLeastOnceSinkKit):
    @pytest.fixture
    def sink(self) -> Sink:
        return Printing()


def files(path: Path) -> list[Path]:
    return sorted(path.glob("[!.]*"))


def test_a_savepoint_is_begun_with_after_its_files_were_taken_away_and_its_writers_are_gone(tmp_path: Path) -> None:
    sink = TextSink(tmp_path)
    first, other = open_transactional(sink), open_transactional(sink, task=1)
    outputs = [prepared(first, 1, ["a"]), prepared(first, 2, ["b"]), prepared(other, 2, ["c"])]
    for writer, output in zip((first, first, other), outputs, strict=True):
        writer.commit(output)
    for epoch in (2, 3):  # the second has nothing to commit, and leaves what it has found
        again = open_transactional(sink, epoch=epoch)
        again.recover([])
        again.commit(prepared(again, epoch + 1, [str(epoch)]))
    for file in files(tmp_path):
        file.unlink()
    open_transactional(sink, topology="words-2").recover(outputs)
    assert files(tmp_path) == []
    never = prepared(first_of := open_transactional(sink, topology="words-3"), 5, ["d"])
    first_of.commit(prepared(first_of, 4, ["e"]))
    shutil.rmtree(tmp_path / ".heron" / "words-3")
    with pytest.raises(CheckpointError, match="it was removed"):
        open_transactional(sink, topology="words-2", epoch=2).recover([never])


def test_what_a_writer_that_is_gone_was_about_to_publish_is_not_taken_for_committed(tmp_path: Path) -> None:
    sink = TextSink(tmp_path)
    writer = open_transactional(sink)
    outputs = [prepared(writer, number, [str(number)]) for number in (1, 2)]
    writer.commit(outputs[0])
    (tmp_path / outputs[1][0] / "2.committed").touch()  # and it dies
    again = open_transactional(sink, epoch=2)
    again.recover(outputs[:1])  # the checkpoint after it is damaged
    again.commit(prepared(again, 3, ["3"]))
    other = open_transactional(sink, topology="words-2")
    other.recover(outputs[:1])
    with pytest.raises(CheckpointError, match="part-0-2-"):
        other.recover(outputs)


def test_a_file_that_a_reader_has_taken_away_is_not_written_again(tmp_path: Path) -> None:
    sink = TextSink(tmp_path)
    writer = open_transactional(sink)
    outputs = [prepared(writer, 1, ["a"]), prepared(writer, 2, ["b"])]
    for output in outputs:
        writer.commit(output)
    for file in files(tmp_path):
        file.unlink()
    writer.commit(outputs[1])
    open_transactional(sink, epoch=2).recover(outputs)
    assert files(tmp_path) == []


def test_what_was_prepared_and_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = TextSink(tmp_path)
    writer = open_transactional(sink)
    writer.commit(prepared(writer, 1, ["a"]))
    output = prepared(writer, 2, ["b"])
    shutil.rmtree(tmp_path / ".heron")
    with pytest.raises(CheckpointError, match="part-0-2-"):
        open_transactional(sink, epoch=2).recover([output])


def test_a_name_tells_task_and_checkpoint(tmp_path: Path) -> None:
    writer = open_transactional(TextSink(tmp_path), task=3)
    writer.commit(prepared(writer, 12, ["a"]))
    (file,) = files(tmp_path)
    assert file.name.startswith("part-3-12-")
    assert file.suffix == ".txt"


def test_both_faces_write_into_one_directory(tmp_path: Path) -> None:
    sink = TextSink(tmp_path)
    writer = open_transactional(sink)
    writer.commit(prepared(writer, 1, ["a"]))
    other = sink.open(SinkContext(name="sink", task_index=0, config={}))
    other.write("b")
    other.flush()
    writer.commit(prepared(writer, 2, ["c"]))
    assert sorted(file.read_text() for file in files(tmp_path)) == ["a\n", "b\n", "c\n"]


def test_nothing_is_prepared_of_what_could_not_be_written(tmp_path: Path) -> None:
    writer = open_transactional(TextSink(tmp_path))
    with no_descriptors(), pytest.raises(UnavailableError, match="cannot write"):
        writer.write("a")
    with pytest.raises(UnavailableError):
        writer.prepare(1)
    assert files(tmp_path) == []


def test_a_commit_that_failed_is_repeated(tmp_path: Path) -> None:
    writer = open_transactional(TextSink(tmp_path))
    output = prepared(writer, 1, ["a"])
    with no_descriptors(), pytest.raises(UnavailableError, match="cannot write"):
        writer.commit(output)
    writer.commit(output)
    assert [file.read_text() for file in files(tmp_path)] == ["a\n"]
