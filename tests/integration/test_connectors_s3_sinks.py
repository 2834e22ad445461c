"""Sinks of files by URL: a real S3 server."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from stored_place import Place, all_but

from heronpy.connectors import JsonLinesSink, ParquetSink, Sink
from heronpy.errors import CheckpointError, UnavailableError
from heronpy.filesystem import StoredFiles, UrlPath
from heronpy.testing.connectors_kit import SinkKit, open_sink
from heronpy.testing.servers import S3Server, s3_missing
from heronpy.testing.transactions_kit import TransactionalSinkKit, open_transactional, prepared

pytestmark = pytest.mark.skipif(s3_missing() is not None, reason=s3_missing() or "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Place(server)


def lines_in(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestJsonLinesSink(SinkKit):
    long = all_but(SinkKit, "test_everything_written_is_visible_after_flush", "test_tasks_and_restarts_never_overwrite")

    @pytest.fixture
    def path(self, place: Place) -> Path:
        return place.directory

    @pytest.fixture
    def sink(self, place: Place) -> Sink:
        return JsonLinesSink(place.url())

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": n, "text": "é\n"} for n in range(11)]

    @pytest.fixture
    def unfit(self) -> Any:
        return object()

    def read_back(self, path: Path) -> Sequence[Any]:
        return lines_in(path)

    def test_what_a_killed_task_had_not_flushed_is_not_there(
        self, sink: Sink, path: Path, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        killed = open_sink(sink)
        for element in elements:
            killed.write(element)
        assert not path.exists()


def test_a_flush_while_the_store_is_away_is_repeated(place: Place, server: S3Server) -> None:
    writer = open_sink(JsonLinesSink(place.url()))
    writer.write(1)
    server.kill()
    try:
        for n in (2, 3):
            with pytest.raises(UnavailableError):
                writer.flush()
            writer.write(n)
    finally:
        server.start()
    writer.flush()
    assert sorted(n for file in place.directory.iterdir() for n in lines_in(file)) == [1, 2, 3]
    assert len(list(place.directory.iterdir())) == 2
    writer.close()


class StoredKit(TransactionalSinkKit):
    """With each file in the server's own directory."""

    races = 5
    kills_max = 20

    @pytest.fixture(autouse=True)
    def place_of_test(self, place: Place) -> None:
        self._place = place

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"n": n, "text": "é\n"} for n in range(11)]

    def visible(self) -> list[Any]:
        if not self._place.directory.exists():
            return []
        return [element for file in sorted(self._place.directory.glob("part-*")) for element in self.read_back(file)]

    def leftovers(self) -> list[UrlPath]:
        hidden = self._place.path / "_heron"
        return [path for path in self._place.files.below(hidden) if not path.parts[4].startswith("3-")]

    def read_back(self, path: Path) -> Sequence[Any]:
        raise NotImplementedError


class TestJsonLinesSinkExactlyOnce(StoredKit):
    long = all_but(
        TransactionalSinkKit,
        "test_nothing_is_visible_before_the_commit",
        "test_a_commit_may_be_repeated",
        "test_another_number_of_tasks_commits_it",
        "test_a_fenced_writer_cannot_commit",
        "test_what_older_writers_left_is_removed",
    )

    @pytest.fixture
    def sink(self, place: Place) -> Sink:
        return JsonLinesSink(place.url())

    @pytest.fixture
    def unfit(self) -> Any:
        return object()

    def read_back(self, path: Path) -> Sequence[Any]:
        return lines_in(path)


class TestParquetSinkExactlyOnce(StoredKit):
    kills_max = 6
    long = all_but(TransactionalSinkKit, "test_another_writer_commits_it")

    @pytest.fixture
    def sink(self, place: Place) -> Sink:
        return ParquetSink(place.url())

    def read_back(self, path: Path) -> Sequence[Any]:
        return pq.read_table(path).to_pylist()


class Cut(BaseException):
    """The process is killed here."""


