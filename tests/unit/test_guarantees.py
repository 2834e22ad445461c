"""What docs/guarantees.md says of sources and sinks is what they say of themselves; the documents' programs build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import heronpy.connectors
from heronpy.connectors import Sink, Source

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "guarantees.md").read_text()
CONNECTORS = [getattr(heronpy.connectors, name) for name in heronpy.connectors.__all__]


def of(base: type) -> list[Any]:
    return [each for each in CONNECTORS if isinstance(each, type) and issubclass(each, base) and each is not base]


def row_of(name: str) -> str:
    """The row of a table that begins with it, or has it in its first column."""
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and f"`{name}`" in line.split("|")[1]]
    assert len(rows) == 1, f"{name} is in {len(rows)} rows"
    return rows[0]


@pytest.mark.parametrize("sink", of(Sink), ids=lambda sink: sink.__name__)
def test_the_table_says_which_sinks_write_exactly_once(sink: type[Sink]) -> None:
    assert ("exactly once" in row_of(sink.__name__)) == sink.exactly_once


@pytest.mark.parametrize("source", of(Source), ids=lambda source: source.__name__)
def test_the_table_says_which_sources_have_positions(source: type[Source]) -> None:
    assert ("refused" not in row_of(source.__name__)) == source.rewindable


@pytest.mark.parametrize("document", ["guarantees", "kafka"])
def test_its_program_builds(document: str) -> None:
    program = (DOCS / f"{document}.md").read_text().split("```python")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(program, names)
    proto = names["builder"].build().protobuf_topology
    assert [spout.comp.name for spout in proto.spouts] == ["lines"]
    assert [bolt.comp.name for bolt in proto.bolts] == ["copies"]
