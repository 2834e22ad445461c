"""The generators that come along, under the names that Apache Heron's examples import."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import Record, SourceContext
from heronpy.connectors.mock.arraylooper import ArrayLooper
from heronpy.connectors.mock.randomint import RandomIntGenerator
from heronpy.connectors.textfiles.textfilesgenerator import TextFileGenerator
from heronpy.errors import TopologyError
from heronpy.streamlet import Builder, Generator
from heronpy.streamlet.graph import SourceNode


def _read(generator: Generator, count: int, task: int = 0, of: int = 1) -> list[Any]:
    builder = Builder()
    builder.new_source(generator)
    node = builder.graph.sources[0]
    assert isinstance(node, SourceNode)
    source = pickle.loads(pickle.dumps(node.source))
    reader = source.open(
        SourceContext(name="s", task_index=task, num_tasks=of, config={}, directory=None, dead_letter=_never)
    )
    records: list[Record] = [record for _ in range(count) for record in reader.read(10)]
    return [record.value for record in records]


def _never(where: str, row: Any, reason: str) -> None:
    raise AssertionError(reason)


def test_an_array_looper_repeats_its_elements() -> None:
    assert _read(ArrayLooper(["a", "b"]), 5) == ["a", "b", "a", "b", "a"]
    assert _read(ArrayLooper((n for n in range(3)), sleep=0.001), 4) == [0, 1, 2, 0]


def test_an_array_looper_needs_something_to_loop() -> None:
    with pytest.raises(TopologyError, match="takes an iterable"):
        ArrayLooper(5)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TopologyError, match="nothing to loop"):
        ArrayLooper([])


def test_random_integers_are_between_their_bounds() -> None:
    assert set(_read(RandomIntGenerator(1, 3), 200)) == {1, 2, 3}
    with pytest.raises(TopologyError, match="no integer"):
        RandomIntGenerator(3, 1)


def test_text_files_are_divided_among_tasks(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
    generator = TextFileGenerator(str(tmp_path / "*.txt"))
    assert _read(generator, 9, 0, 2) == ["0a\n", "0b\n", "2a\n", "2b\n"]
    assert _read(generator, 9, 1, 2) == ["1a\n", "1b\n"]
