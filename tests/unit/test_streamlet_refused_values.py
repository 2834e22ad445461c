"""Values that a windowed reduction does not take: set aside alone, wherever in the window they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_objects import ERRORS
from streamlet_kit import ListSink, ListSource, config, outcome

from heronpy.archive import dead_letter_counts
from heronpy.streamlet import Builder, WindowConfig
from heronpy.streamlet.parts import StageBolt

SLIDING = WindowConfig(3, 1)
ELEMENTS = [("k", 1), ("k", "odd"), ("k", 2)]
TIMES_MS = [10_000, 11_000, 12_000]


@pytest.fixture(autouse=True)
def swift_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageBolt, "commit_every_ms", 10)
    monkeypatch.setattr("heronpy.streamlet._task.WATERMARK_EVERY_MS", 10)


@pytest.mark.parametrize("acked", [True, False])
@pytest.mark.parametrize(
    "reduced",
    [
        lambda s: s.reduce_by_key_and_window(SLIDING, _plus).map(lambda pair: (pair[0].window.start, pair[1])),
        lambda s: (
            s.map(lambda pair: pair[1]).reduce_by_window(SLIDING, _plus).map(lambda pair: (pair[0].start, pair[1]))
        ),
    ],
    ids=["keyed", "not keyed"],
)
def test_a_value_that_does_not_fit_with_others_of_its_sliding_window_is_set_aside_alone(
    tmp_path: Path, reduced: Callable[[Any], Any], acked: bool
) -> None:
    def program(builder: Builder) -> int:
        reduced(builder.new_source(ListSource("in", ELEMENTS, TIMES_MS))).set_name("shown").to_sink(ListSink())
        return len(ELEMENTS)

    made = config(at_least_once=acked)
    made.set_pipeline(tmp_path)
    assert outcome(program, made, 5, within_s=30) == [(10.0, 3), (11.0, "odd"), (12.0, 2), (8.0, 1), (9.0, 1)]
    assert sum(dead_letter_counts(tmp_path).values()) == 3


@pytest.mark.parametrize("acked", [True, False])
def test_a_value_that_would_join_two_sessions_which_do_not_fit_is_set_aside_and_in_neither(
    tmp_path: Path, acked: bool
) -> None:
    elements = [("k", "a"), ("k", 1), ("k", "b"), ("k", "end")]

    def program(builder: Builder) -> int:
        source = builder.new_source(ListSource("in", elements, [10_000, 13_000, 11_500, 60_000]))
        sessions = source.reduce_by_key_and_window(WindowConfig.create_session_window(2), _plus)
        sessions.map(lambda pair: pair[1]).to_sink(ListSink())
        return len(elements)

    made = config(at_least_once=acked)
    made.set_pipeline(tmp_path)
    assert outcome(program, made, 3, within_s=30) == ["a", "end", 1]
    assert sum(dead_letter_counts(tmp_path).values()) == 1


class Broken:
    """A key that raises where the task is computed that it goes to, and where it is looked up."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __stable_key__(self) -> int:
        if self.number == 3:
            raise StopIteration("no such key")
        return self.number

    def __hash__(self) -> int:
        if self.number == 5:
            raise LookupError("no such key")
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Broken) and self.number == other.number


@pytest.mark.parametrize("acked", [True, False])
@pytest.mark.parametrize(
    "reduced",
    [
        lambda s: s.reduce_by_key(_plus),
        lambda s: s.reduce_by_key_and_window(WindowConfig(1, 1), _plus),
    ],
    ids=["reduced", "windows"],
)
def test_a_key_that_raises_is_set_aside_alone(tmp_path: Path, reduced: Callable[[Any], Any], acked: bool) -> None:
    def program(builder: Builder) -> int:
        pairs = builder.new_source(ListSource("in", range(8), [10_000] * 8)).map(lambda n: (Broken(n), n))
        reduced(pairs).set_num_partitions(2).map(lambda pair: pair[1]).to_sink(ListSink())
        return 8

    made = config(at_least_once=acked)
    made.set_pipeline(tmp_path)
    assert outcome(program, made, 6, within_s=30) == [0, 1, 2, 4, 6, 7]
    assert sum(dead_letter_counts(tmp_path).values()) == 2


def _plus(a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("acked", [True, False])
def test_an_element_is_set_aside_if_its_exception_cannot_be_shown(
    tmp_path: Path, error: type[Exception], acked: bool
) -> None:
    def fails_at_3(number: int) -> int:
        if number == 3:
            raise error
        return number

    def program(builder: Builder) -> int:
        builder.new_source(ListSource("in", range(5))).map(fails_at_3).to_sink(ListSink())
        return 5

    made = config(at_least_once=acked)
    made.set_pipeline(tmp_path)
    assert outcome(program, made, 4, within_s=30) == [0, 1, 2, 4]
    (letter,) = (line for path in (tmp_path / "dead-letter").rglob("*.jsonl") for line in path.read_text().splitlines())
    assert error.__name__ in letter
    assert len(letter) < 5000
