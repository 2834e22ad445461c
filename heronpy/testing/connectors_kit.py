"""What every source and every sink must do, as tests.

One of your own passes a kit like this:

    class TestMine(SourceKit):
        @pytest.fixture
        def source(self, tmp_path):
            return MySource(...)

        @pytest.fixture
        def values(self):
            return [...]

Each test gets a fresh source or sink.
"""

from __future__ import annotations

import dataclasses
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import (
    Chunk,
    Record,
    Sink,
    SinkContext,
    SinkWriter,
    Source,
    SourceContext,
    SourceReader,
    SplitReader,
)

QUIET_S = 1.0
"""A source that never ends is taken to have no more records after so long without any, and so many reads."""
QUIET_READS = 100
READ_MAX_S = 0.1
"""So long may a read wait: the task that calls it has markers to send, and reads control messages."""
_NAME = "stage"


class DeadLetters:
    """Keeps what is set aside."""

    def __init__(self) -> None:
        self.letters: list[tuple[str, Any, str]] = []

    def __call__(self, where: str, row: Any, reason: str) -> None:
        self.letters.append((where, row, reason))


@dataclasses.dataclass(frozen=True)
class Damaged:
    """A source with malformed rows."""

    source: Source
    values: Sequence[Any]
    """What can be read."""
    places: Sequence[str]
    """Part of the `where` of each dead letter."""


def open_source(
    source: Source, *, task: int = 0, of: int = 1, directory: Path | None = None, dead: DeadLetters | None = None
) -> SourceReader:
    """A reader as a task of a topology opens it, from a pickled copy. Without `dead` a dead letter fails the test."""

    def refuse(where: str, row: Any, reason: str) -> None:
        raise AssertionError(f"set aside: {where}: {row!r}: {reason}")

    copy: Source = pickle.loads(pickle.dumps(source))
    return copy.open(
        SourceContext(
            name=_NAME, task_index=task, num_tasks=of, config={}, directory=directory, dead_letter=dead or refuse
        )
    )


def drain(*readers: SourceReader, limit: int = 100) -> list[Record]:
    """All records of tasks that run at the same time, until they end, or have none for a second."""
    records: list[Record] = []
    last_s, empty = time.monotonic(), 0
    while not all(reader.ended for reader in readers) and (time.monotonic() - last_s < QUIET_S or empty < QUIET_READS):
        before = len(records)
        for reader in readers:
            some = reader.read(limit)
            assert len(some) <= limit
            records += some
        if len(records) > before:
            last_s, empty = time.monotonic(), 0
        else:
            empty += 1
            time.sleep(0.001)
    return records


def read_chunks(source: Source, target_bytes: int, dead: Callable[[str, Any, str], None]) -> list[Chunk]:
    """The batch face, from pickled splits; pytest.skip if there is none."""
    splits = source.splits(target_bytes)
    if splits is None:
        pytest.skip("it has no batch face")
    return [chunk for split in splits for chunk in pickle.loads(pickle.dumps(split)).read(dead)]


def quickest_s(reader: SourceReader | SplitReader) -> float:
    """How long a read takes that finds nothing: the quickest of several, for on a busy machine any may wait for CPU."""
    found = []
    for _ in range(10):
        began_s = time.monotonic()
        assert not reader.read(100)
        found.append(time.monotonic() - began_s)
    return min(found)


def counted(values: Iterable[Any]) -> Counter[str]:
    """A multiset of values that may not be hashable."""
    return Counter(map(repr, values))


