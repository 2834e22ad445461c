"""A job's batch side from outside: the record, the figures that follow from it, dead letters by reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from heronpy.archive import DeadLetters
from heronpy.errors import StateError
from heronpy.pipeline.look import dead_letters
from heronpy.pipeline.record import (
    RECORD_BYTES_MAX,
    Archived,
    Done,
    Drifted,
    Letters,
    Reconciled,
    Record,
    Run,
    Viewed,
    figures,
    kind_of,
    read_record,
)

MINUTE = 60_000


def record(**fields: object) -> Record:
    archive = {name: fields.pop(name) for name in ("complete_before_ms", "ended", "newest_batch") if name in fields}
    whole = {"job": "words", "at_ms": 0, "batch_length_ms": MINUTE, "max_lateness_ms": 5_000, **fields}
    return Record(archives=(Archived(archive="events", **archive),), **whole)  # type: ignore[arg-type]  # tests' own


def test_batch_views_are_behind_by_the_end_of_the_last_batch_that_is_done() -> None:
    now = figures(record(committed_watermark=9, complete_before_ms=11 * MINUTE, newest_batch=10), 12 * MINUTE + 500)
    assert (now.closed_before_ms, now.lag_ms) == (10 * MINUTE, 2 * MINUTE + 500)
    assert (now.archive_complete_before_ms, now.archive_lag_ms) == (11 * MINUTE, MINUTE)


def test_nothing_is_known_of_a_job_that_has_done_nothing() -> None:
    now = figures(record(), MINUTE)
    assert (now.closed_before_ms, now.lag_ms, now.archive_complete_before_ms, now.next_batch) == (None,) * 4
    assert now.complete == 0


def test_the_next_batch_is_complete_when_the_archive_and_the_clock_are_past_it() -> None:
    job = record(committed_watermark=9, waiting=1, first_waiting=(10,), newest_batch=10, complete_before_ms=10 * MINUTE)
    before = figures(job, 11 * MINUTE + 5_000)
    assert (before.next_batch, before.next_end_ms, before.next_complete_at_ms) == (10, 11 * MINUTE, 11 * MINUTE + 5_000)
    assert before.complete == 0, "the archive is not as far"
    assert figures(job, 11 * MINUTE + 4_999, {"events": 11 * MINUTE}).complete == 0, "late events may come"
    assert figures(job, 11 * MINUTE + 5_000, {"events": 11 * MINUTE}).complete == 1
    assert figures(job, 13 * MINUTE + 5_000, {"events": 13 * MINUTE}).complete == 3, "two more were archived since"


def test_an_archive_whose_input_has_ended_has_no_batches_beyond_its_last() -> None:
    job = record(committed_watermark=0, waiting=2, first_waiting=(3, 7), newest_batch=7, ended=True)
    now = figures(job, 10_000 * MINUTE)
    assert (now.archive_ended, now.next_batch, now.complete) == (True, 3, 2)
    over = figures(record(committed_watermark=7, newest_batch=7, ended=True), 10_000 * MINUTE)
    assert (over.next_batch, over.lag_ms) == (None, 0), "nothing is behind what has ended"
    assert now.lag_ms == 9_999 * MINUTE


def test_an_archive_that_has_ended_holds_nothing_up_by_what_its_writers_said_before() -> None:
    job = record(committed_watermark=0, waiting=2, first_waiting=(3, 7), newest_batch=7, ended=True)
    now = figures(job, 10_000 * MINUTE, {"events": 4 * MINUTE})
    assert (now.archive_complete_before_ms, now.complete) == (None, 2)
    other = Archived(archive="clicks", complete_before_ms=9 * MINUTE, newest_batch=8)
    both = figures(structs.replace(job, archives=(*job.archives, other)), 10_000 * MINUTE, {"events": 4 * MINUTE})
    assert both.archive_complete_before_ms == 9 * MINUTE


def test_a_record_comes_back_as_it_was_written() -> None:
    written = record(committed_watermark=-3, complete_before_ms=-5)
    assert read_record(written.encode()) == written


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"x" * (RECORD_BYTES_MAX + 1),
        record().encode().replace(b'"format":1', b'"format":2'),
        record().encode().replace(b'"batch_length_ms":60000', b'"batch_length_ms":0'),
        record().encode().replace(b'"events"', b'"' + b"e" * 256 + b'"'),
        record().encode().replace(b'"at_ms":0', b'"at_ms":' + b"9" * 30),
    ],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(StateError):
        read_record(value)


def test_a_record_of_many_long_names_is_one_that_can_be_read() -> None:
    long = "\u0001" * 255
    full = Record(
        job="words",
        at_ms=0,
        batch_length_ms=MINUTE,
        first_waiting=tuple(range(50)),
        archives=tuple(Archived(archive=long) for _ in range(50)),
        views=tuple(Viewed(view=long) for _ in range(50)),
        newest=tuple(Done(batch=n, version="v", damaged="\u0001" * 500) for n in range(50)),
        dead_letters=tuple(Letters(origin=long, reason=long, count=n) for n in range(50)),
        run=Run(began_at_s=1.0, error="e" * 500),
        reconciled=Reconciled(at_s=2.0, views=tuple(Drifted(view=long) for _ in range(50))),
    )
    value = full.encode()
    assert len(value) <= RECORD_BYTES_MAX
    found = read_record(value)
    assert (found.run, found.first_waiting) == (full.run, full.first_waiting)
    assert found.reconciled is not None
    for name in ("archives", "views", "newest", "dead_letters"):
        whole, kept = getattr(full, name), getattr(found, name)
        assert kept == whole[: len(kept)]
        assert len(kept) >= 5


def test_a_reason_is_told_without_what_may_be_data() -> None:
    reasons = {
        "ValueError: invalid literal for int() with base 10: 'secret'": "ValueError",
        "its time is '2026': no ms": "its time is",
        "cannot be pickled: x": "cannot be pickled",
        "'secret'": "other",
        "": "other",
        "half \ud800 a character": "half ? a character",
    }
    assert {reason: kind_of(reason) for reason in reasons} == reasons


def test_dead_letters_are_counted_by_stage_and_kind(tmp_path: Path) -> None:
    with DeadLetters(tmp_path, "parse") as parse, DeadLetters(tmp_path, "events") as events:
        for number in range(3):
            parse("parse", {"reason": "KeyError: x"}, f"ValueError: {number} \ud800")
        parse('where "it" is', ["x"], "KeyError: 'id'")
        events("a", None, "")
    found = {(one.origin, one.reason): one.count for one in dead_letters(tmp_path)}
    assert found == {("parse", "ValueError"): 3, ("parse", "KeyError"): 1, ("events", "other"): 1}
