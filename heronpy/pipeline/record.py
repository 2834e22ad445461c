"""What a job's batch side looks like from outside: a small record, and the figures that follow from it. Pure.

What changes the batch side (`heron pipeline run`, `backfill`, `bootstrap`, `reconcile`) writes a record into the
state manager of the topology; the Tracker reads that, and no file of the job. So it works where the archive is on
another host or in a storage that needs credentials, a slow disk holds up nothing, and no path that a user has named is
opened by the Tracker's user. What goes on between two runs, the archive, the topology reports as a metric.

`figures` is the one computation: `heron pipeline status`, the Tracker, its page and Prometheus show what it says. Times
are ms since the epoch if their name does not say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from heronpy.errors import StateError

FORMAT = 1
RECORD_BYTES_MAX = 128 * 1024
NEWEST = 50
"""So many batches are in a record one by one."""
NAMES_MAX = 50
"""So many archives, views and reasons are."""
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Time = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Batch = Annotated[int, Meta(ge=-(2**53), le=2**53)]
_Seconds = Annotated[float, Meta(ge=0, le=2**53)]
_Length = Annotated[int, Meta(ge=1, le=2**53)]
_Name = Annotated[str, Meta(max_length=255)]
_Text = Annotated[str, Meta(max_length=500)]
TEXT_MAX = 500


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """One archive."""

    archive: _Name
    complete_before_ms: _Time | None = None
    """Every element before this time is in it; None: nothing is reported yet."""
    ended: bool = False
    """No more elements will come."""
    newest_batch: _Batch | None = None
    batches: _Count = 0
    files: _Count = 0
    bytes: _Count = 0
    waiting_batches: _Count = 0
    """Those of them that are not done."""
    waiting_bytes: _Count = 0


class Viewed(msgspec.Struct, frozen=True, kw_only=True):
    """One view."""

    view: _Name
    batch_rows: _Count = 0
    """In all batches together."""
    newest_live_batch: _Batch | None = None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """One batch that is done."""

    batch: _Batch
    version: _Name
    elements: _Count = 0
    duplicates: _Count = 0
    dead_letters: _Count = 0
    rows: _Count = 0
    """Of all views."""
    damaged: _Text = ""
    """What of its input was left out, because it is damaged."""
    finished_at_s: _Seconds = 0.0
    took_s: _Seconds = 0.0
    """The Spark job that computed it, maybe with others."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The last batch run."""

    began_at_s: _Seconds
    seconds: _Seconds = 0.0
    batches: _Count = 0
    error: _Text = ""
    """Why it failed; empty: it did not."""


