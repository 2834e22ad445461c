"""Sinks that write files: what is in them, when it is visible, what is refused."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import json
import resource
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from heronpy.connectors import CsvSink, JsonLinesSink, ParquetSink, Sink, TextSink
from heronpy.errors import ConfigError, HeronError, UnavailableError
from heronpy.streamlet import KeyedWindow, Window
from heronpy.testing.connectors_kit import SinkKit, open_sink

pq = pytest.importorskip("pyarrow.parquet")


class TestJsonLinesSink(SinkKit):
    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return JsonLinesSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [(KeyedWindow("k", Window(1.0, 2.5)), n) for n in range(10)] + [{"ä": None, "list": [1, "\n"]}]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        return [[["k", [1.0, 2.5]], n] for n in range(10)] + [{"ä": None, "list": [1, "\n"]}]

    @pytest.fixture
    def unfit(self) -> Any:
        return {("a", "tuple"): object()}

    def read_back(self, path: Path) -> Sequence[Any]:
        assert path.suffix == ".jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


class TestTextSink(SinkKit):
    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return TextSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [f"zeile ä {n}" for n in range(10)] + [11, ""]

    @pytest.fixture
    def expected(self, elements: Sequence[Any]) -> Sequence[Any]:
        return [str(element) for element in elements]

    @pytest.fixture
    def unfit(self) -> Any:
        return "two\nlines"

    def read_back(self, path: Path) -> Sequence[Any]:
        return path.read_text().split("\n")[:-1]


class TestCsvSink(SinkKit):
    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return CsvSink(path, ["n", "text"])

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [{"text": 'a "quoted",\ntext', "n": n} for n in range(10)] + [(11, None)]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        return [{"n": str(n), "text": 'a "quoted",\ntext'} for n in range(10)] + [{"n": "11", "text": ""}]

    @pytest.fixture
    def unfit(self) -> Any:
        return {"n": 1, "other": 2}

    def read_back(self, path: Path) -> Sequence[Any]:
        with path.open(newline="") as f:
            return list(csv.DictReader(f))


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\r\nb"])
def test_csv_quotes_line_ends_within_texts(tmp_path: Path, text: str) -> None:
    written = CsvSink(tmp_path, ["text"]).write_part(tmp_path / "part", iter([(text,), ("c",)]))
    assert written.read_bytes().endswith(b"\nc\n")
    with written.open(newline="") as f:
        assert list(csv.DictReader(f)) == [{"text": text}, {"text": "c"}]


class TestParquetSink(SinkKit):
    @pytest.fixture
    def sink(self, path: Path) -> Sink:
        return ParquetSink(path)

    @pytest.fixture
    def elements(self) -> Sequence[Any]:
        return [(KeyedWindow("k", Window(1.0, 2.5)), n) for n in range(10)]

    @pytest.fixture
    def expected(self) -> Sequence[Any]:
        window = {"start": 1.0, "end": 2.5}
        return [{"key": {"key": "k", "window": window}, "value": n} for n in range(10)]

    @pytest.fixture
    def unfit(self) -> Any:
        return ("k", object())

    def read_back(self, path: Path) -> Sequence[Any]:
        rows: Sequence[Any] = pq.read_table(path).to_pylist()
        return rows


def _through_parquet(tmp_path: Path, rows: Sequence[Any]) -> list[Any]:
    written = ParquetSink(tmp_path).write_part(tmp_path / "part", iter(rows))
    back: list[Any] = pq.read_table(written).to_pylist()
    return back


def test_parquet_keeps_values_of_all_kinds(tmp_path: Path) -> None:
    row = {
        "int": -(1 << 63),
        "float": 0.5,
        "bool": True,
        "text": "ä",
        "bytes": b"\xff",
        "none": None,
        "list": [[1], []],
        "struct": {"a": 1, "b": "x"},
        "day": datetime.date(2020, 2, 29),
        "time": datetime.datetime(2020, 2, 29, 1, 2, 3, tzinfo=datetime.UTC),
        "money": Decimal("12.50"),
    }
    assert _through_parquet(tmp_path, [row]) == [row]


def test_parquet_columns_that_come_later_and_grow_are_in_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.connectors._parquet_sink._GROUP_ROWS", 3)
    rows: list[dict[str, Any]] = [{"a": None, "n": n, "s": {"x": n}} for n in range(10)]
    rows += [{"a": ["late"], "n": 0.5, "s": {"y": "new"}}, {"b": True, "n": 1 << 60}]
    back = _through_parquet(tmp_path, rows)
    assert [row["a"] for row in back] == [None] * 10 + [["late"], None]
    assert [row["b"] for row in back] == [None] * 11 + [True]
    assert [row["n"] for row in back] == [*map(float, range(10)), 0.5, float(1 << 60)]
    assert [row["s"] for row in back[9:]] == [{"x": 9, "y": None}, {"x": None, "y": "new"}, None]


@pytest.mark.parametrize("unfit", [{"n": "text"}, {"n": 1 << 63}, {"n": [1]}, {"n": "\ud800"}, {1: 2}, {}])
def test_parquet_refuses_what_its_columns_cannot_hold_and_goes_on(tmp_path: Path, unfit: Any) -> None:
    writer = open_sink(ParquetSink(tmp_path))
    writer.write({"n": 1})
    with pytest.raises(ValueError, match="ParquetSink cannot hold"):
        writer.write(unfit)
    writer.write({"n": 2})
    writer.flush()
    assert pq.read_table(tmp_path / "part-0-0.parquet").to_pylist() == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("rows", "back"),
    [
        ([{"a": {}}, {"a": [{}]}], [None, [None]]),
        ([{"a": {}}, {"a": {"x": 1}}, {"a": {}}], [None, {"x": 1}, None]),
        ([{"a": [{}, {"x": {}}]}], [[None, {"x": None}]]),
        ([{"a": [1 << 60]}, {"a": [0.5, None]}, {"a": None}], [[float(1 << 60)], [0.5, None], None]),
        ([{"a": {"x": [0.5]}}, {"a": {"x": [1 << 60], "y": 1}}], [{"x": [0.5], "y": None}, {"x": [2.0**60], "y": 1}]),
        ([{"a": Decimal("1e30")}, {"a": Decimal("1e-10")}], [Decimal("1e30"), Decimal("1e-10")]),
        ([{"a": Decimal("1" * 50)}, {"a": Decimal("0.1")}], [Decimal("1" * 50), Decimal("0.1")]),
        ([{"a": Decimal("1" * 50)}, {"a": Decimal("1e-30")}], "refused"),
    ],
)
@pytest.mark.parametrize("group_rows", [1, 100])
def test_parquet_writes_what_it_has_taken_or_refuses_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Any], back: Any, group_rows: int
) -> None:
    monkeypatch.setattr("heronpy.connectors._parquet_sink._GROUP_ROWS", group_rows)
    writer = open_sink(ParquetSink(tmp_path))
    for row in rows[:-1]:
        writer.write(row)
    if back == "refused":
        with pytest.raises(ValueError, match="ParquetSink cannot hold"):
            writer.write(rows[-1])
    else:
        writer.write(rows[-1])
    writer.flush()
    if back != "refused":
        assert [row["a"] for row in pq.read_table(tmp_path / "part-0-0.parquet").to_pylist()] == back


@pytest.mark.parametrize("text", ["ascii", "\ud800"])
def test_parquet_checks_text_also_in_columns_of_text(tmp_path: Path, text: str) -> None:
    writer = open_sink(ParquetSink(tmp_path))
    writer.write({"t": "ä"})
    writer.write({"t": "ü"})
    if text == "\ud800":
        with pytest.raises(ValueError, match="ParquetSink cannot hold"):
            writer.write({"t": text})
    else:
        writer.write({"t": text})
    writer.flush()


def test_many_rows_are_written_in_row_groups(tmp_path: Path) -> None:
    written = ParquetSink(tmp_path).write_part(tmp_path / "part", ({"n": n} for n in range(40_000)))
    assert pq.read_metadata(written).num_row_groups == 3
    assert pq.read_table(written)["n"].to_pylist() == list(range(40_000))


def test_json_has_a_place_for_what_python_has(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    elements = [Point(1), {2: "two"}, b"\x00", datetime.date(2020, 1, 2), float("nan"), {3}]
    written = JsonLinesSink(tmp_path).write_part(tmp_path / "part", iter(elements))
    assert [json.loads(line) for line in written.read_text().splitlines()] == [
        {"x": 1},
        {"2": "two"},
        "AA==",
        "2020-01-02",
        None,
        [3],
    ]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to") as error:
        open_sink(TextSink(tmp_path / "file" / "out"))
    assert "\n" not in str(error.value)
    with pytest.raises(HeronError, match="cannot write"):
        TextSink(tmp_path).write_part(tmp_path / "file" / "out", iter(()))


def test_csv_sinks_need_different_fields() -> None:
    for fields in ([], ["a", "a"], "ab"):
        with pytest.raises(ConfigError, match="different names"):
            CsvSink("out", fields)


@contextlib.contextmanager
def _files_end_at(size_bytes: int) -> Iterator[None]:
    """As a full disk: this process cannot write beyond that byte of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", [TextSink, ParquetSink])
