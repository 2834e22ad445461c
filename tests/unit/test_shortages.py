"""No memory, no disk: that proves nothing of an element, so none is set aside for it, and its task fails."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile_objects import Silent, SilentError

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.encode import encode
from heronpy.errors import HeronError, is_shortage
from heronpy.pipeline.exchange import Layout, Outbox
from heronpy.pipeline.task import Task

SHORTAGES = [
    MemoryError("no memory"),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError(errno.EIO, "Input/output error"),
    RuntimeError("can't start new thread"),
]


class Short:
    """Cannot be pickled, or unpickled, for want of memory."""

    def __init__(self, *, dumps: bool = False) -> None:
        self.dumps = dumps

    def __getstate__(self) -> dict[str, Any]:
        if not self.dumps:
            raise MemoryError("no memory")
        return {"dumps": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise MemoryError("no memory")


def no_letter(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"set aside: {where}: {reason}")


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: str(error)[:20])
def test_an_element_is_not_set_aside_when_the_machine_is_short_of_something(tmp_path: Path, error: Exception) -> None:
    task = Task(tmp_path, "1-00000000", 0, 60_000, lambda *_: True, {})
    with pytest.raises(type(error)) as raised:
        task.failed("map", "healthy", 0, error)
    assert raised.value is error
    assert not task.report.failed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ValueError("no number"), FileNotFoundError(errno.ENOENT, "no such file")])
def test_what_is_wrong_with_an_element_is_no_shortage(tmp_path: Path, error: Exception) -> None:
    task = Task(tmp_path, "1-00000000", 0, 60_000, lambda *_: True, {})
    task.failed("map", "element", 0, error)
    assert task.report.failed == {0: 1}


def test_a_row_that_cannot_be_sent_for_want_of_memory_fails_the_task(tmp_path: Path) -> None:
    task = Task(tmp_path, "1-00000000", 0, 60_000, lambda *_: True, {})
    layout = Layout(60_000, None, None, 0, {"exchange": 1}, {"exchange": 1}, {}, 1, tmp_path, "v")
    outbox = Outbox(layout, 0)
    with pytest.raises(MemoryError):
        outbox.rows("exchange", 0, "head", [Short()], task.failing("exchange", 0))
    assert not task.report.failed


def test_an_archive_refuses_no_element_for_want_of_memory(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, task="0", batch_length_ms=60_000, codec="pickle", dead_letter=no_letter)
    with pytest.raises(MemoryError):
        writer.add("first", 0, Short())
    writer.add("one", 0, "element")
    with pytest.raises(MemoryError):
        writer.add("next", 0, Short())


def test_a_column_that_cannot_be_made_for_want_of_memory_is_no_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def array(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pa, "array", array)
    with pytest.raises(MemoryError):
        encode([1, 2, 3], "int")


def test_rows_that_cannot_be_decoded_for_want_of_memory_are_not_set_aside(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, task="0", batch_length_ms=60_000, codec="pickle", dead_letter=no_letter)
    writer.add("id", 0, Short(dumps=True))
    writer.commit()
    archive = Archive(tmp_path)
    files = [file for batch in archive.batches().values() for file in batch]
    (split,) = archive.splits(files, 1 << 20)
    with pytest.raises(HeronError, match="not enough memory to read"):
        list(split.read(no_letter))


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda error: str(error)[:20])
def test_shortages_are_told_by_their_kind(error: Exception) -> None:
    assert is_shortage(error)
    assert is_shortage(pickle.loads(pickle.dumps(error)))


def test_an_error_that_a_library_makes_of_a_shortage_is_one() -> None:
    with pytest.raises(ValueError, match="a library's own") as raised:
        raise ValueError("a library's own") from MemoryError()
    assert is_shortage(raised.value)


@pytest.mark.parametrize("make", [ValueError, KeyError, RecursionError, lambda text: OSError(errno.EACCES, text)])
def test_what_user_code_raises_is_none(make: Callable[[str], Exception]) -> None:
    assert not is_shortage(make("wrong"))


@pytest.mark.parametrize("error", [RuntimeError(Silent()), type("Mine", (SilentError, RuntimeError), {})()])
def test_an_exception_that_cannot_be_shown_is_no_shortage(error: Exception) -> None:
    assert not is_shortage(error)


def test_causes_that_go_round_in_a_cycle_are_no_shortage() -> None:
    error, cause = ValueError(), KeyError()
    error.__cause__, cause.__cause__ = cause, error
    assert not is_shortage(error)
    cause.__cause__ = MemoryError()
    assert is_shortage(error)
