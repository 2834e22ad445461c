"""Comparing live and batch views, and telling what was found."""

from __future__ import annotations

import math
import xml.dom.minidom
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy import cli
from heronpy.errors import UsageError
from heronpy.pipeline import charts as _charts
from heronpy.pipeline.charts import Bar
from heronpy.pipeline.cli_job import first_word, parse_key, parse_time_ms
from heronpy.pipeline.drift import BATCH_ONLY, DIFFERENT, EQUAL, LIVE_ONLY, difference, view_drift
from heronpy.pipeline.drift_report import html, percent, signed
from heronpy.pipeline.memory import LIMIT_BYTES, Memory
from heronpy.pipeline.reconcile import Reconciliation, Row, grouped, plain, shown
from heronpy.stores import encode_key
from heronpy.streamlet import Sum
from heronpy.streamlet.monoid import Monoid


class Users(Monoid):
    def lift(self, value: Any) -> Any:
        return [value]

    def merge(self, a: Any, b: Any) -> Any:
        return sorted({*a, *b})


ROWS = st.lists(
    st.builds(
        Row,
        side=st.integers(0, 1),
        batch=st.integers(0, 3),
        key=st.integers(0, 30).map(encode_key),
        acc=st.integers(-5, 5),
    ),
    unique_by=lambda row: row[:3],
    max_size=60,
)


class Full(Memory):
    """The process uses more than it may, whatever leaves."""

    def is_full(self) -> bool:
        return True


@given(rows=ROWS, full=st.booleans())
def test_grouping_on_disk_finds_what_grouping_in_memory_finds(rows: list[Row], full: bool) -> None:
    expected: dict[bytes, dict[int, list[Any]]] = {}
    for key, side, batch, acc in rows:
        expected.setdefault(key, {}).setdefault(batch, [None, None])[side] = acc
    found = list(grouped(rows, Sum(), Full(LIMIT_BYTES) if full else None))
    assert len(found) == len({key for key, _ in found})  # each key once
    assert dict(found) == expected


@pytest.mark.parametrize(
    ("live", "batch", "state", "drift", "share"),
    [
        (12, 10, DIFFERENT, 2, 20.0),
        (8, 10, DIFFERENT, -2, -20.0),
        (10, 10, EQUAL, 0, 0.0),
        (3, None, LIVE_ONLY, 3, None),
        (None, 3, BATCH_ONLY, -3, -100.0),
        (1, 0, DIFFERENT, 1, None),
        (1, -2, DIFFERENT, 3, 150.0),
        (0.1 + 0.2, 0.3, EQUAL, 0, 0.0),
        (math.nan, math.nan, EQUAL, None, None),
        (math.inf, 1.0, DIFFERENT, None, None),
        ("a", "a", EQUAL, None, None),
        ("a", "b", DIFFERENT, None, None),
        ("a", None, LIVE_ONLY, None, None),
        (True, False, DIFFERENT, None, None),
        (10**400, 10**400 + 1, DIFFERENT, None, None),
    ],
)
def test_one_key(live: Any, batch: Any, state: str, drift: Any, share: Any) -> None:
    found = difference("k", live, batch, Sum())
    assert (found.state, found.drift, found.percent) == (state, drift, pytest.approx(share) if share else share)


@given(rows=ROWS, limit=st.integers(0, 5))
def test_totals_are_those_of_all_rows_and_the_worst_are_the_worst(rows: list[Row], limit: int) -> None:
    groups = list(grouped(rows, Sum()))
    found = view_drift("v", Sum(), groups, range(4), limit=limit)
    live, batch = Counter[bytes](), Counter[bytes]()
    for row in rows:
        (batch if row.side else live)[row.key] += row.acc
    everything = {row.key for row in rows}
    assert found.total.keys == len(everything) == sum(found.buckets.values())
    assert (found.total.drift or 0) == live.total() - batch.total()
    assert sum((t.drift or 0) for t in found.batches.values()) == live.total() - batch.total()
    assert list(found.batches) == [0, 1, 2, 3]
    one_sided = {k for k in everything if len({row.side for row in rows if row.key == k}) == 1}
    drifts = sorted(
        (abs(live[k] - batch[k]) for k in everything if live[k] != batch[k] or k in one_sided), reverse=True
    )
    assert [abs(d.drift or 0) for d in found.worst] == drifts[:limit]


def test_results_that_are_no_numbers_are_equal_or_not() -> None:
    groups = [("a", {0: [["x"], ["x"]], 1: [["y"], ["x"]]}), ("b", {0: [["x"], ["x"]]})]
    found = view_drift("v", Users(), groups, [0, 1], limit=5)
    assert (found.total.equal, found.total.different, found.total.drift) == (1, 1, None)
    assert found.worst[0].live == ["x", "y"]
    assert groups[0][1][0][0] == ["x"]  # merging left the parts as they were
    assert found.other == 1


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href") and value]


def report_of(groups: list[tuple[Any, dict[int, list[Any]]]], batches: range, monoid: Monoid | None = None) -> str:
    view = view_drift("counts", monoid or Sum(), groups, batches, limit=10)
    return html(Reconciliation("Words", 60_000, batches[-1] if batches else None, 1_700_000_000.0, [view]))


def svgs(page: str) -> Iterator[str]:
    for part in page.split("<svg")[1:]:
        yield f"<svg{part.split('</svg>')[0]}</svg>"