def test_after_a_failed_write_nothing_is_taken_or_acked(tmp_path: Path, kind: type[TextSink | ParquetSink]) -> None:
    writer = open_sink(kind(tmp_path))
    with _files_end_at(10):
        writer.write("x" * 100)
        with pytest.raises(UnavailableError, match="cannot write"):
            writer.flush()
    with pytest.raises(UnavailableError, match="cannot write"):
        writer.flush()
    with pytest.raises(UnavailableError, match="cannot write"):
        writer.write("y")
    writer.close()
    again = open_sink(kind(tmp_path))
    again.write("x")
    again.flush()
    assert [file.stem for file in tmp_path.iterdir()] == ["part-0-0"]


@pytest.mark.parametrize(("sink", "unfit"), [(JsonLinesSink, "\ud800"), (TextSink, "a\nb"), (TextSink, "\ud800")])
def test_a_part_of_a_batch_is_written_without_what_the_format_cannot_hold(
    tmp_path: Path, sink: type[JsonLinesSink], unfit: str
) -> None:
    refused: list[object] = []
    elements = iter(["a", unfit, "b"])
    written = sink(tmp_path).write_part(tmp_path / "part", elements, lambda element, _: refused.append(element))
    assert refused == [unfit]
    assert len(written.read_text().splitlines()) == 2
