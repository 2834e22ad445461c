"""Files exactly once in a store: what a newer writer and an older one that lives on do to each other."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from memory_storage import MemoryStorage

from heronpy.connectors import JsonLinesSink, TransactionalSinkWriter
from heronpy.errors import FencedError
from heronpy.testing.transactions_kit import open_transactional, prepared

_NUMBERS = itertools.count()


class Interrupted(MemoryStorage):
    """Others do something just before a name is created; once each, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.before_create: list[Callable[[], object]] = []
        self.after_create: list[Callable[[], object]] = []

    def create(self, name: str, data: bytes) -> bool:
        if self.before_create:
            self.before_create.pop(0)()
        created = super().create(name, data)
        if self.after_create:
            self.after_create.pop(0)()
        return created

    def rows(self) -> list[Any]:
        """What readers see."""
        files = [data for name, data in self.stored.items() if name.startswith("part-")]
        return sorted(json.loads(line) for data in files for line in data.splitlines())


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    storage = Interrupted()
    monkeypatch.setattr("heronpy.checkpoints.open_storage", lambda url: storage)
    return storage


@pytest.fixture
def sink(storage: Interrupted) -> JsonLinesSink:
    return JsonLinesSink(f"s3://sinks-{os.getpid()}/{next(_NUMBERS)}")


def commit(writer: TransactionalSinkWriter, *checkpoints: int) -> None:
    for checkpoint in checkpoints:
        writer.commit(prepared(writer, checkpoint, [checkpoint]))


def test_a_savepoint_is_begun_with_after_its_files_were_taken_away_and_its_writers_are_gone(
    storage: Interrupted, sink: JsonLinesSink
) -> None:
    first, other = open_transactional(sink), open_transactional(sink, task=1)
    outputs = [prepared(first, 1, [1]), prepared(first, 2, [2]), prepared(other, 2, [3])]
    for writer, output in zip((first, first, other), outputs, strict=True):
        writer.commit(output)
    for epoch in (2, 3):
        again = open_transactional(sink, epoch=epoch)
        again.recover([])
        again.commit(prepared(again, epoch + 1, [epoch]))
    for name in [name for name in storage.stored if name.startswith("part-")]:
        del storage.stored[name]
    open_transactional(sink, topology="words-2").recover(outputs)
    assert storage.rows() == []


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_writer_that_commits_while_it_is_fenced_commits_nothing_after_that(
    storage: Interrupted, sink: JsonLinesSink, commits: int
) -> None:
    older = open_transactional(sink)
    commit(older, 1, 2)
    last = prepared(older, 9, [9])
    storage.before_create.append(lambda: commit(older, *range(3, 3 + commits)))  # it has listed the log before
    open_transactional(sink, epoch=2)
    seen = storage.rows()
    with pytest.raises(FencedError):
        older.commit(last)
    assert storage.rows() == seen == list(range(1, 3 + commits))


def test_of_two_newer_writers_the_second_does_not_rely_on_a_fence_that_came_too_late(
    storage: Interrupted, sink: JsonLinesSink
) -> None:
    older = open_transactional(sink)
    commit(older, 1)
    last = prepared(older, 9, [9])

    def die() -> None:
        raise KeyboardInterrupt

    storage.before_create.append(lambda: commit(older, 2, 3, 4))
    storage.after_create += [lambda: None] * 3 + [die]  # of the older one's, and then of the fence
    with pytest.raises(KeyboardInterrupt):
        open_transactional(sink, epoch=2)
    open_transactional(sink, epoch=3)
    with pytest.raises(FencedError):
        older.commit(last)
    assert storage.rows() == [1, 2, 3, 4]


def test_an_entry_that_is_deleted_when_its_number_is_asked_for_keeps_nobody_from_opening(
    storage: Interrupted, sink: JsonLinesSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = open_transactional(sink)
    commit(older, 1)
    create, refused = storage.create, []

    def gone(name: str, data: bytes) -> bool:
        if not refused and data == b"":
            refused.append(name)
            return False
        return create(name, data)

    monkeypatch.setattr(storage, "create", gone)
    newer = open_transactional(sink, epoch=2)
    assert refused
    with pytest.raises(FencedError):
        commit(older, 2)
    commit(newer, 3)
    assert storage.rows() == [1, 3]


def test_what_others_have_put_into_a_log_is_passed_over(storage: Interrupted, sink: JsonLinesSink) -> None:
    older = open_transactional(sink)
    commit(older, 1)
    (entry,) = [name for name in storage.stored if "/log/" in name]
    storage.stored[f"{entry.rpartition('/')[0]}/notes.txt"] = b"mine"
    open_transactional(sink, epoch=2)
    with pytest.raises(FencedError):
        commit(older, 2)
