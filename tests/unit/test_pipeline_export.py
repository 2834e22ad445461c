"""A view as one file that other programs read."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from heronpy.errors import ConfigError, HeronError, UsageError
from heronpy.pipeline.export import check_path, export
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.window import Window

ITEMS = [("the", 3), ("größe", -1), ('a,b\n"c"', 2**40)]


def parquet(path: Path, items: list[tuple[Any, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    assert export(items, path) == len(items)
    table = pq.read_table(path)
    return [str(field.type) for field in table.schema], table.to_pylist()


def test_parquet_has_the_rows_with_their_types(tmp_path: Path) -> None:
    types, rows = parquet(tmp_path / "counts.parquet", ITEMS)
    assert types == ["string", "int64"]
    assert [(row["key"], row["value"]) for row in rows] == ITEMS


def test_csv_and_json_lines_have_the_same(tmp_path: Path) -> None:
    assert export(ITEMS, tmp_path / "counts.csv") == 3
    with (tmp_path / "counts.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["key", "value"], *([key, str(value)] for key, value in ITEMS)]
    assert export(ITEMS, tmp_path / "counts.jsonl") == 3
    rows = [json.loads(line) for line in (tmp_path / "counts.jsonl").read_text().splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == ITEMS


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", "", " a "])
def test_csv_keeps_line_ends_within_texts(tmp_path: Path, text: str) -> None:
    export([(text, text)], tmp_path / "v.csv")
    assert (tmp_path / "v.csv").read_bytes().endswith(b"\n")
    with (tmp_path / "v.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["key", "value"], [text, text]]


class _Text(str):
    def __str__(self) -> str:
        return "another"


def test_kinds_of_plain_types_are_these_types(tmp_path: Path) -> None:
    assert parquet(tmp_path / "v.parquet", [(_Text("a"), np.float64(1.5))]) == (
        ["string", "double"],
        [{"key": "a", "value": 1.5}],
    )


def test_a_temporary_directory_that_is_full_is_named_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: str) -> IO[bytes]:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    for items in (ITEMS, [("a", "x" * 1_000_000)]):
        with pytest.raises(HeronError, match=f"cannot be collected in {tempfile.gettempdir()}: No space left"):
            export(items, tmp_path / "v.csv")
    assert list(tmp_path.iterdir()) == []


def test_windows_are_columns(tmp_path: Path) -> None:
    _, rows = parquet(tmp_path / "w.parquet", [(KeyedWindow("a", Window(0.0, 60.0)), 1.5)])
    assert rows == [{"key": "a", "window_start": 0.0, "window_end": 60.0, "value": 1.5}]
    _, rows = parquet(tmp_path / "w.parquet", [(Window(0.0, 60.0), True)])
    assert rows == [{"window_start": 0.0, "window_end": 60.0, "value": True}]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "double"),
        ([2**53 + 1, 2.5], "string"),
        ([2**63, 1], "string"),
        ([True, 1], "string"),
        ([1, "1"], "string"),
        ([{"a": 1}, [2]], "string"),
        (["\ud800", "a"], "string"),
        ([float("nan"), 1.0], "double"),
    ],
)
def test_what_no_type_holds_exactly_is_json_as_a_whole(tmp_path: Path, values: list[Any], kind: str) -> None:
    types, rows = parquet(tmp_path / "v.parquet", list(enumerate(values)))
    assert types == ["int64", kind]
    found = [row["value"] for row in rows]
    if kind == "string":
        found = [json.loads(text) for text in found]
    assert repr(found) == repr(values if kind == "string" else [float(value) for value in values])


def test_no_rows_are_a_table_all_the_same(tmp_path: Path) -> None:
    assert parquet(tmp_path / "none.parquet", []) == (["string", "string"], [])
    assert export([], tmp_path / "none.csv") == 0
    assert (tmp_path / "none.csv").read_text() == "key,value\n"


def test_a_view_that_fails_in_the_middle_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("before")

    def broken() -> Iterator[tuple[str, int]]:
        yield "a", 1
        raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="the store is gone"):
        export(broken(), path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["counts.csv"]


KILLED = """
import os, signal, sys
from pathlib import Path
from heronpy.pipeline import export
export._WRITERS[".csv"] = lambda table, file: os.kill(os.getpid(), signal.SIGKILL)
export.export([("a", 1)], Path(sys.argv[1]))
"""


def test_what_a_killed_export_has_left_goes_with_a_later_one(tmp_path: Path) -> None:
    out = tmp_path / "view[1].csv"
    assert subprocess.run([sys.executable, "-c", KILLED, str(out)]).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    export([("a", 1)], out)
    assert {*tmp_path.iterdir()} == {left, out}, "it may be of one that still writes"
    os.utime(left, (0, 0))
    others = tmp_path / f".other{left.name}"
    others.touch()
    os.utime(others, (0, 0))
    export([("a", 1)], out)
    assert {*tmp_path.iterdir()} == {others, out}


def test_a_file_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its suffix says the format: \.parquet, \.csv, \.jsonl"):
        check_path(tmp_path / "counts.xlsx")
    with pytest.raises(UsageError, match="there is no directory"):
        check_path(tmp_path / "none" / "counts.csv")


def test_parquet_without_pyarrow_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_path(tmp_path / "counts.csv")
    with pytest.raises(ConfigError, match="needs pyarrow: pip install"):
        check_path(tmp_path / "counts.parquet")
