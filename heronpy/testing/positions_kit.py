"""What every source with positions must do, as tests.

One of your own passes it like this:

    class TestMine(RewindableSourceKit):
        @pytest.fixture
        def source(self, tmp_path):
            return MySource(...)

        @pytest.fixture
        def values(self):
            return [...]
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from heronpy.connectors import Record, Source, SourceContext, SplitReader, StreamSplit
from heronpy.testing.connectors_kit import (
    QUIET_READS,
    QUIET_S,
    READ_MAX_S,
    Damaged,
    DeadLetters,
    counted,
    quickest_s,
)


def split_context(dead: DeadLetters | None = None) -> SourceContext:
    """A task that keeps positions itself. Without `dead` a dead letter fails the test."""

    def refuse(where: str, row: Any, reason: str) -> None:
        raise AssertionError(f"set aside: {where}: {row!r}: {reason}")

    return SourceContext(name="stage", task_index=0, num_tasks=1, config={}, directory=None, dead_letter=dead or refuse)


def splits_of(source: Source) -> Mapping[str, StreamSplit]:
    """The splits as a task finds them, from a pickled copy of the source."""
    copy: Source = pickle.loads(pickle.dumps(source))
    return copy.stream_splits()


def opened(source: Source, name: str, position: Any = None, dead: DeadLetters | None = None) -> SplitReader:
    """A split, open at a position as a checkpoint gives it back."""
    return splits_of(source)[name].open(pickle.loads(pickle.dumps(position)), split_context(dead))


def rest_of(reader: SplitReader, limit: int = 100) -> list[Record]:
    """All records until the split ends, or has none for a second."""
    records: list[Record] = []
    last_s, empty = time.monotonic(), 0
    while not reader.ended and (time.monotonic() - last_s < QUIET_S or empty < QUIET_READS):
        some = reader.read(limit)
        assert len(some) <= limit
        records += some
        if some:
            last_s, empty = time.monotonic(), 0
        else:
            empty += 1
            time.sleep(0.001)
    reader.close()
    return records


def same(records: Sequence[Record]) -> list[tuple[str, int, str]]:
    """What must be the same each time that records are read."""
    return [(repr(record.value), record.time_ms, record.id) for record in records]


class RewindableSourceKit:
    """For sources with positions. A subclass gives `source` and `values`, and `damaged` if there can be such."""

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

    def test_all_splits_together_have_every_record_once(self, source: Source, values: Sequence[Any]) -> None:
        assert source.rewindable
        assert len(values) >= 50
        records = [record for name in splits_of(source) for record in rest_of(opened(source, name))]
        assert counted(record.value for record in records) == counted(values)
        assert len({record.id for record in records}) == len(records)

    def test_reading_goes_on_at_any_position(self, source: Source) -> None:
        for name in splits_of(source):
            whole = same(rest_of(opened(source, name)))
            for step in (1, 7, 50):
                position, records = None, list[Record]()
                while len(records) < len(whole):
                    reader = opened(source, name, position)
                    some = reader.read(step)
                    while not some and not reader.ended:
                        some = reader.read(step)
                    records += some
                    position = reader.position
                    reader.close()
                assert same(records) == whole
                assert rest_of(opened(source, name, position)) == []

    def test_a_position_may_be_gone_back_to_again_and_again(self, source: Source) -> None:
        for name in splits_of(source):
            reader = opened(source, name)
            reader.read(5)
            position = reader.position
            rest = same(rest_of(reader))
            assert reader.position != position or not rest
            for _ in range(2):
                assert same(rest_of(opened(source, name, position))) == rest

    def test_a_read_of_nothing_returns_soon(self, source: Source) -> None:
        for name in splits_of(source):
            reader = opened(source, name)
            last_s = time.monotonic()
            while not reader.ended and time.monotonic() - last_s < QUIET_S:
                if reader.read(100):
                    last_s = time.monotonic()
                time.sleep(0.001)
            assert quickest_s(reader) <= READ_MAX_S
            reader.close()

    def test_malformed_rows_of_splits_are_set_aside(self, damaged: Damaged | None) -> None:
        if damaged is None:
            pytest.skip("it cannot have malformed data")
        records, letters = list[Record](), list[tuple[str, Any, str]]()
        for name in splits_of(damaged.source):
            dead = DeadLetters()
            records += rest_of(opened(damaged.source, name, None, dead))
            letters += dead.letters
            reader = opened(damaged.source, name, None, DeadLetters())
            rest_of(reader)
            assert rest_of(opened(damaged.source, name, reader.position, DeadLetters())) == []
        assert counted(record.value for record in records) == counted(damaged.values)
        assert len(letters) == len(damaged.places)
        for place in damaged.places:
            assert any(place in where for where, _, _ in letters), letters
