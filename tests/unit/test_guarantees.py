"""What docs/guarantees.md says of sources and sinks is what they say of themselves; the documents' programs build."""

from __future__ import annotations

import re
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


PROOFS = (DOCS / "guarantees-tests.md").read_text()


def first_cells(text: str, heading: str) -> set[str]:
    """The first cells of the tables below a heading."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else text.split("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    return {
        first
        for first in rows
        if not first.startswith(("source", "sink", "bolt", "what ", "operation", "mode", "promise"))
    }


@pytest.mark.parametrize(
    ("heading", "of_proofs"),
    [
        ("", "Modes"),
        ("Sources", "Sources"),
        ("Sinks", "Sinks"),
        ("Windows", "Windows and timers"),
        ("What recovery decides", "What recovery decides"),
        ("Streamlets", "Streamlets"),
        ("Other numbers of tasks", "Other numbers of tasks"),
    ],
)
def test_every_row_names_its_test_or_is_called_unproven(heading: str, of_proofs: str) -> None:
    promised = first_cells(TEXT, heading)
    assert promised
    assert promised - first_cells(PROOFS, of_proofs) == set()


def test_the_tests_that_prove_it_are_there() -> None:
    named = re.findall(r"`((?:unit|chaos|integration|kafka)/[^`]*)`", PROOFS)
    assert len(named) > 50
    for each in named:
        file, _, name = each.partition("::")
        text = (DOCS.parent / "tests" / file).read_text()
        assert not name or re.search(rf"^ *(?:async )?(?:def|class) {name}\b", text, re.MULTILINE), each