class SourceKit:
    """For sources. A subclass gives `source` and `values`, and `damaged` if there can be malformed data."""

    @pytest.fixture
    def source(self) -> Source:
        """At least 50 well-formed records."""
        raise NotImplementedError

    @pytest.fixture
    def values(self) -> Sequence[Any]:
        """The elements of `source`, in any order."""
        raise NotImplementedError

    @pytest.fixture
    def damaged(self) -> Damaged | None:
        """A source with malformed rows among others, or None if it cannot have any."""
        return None

    def test_one_task_reads_every_record_once(self, source: Source, values: Sequence[Any]) -> None:
        assert len(values) >= 50
        records = drain(open_source(source))
        assert counted(record.value for record in records) == counted(values)
        assert len({record.id for record in records}) == len(records)
        assert all(type(record.time_ms) is int and type(record.id) is str for record in records)

    def test_several_tasks_together_read_every_record_once(self, source: Source, values: Sequence[Any]) -> None:
        readers = [open_source(source, task=task, of=3) for task in range(3)]
        records = drain(*readers, limit=7)
        assert counted(record.value for record in records) == counted(values)
        assert len({record.id for record in records}) == len(records)

    def test_a_record_is_the_same_when_it_is_read_again(self, source: Source) -> None:
        first = {record[:3] for record in _by_id(drain(open_source(source)))}
        again = {record[:3] for record in _by_id(drain(open_source(source), limit=13))}
        assert first == again

    @pytest.mark.parametrize("target_bytes", [1, 1000, 1 << 30])
    def test_both_faces_give_the_same_records(self, source: Source, values: Sequence[Any], target_bytes: int) -> None:
        chunks = read_chunks(source, target_bytes, _refuse)
        assert all(len(chunk.values) == len(chunk.times_ms) for chunk in chunks)
        batch = [pair for chunk in chunks for pair in zip(chunk.values, chunk.times_ms, strict=True)]
        stream = [(record.value, record.time_ms) for record in drain(open_source(source))]
        assert counted(batch) == counted(stream)
        assert counted(value for value, _ in batch) == counted(values)

    def test_what_is_not_acked_is_read_again_after_a_restart(
        self, source: Source, values: Sequence[Any], tmp_path: Path
    ) -> None:
        first = drain(open_source(source, directory=tmp_path))
        again = drain(open_source(source, directory=tmp_path))
        assert counted(record.value for record in first) == counted(record.value for record in again) == counted(values)

    @pytest.mark.parametrize("tasks", [1, 2, 5])
    def test_a_restart_goes_on_where_everything_was_acked(
        self, source: Source, values: Sequence[Any], tmp_path: Path, tasks: int
    ) -> None:
        reader = open_source(source, directory=tmp_path)
        records = list(reader.read(10))
        while len(records) < 40:
            records += reader.read(10)
        acked = {record.id for record in records[:20]} | {record.id for record in records[30:]}
        reader.ack([record for record in reversed(records) if record.id in acked])  # with a hole
        reader.close()
        rest = drain(*(open_source(source, task=task, of=tasks, directory=tmp_path) for task in range(tasks)))
        assert len(acked | {record.id for record in rest}) == len(values)
        assert {record.id for record in records[20:30]} <= {record.id for record in rest}
        assert not {record.id for record in records[:20]} & {record.id for record in rest}
        assert len({record.id for record in rest}) == len(rest)

    def test_a_read_of_nothing_returns_soon(self, source: Source) -> None:
        reader = open_source(source)
        drain(reader)
        assert quickest_s(reader) <= READ_MAX_S
        reader.close()

    def test_after_everything_is_acked_a_restart_reads_nothing(self, source: Source, tmp_path: Path) -> None:
        reader = open_source(source, directory=tmp_path)
        records = drain(reader)
        reader.ack(records)
        reader.close()
        assert drain(open_source(source, directory=tmp_path)) == []

    def test_malformed_rows_are_set_aside_and_the_rest_is_read(self, damaged: Damaged | None) -> None:
        if damaged is None:
            pytest.skip("it cannot have malformed data")
        dead = DeadLetters()
        records = drain(open_source(damaged.source, dead=dead))
        assert counted(record.value for record in records) == counted(damaged.values)
        _found(dead, damaged.places)

    def test_malformed_rows_are_set_aside_by_the_batch_face_too(self, damaged: Damaged | None) -> None:
        if damaged is None:
            pytest.skip("it cannot have malformed data")
        dead = DeadLetters()
        chunks = read_chunks(damaged.source, 1, dead)
        assert counted(value for chunk in chunks for value in chunk.values) == counted(damaged.values)
        _found(dead, damaged.places)


def _refuse(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"set aside: {where}: {row!r}: {reason}")


def _by_id(records: Iterable[Record]) -> list[tuple[str, str, int]]:
    return [(record.id, repr(record.value), record.time_ms) for record in records]


def _found(dead: DeadLetters, places: Sequence[str]) -> None:
    assert len(dead.letters) == len(places), dead.letters
    for place in places:
        assert any(place in where and reason and "\n" not in reason for where, _, reason in dead.letters), dead.letters