def test_the_report_is_one_page_without_scripts_that_tells_the_numbers() -> None:
    groups = [(f"word{n}", {b: [n * b + (n % 7 == 0), n * b] for b in range(1, 300)}) for n in range(40)]
    page = report_of(groups, range(1, 300))
    parser = _Texts()
    parser.feed(page)
    assert "script" not in parser.tags
    assert parser.outside == []
    assert parser.tags.count("svg") == 3
    assert "+1,794" in page  # 6 keys, one too many in each of 299 batches
    for svg in svgs(page):
        xml.dom.minidom.parseString(svg)


def test_text_from_data_is_no_markup() -> None:
    evil = '<script>alert("&")</script>'
    parser = _Texts()
    page = report_of([(evil, {0: [2, 1]}), ((evil, 1), {0: [None, 1]})], range(1))
    parser.feed(page)
    assert "script" not in parser.tags
    assert "&lt;script&gt;" in page
    for svg in svgs(page):
        xml.dom.minidom.parseString(svg)


@pytest.mark.parametrize("batches", [range(0), range(3)])
def test_a_report_of_nothing_says_so(batches: range) -> None:
    assert "Nothing to compare" in report_of([], batches)


def test_a_report_of_sets_counts_keys() -> None:
    page = report_of([("a", {0: [["x"], ["y"]]}), ("b", {0: [["x"], ["x"]]})], range(1), Users())
    assert "1 keys differ" in page


def test_many_columns_become_few_and_nothing_is_left_out() -> None:
    bars = [Bar(str(n), float(n % 3), "") for n in range(1001)]
    thin = _charts.thinned(bars, 100)
    assert len(thin) <= 100
    assert sum(bar.value for bar in thin) == sum(bar.value for bar in bars)


def test_numbers_as_people_read_them() -> None:
    assert [signed(v) for v in (None, 0, 1234, -2.5)] == ["-", "0", "+1,234", "-2.5"]
    assert [percent(v) for v in (None, 0.0, 2.777, -100.0)] == ["-", "0 %", "+2.78 %", "-100 %"]
    assert _charts.number(1e300) == "1e+300"


def test_long_and_strange_texts_stay_in_one_line() -> None:
    assert "\n" not in shown("a\nb\x1b[31m")
    assert "\x1b" not in shown("a\nb\x1b[31m")
    assert len(shown("x" * 1000)) == 80
    assert plain({"a": {2, 1}, "b": (math.nan, b"x"), 3: None}) == {"a": [1, 2], "b": ["nan", "b'x'"], "3": None}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("the", "the"),
        ("7", 7),
        ('"7"', "7"),
        ("null", None),
        ('["searching", ["a", 1.5]]', ("searching", ("a", 1.5))),
        ("[1", "[1"),
        ("NaN", "NaN"),
        ("", ""),
    ],
)
def test_a_key_is_json_or_else_text(text: str, key: Any) -> None:
    assert parse_key(text) == key


def test_times() -> None:
    assert parse_time_ms("--until", "1700000000") == 1_700_000_000_000
    assert parse_time_ms("--until", "1700000000.5") == 1_700_000_000_500
    assert parse_time_ms("--until", "2023-11-14T22:13:20") == 1_700_000_000_000
    assert parse_time_ms("--until", "2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    assert parse_time_ms("--until", "now") > 1_700_000_000_000
    for wrong in ("tomorrow", "", "2023-13-01", "9" * 400):
        with pytest.raises(UsageError, match="--until"):
            parse_time_ms("--until", wrong)


def test_the_job_is_the_first_word_that_is_no_option() -> None:
    assert first_word(["--master", "local[2]", "-v", "job.py", "--until", "x"], {"--master", "--until"}) == "job.py"
    assert first_word(["--master=local[2]", "A"], {"--master"}) == "A"
    assert first_word(["--", "--odd"], set()) == "--odd"
    assert first_word(["--help"], set()) is None


@pytest.mark.parametrize("wrong", ["-5", "-1700000000"])
def test_seconds_before_the_epoch_are_no_time(wrong: str) -> None:
    with pytest.raises(UsageError, match=f"--until '{wrong}' is no time"):
        parse_time_ms("--until", wrong)
    assert parse_time_ms("--until", "1969-12-31T23:59:55") == -5000


def test_batches_are_refused_that_end_before_they_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["pipeline", "backfill", "--from", "20", "--to", "10", "heronpy.examples.words_pipeline"]) == 2
    assert "--to must be later than --from" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["nan", "inf"])
def test_dead_letters_are_kept_for_a_number_of_days(capsys: pytest.CaptureFixture[str], days: str) -> None:
    command = ["pipeline", "vacuum", "--dead-letters-older-than", days, "heronpy.examples.words_pipeline"]
    assert cli.run(command) == 2
    assert "is no number of days" in capsys.readouterr().err


def test_a_directory_of_live_views_that_is_not_there_is_refused_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "live-views").mkdir()
    command = ["pipeline", "status", "--live", str(tmp_path / "live-view"), "heronpy.examples.words_pipeline"]
    assert cli.run(command) == 2
    said = capsys.readouterr().err
    assert f"there is no directory {tmp_path / 'live-view'}; did you mean 'live-views'?" in said
