"""Which batch has all of a key of a window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.connectors import ListSource
from heronpy.pipeline import Job
from heronpy.pipeline.window_keys import batch_of
from heronpy.streamlet import Builder, Config, KeyedWindow, Streamlet, Sum, Window, WindowConfig
from heronpy.streamlet.runner import Program

LENGTH_MS = 10_000


def batch_of_key(tmp_path: Path, program: Callable[[Streamlet], Streamlet], key: object) -> int | None:
    builder, config = Builder(), Config()
    words = builder.new_source(ListSource(["w"], times=[0], ids=["0"])).archive(name="words")
    program(words).to_store("view", Sum())
    config.set_pipeline(tmp_path, batch_length=LENGTH_MS // 1000)
    found = batch_of(Job.of(Program("job", config, builder.graph)).stores()["view"], LENGTH_MS)
    return None if found is None else found(key)


def by_key(words: Streamlet) -> Streamlet:
    return words.map(lambda word: (word, 1)).reduce_by_key_and_window(WindowConfig(15, 5), lambda a, b: a + b)


def test_a_window_lies_in_the_batch_in_which_it_ends(tmp_path: Path) -> None:
    assert batch_of_key(tmp_path, by_key, KeyedWindow("w", Window(5.0, 20.0))) == 1
    assert batch_of_key(tmp_path, by_key, ("w", (10, 25))) == 2
    assert batch_of_key(tmp_path, lambda words: by_key(words).filter(lambda _: True), ("w", (-10, 5))) == 0


def by_window(words: Streamlet) -> Streamlet:
    return words.map(lambda _: 1).reduce_by_window(WindowConfig(10, 10), lambda a, b: a + b)


def test_a_window_without_a_key_does_too(tmp_path: Path) -> None:
    assert batch_of_key(tmp_path, by_window, (20.0, 30.0)) == 2


@pytest.mark.parametrize("key", ["w", 7, ("w", 3), ("w", ("a", "b")), (float("nan"), float("nan")), ("w", (0, 1e400))])
def test_a_key_of_another_form_may_be_in_any(tmp_path: Path, key: object) -> None:
    assert batch_of_key(tmp_path, by_key, key) is None
    assert batch_of_key(tmp_path, by_window, key) is None


@pytest.mark.parametrize(
    "program",
    [
        lambda words: by_key(words).map(lambda pair: pair),
        lambda words: by_key(words).event_time(lambda pair: 0.0),
        lambda words: by_key(words).union(words.map(lambda word: (word, 1))),
        lambda words: words.map(lambda word: (word, 1)).reduce_by_key(lambda a, b: a + b),
    ],
    ids=["mapped", "with other times", "beside others", "not of windows"],
)
def test_where_functions_may_have_made_the_key_or_its_time_it_may_be_in_any(
    tmp_path: Path, program: Callable[[Streamlet], Streamlet]
) -> None:
    assert batch_of_key(tmp_path, program, ("w", (0.0, 15.0))) is None