class Drifted(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciliation found in one view."""

    view: _Name
    batches: _Count = 0
    keys: _Count = 0
    drifted: _Count = 0
    """Keys that live and batch view do not agree on."""
    percent: float | None = None
    """What the live views have more (or less), in percent of the batch views, where results are numbers."""


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The last reconciliation."""

    at_s: _Seconds
    views: Annotated[tuple[Drifted, ...], Meta(max_length=NAMES_MAX)] = ()


class Letters(msgspec.Struct, frozen=True, kw_only=True):
    """Elements and rows that one side has set aside for one reason."""

    origin: _Name
    """A stage."""
    reason: _Name
    """Its kind, such as the exception's class: what it says may contain data."""
    side: _Name = ""
    """`live` or `batch`: what neither can compute both have. Empty: an earlier heronpy has added them up."""
    count: _Count


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A job's batch side at a time."""

    format: int = FORMAT
    topology_id: _Name = ""
    """Of the topology that it was written for."""
    job: _Name
    at_ms: _Time
    batch_length_ms: _Length
    max_lateness_ms: _Count = 0
    committed_watermark: _Batch | None = None
    """All batches up to and with this one are done."""
    waiting: _Count = 0
    """Archived batches that are not done."""
    first_waiting: Annotated[tuple[_Batch, ...], Meta(max_length=NEWEST)] = ()
    """The first of them, ascending."""
    done: _Count = 0
    elements: _Count = 0
    duplicates: _Count = 0
    damaged_batches: _Count = 0
    """Batches that were computed without what is damaged of their input."""
    archives: Annotated[tuple[Archived, ...], Meta(max_length=NAMES_MAX)] = ()
    views: Annotated[tuple[Viewed, ...], Meta(max_length=NAMES_MAX)] = ()
    newest: Annotated[tuple[Done, ...], Meta(max_length=NEWEST)] = ()
    """The last batches, the newest first."""
    dead_letters: Annotated[tuple[Letters, ...], Meta(max_length=NAMES_MAX)] = ()
    run: Run | None = None
    reconciled: Reconciled | None = None

    def encode(self) -> bytes:
        """The record as a node of the state manager; without the ends of its longest lists, if it is too large."""
        record = self
        while len(value := msgspec.json.encode(record)) > RECORD_BYTES_MAX:
            record = _halved(record)
        return value


_LISTS = ("newest", "dead_letters", "views", "archives", "first_waiting")


def _halved(record: Record) -> Record:
    """With half of the list that takes most space."""
    lists: dict[str, tuple[Any, ...]] = {name: getattr(record, name) for name in _LISTS}
    if record.reconciled is not None:
        lists["reconciled"] = record.reconciled.views
    longest = max(lists, key=lambda name: len(msgspec.json.encode(lists[name])))
    kept = lists[longest][: len(lists[longest]) // 2]
    if longest != "reconciled" or record.reconciled is None:
        return msgspec.structs.replace(record, **{longest: kept})
    return msgspec.structs.replace(record, reconciled=msgspec.structs.replace(record.reconciled, views=kept))


def read_record(value: bytes) -> Record:
    """The record in a node, which anybody may have written.

    Raises:
        StateError: it is none, or of another version of heronpy; one line.
    """
    if len(value) > RECORD_BYTES_MAX:
        raise StateError(f"it has {len(value):,} bytes, and {RECORD_BYTES_MAX:,} are the most that is read")
    try:
        record = msgspec.json.decode(value, type=Record)
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise StateError(f"it is damaged: {str(e)[:200]}") from e
    if record.format != FORMAT:
        raise StateError(f"it has format {record.format}, this heronpy reads {FORMAT}")
    return record


@dataclass(frozen=True, slots=True)
class Figures:
    """What follows from a record at some time. None: not known, or there is none."""

    closed_before_ms: int | None
    """All batches that end by then are done."""
    lag_ms: int | None
    """How far batch views are behind now, which live views are at; 0 when all of an input that has ended is done."""
    archive_complete_before_ms: int | None
    """All elements before this time are in all archives."""
    archive_ended: bool
    archive_lag_ms: int | None
    """How far batch views are behind the archives."""
    next_batch: int | None
    """The first one that is archived and not done."""
    next_end_ms: int | None
    next_complete_at_ms: int | None
    """When nothing earlier than its end is to be expected any more."""
    complete: int
    """Batches that are complete and not done: the next run computes them."""


def figures(record: Record, now_ms: int, live: Mapping[str, int] | None = None) -> Figures:
    """What a record means now.

    Args:
        record: The last one.
        now_ms: Now.
        live: By archive: the time before which it is complete by now, as the topology reports it.
    """
    length_ms = record.batch_length_ms
    closed = record.committed_watermark
    closed_before_ms = None if closed is None else (closed + 1) * length_ms
    ended = bool(record.archives) and all(one.ended for one in record.archives)
    over = ended and not record.waiting
    complete_ms = _complete_before_ms(record, live or {})
    reached_ms = now_ms if complete_ms is None and ended else complete_ms
    # No event time is trusted to be ahead of the clock: a batch is complete when it can be over.
    limit_ms = None if reached_ms is None else min(reached_ms, now_ms - record.max_lateness_ms)
    following = record.first_waiting[0] if record.first_waiting else None
    if following is None and closed is not None and not ended and record.archives:
        following = closed + 1  # nothing of it was archived when the record was written
    end_ms = None if following is None else (following + 1) * length_ms
    return Figures(
        closed_before_ms=closed_before_ms,
        lag_ms=None if closed_before_ms is None else 0 if over else max(0, now_ms - closed_before_ms),
        archive_complete_before_ms=complete_ms,
        archive_ended=ended,
        archive_lag_ms=_behind(record, complete_ms, closed_before_ms),
        next_batch=following,
        next_end_ms=end_ms,
        next_complete_at_ms=None if end_ms is None else end_ms + record.max_lateness_ms,
        complete=0 if limit_ms is None else _complete(record, limit_ms // length_ms, ended=ended),
    )


def _complete(record: Record, before: int, *, ended: bool) -> int:
    """How many batches before this one are archived and not done, as far as is known."""
    found = sum(batch < before for batch in record.first_waiting)
    if found < len(record.first_waiting):
        return found
    last = record.first_waiting[-1] if record.first_waiting else record.committed_watermark
    if last is None:
        return 0
    newest = max([last, *(one.newest_batch for one in record.archives if one.newest_batch is not None)])
    found += min(record.waiting - len(record.first_waiting), max(0, min(before, newest + 1) - last - 1))
    # What has come since the record was written: every batch has something, where elements flow.
    return found if ended else found + max(0, before - newest - 1)


def _complete_before_ms(record: Record, live: Mapping[str, int]) -> int | None:
    """The least over the archives that have not ended; None if one of them has said nothing, or all have ended."""
    known = []
    for one in record.archives:
        if one.ended:
            continue  # what its writers have said last, before the end, holds nothing up
        said = [ms for ms in (one.complete_before_ms, live.get(one.archive)) if ms is not None]
        if not said:
            return None
        known.append(max(said))
    return min(known, default=None)


def _behind(record: Record, complete_ms: int | None, closed_before_ms: int | None) -> int | None:
    if closed_before_ms is None:
        return None
    newest = max((one.newest_batch for one in record.archives if one.newest_batch is not None), default=None)
    newest_end_ms = None if newest is None else (newest + 1) * record.batch_length_ms
    ends = [ms for ms in (complete_ms, newest_end_ms) if ms is not None]
    return max(0, max(ends) - closed_before_ms) if ends else None


_KIND = re.compile(r"[^:'\"\d\[{(=]*")


def kind_of(reason: str) -> str:
    """A reason without what may be data: up to the first colon, quote, bracket or digit."""
    found = _KIND.match(reason)
    return plain_text(" ".join(found[0].split())[:80].rstrip(" ,") if found else "") or "other"


def plain_text(text: str, chars: int = 255) -> str:
    """A text that a record can hold: bounded, and without halves of characters."""
    return text[:chars].encode(errors="replace").decode()