class SinkKit:
    """For sinks that write files. A subclass gives `sink`, `elements`, `read_back`, and `unfit` if there can be one."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Where the sink writes."""
        return tmp_path / "out"

    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        """Writes to `path`."""
        raise NotImplementedError

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        """At least 10 that it can hold."""
        raise NotImplementedError

    @pytest.fixture
    def expected(self, elements: Sequence[Any]) -> Sequence[Any]:
        """`elements` as they are read back."""
        return elements

    @pytest.fixture
    def unfit(self) -> Any:
        """One that it cannot hold; None: it can hold all."""
        return None

    def read_back(self, path: Path) -> Sequence[Any]:
        """What is in a file."""
        raise NotImplementedError

    def all_in(self, path: Path) -> list[Any]:
        """What readers of a directory see."""
        return [element for file in sorted(path.glob("*")) if file.is_file() for element in self._visible(file)]

    def _visible(self, file: Path) -> Sequence[Any]:
        return () if file.name.startswith(".") else self.read_back(file)

    def test_everything_written_is_visible_after_flush(
        self, sink: Sink, path: Path, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        assert len(elements) >= 10
        writer = open_sink(sink)
        for element in elements:
            writer.write(element)
        assert self.all_in(path) == []
        writer.flush()
        assert counted(self.all_in(path)) == counted(expected)
        writer.close()

    def test_a_flush_of_nothing_makes_no_file(self, sink: Sink, path: Path) -> None:
        writer = open_sink(sink)
        writer.flush()
        writer.close()
        assert list(path.glob("*")) == []

    def test_tasks_and_restarts_never_overwrite(
        self, sink: Sink, path: Path, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        writers = [open_sink(sink), open_sink(sink, task=1), open_sink(sink)]  # the last has the first one's number
        for _ in range(2):
            for writer in writers:
                writer.write(elements[0])
                writer.flush()
        again = open_sink(sink)
        again.write(elements[0])
        again.flush()
        assert counted(self.all_in(path)) == counted([expected[0]] * 7)

    def test_what_a_killed_task_had_not_flushed_is_not_there(
        self, sink: Sink, path: Path, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        killed = open_sink(sink)
        for element in elements:
            killed.write(element)
        writer = open_sink(sink)
        writer.write(elements[0])
        writer.flush()
        writer.close()
        assert counted(self.all_in(path)) == counted(expected[:1])
        assert [file.name for file in path.iterdir() if file.name.startswith(".")] == []

    def test_an_element_that_does_not_fit_is_named_and_the_rest_is_written(
        self, sink: Sink, path: Path, elements: Sequence[Any], expected: Sequence[Any], unfit: Any
    ) -> None:
        if unfit is None:
            pytest.skip("it can hold everything")
        writer = open_sink(sink)
        writer.write(elements[0])
        with pytest.raises(ValueError, match="cannot hold") as refused:
            writer.write(unfit)
        assert repr(unfit)[:20] in str(refused.value)
        for element in elements[1:]:
            writer.write(element)
        writer.flush()
        assert counted(self.all_in(path)) == counted(expected)

    def test_the_batch_face_writes_one_file(
        self, sink: Sink, tmp_path: Path, elements: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        if not sink.supports_batch:
            pytest.skip("it has no batch face")
        written = pickle.loads(pickle.dumps(sink)).write_part(tmp_path / "v1" / "part-0", iter(elements))
        assert written.parent == tmp_path / "v1"
        assert written.name.startswith("part-0")
        assert list(written.parent.iterdir()) == [written]
        assert list(self.read_back(written)) == list(expected)

    def test_the_batch_face_writes_nothing_into_an_empty_file(self, sink: Sink, tmp_path: Path) -> None:
        if not sink.supports_batch:
            pytest.skip("it has no batch face")
        written = sink.write_part(tmp_path / "part-0", iter(()))
        assert written is not None
        assert list(self.read_back(written)) == []

    def test_the_batch_face_leaves_nothing_when_an_element_does_not_fit(
        self, sink: Sink, tmp_path: Path, elements: Sequence[Any], unfit: Any
    ) -> None:
        if unfit is None or not sink.supports_batch:
            pytest.skip("it can hold everything, or has no batch face")
        with pytest.raises(ValueError, match="cannot hold"):
            sink.write_part(tmp_path / "v1" / "part-0", iter([elements[0], unfit]))
        assert list((tmp_path / "v1").iterdir()) == []


def open_sink(sink: Sink, *, task: int = 0) -> SinkWriter:
    """A writer as a task of a topology opens it, from a pickled copy."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    return copy.open(SinkContext(name=_NAME, task_index=task, config={}))
