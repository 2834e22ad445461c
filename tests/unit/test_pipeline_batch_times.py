"""Batches by the time at which they begin: in what is printed, and on the command line."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pytest
from rich.console import Console

from heronpy.errors import UsageError
from heronpy.pipeline import cli_progress
from heronpy.pipeline.batch_times import batch_name, batch_names
from heronpy.pipeline.cli_job import parse_batch
from heronpy.pipeline.progress import Progress
from heronpy.pipeline.status import next_line

MINUTE_MS = 60_000
AT_MS = int(datetime.datetime(2026, 11, 21, 10, 5, tzinfo=datetime.UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("length_ms", "name"),
    [
        (MINUTE_MS, "2026-11-21 10:05"),
        (5 * MINUTE_MS, "2026-11-21 10:05"),
        (10_000, "2026-11-21 10:05:00"),
        (500, "2026-11-21 10:05:00.000"),
    ],
)
def test_a_batch_is_named_by_its_begin_as_precisely_as_its_length_needs(length_ms: int, name: str) -> None:
    batch = AT_MS // length_ms
    assert batch_name(batch, length_ms) == name
    assert parse_batch(name, length_ms) == parse_batch(str(batch), length_ms) == batch


def test_a_batch_without_a_date_keeps_its_id() -> None:
    assert batch_name(10**15, MINUTE_MS) == str(10**15)


def test_some_batches_are_named_by_the_first_and_the_last() -> None:
    first = AT_MS // MINUTE_MS
    assert batch_names([first], MINUTE_MS) == "batch 2026-11-21 10:05"
    assert batch_names([first, first + 2], MINUTE_MS) == "2 batches (2026-11-21 10:05 to 2026-11-21 10:07)"


@pytest.mark.parametrize("text", ["soon", "", "12:00", "2026-13-01", "9" * 400, "9" * 5000])
def test_what_is_no_batch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no batch: use a time in it"):
        parse_batch(text, MINUTE_MS)


def test_the_next_batch_is_told_with_what_it_waits_for() -> None:
    end_ms = AT_MS + MINUTE_MS
    waits = {"batch": AT_MS // MINUTE_MS, "end_ms": end_ms, "complete_before_ms": end_ms - 13_000, "complete": 0}
    assert next_line(waits, MINUTE_MS) == (
        "next: batch 2026-11-21 10:05, complete when all before 2026-11-21 10:06 is archived; "
        "the archive is at 2026-11-21 10:05:47"
    )
    assert "nowhere yet" in next_line(waits | {"complete_before_ms": -(2**63)}, MINUTE_MS)
    assert "3 batches are complete" in next_line(waits | {"complete": 3}, MINUTE_MS)
    assert "1 batch is complete" in next_line(waits | {"complete": 1}, MINUTE_MS)


def test_progress_in_a_log_is_a_line_of_its_own_each_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()

    def narrow(**_options: Any) -> Console:
        return Console(file=out, width=40)

    monkeypatch.setattr(cli_progress, "Console", narrow)
    batches = tuple(range(AT_MS // MINUTE_MS, AT_MS // MINUTE_MS + 3))
    with cli_progress.shown(MINUTE_MS) as progress:
        for done in range(5):
            progress(Progress("compute", done, 4, batches))
        progress(Progress("roll up", 1, 2))
    assert out.getvalue().splitlines() == [
        "compute 3 batches (2026-11-21 10:05 to 2026-11-21 10:07): 0 of 4 tasks",
        "roll up: 1 of 2 tasks",
    ]


def test_progress_on_a_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()

    def terminal(**_options: Any) -> Console:
        return Console(file=out, width=120, force_terminal=True)

    monkeypatch.setattr(cli_progress, "Console", terminal)
    with cli_progress.shown(MINUTE_MS) as progress:
        for phase in ("duplicates", "compute", "roll up"):
            progress(Progress(phase, 1, 4))
    assert "roll up" in out.getvalue()
    assert out.getvalue().count("\n") == 1, "the end of the only line, which is erased"