class Killed:
    """Ends the process at a request to the store: before it is sent, or before its answer arrives."""

    NAMES = ("stat", "find", "listed", "create", "read", "write", "upload", "copy", "delete")

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.at, self.answered = -1, False
        for name in self.NAMES:
            patch.setattr(StoredFiles, name, self._of(getattr(StoredFiles, name)))

    def _of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def request(*args: Any) -> Any:
            number, self.made = self.made, self.made + 1
            if number == self.at and not self.answered:
                raise Cut
            result = function(*args)
            if number == self.at:
                raise Cut
            return result

        return request


def run(sink: Sink, topology: str, state: dict[str, Any], elements: Sequence[int]) -> None:
    """Be the engine, from the last checkpoint on: every third one fails."""
    state["epoch"] += 1
    writer = open_transactional(sink, epoch=state["epoch"], topology=topology)
    position, pending = state["checkpoint"]
    writer.recover(pending)
    pending = []
    while position < len(elements):
        some = elements[position : position + 3]
        position += len(some)
        state["id"] += 1
        pending = [*pending, prepared(writer, state["id"], some)]
        if state["id"] % 3 == 0 and position < len(elements):
            continue
        state["checkpoint"] = position, pending
        for output in pending:
            writer.commit(output)
        pending = []
    writer.close()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 11])
def test_the_output_is_exact_wherever_a_request_to_the_store_is_the_last(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    sink, elements = JsonLinesSink(place.url()), list(range(10))
    killed = Killed(monkeypatch)

    def state() -> dict[str, Any]:
        return {"epoch": 0, "id": 0, "checkpoint": (0, [])}

    run(sink, "whole", state(), elements)
    requests = killed.made
    assert requests > 20
    for number, answered in itertools.product(range(0, requests, step), (False, True)):
        before = sorted(place.directory.glob("part-*"))
        saved = state()
        for at in (number, (7 * number) % requests):
            killed.made, killed.at, killed.answered = 0, at, answered
            with contextlib.suppress(Cut):  # the second run may come to its end before
                run(sink, f"killed-{number}-{answered}", saved, elements)
        killed.at = -1
        run(sink, f"killed-{number}-{answered}", saved, elements)
        files = [file for file in sorted(place.directory.glob("part-*")) if file not in before]
        written = sorted(n for file in files for n in lines_in(file))
        assert written == elements, f"request {number} of {requests} was the last, {answered=}"


def test_a_commit_that_failed_is_repeated(place: Place, server: S3Server) -> None:
    writer = open_transactional(JsonLinesSink(place.url()))
    output = prepared(writer, 1, [1, 2])
    server.kill()
    try:
        with pytest.raises(UnavailableError):
            writer.commit(output)
    finally:
        server.start()
    writer.commit(output)
    writer.commit(prepared(writer, 2, [3]))
    assert sorted(n for file in place.directory.glob("part-*") for n in lines_in(file)) == [1, 2, 3]


def test_a_file_that_a_reader_has_taken_away_is_not_written_again(place: Place) -> None:
    sink = JsonLinesSink(place.url())
    writer = open_transactional(sink)
    output = prepared(writer, 1, [1])
    writer.commit(output)
    (file,) = place.directory.glob("part-*")
    place.files.delete([place.path / file.name])
    writer.commit(output)
    open_transactional(sink, epoch=2).recover([output])
    assert list(place.directory.glob("part-*")) == []


def test_what_was_prepared_and_is_gone_is_an_error_that_names_it(place: Place) -> None:
    writer = open_transactional(JsonLinesSink(place.url()))
    output = prepared(writer, 7, [1])
    place.files.delete([place.path / output[0] / output[1]])
    with pytest.raises(CheckpointError, match=r"part-0-7-.*checkpoint 7 .*it was removed"):
        writer.commit(output)


def test_what_is_kept_between_commits_does_not_grow(place: Place) -> None:
    writer = open_transactional(JsonLinesSink(place.url()))
    counts = []
    for number in range(1, 8):
        writer.commit(prepared(writer, number, [number]))
        counts.append(len(place.files.below(place.path / "_heron")))
    assert counts[1:] == [counts[1]] * 6
    assert counts[1] <= 4
