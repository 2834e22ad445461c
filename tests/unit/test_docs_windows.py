"""The page about windows: its examples run, and the names on it are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from streamlet_kit import config, topology

from heronpy.streamlet import Builder, Streamlet, WindowConfig
from heronpy.testing import Simulator

TEXT = (Path(__file__).parents[2] / "docs/windows.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_first_example_gives_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    names: dict[str, Any] = {}
    exec(EXAMPLES[0], names)
    builder: Builder = names["builder"]
    with Simulator(topology(builder, config(at_least_once=False))) as simulator:
        simulator.run(seconds=20, until=lambda: caplog.text.count("KeyedWindow") == 3)
    assert "(KeyedWindow(key='roof', window=Window(start=0.0, end=60.0)), 21.5)" in caplog.text
    assert "(KeyedWindow(key='cellar', window=Window(start=0.0, end=60.0)), 12.0)" in caplog.text


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(example: str) -> None:
    exec(example, {"__name__": "example"})


def test_each_method_on_the_page_is_one() -> None:
    methods = set(re.findall(r"`((?:create|with|keep)_\w+)\(", TEXT)) | set(re.findall(r"\b(create_\w+)\(", TEXT))
    assert methods
    assert [name for name in methods if not hasattr(WindowConfig, name)] == []
    operations = re.findall(r"`(reduce_by_\w+|count_by_\w+|late)\b", TEXT)
    assert [name for name in operations if not hasattr(Streamlet, name)] == []
