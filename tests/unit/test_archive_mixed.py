"""Values of several types in one field: all are archived, and come back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_archive_codec import same, values_of

from heronpy.archive import Archive, ArchiveWriter
from heronpy.archive.decode import decode
from heronpy.archive.element_types import SchemaMismatch
from heronpy.archive.encode import encode_mixed
from heronpy.archive.merging import merge_files, plan_merges, publish
from heronpy.archive.mixed import widen

BIG = 10**30
odd = st.one_of(st.integers(2**63, 2**80), st.just("\ud800"))


def no_letter(where: str, row: Any, reason: str) -> None:
    raise AssertionError(f"{where}: {reason}")


def write(directory: Path, values: list[Any], first: int = 0, letters: Any = no_letter) -> None:
    writer = ArchiveWriter(directory, task="t-0", batch_length_ms=1000, codec="columns", dead_letter=letters)
    for index, value in enumerate(values, first):
        writer.add(f"{index:06}", 0, value)
    writer.commit()
    writer.close()


def read(directory: Path) -> list[Any]:
    archive = Archive(directory)
    files = [file for batch in archive.batches().values() for file in batch]
    rows = {}
    for split in archive.splits(files, 1 << 20):
        for chunk in split.read(no_letter):
            assert chunk.ids is not None
            rows |= dict(zip(map(str, chunk.ids), chunk.values, strict=True))
    return [rows[name] for name in sorted(rows)]


def widened(values: list[Any], known: Any = "null") -> Any:
    for value in values:
        known = widen(known, value)
    return known


@given(st.lists(st.one_of(values_of(2), odd, st.lists(st.one_of(values_of(1), odd), max_size=3)), max_size=6))
@settings(max_examples=300, deadline=None)
def test_whatever_is_in_them_values_come_back_as_they_were(values: list[Any]) -> None:
    type_ = widened(values)
    found = decode(encode_mixed(values, type_), type_)
    assert len(found) == len(values)
    assert all(map(same, found, values)), (found, values)


@pytest.mark.parametrize(
    "values",
    [
        [{"n": "12"}, *({"n": n} for n in range(999))],
        [{"n": 1}, {"n": [1]}, {"n": {"a": 1}}, {"n": b"\x00"}, {"n": True}, {"n": None}, {}],
        [1, "one", 1.5, [1, "a"], {"a": {"b": "x"}}, None],
        [{"a": {"b": 1}}, {"a": 2}, {"a": {"b": "x", "c": [{"d": 1}, {"d": "2"}, 3]}}],
        [{"n": 1}, {"n": BIG}, {"n": -BIG}, {"n": 2**53 + 1}, {"n": 0.5}],
        [{"t": "a"}, {"t": "\ud800"}, {"t": "ä"}],
        [{"a/b": 1}, {"a/b": "x"}, {"~": 1, "": 2}, {"~": "y", "": "z"}],
    ],
    ids=["a text before 999 numbers", "all types", "elements", "nested", "large numbers", "no UTF-8", "odd names"],
)
@pytest.mark.parametrize("commits", [1, 3])
def test_an_archive_takes_values_of_several_types(tmp_path: Path, values: list[Any], commits: int) -> None:
    step = -(-len(values) // commits)
    for first in range(0, len(values), step):
        write(tmp_path, values[first : first + step], first)
    assert all(map(same, read(tmp_path), values))
    archive = Archive(tmp_path)
    (files,) = archive.batches().values()
    if len(files) > 1:
        (plan,) = plan_merges(tmp_path, 0, files, min_files=2, target_bytes=1 << 30)
        merged = merge_files(plan)
        assert not merged.skipped
        publish(merged)
        assert all(map(same, read(tmp_path), values)), "after a compaction"


def test_a_field_keeps_the_type_that_it_had_first_whoever_writes(tmp_path: Path) -> None:
    one, other = (
        ArchiveWriter(tmp_path, task=f"t-{n}", batch_length_ms=1000, codec="columns", dead_letter=no_letter)
        for n in range(2)
    )
    one.add("1", 0, {"n": 1})
    other.add("2", 0, {"n": "two", "m": 2})
    one.commit()
    other.commit()
    one.add("3", 0, {"n": "three", "m": "three"})
    one.commit()
    assert read(tmp_path) == [{"n": 1}, {"n": "two", "m": 2}, {"n": "three", "m": "three"}]
    assert Archive(tmp_path).schema.element == {"dict": {"m": "int", "n": "int"}}


@pytest.mark.parametrize("value", [{"a": (1, 2)}, {"a": {1: 2}}, {"\ud800": 1}, {"a": {"b": object}}])
def test_what_no_codec_of_columns_can_hold_is_refused_and_the_rest_is_kept(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SchemaMismatch):
        widen("null", value)
    letters: list[str] = []
    values = [{"a": 1}, {"a": "x"}, value, {"a": 2}]
    write(tmp_path, values, letters=lambda where, row, reason: letters.append(reason))
    assert read(tmp_path) == [{"a": 1}, {"a": "x"}, {"a": 2}]
    assert len(letters) == 1
