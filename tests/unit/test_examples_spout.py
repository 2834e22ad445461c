"""LineSpout by itself: what it emits, and when it says that the input has ended."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from heronpy.api import TopologyContext
from heronpy.examples.lines import END, INPUT, LineSpout


class Recorder:
    """Stands where the engine is."""

    logger = logging.getLogger("test")

    def __init__(self) -> None:
        self.emitted: list[tuple[Any, Any, str]] = []

    def emit(self, tup: Any, tup_id: Any, stream: str, direct_task: Any, need_task_ids: bool) -> list[int]:
        self.emitted.append((tuple(tup), tup_id, stream))
        return []


class Alone(TopologyContext):
    def __init__(self) -> None:
        pass

    def get_task_id(self) -> int:
        return 7

    def get_component_id(self) -> str:
        return "lines"

    def get_component_tasks(self, component_id: str) -> list[int]:
        return [7]

    def get_this_task_index(self) -> int:
        return 0


@pytest.fixture
def spout(tmp_path: Path) -> LineSpout:
    path = tmp_path / "text"
    path.write_text("one\ntwo\n")
    spout = LineSpout(Recorder())
    spout.initialize({INPUT: [str(path)]}, Alone())
    return spout


def take(spout: LineSpout, calls: int) -> list[tuple[Any, Any, str]]:
    for _ in range(calls):
        spout.next_tuple()
    taken, spout.delegate.emitted = spout.delegate.emitted, []
    return taken


def test_the_end_is_told_once_and_only_when_every_line_is_acked(spout: LineSpout):
    assert take(spout, 5) == [((b"one",), 0, "default"), ((b"two",), 1, "default")]
    spout.ack(1)
    assert take(spout, 2) == []
    spout.ack(0)
    [(values, tup_id, stream)] = take(spout, 3)
    assert (values[:2], tup_id, stream) == ((7, 1), END, END)
    spout.ack(END)
    assert take(spout, 2) == []


def test_a_failed_line_is_emitted_again_under_its_id_and_holds_back_the_end(spout: LineSpout):
    take(spout, 2)
    spout.ack(0)
    spout.fail(1)
    assert take(spout, 3) == [((b"two",), 1, "default")]
    spout.ack(1)
    assert [stream for _, _, stream in take(spout, 1)] == [END]


def test_a_failed_end_is_told_again(spout: LineSpout):
    take(spout, 2)
    spout.ack(0)
    spout.ack(1)
    take(spout, 1)
    spout.fail(END)
    assert [stream for _, _, stream in take(spout, 2)] == [END]
